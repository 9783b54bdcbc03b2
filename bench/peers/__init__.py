"""What ydl is measured against: one small class for each way of doing the same.

base.py says what a peer may offer. This table is all that the process which gives the orders knows
of them; a worker imports one, in its environment.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple


class Entry(NamedTuple):
    where: str  # module:class below peers/
    what: str
    environment: str = "tensorflow"  # of harness/environments.py
    is_default: bool = True
    # Takes minutes where others take seconds: builds Kind.few records where building is measured.
    is_slow: bool = False


PEERS = {
    "ydl": Entry("storages:Ydl", "make_tf_dataset(stream, batch_size=128); stream.batches(128)"),
    "ydl-batch": Entry("storages:YdlBatch", "make_tf_dataset(stream).batch(128)"),
    "ydl-1-thread": Entry("storages:YdlOneThread", "ydl without threads of its own"),
    "yogadl": Entry("storages:Yogadl", "yogadl 0.1.4 on LMDB", is_slow=True),
    "memory": Entry("memory:Memory", "tensors in memory, gathered: TensorFlow's ceiling"),
    "memmap": Entry("memmap:Memmap", "NumPy memmap, fancy index; from_generator of batches"),
    "memmap-map": Entry("memmap:MemmapMap", "NumPy memmap in a numpy_function"),
    "tf-cache": Entry("tfdata:CacheFile", "tf.data cache(file), shuffle buffer"),
    "tf-save": Entry("tfdata:SaveLoad", "tf.data save() and load(), shuffle buffer"),
    "tfrecord": Entry("tfdata:TFRecord", "TFRecord of raw bytes, shuffle buffer"),
    "bagz": Entry("recordfiles:Bagz", "bagz, 1024 at a time"),
    "array-record": Entry("recordfiles:ArrayRecord", "ArrayRecord's C++ reader, 1024 at a time"),
    "memcpy": Entry("probes:Memcpy", "the machine: one thread copies memory in order"),
    "disk": Entry("probes:Disk", "the machine: the disk, in order"),
    "pipeline": Entry("probes:Pipeline", "the source: iterated in batches, stored nowhere"),
    "mds": Entry("loaders:Mds", "mosaicml-streaming", "torch", False),
    "litdata": Entry("loaders:LitData", "LitData", "torch", False),
    "huggingface": Entry("loaders:HuggingFace", "datasets of Hugging Face", "arrow", False),
}


def make_peer(name: str, directory: str, options: dict[str, Any]) -> Any:
    module, class_name = PEERS[name].where.split(":")
    return getattr(importlib.import_module(f"peers.{module}"), class_name)(directory, options)
