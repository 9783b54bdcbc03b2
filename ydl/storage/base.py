"""What all storages offer."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ydl import caching, log
from ydl.autograph import called_as_is
from ydl.build import Source
from ydl.dataref import CachedDataRef, DataRef

if TYPE_CHECKING:
    import tensorflow as tf

DEFAULT_PART_BYTES = 256 * 2**20

# What can be stored: a tf.data.Dataset, or anything with a schema, a cardinality and batches().
Submittable = Union["tf.data.Dataset", Source]


class Storage(metaclass=abc.ABCMeta):
    """Keeps datasets, each under an id and a version."""

    @abc.abstractmethod
    def submit(self, data: Submittable, dataset_id: str, dataset_version: str) -> None:
        """Stores `data`, in the place of what is stored under this id and version."""

    @abc.abstractmethod
    def fetch(self, dataset_id: str, dataset_version: str) -> DataRef:
        """A reference to what is stored."""

    @abc.abstractmethod
    def cacheable(self, dataset_id: str, dataset_version: str) -> Callable[..., Any]:
        """A decorator for a function that makes a dataset: the decorated function returns a
        DataRef, and calls the function only where nothing is stored."""


class CacheResult(NamedTuple):
    ref: CachedDataRef
    is_hit: bool  # the function was not called by this process


class CachingStorage(Storage):
    """A storage of ydl's own."""

    @abc.abstractmethod
    def get_or_build(
        self,
        function: Callable[..., Any],
        dataset_id: str,
        dataset_version: str,
        *,
        args: tuple[Any, ...] = (),
        kwargs: Optional[dict[str, Any]] = None,
        announcement: Optional[str] = None,
        per_slot_batch_size: Optional[int] = None,
    ) -> CacheResult:
        """What is stored; else calls function(*args, **kwargs) and stores the dataset it returns.

        announcement: begins the builder's first log line. per_slot_batch_size: noted in the
        manifest.
        """

    def cacheable(
        self, dataset_id: str, dataset_version: str
    ) -> Callable[[Callable[..., Any]], Callable[..., CachedDataRef]]:
        """A decorator for a function that makes a dataset.

        The decorated function returns a DataRef. It calls the function where nothing is stored
        under this id and version; processes that do so together call it once and wait for each
        other. Only id and version choose a dataset: the function's arguments and code do not.

        What is stored is validated, but for its records, which are when they are read. Where it is
        damaged, that is logged, and it is built anew. An OSError is no damage: it is raised.

        Raises what the function or its dataset raise, unchanged; NestedBuildError where the
        function asks for the dataset it makes; BuildFailedError where the builds of others failed
        while this process waited; WaitTimeoutError after `wait_timeout_s`; CorruptCacheError where
        damage cannot be healed; UnsupportedError where a newer ydl has stored it.
        """
        self.check_id(dataset_id, dataset_version)

        def decorator(function: Callable[..., Any]) -> Callable[..., CachedDataRef]:
            @called_as_is
            @functools.wraps(function)
            def make_ref(*args: Any, **kwargs: Any) -> CachedDataRef:
                ref, is_hit = self.get_or_build(
                    function, dataset_id, dataset_version, args=args, kwargs=kwargs
                )
                if is_hit:
                    log.info(
                        "using %s:%s: %s",
                        dataset_id,
                        dataset_version,
                        caching.describe(ref.manifest, ref.directory),
                    )
                return ref

            return make_ref

        return decorator

    @abc.abstractmethod
    def check_id(self, dataset_id: str, dataset_version: str) -> None:
        """ValueError where they cannot name a dataset."""


def open_source(data: Submittable, tensorflow_config: Any) -> Source:
    """A source of `data`'s records. UnsupportedError where they cannot be stored, TypeError where
    it is no dataset."""
    if isinstance(data, Source):
        return data
    # TensorFlow is imported only where there is something of it to read.
    from ydl import tensorflow as ydl_tensorflow

    source: Source = ydl_tensorflow.open_source(data, tensorflow_config)
    return source
