"""Where caches live: a directory, S3 or Google Cloud Storage."""

from ydl.storage.base import Storage as Storage
from ydl.storage.base import Submittable as Submittable
from ydl.storage.cloud import BaseCloudConfigurations as BaseCloudConfigurations
from ydl.storage.cloud import BaseCloudStorage as BaseCloudStorage
from ydl.storage.cloud import GCSConfigurations as GCSConfigurations
from ydl.storage.cloud import GCSStorage as GCSStorage
from ydl.storage.cloud import S3Configurations as S3Configurations
from ydl.storage.cloud import S3Storage as S3Storage
from ydl.storage.local import LFSConfigurations as LFSConfigurations
from ydl.storage.local import LFSStorage as LFSStorage
