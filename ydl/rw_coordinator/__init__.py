"""The read-write lock service for caches in S3 and GCS: yogadl's names and frames.

Client and server need the extension module ydl._net, which this build of ydl does not have.
"""

from __future__ import annotations

from typing import Any, Optional

from ydl.net import missing_net
from ydl.rw_coordinator import communication_protocol as communication_protocol


class RwCoordinatorClient:
    """Raises UnsupportedError."""

    def __init__(
        self,
        url: str,
        skip_verify: bool = False,
        coordinator_cert_file: Optional[str] = None,
        coordinator_cert_name: Optional[str] = None,
    ) -> None:
        raise missing_net(f"ask the coordinator at {url} for a lock")


class RwCoordinatorServer:
    """Raises UnsupportedError."""

    def __init__(
        self,
        hostname: Optional[str] = None,
        port: Optional[int] = None,
        ssl_context: Optional[Any] = None,
    ) -> None:
        raise missing_net(f"run a coordinator at {hostname}:{port}")
