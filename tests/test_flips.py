"""Damaged bits and cut files of a whole cache: an error or the right records (soak/flips.py)."""

from __future__ import annotations

from support import run_soak


def test_c27_no_flipped_bit_and_no_cut_is_silent():
    """C27: flipped byte, truncated file. Every seventh bit and length, drawn."""
    assert run_soak("flips", "--every", 7).count(" 0 problems") == 2
