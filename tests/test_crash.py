"""What a power loss may leave: the states of a modelled disk (soak/crash.py), read."""

from __future__ import annotations

import shutil

import pytest
from support import run_soak


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for the recorder")
def test_no_power_loss_leaves_what_differs_or_loses_what_was_published():
    out = run_soak("crash", "--states", 2000, "--kills", 12)
    assert " 0 bad" in out and "not noticed" not in out
