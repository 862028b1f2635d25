"""Paths as users give them: of this machine, or refused before a folder is made that is named like a URL's scheme."""

from __future__ import annotations

import re
from pathlib import Path

# One letter is a drive. A Path has one slash where a URL has two: Path("s3://bucket") is s3:/bucket.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class UnusablePath(ValueError):
    """A path that cannot be what it is given for; the message names it and says why."""


def local_path(given: str | Path) -> Path:
    """The path. Raises UnusablePath for what is none of this machine's: s3://…, gs://…, file://…, host:/…"""
    found = _SCHEME.match(str(given))
    # A Path that was given as ./s3:/x looks the same.
    if found is None or (isinstance(given, Path) and Path(f"{found[1]}:").exists()):
        return Path(given)
    way_out = "write the path alone" if found[1].lower() == "file" else "copy or mount it, and give the path here"
    raise UnusablePath(f"{given}: {found[1]}:// is not supported, only paths of this machine; {way_out}")
