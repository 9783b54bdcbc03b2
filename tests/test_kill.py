"""Builders killed at any moment leave nothing that somebody must clean up (soak/kill.py)."""

from __future__ import annotations

import shutil

import pytest
from support import run_soak


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for the recorder")
def test_c14_a_killed_build_is_built_anew_at_once(tmp_path):
    """C14: killed during the build, at 12 random moments, and after each call that changes a
    file."""
    # A busy machine may be late; a lease that is waited for would take 90 s.
    out = run_soak("kill", "--rounds", 12, "--limit-s", 30, "--directory", tmp_path)
    assert " 0 problems" in out
