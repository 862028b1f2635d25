"""Shared fixtures: the folder of reference material, and a connection in which models run on a test's rows."""

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

# A shell starts background jobs with SIGINT ignored. Programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collection creates no garbage, but a garbage collector that runs then takes an eighth of its CPU time in each worker.
gc.disable()
# No deadline, because the machine may be shared, so run times depend on other processes.
hypothesis.settings.register_profile("tracelake", deadline=None)
hypothesis.settings.load_profile("tracelake")
# Tests run in parallel. The threads of torch's operators would wait for each other, and spin while they wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start a hundred processes. Without bytecode files each process would compile the project's modules that it
# imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
_MISSING = extras.missing()
SHARED = Path(os.environ.get("TRACELAKE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_report_header() -> str:
    """Return the settings that decide which tests and steps a run has. The same settings repeat the run."""
    return f"SEED={SEED} SLOW={os.environ.get('SLOW') or '0'} STEPS={'all' if ALL_STEPS else 'few'}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Fill the cache of the models' texts before workers start. Otherwise each worker would compute it (4 CPU s)."""
    if getattr(session.config.option, "numprocesses", 0) and not hasattr(session.config, "workerinput"):
        types_of_tables(load_catalog())


@pytest.hookimpl(tryfirst=True)  # before `-k` deselects tests, because a test's share depends on the other tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless SLOW=1 is set, the test is in this run's share, or `-m` is used."""
    if SLOW or config.option.markexpr:
        return
    slow = {item.nodeid: (item, mark) for item in items if (mark := item.get_closest_marker("slow"))}
    share, n = SHARE or (0, 6)
    for test, its_share in shares({test: mark.kwargs.get("together") for test, (_, mark) in slow.items()}, n).items():
        if its_share != share:
            slow[test][0].add_marker(pytest.mark.skip(reason="slow: SLOW=1 runs it"))


def _skip_without_extra() -> Generator[None, object, object]:
    """Skip a test that raises MissingExtra for an extra that is not installed here.

    The error's sentence is the reason.
    """
    try:
        return (yield)
    except extras.MissingExtra as error:
        if error.extra in _MISSING:
            pytest.skip(str(error))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Skip tests of DuckLake if DuckDB's extensions are not installed. A test without the mark fails there."""
    for mark in item.iter_markers("ducklake"):
        from tests.runs.store.conftest import need_extensions

        need_extensions(*mark.args)
    return (yield from _skip_without_extra())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    return (yield from _skip_without_extra())


def pytest_collection_finish() -> None:
    """Exempt imported modules from garbage collection, which would spend a twentieth of the CPU time on them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real traces and reference outputs next to the checkout."""
    if not (SHARED / "traces").is_dir():
        pytest.skip(f"reference material is not there: {SHARED}")
    return SHARED


@pytest.fixture(autouse=True)
def _as_a_command_begins() -> None:
    """Start each test without caveats of earlier tests, as a process that runs one command does."""
    if caveats := sys.modules.get("pipelines.faces.cli.caveats"):
        caveats.begin()
