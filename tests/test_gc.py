"""What `ydl gc` and later builders remove, and above all what they leave."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid

import pytest
from support import FailingSource, files_in, numbers, run_python, storage_in

from ydl import build, builds, caching, cli, collect
from ydl.store import LocalStore

DAY = 86400.0


def values(ref):
    return [int(record) for record in ref.stream()]


def age(path, days):
    """Everything at and below a path is that old."""
    then = time.time() - days * DAY
    for parent, names, files in os.walk(path, topdown=False):
        for name in [*names, *files]:
            os.utime(os.path.join(parent, name), (then, then), follow_symlinks=False)
    os.utime(path, (then, then), follow_symlinks=False)


def dataset(storage, name="d"):
    return os.path.join(storage._root, name, "1.ydl")


def build_dirs(storage, name="d"):
    return sorted(os.listdir(os.path.join(dataset(storage, name), "builds")))


def plant_build(storage, days, name="d", part="00000.ydl"):
    """What a killed builder leaves."""
    directory = os.path.join(dataset(storage, name), "builds", uuid.uuid4().hex)
    os.mkdir(directory)
    with open(os.path.join(directory, part), "wb") as file:
        file.write(b"x" * 1000)
    age(directory, days)
    return directory


def gc(storage, grace_days=7.0, dry_run=False):
    reports = [
        collect.collect(root, names, grace_days * DAY, dry_run=dry_run)
        for root, names in collect.datasets(str(storage._root))
    ]
    removed = [item for report in reports for item in report.removed]
    kept = [sentence for report in reports for sentence in report.kept]
    return removed, kept


def test_replaced_builds_go_once_they_are_replaced_for_long(storage):
    """The time counts from the replacement: a build of last year may be in use until just now."""
    storage.submit(numbers(3), "d", "1")
    age(dataset(storage), 300)
    old = storage.fetch("d", "1")
    storage.submit(numbers(5), "d", "1")
    assert gc(storage) == ([], []) and len(build_dirs(storage)) == 2
    age(dataset(storage), 8)
    (removed,), kept = gc(storage)
    assert kept == [] and removed.what == "replaced build" and removed.bytes > 100
    assert build_dirs(storage) == [storage.fetch("d", "1").manifest.parts[0].build]
    assert values(storage.fetch("d", "1")) == [0, 1, 2, 3, 4]
    assert not os.path.exists(removed.path) and old.manifest.parts[0].build in removed.path
    assert len(os.listdir(os.path.join(dataset(storage), "manifests"))) == 2  # they stay


def test_unfinished_builds_go_once_nothing_changed_in_them_for_long(storage):
    storage.submit(numbers(3), "d", "1")
    young, old = plant_build(storage, 6), plant_build(storage, 8)
    empty = plant_build(storage, 9)
    os.remove(os.path.join(empty, "00000.ydl"))
    age(empty, 9)
    removed, _ = gc(storage)
    assert sorted(item.path for item in removed) == sorted([old, empty])
    assert {item.what for item in removed} == {"unfinished build"}
    assert os.path.exists(young) and len(storage.fetch("d", "1")) == 3


def test_the_age_of_a_build_is_that_of_its_youngest_file(storage):
    storage.submit(numbers(3), "d", "1")
    path = plant_build(storage, 30)
    os.utime(os.path.join(path, "00000.ydl"))
    assert gc(storage) == ([], [])


def test_a_withdrawn_datasets_build_goes_like_a_replaced_one(storage):
    storage.submit(numbers(3), "d", "1")
    LocalStore(str(storage._root), "d", "1").withdraw(1, "a test")
    assert gc(storage) == ([], [])
    age(dataset(storage), 8)
    assert len(gc(storage)[0]) == 1 and build_dirs(storage) == []


def test_the_last_entry_may_name_a_build_that_an_earlier_one_named_too(storage):
    import dataclasses

    storage.submit(numbers(3), "d", "1")
    store = LocalStore(str(storage._root), "d", "1")
    first = store.read(1)
    storage.submit(numbers(4), "d", "1")
    assert store.publish(dataclasses.replace(first, number=3))
    age(dataset(storage), 50)
    (removed,), _ = gc(storage)
    assert first.parts[0].build not in removed.path
    assert values(storage.fetch("d", "1")) == [0, 1, 2]


def test_nothing_is_removed_where_the_last_entry_cannot_be_read(storage):
    storage.submit(numbers(3), "d", "1")
    storage.submit(numbers(4), "d", "1")
    os.truncate(os.path.join(dataset(storage), "manifests", "00000002.json"), 10)
    age(dataset(storage), 50)
    before = build_dirs(storage)
    removed, kept = gc(storage)
    assert removed == [] and "00000002.json" in kept[0] and build_dirs(storage) == before


def test_a_build_that_only_an_unreadable_entry_may_have_named_counts_from_its_replacement(storage):
    storage.submit(numbers(3), "d", "1")
    os.truncate(os.path.join(dataset(storage), "manifests", "00000001.json"), 10)
    age(dataset(storage), 50)
    storage.submit(numbers(4), "d", "1")
    assert gc(storage)[0] == [] and len(build_dirs(storage)) == 2
    age(dataset(storage), 8)
    assert len(gc(storage)[0]) == 1


def test_temporary_files_and_old_lease_records_go(storage):
    storage.cacheable("d", "1")(lambda: numbers(3))()
    directory = dataset(storage)
    planted = {
        "manifests/.00000002.json.0123456789abcdef.tmp": True,
        "lease/.00000001.lease.0123456789abcdef.tmp": True,
        "builds/.clock.0123456789abcdef.tmp": True,
        "lease/00000000.lease": True,
        "lease/00000001.lease": False,
        "manifests/00000001.json": False,
        "manifests/.00000002.json.tmp": False,
        "manifests/notes.txt": False,
        "lease/notes.txt": False,
        "builds/notes.txt": False,
        "notes.txt": False,
    }
    for name in planted:
        with open(os.path.join(directory, name), "a"):
            pass
    assert gc(storage)[0] == []
    age(directory, 8)
    gc(storage)
    for name, goes in planted.items():
        assert os.path.exists(os.path.join(directory, name)) != goes, name
    assert len(storage.fetch("d", "1")) == 3


def test_what_somebody_is_about_to_name_stays_whatever_the_grace_time(storage):
    """Else a tombstone for a build that was collected too early could not be published."""
    storage.cacheable("d", "1")(lambda: numbers(3))()
    planted = [
        os.path.join(dataset(storage), name)
        for name in (
            "manifests/.00000002.json.0123456789abcdef.tmp",
            "lease/.00000002.lease.0123456789abcdef.tmp",
            "builds/.clock.0123456789abcdef.tmp",
        )
    ]
    for path in planted:
        with open(path, "a"):
            pass
    assert gc(storage, 0) == ([], [])
    assert all(os.path.exists(path) for path in planted)
    age(dataset(storage), 0.1)  # 2.4 hours
    assert sorted(item.path for item in gc(storage, 0)[0]) == sorted(planted)


def test_foreign_files_stay_and_links_are_not_followed(storage, tmp_path):
    storage.submit(numbers(3), "d", "1")
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    for name in ("00000.ydl", ".00000002.json.0123456789abcdef.tmp"):
        (treasure / name).write_text("gold")
    directory = dataset(storage)
    os.symlink(treasure, os.path.join(directory, "builds", uuid.uuid4().hex))
    os.symlink(
        treasure / "00000.ydl",
        os.path.join(directory, "manifests", ".00000003.json.0123456789abcdef.tmp"),
    )
    foreign = plant_build(storage, 1, part="photo.jpg")
    inside = plant_build(storage, 1)
    os.symlink(treasure / "00000.ydl", os.path.join(inside, "00001.ydl"))
    os.mkdir(os.path.join(directory, "builds", "holiday"))
    os.symlink(treasure, os.path.join(storage._root, "linked"))
    os.makedirs(treasure / "x.ydl" / "builds" / uuid.uuid4().hex)
    age(str(tmp_path), 50)
    removed, kept = gc(storage)
    assert [item.path for item in removed] == [inside]  # the link in it, not what it leads to
    assert any(foreign in sentence for sentence in kept)
    assert sorted(os.listdir(treasure)) == [
        ".00000002.json.0123456789abcdef.tmp", "00000.ydl", "x.ydl",
    ]  # fmt: skip
    assert len(os.listdir(treasure / "x.ydl" / "builds")) == 1
    (gone,) = [n for n in os.listdir(os.path.join(directory, "builds")) if n.endswith(".gone")]
    assert gone.startswith(f".{os.path.basename(foreign)}.")
    assert os.listdir(os.path.join(directory, "builds", gone)) == ["photo.jpg"]


@pytest.mark.parametrize("name", ["manifests", "builds", "lease"])
def test_a_planted_directory_is_refused(storage, tmp_path, name, capsys):
    storage.cacheable("d", "1")(lambda: numbers(3))()
    directory = os.path.join(dataset(storage), name)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(directory, elsewhere)
    os.symlink(elsewhere, directory)
    age(str(tmp_path), 50)
    before = files_in(elsewhere)
    assert cli.main(["gc", str(storage._root), "--grace", "0"]) == 1
    assert "symbolic link" in capsys.readouterr().err
    assert files_in(elsewhere) == before


def test_a_live_builders_build_stays(storage):
    """Even where nothing has been written into it for long."""
    seen = []

    class Watching:
        schema = numbers(1).schema
        cardinality = None

        def batches(self):
            yield from numbers(3).batches()
            age(os.path.join(dataset(storage), "builds"), 50)
            seen.append((gc(storage), gc(storage, 0), build_dirs(storage)))

    storage.cacheable("d", "1")(lambda: Watching())()
    ((week, now, there),) = seen
    for removed, kept in (week, now):
        assert removed == [] and len(kept) == 1 and "somebody builds this dataset" in kept[0]
    assert len(there) == 1
    assert values(storage.fetch("d", "1")) == [0, 1, 2]


def test_a_certainly_dead_builders_build_goes(storage):
    code = """
    import os, sys
    from support import numbers, storage_in
    class Dying:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            yield from numbers(3).batches()
            os.kill(os.getpid(), 9)
    storage_in(sys.argv[1]).cacheable("d", "1")(lambda: Dying())()
    """
    assert run_python(code, storage._root).returncode == -signal.SIGKILL
    assert len(build_dirs(storage)) == 1
    assert gc(storage) == ([], [])
    removed, kept = gc(storage, 0)
    assert [item.what for item in removed][:1] == ["unfinished build"] and kept == []
    assert build_dirs(storage) == []


def test_a_paused_builder_whose_build_was_removed_fails_cleanly(tmp_path):
    """Whatever it does when it wakes up, no entry names files that are gone."""
    code = """
    import sys
    from support import numbers, storage_in
    import numpy as np
    from ydl import caching

    where = sys.argv[2]
    def pause():
        print("paused", flush=True)
        sys.stdin.readline()

    class Pausing:
        schema = numbers(1).schema
        cardinality = None
        def batches(self):
            yield from numbers(500).batches()
            if where == "in the source":
                pause()
            yield from numbers(500).batches()

    publish = caching._publish
    def paused_publish(*args):
        if where == "before publishing":
            pause()
        return publish(*args)
    caching._publish = paused_publish

    try:
        storage_in(sys.argv[1], part_bytes=2000).submit(Pausing(), "d", "1")
    except Exception as error:
        print(type(error).__name__, error)
    else:
        print("published")
    """
    here = os.path.dirname(os.path.abspath(__file__))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])}
    for where in ("in the source", "before publishing"):
        storage = storage_in(tmp_path / where)
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code), storage._root, where], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with child:
            assert child.stdout.readline() == "paused\n"
            age(dataset(storage), 8)
            assert len(gc(storage)[0]) == 1
            out, _ = child.communicate("\n", timeout=30)
        assert "published\n" != out and "Error" in out, out
        with pytest.raises(FileNotFoundError):
            storage.fetch("d", "1")
        assert build_dirs(storage) == []
        assert len(storage.cacheable("d", "1")(lambda: numbers(5))()) == 5


def test_a_build_that_is_published_while_it_is_collected_is_put_back(storage, monkeypatch):
    """The collector looks at the log again after it took the build away."""
    store = LocalStore(str(storage._root), "d", "1")
    store.create_directories()
    built = build.write(store, numbers(3), 1 << 20, lambda records, size: None)
    age(dataset(storage), 50)
    real = collect._Collector._consider

    def publish_meanwhile(self, *args):
        assert caching._publish(store, caching._entry(store, 1, built), built)
        return real(self, *args)

    monkeypatch.setattr(collect._Collector, "_consider", publish_meanwhile)
    assert gc(storage)[0] == []
    assert values(storage.fetch("d", "1")) == [0, 1, 2]


def test_what_a_killed_collector_left_is_finished(storage, monkeypatch):
    storage.submit(numbers(3), "d", "1")
    (needed,) = build_dirs(storage)
    superfluous = os.path.basename(plant_build(storage, 0))
    directory = os.path.join(dataset(storage), "builds")
    for name in (needed, superfluous):
        gone = f".{name}.0123456789abcdef.gone"
        os.rename(os.path.join(directory, name), os.path.join(directory, gone))
    assert gc(storage, 0) == ([], [])  # it may still be at work
    monkeypatch.setattr(collect, "_LEFTOVER_AGE_S", 0)
    assert [item.what for item in gc(storage, 0, dry_run=True)[0]] == ["rest of a build"]
    assert [item.what for item in gc(storage, 0)[0]] == ["rest of a build"]
    assert build_dirs(storage) == [f".{needed}.0123456789abcdef.gone"]
    assert len(storage.cacheable("d", "1")(lambda: numbers(5))()) == 5
    gc(storage, 0)
    assert len(build_dirs(storage)) == 1


def test_collectors_and_builders_all_at_once(storage):
    """Collectors without a grace time against a builder: no dataset that is found is broken."""
    storage.submit(numbers(2), "d", "1")
    stop = threading.Event()
    problems = []

    def collect_always():
        while not stop.is_set():
            try:
                gc(storage, 0)
            except Exception as error:
                problems.append(error)

    threads = [threading.Thread(target=collect_always) for _ in range(3)]
    for thread in threads:
        thread.start()
    published = 0
    for n in range(30):
        try:
            storage.submit(numbers(n + 1), "d", "1")
        except (OSError, RuntimeError):
            continue  # its build was collected: said, and nothing published
        published += 1
    stop.set()
    for thread in threads:
        thread.join(30)
    assert problems == []
    gc(storage, 0)
    current = LocalStore(str(storage._root), "d", "1").current()
    if current is not None:
        assert len(values(storage.fetch("d", "1"))) == current.records
        assert build_dirs(storage) == [current.parts[0].build]
    storage.submit(numbers(4), "d", "1")
    assert values(storage.fetch("d", "1")) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["cacheable", "submit"])
def test_a_later_builder_collects_its_own_dataset(storage, how, info_log):
    storage.submit(numbers(3), "d", "1")
    storage.submit(numbers(3), "other", "1")
    LocalStore(str(storage._root), "d", "1").withdraw(1, "a test")
    unfinished = plant_build(storage, 8)
    plant_build(storage, 8, "other")
    young = plant_build(storage, 1)
    age(os.path.join(dataset(storage), "manifests"), 8)
    age(os.path.join(dataset(storage), "builds"), 8)
    age(young, 1)
    if how == "submit":
        storage.submit(numbers(4), "d", "1")
    else:
        assert len(storage.cacheable("d", "1")(lambda: numbers(4))()) == 4
    assert build_dirs(storage) == sorted(
        [os.path.basename(young), storage.fetch("d", "1").manifest.parts[0].build]
    )
    assert not os.path.exists(unfinished) and "removed 2 old files and builds" in info_log()
    assert len(build_dirs(storage, "other")) == 2
    with pytest.raises(ValueError):
        storage.submit(FailingSource(ValueError("x"), 1), "other", "1")
    assert len(build_dirs(storage, "other")) == 2  # only after a success


def test_a_collection_that_fails_harms_no_build(storage, monkeypatch):
    def fail(*args, **kwargs):
        raise PermissionError(13, "no")

    monkeypatch.setattr(collect, "collect", fail)
    storage.submit(numbers(3), "d", "1")
    assert len(storage.cacheable("e", "1")(lambda: numbers(3))()) == 3


# ---- the command ----


def test_the_command(storage, capsys):
    for name in ("a", "b/c", "b/d/e"):
        storage.submit(numbers(3), name, "1")
        plant_build(storage, 8, name)
        plant_build(storage, 2, name)
    root = str(storage._root)
    assert cli.main(["gc", root, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count("unfinished build, 1.0 KB") == 3
    assert out.endswith("would remove 3 builds and files, 3.0 KB\n")
    assert all(len(build_dirs(storage, name)) == 3 for name in ("a", "b/c", "b/d/e"))
    assert cli.main(["gc", os.path.join(root, "b/c/1.ydl")]) == 0
    assert capsys.readouterr().out.endswith("removed 1 builds and files, 1.0 KB\n")
    assert [len(build_dirs(storage, name)) for name in ("a", "b/c", "b/d/e")] == [3, 2, 3]
    assert cli.main(["gc", root, "--grace", "24h"]) == 0
    assert capsys.readouterr().out.endswith("removed 5 builds and files, 5.0 KB\n")
    assert cli.main(["gc", root, "--grace", "0"]) == 0
    assert all(len(values(storage.fetch(name, "1"))) == 3 for name in ("a", "b/c", "b/d/e"))


def test_wrong_calls_of_the_command(tmp_path, capsys):
    assert cli.main(["gc", str(tmp_path / "absent")]) == 1
    assert "absent" in capsys.readouterr().err
    for arguments in ([], ["gc"], ["nonsense"], ["gc", ".", "--grace", "a week"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(arguments)
        assert caught.value.code == 2
    assert "like 90s, 30m, 12h or 7d" in capsys.readouterr().err


def test_python_m_ydl(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ydl", "gc", str(tmp_path)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "removed 0 builds and files, 0 B\n"), done.stderr


def test_names_of_builds_are_those_that_builders_give(storage):
    storage.submit(numbers(3), "d", "1")
    (name,) = build_dirs(storage)
    assert builds.NAME.fullmatch(name) and re.fullmatch("[0-9a-f]{32}", name)
    assert storage_in(storage._root).fetch("d", "1").manifest.parts[0].build == name
