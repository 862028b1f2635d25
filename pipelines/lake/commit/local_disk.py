"""The check that a lake is on a local disk, because writers rely on flock, which a mounted bucket does not share.

With two mounts of one bucket, both writers obtain the lock and commit the same traces. A test with a FUSE mount wrote
72 rows for 64 traces. Reading is never refused.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from pipelines.base.paths import UnusablePath

TRUSTED = "TRACELAKE_NETWORK_DISK"
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|ceph|lustre|gpfs|glusterfs|beegfs|afs|davfs\w*|fuse\..*")
# FUSE file systems whose files are on this machine's disk.
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuse.grpcfuse", "fuse.osxfs", "fuse.lxcfs", "fuse.bindfs", "fuse.gocryptfs"}


def refuse_network(root: Path) -> None:
    """Raise UnusablePath if a lake's folder is on a network file system or a mounted bucket.

    The environment variable TRACELAKE_NETWORK_DISK disables the check, for file systems whose locks work between all
    hosts. If the mounts are unknown, no folder is refused.
    """
    kind = _kind_of(root.resolve(), _MOUNTS)
    if kind and _NETWORK.fullmatch(kind) and kind not in _LOCAL_FUSE and os.environ.get(TRUSTED, "0") in ("", "0"):
        raise UnusablePath(
            f"{root} is on {kind}: writers on several hosts may not see each other's locks there, and would commit traces "
            f"twice; keep the lake on a local disk, or set {TRUSTED}=1 if flock works between all hosts that write it"
        )


@lru_cache(maxsize=64)
def _kind_of(folder: Path, mounts: Path) -> str | None:
    """Return the type of the file system of a folder, which need not exist yet.

    Return None if the system does not list its mounts.
    """
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return None
    longest: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(_unescaped(before.split()[4]))
        # A later mount on the same folder hides the earlier mount.
        if folder.is_relative_to(point) and (longest is None or len(point.parts) >= longest[0]):
            longest = len(point.parts), after.split()[0]
    return longest and longest[1]


def _unescaped(text: str) -> str:
    """Decode the octal escapes (of blanks and backslashes) in a path of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
