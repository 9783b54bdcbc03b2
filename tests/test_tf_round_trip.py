"""What goes into a cache comes out of it: values, dtypes, shapes, structure and specs."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import storage_in
from tf_support import (
    DTYPES,
    STRINGS,
    STRUCTURES,
    Dataset,
    elements,
    every_shape,
    exact,
    from_list,
    outcome,
    ragged,
    shape_of_nesting,
    six_values,
    tf,
)

from ydl.tensorflow import make_tf_dataset

BATCHED = [(2, False), (3, True), (100, False)]

# tf.data itself does not notice that shapes differ where there is no element to copy.
BATCHABLE = [name for name in STRUCTURES if name != "varying_empty_inner"]


def by_each_feed(ref, *args):
    """make_tf_dataset by both feeds, or, of records whose shapes vary or have no element, by the
    one there is."""
    schema = ref.stream().schema
    shapes = [leaf.shape for leaf in schema.leaves()]
    is_row = [shape is not None and None not in shape and 0 not in shape for shape in shapes]
    goes_natively = schema.is_plain and (bool(args) or all(is_row))
    feeds = ("generator", "native") if goes_natively else ("auto",)
    return [make_tf_dataset(ref.stream(), *args, feed=feed) for feed in feeds]


@pytest.fixture(scope="module")
def cached(tmp_path_factory):
    """The DataRef of a structure's source, which is cached once for all tests."""
    storage = storage_in(tmp_path_factory.mktemp("structures"))

    @functools.cache
    def ref(name):
        storage.submit(STRUCTURES[name](), name, "1")
        return storage.fetch(name, "1")

    return ref


@pytest.mark.parametrize("name", STRUCTURES)
def test_records(name, cached):
    source = STRUCTURES[name]()
    wanted = elements(source)
    for dataset in by_each_feed(cached(name)):
        assert dataset.element_spec == source.element_spec
        assert shape_of_nesting(dataset.element_spec) == shape_of_nesting(source.element_spec)
        assert elements(dataset) == wanted


@pytest.mark.parametrize("name", BATCHABLE)
def test_batches(name, cached):
    source = STRUCTURES[name]()
    for batch_size, drop_remainder in BATCHED:
        batches = source.batch(batch_size, drop_remainder=drop_remainder)
        spec, wanted = batches.element_spec, outcome(batches)
        for dataset in by_each_feed(cached(name), batch_size, drop_remainder):
            assert dataset.element_spec == spec
            assert shape_of_nesting(dataset.element_spec) == shape_of_nesting(spec)
            assert outcome(dataset) == wanted


@pytest.mark.parametrize("name", BATCHABLE)
def test_batching_the_records(name, cached):
    wanted = outcome(STRUCTURES[name]().batch(2))
    for dataset in by_each_feed(cached(name)):
        assert outcome(dataset.batch(2)) == wanted


@pytest.mark.parametrize("name", ["varying_vector", "varying_strings", "unknown_rank"])
def test_records_in_a_graph_have_their_static_shape(name, cached):
    source = STRUCTURES[name]()
    shapes = []

    def note(*element):
        shapes.append([tensor.shape.as_list() if tensor.shape.rank else None for tensor in element])
        return 0

    source.map(note)
    make_tf_dataset(cached(name).stream()).map(note)
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_c03_dtypes_return_unchanged(dtype, ref_of):
    """C03, values return with another dtype or are refused. Kind: dtype not stored exactly."""
    wanted = every_shape(dtype)
    source = Dataset.from_tensors(wanted)
    ref = ref_of(source)
    for dataset, batches in zip(by_each_feed(ref), by_each_feed(ref, 1)):
        assert dataset.element_spec == source.element_spec
        (record,) = dataset
        (batch,) = batches
        for key, value in wanted.items():
            for tensor in (record[key], batch[key][0]):
                assert tensor.dtype == dtype
                assert tensor.shape == np.shape(value)
                assert exact(tensor.numpy()) == exact(value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_c03_varying_shapes_keep_their_dtype(dtype, ref_of):
    """C03, as above, on the way that varying shapes take."""
    six = six_values(dtype)
    records = [six[:0].reshape(0, 2), six.reshape(3, 2), six[4:].reshape(1, 2)]
    source = from_list(records, tf.TensorSpec([None, 2], tf.as_dtype(dtype)))
    dataset = make_tf_dataset(ref_of(source).stream())
    assert [exact(record.numpy()) for record in dataset] == [exact(record) for record in records]


def test_c01_ragged_and_sparse_elements(ref_of):
    """C01, ragged and sparse elements cannot be cached. Kind: spec narrower than the data."""
    first, second = ragged([2, 1]), ragged([1, 0, 4])
    source = Dataset.from_tensors(first).concatenate(Dataset.from_tensors(second))
    dataset = make_tf_dataset(ref_of(source, "ragged").stream())
    assert dataset.element_spec == source.element_spec
    assert all(isinstance(record, tf.RaggedTensor) for record in dataset)
    assert elements(dataset) == elements(source)

    source = Dataset.from_tensors(tf.sparse.from_dense([[0, 1], [2, 0]]))
    dataset = make_tf_dataset(ref_of(source, "sparse").stream())
    assert dataset.element_spec == source.element_spec
    (record,) = dataset
    assert isinstance(record, tf.SparseTensor)
    assert tf.sparse.to_dense(record).numpy().tolist() == [[0, 1], [2, 0]]


def test_c04_strings_with_nul(ref_of):
    """C04, byte strings ending in or holding NUL are cut. Kind: C-string or fixed-width
    treatment of binary data."""
    records = [*[[text] for text in STRINGS], [b"ab", b"c\0"], [], [b"", b"\0"]]
    source = from_list(records, tf.TensorSpec([None], tf.string))
    ref = ref_of(source)
    assert [record.numpy().tolist() for record in make_tf_dataset(ref.stream())] == records

    scalars = ref_of(Dataset.from_tensor_slices(STRINGS), "scalars")
    for dataset, batches in zip(by_each_feed(scalars), by_each_feed(scalars, 100)):
        assert [record.numpy() for record in dataset] == STRINGS
        (batch,) = batches
        assert batch.numpy().tolist() == STRINGS


def test_c06_zero_size_and_varying_shapes(ref_of):
    """C06, zero-size dimensions, varying shapes, unknown rank. Kind: edge shape; static shape lost
    on the way."""
    records = [np.ones(shape, np.float32) for shape in [(0, 5), (4, 5), (1, 5), (0, 5)]]
    source = from_list(records, tf.TensorSpec([None, 5], tf.float32))
    dataset = make_tf_dataset(ref_of(source).stream())
    assert dataset.element_spec.shape.as_list() == [None, 5]
    assert [tuple(record.shape) for record in dataset] == [(0, 5), (4, 5), (1, 5), (0, 5)]

    batched = dataset.batch(1)
    assert batched.element_spec.shape.as_list() == [None, None, 5]
    layer = tf.keras.layers.Dense(2)  # needs the rank and the last dimension
    assert [tuple(layer(batch).shape) for batch in batched] == [
        (1, 0, 2),
        (1, 4, 2),
        (1, 1, 2),
        (1, 0, 2),
    ]

    records = [np.ones(shape) for shape in [(0,), (0, 5), (3, 0, 2), (4, 5), ()]]
    source = from_list(records, tf.TensorSpec(None, tf.float64))
    dataset = make_tf_dataset(ref_of(source, "unknown").stream())
    assert dataset.element_spec == source.element_spec
    assert [tuple(record.shape) for record in dataset] == [(0,), (0, 5), (3, 0, 2), (4, 5), ()]


# ---- the law: caching is the identity, and batches are .batch()'s ----


def slices(kind, lengths):
    """A dataset with an element of this kind for each length."""
    numbers = [tf.range(length) * 7 for length in lengths]
    if kind == "fixed":
        return from_list([[length] for length in lengths], tf.TensorSpec([1], tf.int32))
    if kind == "varying":
        tensors = [tf.tile(values[:, None], [1, 2]) for values in numbers]
        return from_list(tensors, tf.TensorSpec([None, 2], tf.int32))
    if kind == "string":
        return from_list([b"\0" * length for length in lengths], tf.TensorSpec([], tf.string))
    if kind == "ragged_row":
        return Dataset.from_tensor_slices(ragged(lengths))
    if kind == "ragged":
        tensors = [ragged([length, 0, 1]) for length in lengths]
        return from_list(tensors, tf.RaggedTensorSpec([None, None], tf.int32, 1))
    tensors = [tf.sparse.from_dense(tf.one_hot(values, 50)) for values in numbers]
    return from_list(tensors, tf.SparseTensorSpec([None, 50], tf.float32))


KINDS = ["fixed", "varying", "string", "ragged_row", "ragged", "sparse"]
SAME_LENGTHS = st.tuples(st.integers(0, 5), st.integers(1, 9)).map(lambda n: [n[0]] * n[1])


@settings(max_examples=20, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    lengths=st.lists(st.integers(0, 5), max_size=9) | SAME_LENGTHS,
    batch_size=st.integers(1, 5),
)
def test_caching_is_the_identity(tmp_path_factory, kinds, lengths, batch_size):
    # Keys in falling order, so that the schema's order is not TensorFlow's.
    source = Dataset.zip({f"{9 - i}": slices(kind, lengths) for i, kind in enumerate(kinds)})
    storage = storage_in(tmp_path_factory.mktemp("law"))
    storage.submit(source, "d", "1")
    ref = storage.fetch("d", "1")

    wanted = elements(source)
    for dataset in by_each_feed(ref):
        assert dataset.element_spec == source.element_spec
        assert elements(dataset) == wanted

    batches = source.batch(batch_size)
    wanted = outcome(batches)
    for dataset in by_each_feed(ref, batch_size):
        assert dataset.element_spec == batches.element_spec
        assert outcome(dataset) == wanted
