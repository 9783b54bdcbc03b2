"""`ydl doctor`: what it trusts, what it does not, and that it leaves nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import traceback

import pytest

from ydl import cli, doctor


def findings(path):
    return {finding.name: finding for finding in doctor.examine(str(path))}


def test_a_good_directory(tmp_path, capsys):
    assert cli.main(["doctor", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for name in ("exclusive create", "publication", "manifest log", "flush", "lease", "visibility"):
        assert f"ok    {name}" in out
    assert "note  flock" in out and out.endswith("Caches are safe there.\n")
    assert "FAILS" not in out.replace("FAILS free space", "")
    assert os.listdir(tmp_path) == []


def test_no_directory(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for name in ("absent", "file"):
        assert cli.main(["doctor", str(tmp_path / name)]) == 1
        assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    "broken, name, words",
    [
        ("ydl.doctor._by_link", "publication", "link replaces"),
        ("ydl.doctor.os.fsync", "flush", "Input/output"),
        ("ydl.doctor._core.log_append", "manifest log", "created twice"),
    ],
)
def test_what_is_broken_is_not_trusted(tmp_path, monkeypatch, capsys, broken, name, words):
    def replace(*args):
        if name == "flush":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return "replaces" if name == "publication" else True

    monkeypatch.setattr(broken, replace)
    assert cli.main(["doctor", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    (line,) = [line for line in out.splitlines() if line.startswith("FAILS") and name in line]
    assert words in line
    assert out.endswith("Something there cannot be trusted.\n")
    assert os.listdir(tmp_path) == []


def test_neither_link_nor_rename(tmp_path, monkeypatch):
    for way in ("_by_link", "_by_rename"):
        monkeypatch.setattr(doctor, way, lambda path: "Operation not supported")
    finding = findings(tmp_path)["publication"]
    assert finding.trusted is False and "allow_weak_publish" in finding.text


def test_each_way_to_publish_is_seen_to_work(tmp_path):
    """On a file system that has both."""
    assert doctor._by_link(str(tmp_path / "a")) is None
    assert doctor._by_rename(str(tmp_path / "b")) is None


def test_little_space_is_not_trusted(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs may be mounted here")
    try:
        found = findings(tmp_path)
        assert found.pop("free space").trusted is False
        assert all(finding.trusted is not False for finding in found.values()), found
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_for_reading_only(tmp_path):
    for parent in [tmp_path, *tmp_path.parents][:3]:
        os.chmod(parent, 0o755)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = findings(tmp_path)
            assert found["writing"].trusted is None and "only reading" in found["writing"].text
            assert "publication" not in found
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_permissions_are_said(tmp_path):
    old = os.umask(0o077)
    try:
        assert "no other user can read" in findings(tmp_path)["permissions"].text
    finally:
        os.umask(old)
    os.chmod(tmp_path, 0o777)
    assert "everybody may replace" in findings(tmp_path)["permissions"].text
