"""Shared fixtures: where the reference material is, and a connection in which models run on rows written in the test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from pipelines.base import extras
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import types_of_tables
from tests.effort import ALL_STEPS, SEED, SHARE, SLOW, shares

# A shell starts what runs in its background with interrupts ignored, and so would be the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing of what collection makes is garbage: to look for some in it takes an eighth of its CPU time, in each worker.
gc.disable()
# Times are of the machine, not of the code: it may be shared.
hypothesis.settings.register_profile("tracelake", deadline=None)
hypothesis.settings.load_profile("tracelake")
# Tests run side by side: threads of torch's operators would wait for each other, and spin meanwhile.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start a hundred processes. Without bytecode files each of them would compile what it imports of the project.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
_MISSING = extras.missing()
SHARED = Path(os.environ.get("TRACELAKE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_report_header() -> str:
    """What decides which tests, and which steps of them, a run has; given again, it has the same."""
    return f"SEED={SEED} SLOW={os.environ.get('SLOW') or '0'} STEPS={'all' if ALL_STEPS else 'few'}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """What is remembered of the models' texts is made before there are workers, each of which would make it (4 CPU s)."""
    if getattr(session.config.option, "numprocesses", 0) and not hasattr(session.config, "workerinput"):
        types_of_tables(load_catalog())


@pytest.hookimpl(tryfirst=True)  # before `-k` takes some out: a test's share depends on those beside it
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run with SLOW=1, in their share, or where `-m` asks for them."""
    if SLOW or config.option.markexpr:
        return
    slow = {item.nodeid: (item, mark) for item in items if (mark := item.get_closest_marker("slow"))}
    share, n = SHARE or (0, 6)
    for test, its_share in shares({test: mark.kwargs.get("together") for test, (_, mark) in slow.items()}, n).items():
        if its_share != share:
            slow[test][0].add_marker(pytest.mark.skip(reason="slow: SLOW=1 runs it"))


def _skip_without_extra() -> Generator[None, object, object]:
    """A test that needs an extra which is not installed here, and says so, skips with the sentence."""
    try:
        return (yield)
    except extras.MissingExtra as error:
        if error.extra in _MISSING:
            pytest.skip(str(error))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Tests of DuckLake skip where DuckDB's extensions are not installed; one without the mark fails there."""
    for mark in item.iter_markers("ducklake"):
        from tests.runs.store.conftest import need_extensions

        need_extensions(*mark.args)
    return (yield from _skip_without_extra())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skip_without_extra())


def pytest_collection_finish() -> None:
    """Imported modules stay until the end: looking for garbage in them takes up to a twentieth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and reference outputs beside the checkout."""
    if not (SHARED / "traces").is_dir():
        pytest.skip(f"reference material is not there: {SHARED}")
    return SHARED


@pytest.fixture(autouse=True)
def _as_a_command_begins() -> None:
    """A process runs one command at a time, which begins without the caveats of others."""
    if caveats := sys.modules.get("pipelines.faces.cli.caveats"):
        caveats.begin()
