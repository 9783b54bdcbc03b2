from __future__ import annotations

import signal

import pytest
from support import storage_in

# A shell that starts this in the background has SIGINT ignored, and so would the children have
# that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def storage(tmp_path):
    return storage_in(tmp_path / "store")


@pytest.fixture
def threaded(monkeypatch):
    """Prefetch threads also for batches as small as those of tests."""
    monkeypatch.setattr("ydl.shard._SMALL_BATCH_BYTES", 0)


@pytest.fixture
def ref_of(storage):
    """Caches a source, and gives the DataRef."""

    def make(source, name="d"):
        storage.submit(source, name, "1")
        return storage.fetch(name, "1")

    return make


@pytest.fixture
def info_log(caplog):
    """What ydl logged from level INFO on, as one text."""
    caplog.set_level("INFO", logger="ydl")
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


@pytest.fixture(params=["native", "generator"])
def each_feed(request, monkeypatch):
    """The ways into TensorFlow, one after the other, for a test that makes datasets of all
    structures and names no feed."""
    native = pytest.importorskip("ydl.tensorflow.native")
    if request.param == "native":
        assert native.why_not() is None
    else:
        monkeypatch.setattr(native, "why_not", lambda: "this test is about the generator")
