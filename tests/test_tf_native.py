"""The native feed: what it takes, what it leaves, and that nothing but time tells it from the
generator. That both give the same records in all structures is test_tf_round_trip.py's."""

from __future__ import annotations

import contextlib
import glob
import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from support import numbers, pairs, run_python
from test_memory import check_growth
from tf_support import STRUCTURES, Dataset, outcome, tf

import ydl
from ydl.errors import UnsupportedError
from ydl.tensorflow import make_tf_dataset

HUGE_PAGE_BYTES = 2 << 20  # at multiples of which csrc/batch/pool.c puts blocks of 4 MiB and more


# ---- what it is for ----


@pytest.mark.parametrize("name", ["varying_vector", "unknown_rank", "everything"])
def test_records_of_varying_shapes_are_refused(ref_of, name):
    with pytest.raises(UnsupportedError, match=r"all have one shape.*use feed='auto'"):
        make_tf_dataset(ref_of(STRUCTURES[name]()).stream(), feed="native")


@pytest.mark.parametrize("name", ["ragged_rows", "ragged", "sparse", "everything"])
def test_batches_of_ragged_and_sparse_leaves_are_refused(ref_of, name):
    with pytest.raises(UnsupportedError, match="use feed='auto'"):
        make_tf_dataset(ref_of(STRUCTURES[name]()).stream(), 2, feed="native")


@pytest.mark.parametrize("feed", ["", "Native", "python", None, True, 1])
def test_another_feed_is_refused(ref_of, feed):
    with pytest.raises(ValueError, match="'auto', 'generator', 'native'"):
        make_tf_dataset(ref_of(numbers(3)).stream(), feed=feed)


def test_a_users_own_stream_is_refused():
    stream = ydl.Stream(lambda: iter(range(3)), 3, output_types=np.int64, output_shapes=())
    with pytest.raises(UnsupportedError, match="Use feed='auto'"):
        make_tf_dataset(stream, feed="native")
    assert [int(record) for record in make_tf_dataset(stream)] == [0, 1, 2]


# ---- where there is no op ----

NO_OP = """
    import importlib.util, sys
    from support import numbers, storage_in
    import ydl.tensorflow
    from ydl.tensorflow import make_tf_dataset, native

    real, path = importlib.util.find_spec, sys.argv[2]
    importlib.util.find_spec = lambda name: (
        real(name) if name != "ydl._tf_op" else
        importlib.util.spec_from_file_location(name, path) if path else None
    )
    storage = storage_in(sys.argv[1])
    storage.submit(numbers(10), "d", "1")
    ref = storage.fetch("d", "1")
    for batch_size in (None, 4, 10):
        dataset = make_tf_dataset(ref.stream(), batch_size)
        assert sum((i.numpy().reshape(-1).tolist() for i in dataset), []) == list(range(10))
    print(native.why_not())
    try:
        make_tf_dataset(ref.stream(), feed="native")
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize("op", ["absent", "no library", "another library"])
def test_without_the_op_the_generator_serves(tmp_path, op):
    path = ""
    if op == "no library":
        path = str(tmp_path / "text.so")
        with open(path, "w") as file:
            file.write("this is no library")
    elif op == "another library":
        path = importlib.util.find_spec("ydl._core").origin
    result = run_python(NO_OP, tmp_path / "store", path)
    assert result.returncode == 0, result.stderr
    reason, refusal = result.stdout.strip().split("\n")[0], result.stdout.strip().split("\n")[-1]
    assert result.stderr.count("ydl: feeding TensorFlow through Python, since") == 1
    assert reason in result.stderr
    assert "feed='native' does not work here" in result.stdout and refusal != "None"


COPIES = """
    import shutil, sys
    here, there = sys.argv[1] + "/store", sys.argv[1] + "/copy"
    import ydl
    shutil.copytree(ydl.__path__[0], there + "/ydl")

    def check():
        from support import numbers, storage_in
        from ydl.tensorflow import make_tf_dataset, native
        assert native.why_not() is None, native.why_not()
        storage_in(here).cacheable("d", "1")(lambda: numbers(10))()
        dataset = make_tf_dataset(storage_in(here).fetch("d", "1").stream(), 4, feed="native")
        print([batch.numpy().tolist() for batch in dataset], native.__file__)
        return dataset

    def forget():
        for name in list(sys.modules):
            if name.split(".")[0] in ("ydl", "support"):
                del sys.modules[name]

    first = check()
    forget()
    sys.path.insert(0, there)
    check()
    print([batch.numpy().tolist() for batch in first])
"""


def test_two_copies_of_ydl_in_one_process(tmp_path):
    """TensorFlow ends a process in which an op is registered twice."""
    result = run_python(COPIES, tmp_path)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]") for line in lines)
    assert f"{tmp_path}/copy" not in lines[0] and f"{tmp_path}/copy" in lines[1]


FIRST_USES = {
    "in a tf.function": """
        @tf.function
        def total():
            dataset = make_tf_dataset(ref.stream(), feed="native")
            return dataset.reduce(tf.constant(0, tf.int64), lambda state, number: state + number)
        print(int(total()))
    """,
    "in a graph": """
        tf.compat.v1.disable_v2_behavior()
        dataset = make_tf_dataset(ref.stream(), 10, feed="native")
        batch = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
        with tf.compat.v1.Session() as session:
            print(sum(session.run(batch)))
    """,
    "in functions that run eagerly": """
        tf.config.run_functions_eagerly(True)
        dataset = make_tf_dataset(ref.stream(), 4, feed="native")
        print(sum(int(tf.reduce_sum(batch)) for batch in dataset))
    """,
    "in eight threads": """
        from concurrent.futures import ThreadPoolExecutor
        def total(_):
            dataset = make_tf_dataset(ref.stream(), feed="native")
            return sum(int(number) for number in dataset)
        with ThreadPoolExecutor(8) as pool:
            totals = set(pool.map(total, range(8)))
        print(*totals)
    """,
    "in a strategy, under a device": """
        strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
        with strategy.scope(), tf.device("/cpu:0"):
            dataset = make_tf_dataset(ref.stream(), 2, feed="native")
            batches = strategy.experimental_distribute_dataset(dataset)
            print(sum(int(tf.reduce_sum(batch)) for batch in batches))
    """,
    "on one thread": """
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        dataset = make_tf_dataset(ref.stream(), 1, feed="native").prefetch(2)
        dataset = tf.data.Dataset.zip((dataset, make_tf_dataset(ref.stream(), 1, feed="native")))
        print(sum(int(a[0]) for a, b in dataset.with_options(options)))
    """,
}


@pytest.mark.parametrize("place", FIRST_USES)
def test_the_first_use_may_be(tmp_path, place):
    code = f"""
import os, sys
import tensorflow as tf
from support import numbers, storage_in
from ydl.tensorflow import make_tf_dataset
storage = storage_in(sys.argv[1])
storage.submit(numbers(10), "d", "1")
ref = storage.fetch("d", "1")
{textwrap.dedent(FIRST_USES[place])}
sys.stdout.flush()
os._exit(0)  # this is not about how a process ends
"""
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["45"]


# ---- nothing is copied ----


def test_numbers_cross_without_a_copy(ref_of, each_feed):
    """A tensor of the pool's begins at a huge page; one of TensorFlow's or NumPy's own hardly."""
    images = np.arange(64 * (1 << 17), dtype=np.uint8).reshape(64, 1 << 17)
    ref = ref_of(Dataset.from_tensor_slices((np.arange(64), images)))
    held = []
    for index, image in make_tf_dataset(ref.stream(), 32):
        address = np.frombuffer(memoryview(image), np.uint8).__array_interface__["data"][0]
        assert address % HUGE_PAGE_BYTES == 0
        held.append((index, image))
    assert len(held) == 2
    for index, image in held:  # held on to, they stay what they were
        assert np.array_equal(image.numpy(), images[index.numpy()])


# ---- the same as the generator ----


def options(**kwargs):
    result = tf.data.Options()
    for name, value in kwargs.items():
        target = result
        *path, last = name.split("__")
        for part in path:
            target = getattr(target, part)
        setattr(target, last, value)
    return lambda dataset: dataset.with_options(result)


TRANSFORMATIONS = {
    "map": lambda d: d.map(lambda i, x: (i * 2, x + 1.0)),
    "parallel map": lambda d: d.map(lambda i, x: (i * 2, x), num_parallel_calls=4),
    "repeat": lambda d: d.repeat(3),
    "take": lambda d: d.take(5),
    "take of repeat": lambda d: d.repeat().take(150),
    "skip": lambda d: d.skip(7),
    "prefetch": lambda d: d.prefetch(3),
    "shuffle": lambda d: d.shuffle(20, seed=3).repeat(2),
    "cache": lambda d: d.cache().repeat(2),
    "batch": lambda d: d.batch(4),
    "batch, dropping": lambda d: d.batch(7, drop_remainder=True),
    "unbatch of batch": lambda d: d.batch(4).unbatch(),
    "padded batch": lambda d: d.padded_batch(8),
    "shard": lambda d: d.shard(3, 1),
    "filter": lambda d: d.filter(lambda i, x: tf.reduce_all(i % 2 == 0)),
    "flat_map": lambda d: d.flat_map(lambda i, x: Dataset.from_tensors(i).repeat(2)),
    "interleave": lambda d: d.interleave(
        lambda i, x: Dataset.from_tensors(i).repeat(2), cycle_length=3, num_parallel_calls=2
    ),
    "window": lambda d: d.window(3).flat_map(lambda i, x: i),
    "enumerate": lambda d: d.enumerate(),
    "zip with itself": lambda d: Dataset.zip((d, d)),
    "concatenate": lambda d: d.concatenate(d),
    "not deterministic": options(deterministic=False),
    "map_parallelization": options(experimental_optimization__map_parallelization=True),
    "map_parallelization, not deterministic": options(
        experimental_optimization__map_parallelization=True, deterministic=False
    ),
    "map_fusion": lambda d: options(experimental_optimization__map_fusion=True)(
        d.map(lambda i, x: (i + 1, x)).map(lambda i, x: (i * 3, x))
    ),
    "map_and_batch_fusion": lambda d: options(experimental_optimization__map_and_batch_fusion=True)(
        d.map(lambda i, x: tf.reduce_sum(x)).batch(3)
    ),
    "no optimizations": options(experimental_optimization__apply_default_optimizations=False),
    "no autotune": options(autotune__enabled=False),
}


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformations_give_what_they_give_of_the_generator(ref_of, name, batch_size):
    ref = ref_of(pairs(50))
    given = []
    for feed in ("generator", "native"):
        stream = ref.stream(shuffle=True, shuffle_seed=9)
        dataset = make_tf_dataset(stream, batch_size, feed=feed)
        transformed = TRANSFORMATIONS[name](dataset)
        # Two in a row: the second has what the first left, of epochs and of caches.
        given.append([outcome(transformed), outcome(transformed)])
    # One pass of two over the same epoch counter: which takes the first epoch is not promised.
    if name == "zip with itself":
        given = [[sorted(map(str, elements)) for elements in each] for each in given]
    assert given[0] == given[1]
    assert given[0][0] and not isinstance(given[0][0], type)


def test_strings_of_all_lengths(ref_of):
    """Around the length from which TensorFlow's strings are no longer kept in place, and long."""
    lengths = [0, 1, 21, 22, 23, 24, 25, 4095, 4096, 1 << 20, 0, 3]
    strings = [bytes(i % 251 for i in range(n)) for n in lengths]
    ref = ref_of(Dataset.from_tensor_slices((strings, strings[::-1])))
    (batch,) = make_tf_dataset(ref.stream(), 100, feed="native")
    assert batch[0].numpy().tolist() == strings and batch[1].numpy().tolist() == strings[::-1]
    records = list(make_tf_dataset(ref.stream(), feed="native"))
    assert [record[0].numpy() for record in records] == strings


def test_a_batch_far_larger_than_the_epoch(ref_of):
    ref = ref_of(numbers(10))
    for size in (11, 1 << 40, (1 << 63) - 1):
        (batch,) = make_tf_dataset(ref.stream(), size, feed="native")
        assert batch.numpy().tolist() == list(range(10))
        assert list(make_tf_dataset(ref.stream(), size, True, feed="native")) == []


# ---- iterators that are dropped ----


def test_iterators_dropped_half_way_leave_nothing_behind(ref_of):
    """Also while TensorFlow is in the op: prefetch asks on as long as there is an iterator."""
    ref = ref_of(Dataset.from_tensor_slices((np.arange(500), np.zeros((500, 20_000), np.uint8))))
    stream = ref.stream(shuffle=True, shuffle_seed=1)
    datasets = [
        make_tf_dataset(stream, feed="native"),
        make_tf_dataset(stream, 16, feed="native"),
        make_tf_dataset(stream, 16, repeat=True, feed="native").prefetch(4),
    ]

    def step():
        for dataset in datasets:
            for taken in (1, 5):
                iterator = iter(dataset)
                for _ in range(taken):
                    next(iterator)

    check_growth(step, warm_up=10, count=15)


# ---- damage ----


def damage(directory, record):
    """A bit of a record of pairs(), 24 bytes each; the part's path."""
    (part,) = glob.glob(f"{directory}/builds/*/*.ydl")
    os.chmod(part, 0o600)
    with open(part, "r+b") as file:
        file.seek(64 + 24 * record + 3)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    return part


@pytest.mark.parametrize("batch_size", [None, 100])
def test_damage_in_mid_stream_withdraws_the_dataset(storage, batch_size):
    calls = []

    @storage.cacheable("d", "1")
    def make():
        calls.append(1)
        return pairs(5000)

    ref = make()
    part = damage(ref.directory, 4321)
    iterator = iter(make_tf_dataset(ref.stream(), batch_size, feed="native"))
    seen = 0
    with pytest.raises(tf.errors.UnknownError) as caught:
        for numbers, _ in iterator:
            seen += numbers.shape.num_elements()
    assert 0 < seen <= 4321
    for said in ("CorruptRecordError", part, "record 4321"):
        assert said in str(caught.value)
    caught = None  # its traceback holds the iterator
    del iterator
    deadline = time.monotonic() + 10
    while len(calls) == 1 and time.monotonic() < deadline:
        assert [int(record[0]) for record in make().stream()][:3] == [0, 1, 2]
    assert len(calls) == 2
    assert storage.fetch("d", "1").manifest.number > ref.manifest.number


# Without the threads of TensorFlow's that go on pulling after an error: a process whose end meets
# one of them in a from_generator's Python function hangs, whoever wrote the generator.
PASSIVE = """
def passive(dataset):
    options = tf.data.Options()
    options.autotune.enabled = False
    if hasattr(options.experimental_optimization, "inject_prefetch"):
        options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)
"""


@pytest.mark.parametrize("end", ["pass", "sys.exit()"])
def test_damage_is_noted_at_the_end_of_the_process_at_the_latest(storage, end):
    code = f"""
import sys
import tensorflow as tf
from support import pairs, storage_in
from ydl.tensorflow import make_tf_dataset
{PASSIVE}
storage = storage_in(sys.argv[1])
ref = storage.cacheable("d", "1")(lambda: pairs(5000))()
iterator = iter(passive(make_tf_dataset(ref.stream(), 100, feed="native")))
try:
    for _ in iterator:
        pass
except tf.errors.UnknownError as error:
    print("CorruptRecordError" in str(error))
    {end}
"""
    storage.cacheable("d", "1")(lambda: pairs(5000))()
    damage(storage.fetch("d", "1").directory, 4321)
    result = run_python(code, storage._root)
    assert (result.returncode, result.stdout) == (0, "True\n"), result.stderr
    assert "is withdrawn by entry 2" in result.stderr
    calls = []
    storage.cacheable("d", "1")(lambda: calls.append(1) or pairs(10))()
    assert calls == [1]


# ---- Ctrl-C, forks ----


def test_ctrl_c_while_reading(tmp_path):
    """Pressed until it is heard: in about one of ten tries TensorFlow loses the first one, of its
    own datasets too."""
    code = """
    import sys
    from support import numbers, storage_in
    from ydl.tensorflow import make_tf_dataset
    storage = storage_in(sys.argv[1])
    storage.submit(numbers(100_000), "d", "1")
    def read():
        dataset = make_tf_dataset(storage.fetch("d", "1").stream(), 100, repeat=True, feed="native")
        for i, batch in enumerate(dataset):
            if i == 3:
                print("ready", flush=True)
    try:
        read()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    with start_python(code, tmp_path) as child:
        try:
            assert child.stdout.readline() == "ready\n", child.stderr.read()
            pressed = 0
            while child.poll() is None and pressed < 20:
                child.send_signal(signal.SIGINT)
                pressed += 1
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=2)
            out = child.stdout.read() if child.poll() is not None else "still running"
        finally:
            child.kill()
    assert out == "interrupted\n"


def start_python(code, *args):
    here = os.path.dirname(os.path.abspath(__file__))
    path = os.pathsep.join([here, *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


FORK = f"""
import os, signal, sys
import tensorflow as tf
from support import numbers, storage_in
from ydl.tensorflow import make_tf_dataset
{PASSIVE}
storage = storage_in(sys.argv[1])
storage.submit(numbers(100_000), "d", "1")
ref = storage.fetch("d", "1")
iterator = iter(passive(make_tf_dataset(ref.stream(), 10, feed="native")))
next(iterator)
child = os.fork()
if child == 0:
    signal.alarm(30)
    print(sum(int(batch.sum()) for batch in ref.stream().batches(1000)), flush=True)
    os._exit(3)  # as multiprocessing ends: TensorFlow's end of a process hangs in a child
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), next(iterator).numpy()[0], flush=True)
"""


def test_a_forked_child_reads_without_tensorflow(tmp_path):
    """And its parent goes on. With TensorFlow, whose threads are not in the child, it hangs,
    whatever it reads."""
    result = run_python(FORK, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(sum(range(100_000))), "3", "10"]
