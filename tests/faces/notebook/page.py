"""Run the code of docs/migrating-from-hta.md: `python -m tests.faces.notebook.page FOLDER` in a process without pandas.

Prints JSON: what each block printed (`blocks`), and how many expressions of the table were computed (`cells`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[3] / "docs" / "migrating-from-hta.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


class NoPandas(MetaPathFinder):
    """As if pandas were not installed."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


def cells(page: str) -> list[tuple[str, str, str]]:
    """The rows of "Call by call": Python, SQL and command, the code of each cell, empty where it has none."""
    table = page.partition("## Call by call")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert all(len(row) == 4 for row in rows), "a row without four columns"
    found = [tuple(code.group(1) if (code := _CODE.search(cell)) else "" for cell in row[1:]) for row in rows]
    return [(row[0], row[1], row[2]) for row in found]


def run(page: str) -> dict[str, Any]:
    """The blocks, then the Python of the table, in one namespace and the current folder."""
    names: dict[str, Any] = {"__name__": "page"}
    printed = []
    for block in BLOCK.finditer(page):
        line = page.count("\n", 0, block.start("code"))
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * line + block["code"], str(PAGE), "exec"), names)
        printed.append(out.getvalue())
    exec("import ibis", names)
    computed = 0
    for code, _, _ in cells(page):
        with contextlib.redirect_stdout(io.StringIO()):
            value = eval(code, names)
            for table in value if isinstance(value, tuple) else (value,):
                if hasattr(table, "to_pyarrow"):
                    table.to_pyarrow()
        computed += 1
    return {"blocks": printed, "cells": computed}


if __name__ == "__main__":
    sys.meta_path.insert(0, NoPandas())
    page = PAGE.read_text(encoding="utf-8")
    os.chdir(sys.argv[1])
    print(json.dumps(run(page)))
