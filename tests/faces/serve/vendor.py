"""`python -m tests.faces.serve.vendor`, which fetches the files of pipelines/faces/serve/vendor from npm's registry.

With `--newest` it fetches those of the newest release. source.json contains their release and their checksums, which a
test compares. Nothing is fetched at run time.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "pipelines" / "faces" / "serve" / "vendor"
SOURCE = FOLDER / "source.json"
PACKAGE = "tabulator-tables"
FILES = {
    "tabulator.min.js": "dist/js/tabulator.min.js",
    "tabulator_simple.min.css": "dist/css/tabulator_simple.min.css",
    "LICENSE": "LICENSE",
}


def checksum(content: bytes) -> str:
    """Return the SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def without_map(content: bytes) -> bytes:
    """Remove the line that names a source map, which browsers would request in vain."""
    return b"".join(line for line in content.splitlines(keepends=True) if b"sourceMappingURL" not in line)


def fetch(version: str) -> None:
    """Write the files of a release, and source.json.

    Raise ValueError if the package does not match the registry's digest.
    """
    release = _json(f"https://registry.npmjs.org/{PACKAGE}/{version}")
    with urllib.request.urlopen(release["dist"]["tarball"]) as answer:
        packed = answer.read()
    kind, _, digest = release["dist"]["integrity"].partition("-")
    if hashlib.new(kind, packed).digest() != base64.b64decode(digest):
        raise ValueError(f"{release['dist']['tarball']} is not as its integrity says")
    FOLDER.mkdir(exist_ok=True)
    sums = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for name, place in FILES.items():
            member = archive.extractfile(f"package/{place}")
            assert member is not None, place
            content = without_map(member.read())
            (FOLDER / name).write_bytes(content)
            sums[name] = checksum(content)
    source = {name: release[name] for name in ("name", "version", "license")}
    source |= {"tarball": release["dist"]["tarball"], "integrity": release["dist"]["integrity"], "sha256": sums}
    source["fetched_by"] = (
        "python -m tests.faces.serve.vendor (`make vendor`); lines that name source maps are left out"
    )
    SOURCE.write_text(json.dumps(source, indent=2) + "\n")


def _json(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


if __name__ == "__main__":
    fetch("latest" if "--newest" in sys.argv else json.loads(SOURCE.read_text())["version"])
