"""The extension module ydl._net, which holds cloud storage and the coordinator."""

from __future__ import annotations

from ydl.errors import UnsupportedError


def missing_net(attempt: str) -> UnsupportedError:
    """attempt: what somebody wanted to do, "use a bucket"."""
    return UnsupportedError(
        f"cannot {attempt}: cloud storage and the coordinator come with the extension module "
        "ydl._net, which this build of ydl does not have. A directory that all processes share "
        "works without it: type shared_fs, or ydl.storage.LFSStorage"
    )
