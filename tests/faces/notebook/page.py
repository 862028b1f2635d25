"""Runner of the code of docs/migrating-from-hta.md, in a process without pandas.

Start it with `python -m tests.faces.notebook.page FOLDER`.

It prints JSON: the output of each block (`blocks`), and the number of computed expressions of the table (`cells`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from importlib.abc import MetaPathFinder
from typing import Any

from tests.pages import DOCS, ran

PAGE = DOCS / "migrating-from-hta.md"
SQL = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


class NoPandas(MetaPathFinder):
    """An import finder that hides pandas."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


def cells(page: str) -> list[tuple[str, str, str]]:
    """Return the rows of "Call by call": the code of Python, SQL and command, empty for a cell without code."""
    table = page.partition("## Call by call")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert all(len(row) == 4 for row in rows), "a row without four columns"
    codes = [tuple(code.group(1) if (code := _CODE.search(cell)) else "" for cell in row[1:]) for row in rows]
    return [(row[0], row[1], row[2]) for row in codes]


def run() -> dict[str, Any]:
    """Run the blocks, then the Python of the table, in one namespace and the current folder."""
    names: dict[str, Any] = {}
    printed = [shown for _, shown in ran(PAGE, names)]
    exec("import ibis", names)
    computed = 0
    for code, _, _ in cells(PAGE.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(io.StringIO()):
            value = eval(code, names)
            for table in value if isinstance(value, tuple) else (value,):
                if hasattr(table, "to_pyarrow"):
                    table.to_pyarrow()
        computed += 1
    return {"blocks": printed, "cells": computed}


if __name__ == "__main__":
    sys.meta_path.insert(0, NoPandas())
    os.chdir(sys.argv[1])
    print(json.dumps(run()))
