"""Processes that need the same datasets, die and stop (soak/storm.py); power that goes on real file
systems (soak/power_loss.py)."""

from __future__ import annotations

import os
import shutil

import pytest
from support import run_soak

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc for what is preloaded")


def test_c18_a_storm_of_kills_and_stalls_builds_each_dataset_once():
    """C18: race at first use. C21: a lock whose holder was killed."""
    out = run_soak(
        "storm", "--processes", 4, "--keys", 4, "--events", 12, "--pause-s", 0.2, "--every-s", 0.3,
        "--takeover-ttl-s", 1, "--limit-s", 30,
    )  # fmt: skip
    assert "\n0 problems" in out and "holder that is killed" in out


@needs_gcc
def test_the_clocks_of_hosts_are_not_compared():
    out = run_soak(
        "storm", "--processes", 4, "--keys", 4, "--events", 6, "--pause-s", 0.1, "--clocks",
        "--takeover-ttl-s", 0,
    )  # fmt: skip
    assert "\n0 problems" in out and "clocks 2 h apart" in out


@needs_gcc
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_a_file_system_that_loses_power_keeps_what_was_published(kind, tmp_path):
    out = run_soak("power_loss", "--every", 9, "--file-systems", kind, "--directory", tmp_path)
    if "skipped" in out:
        pytest.skip(out.strip())
    assert " 0 bad" in out
