"""What the TensorFlow tests share: datasets of all structures and dtypes, elements to compare."""

from __future__ import annotations

import collections

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

if tf.__version__.startswith("2.8.") and "object" not in np.__dict__:
    np.object = object  # TensorFlow 2.8 needs it, NumPy since 1.24 has it no more

Dataset = tf.data.Dataset
Pair = collections.namedtuple("Pair", "left right")
Single = collections.namedtuple("_Single", "only")

STRINGS = [b"", b"\0", b"a\0", b"x\0y", b"\xff\xfe", "Zürich".encode(), b"z" * 300]


def values(element):
    """An element's dense tensors as (dtype, shape, bytes): exact, also for NaN and -0.0."""
    result = []
    for tensor in tf.nest.flatten(element, expand_composites=True):
        if tensor is not None:
            result.append((tensor.dtype.name, tuple(tensor.shape), exact(tensor.numpy())))
    return result


def exact(value):
    array = np.asarray(value, object) if isinstance(value, bytes) else np.asarray(value)
    return array.tolist() if array.dtype == object else array.tobytes()


def elements(dataset):
    return [values(element) for element in dataset]


def outcome(dataset):
    """Its elements, or the class of the error that it raises."""
    try:
        return elements(dataset)
    except tf.errors.OpError as error:
        return type(error)


def shape_of_nesting(spec):
    """Nested containers' types and keys, which `==` of element_specs does not see."""
    if isinstance(spec, dict):
        return {key: shape_of_nesting(item) for key, item in spec.items()}, list(spec)
    if isinstance(spec, tuple):
        return [getattr(spec, "_fields", tuple), *map(shape_of_nesting, spec)]
    return type(spec)


def ragged(lengths, dtype=tf.int32, splits=tf.int64):
    """[[0, 1, …], …]: rows of these lengths."""
    values = tf.cast(tf.range(sum(lengths)), tf.float32)
    values = tf.strings.as_string(values) if dtype is tf.string else tf.cast(values, dtype)
    return tf.RaggedTensor.from_row_lengths(values, tf.constant(lengths, splits))


def from_list(tensors, spec):
    """A dataset of these elements, under this declared spec."""
    return Dataset.from_generator(lambda: iter(tensors), output_signature=spec)


def grown(make):
    """Ten elements, made in the graph from the numbers 0 to 9."""
    return Dataset.range(10).map(make)


# ---- structures: name -> a function that makes the source ----

STRUCTURES = {
    "scalar": lambda: Dataset.range(10),
    "vector": lambda: Dataset.from_tensor_slices(np.arange(30, dtype=np.int16).reshape(10, 3)),
    "pair": lambda: grown(lambda i: (i, tf.fill([2, 2], tf.cast(i, tf.float32)))),
    "one_tuple": lambda: grown(lambda i: (i,)),
    "nested_one_tuple": lambda: grown(lambda i: ((i,),)),
    "nested_tuples": lambda: grown(lambda i: (i, (tf.cast(i, tf.uint8), (i + 1, i * i)), i - 1)),
    "dict_in_its_own_order": lambda: grown(lambda i: {"z": i, "a": i + 1, "m": i + 2}),
    "ordered_dict": lambda: grown(
        lambda i: collections.OrderedDict([("z", i), ("a", i + 1), ("m", (i, i))])
    ),
    "dict_with_int_keys": lambda: grown(lambda i: {3: i, 1: i + 1}),
    "namedtuple": lambda: grown(lambda i: Pair(left=i, right={"b": i + 1, "a": i + 2})),
    "private_namedtuple": lambda: grown(lambda i: Single(only=i)),
    "none": lambda: grown(lambda i: (i, None)),
    "none_in_dict": lambda: grown(lambda i: {"z": None, "b": i, "a": (None, Pair(i, None))}),
    "empty_tuple": lambda: grown(lambda i: (i, (), {})),
    "zero_size": lambda: grown(lambda i: (tf.zeros([0]), tf.zeros([0, 5]), tf.zeros([3, 0, 2]))),
    "one_element": lambda: grown(lambda i: tf.reshape(i, [1])),
    "string": lambda: Dataset.from_tensor_slices(STRINGS),
    "strings": lambda: Dataset.from_tensor_slices([STRINGS, STRINGS[::-1]]).repeat(2),
    "no_strings": lambda: grown(lambda i: (i, tf.zeros([0], tf.string))),
    "string_and_number": lambda: grown(lambda i: (tf.strings.as_string(i), i)),
    "named_specs": lambda: from_list(
        [(1, {"b": 2.0, "a": 3})] * 3,
        (
            tf.TensorSpec([], tf.int64, name="number"),
            {"b": tf.TensorSpec([], tf.float32, name="b_spec"), "a": tf.TensorSpec([], tf.int32)},
        ),
    ),
    "empty": lambda: Dataset.range(0),
    "already_batched": lambda: Dataset.range(10).batch(4, drop_remainder=True),
    "partly_batched": lambda: Dataset.range(10).batch(4),
    "varying_vector": lambda: grown(lambda i: (tf.range(i), i)),
    "varying_first": lambda: grown(lambda i: tf.ones([i % 3, 2, 3], tf.int16)),
    "varying_last": lambda: grown(lambda i: {"b": tf.ones([2, i % 4]), "a": i}),
    "varying_all": lambda: grown(lambda i: tf.fill([i % 3, i % 2, 2], i)),
    "varying_empty_inner": lambda: grown(lambda i: tf.zeros([i % 3, 0])),
    "varying_strings": lambda: grown(
        lambda i: (tf.fill([i % 3], b"a\0"), tf.fill([2, i % 2], b""))
    ),
    "varying_bfloat16": lambda: grown(lambda i: tf.cast(tf.range(i), tf.bfloat16)),
    "alike_though_varying": lambda: from_list(
        [np.arange(6).reshape(3, 2) + i for i in range(10)], tf.TensorSpec([None, 2], tf.int64)
    ),
    "unknown_rank": lambda: from_list(
        [np.zeros([2, 3]), np.float64(1.5), np.zeros([0]), np.zeros([1, 0, 2])],
        tf.TensorSpec(None, tf.float64),
    ),
    "unknown_rank_strings": lambda: from_list(
        [b"one\0", [b"", b"\xff"], [[b"x"]]], tf.TensorSpec(None, tf.string)
    ),
    "ragged": lambda: from_list(
        [ragged([2, 0, 3]), ragged([]), ragged([1])], tf.RaggedTensorSpec([None, None], tf.int32)
    ),
    "ragged_constant": lambda: Dataset.from_tensors(ragged([2, 1])),
    "ragged_rows": lambda: Dataset.from_tensor_slices(ragged([2, 0, 3])),
    "ragged_rows_in_dict": lambda: Dataset.from_tensor_slices(
        {"z": ragged([2, 0, 3, 1]), "a": tf.range(4), "m": tf.zeros([4, 2])}
    ),
    "ragged_rows_beside_varying": lambda: Dataset.zip(
        (Dataset.from_tensor_slices(ragged([2, 0, 3])), grown(lambda i: tf.range(i)))
    ),
    "ragged_rows_int32": lambda: Dataset.from_tensor_slices(ragged([2, 0, 3], splits=tf.int32)),
    "ragged_rows_inner": lambda: Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(tf.ones([5, 2, 3]), [2, 0, 3])
    ),
    "ragged_rows_inner_empty": lambda: Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(tf.ones([5, 0]), [2, 0, 3])
    ),
    "ragged_rank_2": lambda: Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(
            tf.RaggedTensor.from_row_lengths(ragged([1, 2, 0, 1]), [2, 0, 2]), [1, 0, 2]
        )
    ),
    "ragged_int32": lambda: from_list(
        [ragged([2, 0], splits=tf.int32), ragged([1], splits=tf.int32)],
        tf.RaggedTensorSpec([None, None], tf.int32, 1, tf.int32),
    ),
    "ragged_strings": lambda: from_list(
        [ragged([2, 0, 3], tf.string), ragged([1], tf.string)],
        tf.RaggedTensorSpec([None, None], tf.string),
    ),
    "ragged_inner": lambda: from_list(
        [tf.RaggedTensor.from_row_lengths(tf.ones([n, 2]), [n, 0]) for n in (2, 0, 3)],
        tf.RaggedTensorSpec([None, None, 2], tf.float32, 1),
    ),
    "ragged_inner_varies": lambda: from_list(
        [tf.RaggedTensor.from_row_lengths(tf.ones([3, n]), [1, 2]) for n in (2, 0, 3)],
        tf.RaggedTensorSpec([None, None, None], tf.float32, 1),
    ),
    "ragged_unknown_shape": lambda: from_list(
        [ragged([2, 0, 3]), ragged([1])], tf.RaggedTensorSpec(None, tf.int32, 1)
    ),
    "ragged_uniform": lambda: Dataset.from_tensor_slices(
        tf.RaggedTensor.from_row_lengths(
            tf.RaggedTensor.from_uniform_row_length(ragged([1, 2, 0, 1]), 2), [1, 1]
        )
    ),
    "sparse": lambda: Dataset.from_tensor_slices(tf.sparse.from_dense([[0, 1], [2, 0], [0, 0]])),
    "sparse_matrix": lambda: grown(lambda i: tf.sparse.from_dense(tf.one_hot([i, 3], 8))),
    "sparse_strings": lambda: grown(
        lambda i: tf.SparseTensor([[i]], [tf.strings.as_string(i)], [10])
    ),
    "sparse_varying": lambda: grown(lambda i: tf.SparseTensor([[0]], [i], [i + 1])),
    "everything": lambda: grown(
        lambda i: {
            "tensors": (i, tf.ones([2, 3], tf.bfloat16), tf.strings.as_string(i)),
            "sparse": tf.sparse.from_dense(tf.one_hot(i, 8)),
            "ragged": tf.RaggedTensor.from_row_lengths(tf.range(i), [i, 0]),
            "none": None,
            "any": Pair(tf.range(i), tf.fill([i % 2, i], b"\0")),
        }
    ),
}


# ---- dtypes ----

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 bfloat16 complex64 complex128 string"
).split()


def six_values(dtype):
    """Six values that are easily lost, as an array of TensorFlow's own NumPy dtype."""
    as_numpy = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    if dtype == "string":
        return np.array([b"a\0", b"\0", b"", b"x\0y", b"\xff\xfe", b"z" * 99], object)
    if dtype == "bool":
        return np.array([True, False, False, True, True, False])
    if "int" in dtype:
        least, most = np.iinfo(as_numpy).min, np.iinfo(as_numpy).max
        return np.array([least, most, 0, 1, most - 1, least + 1], as_numpy)
    if dtype == "bfloat16":  # NaN with payload, -0.0, inf, -inf, smallest, 1.0
        bits = np.array([0x7FC1, 0x8000, 0x7F80, 0xFF80, 0x0001, 0x3F80], np.uint16)
        return bits.view(as_numpy)
    real = np.dtype(f"float{as_numpy.itemsize * (4 if 'complex' in dtype else 8)}")
    result = np.array([np.nan, -0.0, np.inf, -np.inf, np.finfo(real).tiny, 1.5], real)
    bits = result.view(f"uint{real.itemsize * 8}")
    bits[0] |= bits.dtype.type(0x155)  # a payload in the NaN
    if "complex" in dtype:
        return np.stack([result, result[::-1]], axis=1).view(as_numpy).reshape(6)
    return result


def every_shape(dtype):
    six = six_values(dtype)
    return {
        "scalar": six[0],
        "one": six[:1],
        "none": six[:0],
        "matrix": six.reshape(2, 3),
        "last": six[5],
    }
