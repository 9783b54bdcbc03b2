"""YogaDL: decorators that cache what a training script's dataset functions return.

The class of Determined's guide "Migrate from data layer to yogadl", with the same arguments and
configuration keys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

import numpy as np

from ydl import arguments, caching, log, storage
from ydl.autograph import called_as_is
from ydl.dataref import SHUFFLE_SCOPES, CachedDataRef
from ydl.schema import RaggedValue, SparseValue
from ydl.storage.base import DEFAULT_PART_BYTES, CachingStorage

if TYPE_CHECKING:
    import tensorflow as tf

_DEFAULT_DIRECTORY = "~/data/determined"

_COMMON_KEYS = frozenset(["type", "part_bytes", "verify", "wait_timeout_s"])
_CLOUD_KEYS = frozenset(
    [
        "bucket",
        "bucket_directory_path",
        "local_cache_container_path",
        "local_cache_host_path",
        "region",
        "addressing_style",
        "cache_limit_bytes",
        "connections",
        "ca_file",
        "skip_verify",
    ]
)
_KEYS = {
    "shared_fs": frozenset(["container_storage_path", "host_storage_path"]),
    "s3": _CLOUD_KEYS | {"access_key", "secret_key", "endpoint_url"},
    "gcp": _CLOUD_KEYS,
    "gcs": _CLOUD_KEYS,
}


class SingleProcess(NamedTuple):
    """A distributed context of one process."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0


class YogaDL:
    """Caches datasets of a training job.

    config: the `data_layer` section of the experiment's configuration.
    dist: what has .rank, .size and .local_rank, such as Determined's context.distributed; None:
    one process.
    per_slot_batch_size: kept as an attribute, noted in what is built, and used for warnings.
    seed: of the shuffles, 0 to 2**32 - 1; needed where shuffling changes from epoch to epoch.
    offset_records: records of this rank's shard that training has seen before, counted from
    start_epoch's beginning.
    rw_coordinator_url, coordinator_cert_file, coordinator_cert_name: of the lock service for s3
    and gcp; ignored for shared_fs.

    The attributes are read when a decorated function is called, so that they may be set later.

    TypeError or ValueError where the configuration is none, naming the key.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        dist: Any = None,
        per_slot_batch_size: Optional[int] = None,
        seed: Optional[int] = None,
        offset_records: int = 0,
        rw_coordinator_url: Optional[str] = None,
        coordinator_cert_file: Optional[str] = None,
        coordinator_cert_name: Optional[str] = None,
        *,
        start_epoch: int = 0,
    ) -> None:
        self.config = config
        self.dist = SingleProcess() if dist is None else dist
        self.per_slot_batch_size = per_slot_batch_size
        self.seed = seed
        self.offset_records = offset_records
        self.start_epoch = start_epoch
        self.storage: CachingStorage = _make_storage(
            config,
            _session_config(self.dist),
            rw_coordinator_url,
            coordinator_cert_file,
            coordinator_cert_name,
        )
        self._warned: set[tuple[str, ...]] = set()

    def cache_train_dataset(
        self,
        dataset_id: str,
        dataset_version: str,
        shuffle: bool = False,
        skip_shuffle_at_epoch_end: bool = False,
        *,
        batch_size: Optional[int] = None,
        drop_remainder: bool = False,
        repeat: bool = False,
        drop_shard_remainder: bool = True,
        shuffle_scope: str = "shard",
        feed: str = "auto",
    ) -> Callable[[Callable[..., Any]], Callable[..., tf.data.Dataset]]:
        """A decorator for a function that returns the training dataset. The decorated function
        returns this rank's share of the cached dataset as a tf.data.Dataset that begins at
        offset_records; it calls the function only where nothing is cached under dataset_id and
        dataset_version + "_train".

        shuffle: with `seed`, in another order each epoch unless skip_shuffle_at_epoch_end.
        batch_size, drop_remainder, repeat, feed: of ydl.tensorflow.make_tf_dataset.
        drop_shard_remainder: leave records out so that all ranks have equally many.
        shuffle_scope: "shard" (each rank shuffles its share, as yogadl does) or "global" (the whole
        dataset is shuffled, then dealt to ranks), as in DataRef.stream.
        """
        return self.make_decorator(
            dataset_id=dataset_id,
            dataset_version=_with_suffix(dataset_version, "_train"),
            shuffle=shuffle,
            skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
            drop_shard_remainder=drop_shard_remainder,
            batch_size=batch_size,
            drop_remainder=drop_remainder,
            repeat=repeat,
            shuffle_scope=shuffle_scope,
            feed=feed,
        )

    def cache_validation_dataset(
        self,
        dataset_id: str,
        dataset_version: str,
        shuffle: bool = False,
        *,
        batch_size: Optional[int] = None,
        drop_remainder: bool = False,
        repeat: bool = False,
        drop_shard_remainder: bool = False,
        shuffle_scope: str = "shard",
        feed: str = "auto",
    ) -> Callable[[Callable[..., Any]], Callable[..., tf.data.Dataset]]:
        """As cache_train_dataset, for the validation dataset: stored as dataset_version + "_val",
        always from its beginning, in one order, and with every record on some rank."""
        return self.make_decorator(
            dataset_id=dataset_id,
            dataset_version=_with_suffix(dataset_version, "_val"),
            shuffle=shuffle,
            skip_shuffle_at_epoch_end=True,
            drop_shard_remainder=drop_shard_remainder,
            batch_size=batch_size,
            drop_remainder=drop_remainder,
            repeat=repeat,
            resume=False,
            shuffle_scope=shuffle_scope,
            feed=feed,
        )

    def make_decorator(
        self,
        dataset_id: str,
        dataset_version: str,
        shuffle: bool,
        skip_shuffle_at_epoch_end: bool,
        drop_shard_remainder: bool,
        *,
        batch_size: Optional[int] = None,
        drop_remainder: bool = False,
        repeat: bool = False,
        resume: bool = True,
        shuffle_scope: str = "shard",
        feed: str = "auto",
    ) -> Callable[[Callable[..., Any]], Callable[..., tf.data.Dataset]]:
        """What the other two are made of. resume: begin at start_epoch and offset_records."""
        _check_version(dataset_version)
        arguments.choice("shuffle_scope", shuffle_scope, SHUFFLE_SCOPES)
        self.storage.check_id(dataset_id, dataset_version)

        def decorator(function: Callable[..., Any]) -> Callable[..., tf.data.Dataset]:
            @called_as_is
            @functools.wraps(function)
            def make_dataset(*args: Any, **kwargs: Any) -> tf.data.Dataset:
                ref, is_hit = self.storage.get_or_build(
                    function,
                    dataset_id,
                    dataset_version,
                    args=args,
                    kwargs=kwargs,
                    announcement=f"generating dataset {dataset_id}:{dataset_version}!",
                    per_slot_batch_size=self.per_slot_batch_size,
                )
                offset = self.offset_records if resume else 0
                epoch = self.start_epoch if resume else 0
                stream = ref.stream(
                    start_offset=offset,
                    shuffle=shuffle,
                    skip_shuffle_at_epoch_end=skip_shuffle_at_epoch_end,
                    shuffle_seed=self.seed,
                    shard_rank=self.dist.rank,
                    num_shards=self.dist.size,
                    drop_shard_remainder=drop_shard_remainder,
                    start_epoch=epoch,
                    shuffle_scope=shuffle_scope,
                )
                name = f"{dataset_id}:{dataset_version}"
                if is_hit:
                    self._tell_hit(name, ref, stream.start)
                    self._warn_of_other_batch_size(name, ref)
                if drop_shard_remainder:
                    self._tell_unused(name, ref, shuffle_scope)
                if offset > 0:
                    self._warn_of_batches(name, ref, offset)

                from ydl.tensorflow import make_tf_dataset

                dataset: tf.data.Dataset = make_tf_dataset(
                    stream,
                    batch_size=batch_size,
                    drop_remainder=drop_remainder,
                    repeat=repeat,
                    feed=feed,
                )
                return dataset

            return make_dataset

        return decorator

    # ---- what the log says ----

    def _tell_hit(self, name: str, ref: CachedDataRef, start: tuple[int, int]) -> None:
        log.info(
            "using %s: %s; rank %d of %d, epoch %d, offset %d",
            name,
            caching.describe(ref.manifest, ref.directory),
            self.dist.rank,
            self.dist.size,
            *start,
        )

    def _tell_unused(self, name: str, ref: CachedDataRef, shuffle_scope: str) -> None:
        unused = len(ref) % self.dist.size
        if unused:
            log.info(
                "drop_shard_remainder leaves %s %d of the %d records of %s unused, so that "
                "%d ranks get %d each",
                "the last" if shuffle_scope == "shard" else "in each epoch",
                unused,
                len(ref),
                name,
                self.dist.size,
                len(ref) // self.dist.size,
            )

    def _warn_of_batches(self, name: str, ref: CachedDataRef, offset: int) -> None:
        batch_size = self.per_slot_batch_size
        if not batch_size or batch_size < 2 or not _are_batches(ref, batch_size):
            return
        self._warn_once(
            ("batches", name),
            "the records of %s look like batches of %d (per_slot_batch_size), and offset_records "
            "is %d: it counts records, that is, these batches, so that %d examples are skipped. "
            "If that is steps_completed * per_slot_batch_size, offset_records=steps_completed "
            "(%d) is meant",
            name,
            batch_size,
            offset,
            offset * batch_size,
            offset // batch_size,
        )

    def _warn_of_other_batch_size(self, name: str, ref: CachedDataRef) -> None:
        stored = ref.manifest.per_slot_batch_size
        if stored is None or self.per_slot_batch_size in (None, stored):
            return
        if not _may_be_batches(ref, stored):
            return  # single records do for every batch size
        self._warn_once(
            ("batch size", name, str(self.per_slot_batch_size)),
            "%s was built with per_slot_batch_size %d, it is %d now, and the records look like "
            "batches: they keep the size that they were built with. Put the batch size into the "
            "version, or batch after caching (batch_size=...)",
            name,
            stored,
            self.per_slot_batch_size,
        )

    def _warn_once(self, key: tuple[str, ...], message: str, *args: object) -> None:
        if key not in self._warned:
            self._warned.add(key)
            log.warning(message, *args)


def _with_suffix(dataset_version: Any, suffix: str) -> str:
    _check_version(dataset_version)
    return f"{dataset_version}{suffix}"


def _check_version(dataset_version: Any) -> None:
    if not isinstance(dataset_version, str):
        raise TypeError(
            f"dataset_version must be a str, not {dataset_version!r} of type "
            f"{type(dataset_version).__name__}: write {str(dataset_version)!r}"
        )


def _leading_dimensions(record: Any) -> list[Optional[int]]:
    """Of each tensor in a record; None for scalars."""
    if isinstance(record, RaggedValue):
        return [len(record.nested_row_splits[0]) - 1]
    if isinstance(record, SparseValue):
        return [int(record.dense_shape[0]) if len(record.dense_shape) else None]
    if isinstance(record, dict):
        record = tuple(record.values())
    if isinstance(record, tuple):
        return [size for item in record for size in _leading_dimensions(item)]
    if record is None:
        return []
    shape = np.shape(record)
    return [shape[0] if shape else None]


def _are_batches(ref: CachedDataRef, batch_size: int) -> bool:
    """Every tensor of a record has batch_size entries; the last record's may have fewer."""
    if len(ref) == 0:
        return False
    first, last = (set(_leading_dimensions(record)) for record in ref.read([0, len(ref) - 1]))
    size = last.pop()
    return first == {batch_size} and not last and size is not None and size <= batch_size


def _may_be_batches(ref: CachedDataRef, batch_size: int) -> bool:
    """Every tensor of the first record has equally many entries, a multiple of batch_size."""
    if len(ref) == 0:
        return False
    sizes = set(_leading_dimensions(ref.read([0])[0]))
    size = sizes.pop()
    return not sizes and size is not None and size > 0 and size % batch_size == 0


# ---- configuration ----


def _session_config(dist: Any) -> Any:
    """Where several processes share a host, TensorFlow is to see this one's GPU alone."""
    if dist.size <= 1:
        return None
    from ydl.tensorflow import session_config

    return session_config(dist.local_rank)


def _make_storage(
    config: Any,
    session_config: Any,
    rw_coordinator_url: Optional[str],
    coordinator_cert_file: Optional[str],
    coordinator_cert_name: Optional[str],
) -> CachingStorage:
    kind = _check_config(config)
    # Sections that a schema filled in have null for what is not set.
    given = {key: value for key, value in config.items() if value is not None}
    part_bytes = given.get("part_bytes", DEFAULT_PART_BYTES)
    if kind == "shared_fs":
        return storage.LFSStorage(
            storage.LFSConfigurations(
                given.get("container_storage_path", _DEFAULT_DIRECTORY),
                part_bytes=part_bytes,
                verify=given.get("verify", "first"),
                wait_timeout_s=given.get("wait_timeout_s"),
            ),
            tensorflow_config=session_config,
        )

    common: dict[str, Any] = {
        "bucket": given["bucket"],
        "bucket_directory_path": given.get("bucket_directory_path", ""),
        "url": rw_coordinator_url,
        "local_cache_dir": given.get("local_cache_container_path", _DEFAULT_DIRECTORY),
        "skip_verify": given.get("skip_verify", False),
        "coordinator_cert_file": coordinator_cert_file,
        "coordinator_cert_name": coordinator_cert_name,
        "part_bytes": part_bytes,
    }
    if kind == "s3":
        return storage.S3Storage(  # type: ignore[abstract]  # raises: ydl.net
            storage.S3Configurations(
                access_key=given.get("access_key"),
                secret_key=given.get("secret_key"),
                endpoint_url=given.get("endpoint_url"),
                **common,
            ),
            tensorflow_config=session_config,
        )
    return storage.GCSStorage(  # type: ignore[abstract]  # raises: ydl.net
        storage.GCSConfigurations(**common), tensorflow_config=session_config
    )


def _check_config(config: Any) -> str:
    """The type of storage."""
    if not isinstance(config, Mapping):
        raise TypeError(
            f"config must be the experiment's data_layer section, a dict, not {config!r}"
        )
    kind = config.get("type")
    if kind is None:
        raise ValueError(f"config lacks the key 'type': one of {', '.join(_KEYS)}")
    if kind not in _KEYS:
        raise ValueError(f"config has the type {kind!r}, which is none of {', '.join(_KEYS)}")
    if kind != "shared_fs" and config.get("bucket") is None:
        raise ValueError(f"config lacks the key 'bucket', which type {kind} needs")
    unknown = sorted(str(key) for key in config if key not in _KEYS[kind] | _COMMON_KEYS)
    if unknown:
        log.warning(
            "config of type %s has keys that ydl does not know and ignores: %s (known are %s)",
            kind,
            ", ".join(unknown),
            ", ".join(sorted(_KEYS[kind] | _COMMON_KEYS)),
        )
    return str(kind)
