"""Caches and reads records through an installed ydl, with neither a compiler nor TensorFlow."""

import platform
import tempfile
import uuid
from importlib.util import find_spec

import numpy as np

import ydl
from ydl import _core

assert find_spec("tensorflow") is None, "this must run without TensorFlow"

RECORDS, BATCH, SEED = 1000, 64, 7
components = [("float32", (3,)), ("string", ())]
values = np.arange(RECORDS * 3, dtype=np.float32).reshape(RECORDS, 3)
names = np.array([b"record \0 %d" % i for i in range(RECORDS)], dtype=object)

with tempfile.TemporaryDirectory() as directory:
    build = uuid.uuid4().bytes
    writer = _core.Writer(directory, build, components, 1 << 14)
    writer.append(RECORDS, [values, names])
    parts = []
    first = 0
    for number, (name, records, size, _) in enumerate(writer.finish()):
        parts.append((f"{directory}/{name}", build, number, first, records, size))
        first += records
    writer.close()
    assert first == RECORDS and len(parts) > 1

    dtypes = [np.dtype(np.float32), np.dtype(object)]
    reader = _core.Reader(parts, components, dtypes, "always", "mmap")
    order = _core.Order(
        RECORDS,
        rank=0,
        num_shards=1,
        drop_shard_remainder=False,
        shuffle=True,
        reshuffle=True,
        seed=SEED,
        shuffle_scope="shard",
        cut=0,
    )
    loader = _core.Loader(
        reader,
        order,
        epoch=0,
        position=0,
        batch_records=BATCH,
        drop_remainder=False,
        endless=False,
        form="batches",
        threads=2,
        depth=2,
        group=1,
    )
    batches = list(loader)
    loader.close()

order = np.arange(RECORDS)
np.random.RandomState(SEED).shuffle(order)
assert np.array_equal(np.concatenate([batch[0] for batch in batches]), values[order])
assert np.array_equal(np.concatenate([batch[1] for batch in batches]), names[order])
print(
    f"ydl {ydl.__version__} on Python {platform.python_version()}, NumPy {np.__version__},"
    f" {platform.libc_ver()[1]}: {RECORDS} records in {len(parts)} parts written and read back"
)
