"""One peer in its own process: python worker.py PEER DIRECTORY OPTIONS-AS-JSON

Started by versus.py, with which it speaks through harness/remote.py. Every measurement returns a
dict: "value" in the unit of its row in goals.py, and for what goes on for a while "cpu" (seconds of
all threads for a million records) and "peak" (MB).
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

from harness import pages
from harness.kinds import BATCH, Source, batches, digest
from harness.meters import MB, Meter, measured, memory
from harness.remote import serve
from peers import PEERS, make_peer

Result = dict[str, float]

# Who needs so many times as long as was asked for is stopped in the middle of an epoch.
PATIENCE = 4
REHEARSAL_RECORDS = 256


class Worker:
    def __init__(self, peer: str, directory: str, options: str) -> None:
        self._options = json.loads(options)
        self._seconds = self._options["seconds"]
        self._peer = make_peer(peer, directory, self._options)
        self._is_slow = PEERS[peer].is_slow
        self._data: dict[str, Any] = {}  # by path
        self._datasets: dict[str, Any] = {}
        self._model: Any = None
        self._has_built: set[str] = set()

    # ---- around the measurements ----

    def abilities(self) -> list[str]:
        methods = ("build", "open", "numpy", "tensorflow", "first")
        return [name for name in methods if getattr(self._peer, name, None)]

    def versions(self) -> dict[str, str]:
        found = {}
        for name in self._peer.packages:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
        return found

    def prepare(self, kind: str, records: int) -> None:
        """Stores a dataset to read. Whether what comes back is right is a matter of check()."""
        path = self._path(kind, records)
        if not os.path.isdir(path):
            os.makedirs(path)
            if hasattr(self._peer, "build"):
                self._peer.build(Source(kind, records), path)
                _flush(path)

    def check(self, kind: str, records: int) -> None:
        """An epoch has exactly the records of the source, in batches of 128."""
        if not self._peer.holds_records:
            return
        expected = sum(digest(columns) for columns in batches(kind, records))
        ways: list[tuple[str, Callable[[], Iterable[Any]]]] = []
        if getattr(self._peer, "numpy", None):
            ways.append(("numpy", lambda: self._peer.numpy(self._opened(kind, records), 1)))
        if getattr(self._peer, "tensorflow", None) and not self._is_slow:
            dataset = self._dataset(kind, records)
            ways.append(("tensorflow", lambda: (_as_numpy(batch) for batch in dataset)))
        for way, make_epoch in ways:
            came = total = 0
            for columns in make_epoch():
                if came == 0 and len(columns[0]) != min(BATCH, records):
                    raise ValueError(f"{way}: a batch of {len(columns[0])} records of {kind}")
                came += len(columns[0])
                total += digest(columns)
            if (came, total) != (records, expected):
                raise ValueError(
                    f"{way}: the {came} records of {kind} that came are not the {records} stored"
                )

    def forget(self, kind: str, records: int) -> None:
        self._close(kind, records)
        shutil.rmtree(self._path(kind, records), ignore_errors=True)

    # ---- reading ----

    def numpy(self, kind: str, records: int, turn: int) -> Result:
        data = self._opened(kind, records)
        return self._drain(lambda: self._peer.numpy(data, turn), records)

    def tensorflow(self, kind: str, records: int, turn: int) -> Result:
        dataset = self._dataset(kind, records)
        next(iter(dataset))  # so that no first call is measured
        return self._drain(lambda: dataset, records)

    def cold(self, kind: str, records: int, turn: int) -> Result:
        """One epoch after the files were dropped from the page cache; opening included."""
        path = self._path(kind, records)
        self._close(kind, records)
        pages.forget(path)
        with measured() as meter:
            data = self._peer.open_data(Source(kind, records), path)
            for _ in self._peer.numpy(data, turn):
                pass
        return _rate(meter, records)

    def fit(self, kind: str, records: int, turn: int) -> Result:
        """Keras' fit with one Dense layer, epoch after epoch."""
        dataset = self._dataset(kind, records).map(_to_features)
        if self._model is None:
            self._model = _make_model()
            self._model.fit(dataset.take(2), verbose=0)
        done, meter = 0, Meter()
        meter.start()
        while meter.elapsed() < self._seconds:
            self._model.fit(dataset, verbose=0)
            done += records
        meter.stop()
        return _rate(meter, done)

    def _drain(self, make_epoch: Callable[[], Iterable[Any]], records: int) -> Result:
        """Whole epochs, until it has taken as long as was asked for."""
        longest = PATIENCE * self._seconds
        done, batches_done, meter = 0, 0, Meter()
        meter.start()
        while meter.elapsed() < self._seconds:
            batches_done = 0
            for _ in make_epoch():
                batches_done += 1
                if meter.elapsed() > longest:
                    meter.stop()
                    return _rate(meter, done + batches_done * BATCH)
            done += records
        meter.stop()
        return _rate(meter, done)

    # ---- opening ----

    def open_sequential(self, kind: str, records: int, turn: int) -> Result:
        return self._open(kind, records, False, 0)

    def open_shuffled(self, kind: str, records: int, turn: int) -> Result:
        return self._open(kind, records, True, 0)

    def resume(self, kind: str, records: int, turn: int) -> Result:
        return self._open(kind, records, True, records // 2)

    def _open(self, kind: str, records: int, shuffle: bool, start: int) -> Result:
        """Milliseconds from the names to the first record; imports are done, pages are cached."""
        source, path = Source(kind, records), self._path(kind, records)
        self._peer.first(self._peer.open_data(source, path), False, 0)
        gc.collect()
        begin = time.perf_counter()
        data = self._peer.open_data(source, path)
        self._peer.first(data, shuffle, start)
        return {"value": 1e3 * (time.perf_counter() - begin)}

    # ---- memory ----

    def memory(self, kind: str, records: int, turn: int) -> Result:
        """Bytes a record in the middle of a shuffled epoch. In a process that has read nothing."""
        source, path = Source(kind, records), self._path(kind, records)
        self._peer.first(self._peer.open_data(source, path), False, 0)
        gc.collect()
        before = memory()
        data = self._peer.open_data(source, path)
        epoch = iter(self._peer.numpy(data, 1))
        for _ in range(records // BATCH // 2):
            next(epoch)
        return {"value": (memory() - before) / records}

    def steady(self, kind: str, records: int, turn: int) -> Result:
        """MB by which the process is larger after ten epochs than after two, in the worse way."""
        growth = 0.0
        for make_epoch in self._ways(kind, records):
            sizes = []
            for _ in range(10):
                for _ in make_epoch():
                    pass
                gc.collect()
                sizes.append(memory())
            growth = max(growth, (sizes[-1] - sizes[1]) / MB)
        return {"value": growth}

    def stalled(self, kind: str, records: int, turn: int) -> Result:
        """MB that are held 1.5 s after a consumer took one batch and no more; "late" is how many
        of them came in the last second."""
        held = late = 0.0
        for make_epoch in self._ways(kind, records):
            before = memory()
            epoch = iter(make_epoch())
            next(epoch)
            time.sleep(0.5)
            soon = memory()
            time.sleep(1)
            held = max(held, (memory() - before) / MB)
            late = max(late, (memory() - soon) / MB)
            del epoch
            gc.collect()
        return {"value": held, "late": late}

    def _ways(self, kind: str, records: int) -> list[Callable[[], Iterable[Any]]]:
        data, dataset = self._opened(kind, records), self._dataset(kind, records)
        return [lambda: self._peer.numpy(data, 1), lambda: dataset]

    # ---- building ----

    def build(self, kind: str, records: int, turn: int) -> Result:
        """Until the records are on the disk, not only in the page cache: the same for all."""
        if kind not in self._has_built:  # what a process does once is not measured
            self._has_built.add(kind)
            self.build(kind, min(records, REHEARSAL_RECORDS), turn)
        source, path = Source(kind, records), self._path("built", turn)
        _ = source.dataset  # made before it is measured
        os.makedirs(path)
        with measured() as meter:
            self._peer.build(source, path)
            _flush(path)
        shutil.rmtree(path)
        return _rate(meter, records)

    # ---- datasets ----

    def _path(self, kind: str, records: int) -> str:
        return os.path.join(self._peer.directory, f"{kind}-{records}")

    def _opened(self, kind: str, records: int) -> Any:
        path = self._path(kind, records)
        if path not in self._data:
            self._data[path] = self._peer.open_data(Source(kind, records), path)
        return self._data[path]

    def _dataset(self, kind: str, records: int) -> Any:
        path = self._path(kind, records)
        if path not in self._datasets:
            self._datasets[path] = self._peer.tensorflow(self._opened(kind, records))
        return self._datasets[path]

    def _close(self, kind: str, records: int) -> None:
        path = self._path(kind, records)
        self._datasets.pop(path, None)
        data = self._data.pop(path, None)
        if data is not None:
            data.handle = None  # TensorFlow keeps generators, and what they hold, for ever
        gc.collect()


def _rate(meter: Meter, records: int) -> Result:
    return {
        "value": records / meter.seconds,
        "cpu": 1e6 * meter.cpu_seconds / records,
        "peak": meter.peak_mb,
    }


def _flush(directory: str) -> None:
    for path in pages.files_below(directory):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _as_numpy(batch: Any) -> Any:
    return tuple(part.numpy() for part in (batch if isinstance(batch, tuple) else (batch,)))


def _to_features(image: Any, number: Any) -> Any:
    import tensorflow as tf

    pixels = tf.reshape(tf.cast(image, tf.float32), [-1, image.shape[1] * image.shape[2]])
    return pixels / 255, number % 10


def _make_model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    return model


if __name__ == "__main__":
    serve(Worker, *sys.argv[1:])
