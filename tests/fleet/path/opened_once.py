"""Captures of the command line, each read and modelled once per module, however many of its tests use them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.cli.fleet.opened_capture import opened_capture


@contextmanager
def opened_once(module: str) -> Iterator[None]:
    """Let a module of the command line open each capture only once. The files must not change."""
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:

        @cache
        def once(sources: tuple[str, ...], lake: Path, tables: tuple[str, ...], process: str | None) -> Any:
            return stack.enter_context(opened_capture(list(sources), lake, tables, process=process))

        patch.setattr(
            f"{module}.opened_capture",
            lambda sources, lake, tables, process=None: nullcontext(once(tuple(sources), lake, tuple(tables), process)),
        )
        yield
