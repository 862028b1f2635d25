"""The page's script in a stub of a browser, for machines without a browser (test_page.py uses a browser)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.packaging.installed import ROOT

PAGE = ROOT / "pipelines" / "faces" / "serve" / "page"
FROM_THE_LINK = "the query is from the link; Run answers it"


def opened(fragment: str) -> dict[str, Any]:
    if not (node := shutil.which("node")):
        pytest.skip("node is not installed")
    command = [node, str(Path(__file__).with_name("opened_page.js")), str(PAGE), fragment]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


@pytest.mark.parametrize(
    ("fragment", "sql", "status"), [("", "FROM traces", None), ("#sql=FROM%20steps", "FROM steps", FROM_THE_LINK)]
)
def test_the_page_starts_with_and_without_a_link(fragment: str, sql: str, status: str | None) -> None:
    page = opened(fragment)
    assert sql in page["sql"].replace("\n", " ") and (page.get("status"), page["ready"]) == (status, "true")
    assert page["requests"] == ["/contents", "/why"]
