"""Caches in S3 and Google Cloud Storage.

They need the extension module ydl._net, which this build of ydl does not have: configurations can
be made, storages say so.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any, Optional

from ydl import arguments
from ydl.net import missing_net
from ydl.storage.base import DEFAULT_PART_BYTES, CachingStorage


class BaseCloudConfigurations:
    """What S3 and GCS have in common.

    bucket_directory_path: prefix of the keys, "" for none. url: of the coordinator, ws:// or
    wss://. local_cache_dir: where downloaded parts are kept. skip_verify, coordinator_cert_file,
    coordinator_cert_name: of the coordinator's TLS certificate. part_bytes: the largest file to
    write.
    """

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: Optional[str],
        local_cache_dir: str,
        skip_verify: bool,
        coordinator_cert_file: Optional[str],
        coordinator_cert_name: Optional[str],
        *,
        part_bytes: int = DEFAULT_PART_BYTES,
    ) -> None:
        self.bucket = bucket
        self.bucket_directory_path = bucket_directory_path
        self.url = url
        self.local_cache_dir = pathlib.Path(os.path.abspath(os.path.expanduser(local_cache_dir)))
        self.skip_verify = skip_verify
        self.coordinator_cert_file = coordinator_cert_file
        self.coordinator_cert_name = coordinator_cert_name
        self.part_bytes = arguments.integer("part_bytes", part_bytes, minimum=1)


class S3Configurations(BaseCloudConfigurations):
    """Of an S3Storage. access_key, secret_key: None means the environment's; endpoint_url: of a
    store other than AWS's."""

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: Optional[str],
        access_key: Optional[str] = None,
        secret_key: Optional[str] = None,
        endpoint_url: Optional[str] = None,
        local_cache_dir: str = "/tmp/",
        skip_verify: bool = False,
        coordinator_cert_file: Optional[str] = None,
        coordinator_cert_name: Optional[str] = None,
        *,
        part_bytes: int = DEFAULT_PART_BYTES,
    ) -> None:
        super().__init__(
            bucket=bucket,
            bucket_directory_path=bucket_directory_path,
            url=url,
            local_cache_dir=local_cache_dir,
            skip_verify=skip_verify,
            coordinator_cert_file=coordinator_cert_file,
            coordinator_cert_name=coordinator_cert_name,
            part_bytes=part_bytes,
        )
        self.access_key = access_key
        self.secret_key = secret_key
        self.endpoint_url = endpoint_url


class GCSConfigurations(BaseCloudConfigurations):
    """Of a GCSStorage."""

    def __init__(
        self,
        bucket: str,
        bucket_directory_path: str,
        url: Optional[str],
        local_cache_dir: str = "/tmp/",
        skip_verify: bool = False,
        coordinator_cert_file: Optional[str] = None,
        coordinator_cert_name: Optional[str] = None,
        *,
        part_bytes: int = DEFAULT_PART_BYTES,
    ) -> None:
        super().__init__(
            bucket=bucket,
            bucket_directory_path=bucket_directory_path,
            url=url,
            local_cache_dir=local_cache_dir,
            skip_verify=skip_verify,
            coordinator_cert_file=coordinator_cert_file,
            coordinator_cert_name=coordinator_cert_name,
            part_bytes=part_bytes,
        )


class BaseCloudStorage(CachingStorage):
    """Base of S3Storage and GCSStorage. Making one raises UnsupportedError."""

    # Not __init__, before which Python would complain about the abstract methods.
    def __new__(
        cls, configurations: BaseCloudConfigurations, tensorflow_config: Optional[Any] = None
    ) -> BaseCloudStorage:
        raise missing_net(f"use bucket {configurations.bucket!r} with a {cls.__name__}")


class S3Storage(BaseCloudStorage):
    """Datasets in a bucket of S3 or of a store with its interface."""


class GCSStorage(BaseCloudStorage):
    """Datasets in a bucket of Google Cloud Storage."""
