"""Where ydl's lines go, and how a build reports its progress."""

from __future__ import annotations

import io
import logging
import time

import pytest
from support import run_python

from ydl import log, progress, text

SAY = """
import logging
from ydl import log
{setup}
log.debug("line %d", 1)
log.info("line %d", 2)
log.warning("100%")
"""
INFO = "ydl: line 2\nydl: 100%\n"


@pytest.mark.parametrize(
    "setup, level, expected",
    [
        ("", None, INFO),
        ("", "INFO", INFO),
        ("", "nonsense", INFO),
        ("", "debug", "ydl: line 1\n" + INFO),
        ("", "warning", "ydl: 100%\n"),
        ("", "off", ""),
        # Configured: the handlers' own format and levels count, YDL_LOG does not.
        ("logging.basicConfig(format='%(message)s')", "debug", "100%\n"),
        ("logging.basicConfig(format='%(message)s', level='INFO')", "off", "line 2\n100%\n"),
        ("logging.getLogger('ydl').addHandler(logging.NullHandler())", None, ""),
        ("logging.getLogger('other').addHandler(logging.StreamHandler())", None, INFO),
        # Levels on the logger and switches count without handlers, too.
        ("logging.getLogger('ydl').setLevel('WARNING')", "debug", "ydl: 100%\n"),
        ("logging.getLogger('ydl').setLevel('DEBUG')", None, "ydl: line 1\n" + INFO),
        ("logging.disable(logging.INFO)", None, "ydl: 100%\n"),
        ("logging.getLogger('ydl').disabled = True", None, ""),
        # Nobody can read these; nobody is hurt.
        ("import sys; sys.stderr = None", None, ""),
        ("import os; os.close(2)", None, ""),
    ],
)
def test_lines_go_to_stderr_where_nobody_configured_logging(setup, level, expected):
    done = run_python(SAY.format(setup=setup), env={"YDL_LOG": level} if level else {"YDL_LOG": ""})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", expected)


def test_handlers_added_later_count_from_then_on(caplog):
    with caplog.at_level(logging.INFO, logger="ydl"):
        log.info("x %s", "y")
    (record,) = caplog.records
    assert record.getMessage() == "x y" and record.filename == "test_log.py"


class Clock:
    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_progress_lines_come_every_ten_seconds(monkeypatch, info_log):
    clock = Clock(monkeypatch)
    report = progress.Progress("d:1", total=1000)
    for second in range(1, 26):
        clock.now += 1
        report.update(second * 20, second * 3_000_000)
    report.close()
    assert info_log().splitlines() == [
        "building d:1: 200 of 1000 records, 30.0 MB after 10 s (20 records/s), about 40 s to go",
        "building d:1: 400 of 1000 records, 60.0 MB after 20 s (20 records/s), about 30 s to go",
    ]
    assert report.summary() == "500 records, 75.0 MB in 25.0 s (20 records/s)"


def test_progress_without_a_known_total(monkeypatch, info_log):
    clock = Clock(monkeypatch)
    report = progress.Progress("d:1", total=None)
    clock.now += 12
    report.update(0, 0)
    clock.now += 12
    report.update(240, 999)
    assert info_log().splitlines() == [
        "building d:1: 0 records, 0 B after 12 s (0 records/s)",
        "building d:1: 240 records, 999 B after 24 s (10 records/s)",
    ]
    assert progress.Progress("d:1", 0).summary().startswith("0 records, 0 B in 0.0 s")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_a_bar(monkeypatch, info_log):
    pytest.importorskip("tqdm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    report = progress.Progress("d:1", total=1000)
    time.sleep(0.15)  # tqdm draws at most every 0.1 s
    report.update(500, 5_000_000)
    report.close()
    report.close()
    assert "building d:1:  50%" in terminal.getvalue() and "5.0 MB" in terminal.getvalue()
    assert info_log() == ""


def test_texts_for_people():
    assert [text.byte_count(n) for n in (0, 999, 1000, 1_500_000, 2e9, 3e15)] == [
        "0 B", "999 B", "1.0 KB", "1.5 MB", "2.0 GB", "3000.0 TB",
    ]  # fmt: skip
    assert text.printable("a\x1b[31mé\n") == "a?[31mé?"
    assert text.local_time(0).startswith(("1970-01-01", "1969-12-31"))
    assert text.local_time(2**62) == str(2**62)
    assert text.rank_list(range(3, 4)) == "rank 3" and text.rank_list(range(3, 8)) == "ranks 3 to 7"
