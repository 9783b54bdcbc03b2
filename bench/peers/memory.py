"""Everything in memory: what TensorFlow itself can do on this machine."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from harness.kinds import Source, columns
from peers.base import Data, Peer
from peers.feeding import gathered


class Memory(Peer):
    packages = ("tensorflow-cpu", "tensorflow")

    def open(self, source: Source, path: str) -> Any:
        return tuple(map(tf.constant, columns(source.name, source.records)))

    def tensorflow(self, data: Data) -> Any:
        tensors = data.handle
        return gathered(data, lambda rows: tuple(tf.gather(tensor, rows) for tensor in tensors))
