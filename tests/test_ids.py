"""Ids and versions become directories."""

from __future__ import annotations

import os

import pytest
from support import numbers

from ydl.ids import dataset_directory

REFUSED = ["../x", "/abs", "..", ".", "x" * 300, "a\0b", 5, None, b"a", "", "a//b", "a/", "a/../b",
           ".hidden", "a/.b", "x.ydl", "x.ydl/y", "\ud800"]  # fmt: skip
ACCEPTED = ["a/b", "a b", "é✓", "e\u0301✓", "a#b?c%41", "x" * 200, "a.b", "a\nb", "%2F"]


@pytest.mark.parametrize("dataset_id", REFUSED, ids=repr)
def test_c23_refused_ids_are_named_and_leave_nothing(storage, tmp_path, dataset_id):
    """C23: untrusted text used as a path."""
    before = sorted(os.walk(tmp_path))
    for attempt in (
        lambda: storage.cacheable(dataset_id, "1")(lambda: numbers(3))(),
        lambda: storage.submit(numbers(3), dataset_id, "1"),
        lambda: storage.fetch(dataset_id, "1"),
    ):
        with pytest.raises(ValueError) as caught:
            attempt()
        assert repr(dataset_id) in str(caught.value)
    assert sorted(os.walk(tmp_path)) == before


@pytest.mark.parametrize("version", ["..", ".", "", "\0", ".x", "x.ydl", 5, "y" * 201, "/" * 70],
                         ids=repr)  # fmt: skip
def test_c23_refused_versions(storage, version):
    """C23: the version is a path component too."""
    with pytest.raises(ValueError) as caught:
        storage.fetch("d", version)
    assert repr(version) in str(caught.value)


def test_c23_accepted_pairs_never_share_a_cache(storage, tmp_path):
    """C23: collisions of names built from user text."""
    ids = [*ACCEPTED, "a"]
    versions = ["1", "c", "b/c", "b%2Fc", "b%252Fc", "x/../../y", "/abs", "a b"]
    pairs = [(name, version) for name in ids for version in versions]
    directories = {dataset_directory("/r", *pair) for pair in pairs}
    assert len(directories) == len(pairs)
    for one in directories:
        assert os.path.normpath(one) == one and one.startswith("/r/")
        assert not any(one != other and one.startswith(other + "/") for other in directories)

    for n, pair in enumerate(pairs[:20]):
        storage.submit(numbers(n), *pair)
    for n, pair in enumerate(pairs[:20]):
        assert len(storage.fetch(*pair)) == n
    assert os.listdir(tmp_path) == ["store"]


def test_c23_slash_in_id_or_in_version(storage):
    """C23: ("a/b", "c") and ("a", "b/c")."""
    assert len(storage.cacheable("a/b", "c")(lambda: numbers(3))()) == 3
    assert len(storage.cacheable("a", "b/c")(lambda: numbers(7))()) == 7
    assert len(storage.fetch("a/b", "c")) == 3


def test_nested_id_is_a_nested_directory():
    assert dataset_directory("/r", "a/b", "1") == "/r/a/b/1.ydl"
    assert dataset_directory("/r", "a", "b/c%") == "/r/a/b%2Fc%25.ydl"
