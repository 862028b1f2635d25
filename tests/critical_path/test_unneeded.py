"""Models whose rows a path does not need are skipped, and the answer stays the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.critical_path.answer import answer
from pipelines.critical_path.graph.skippable_models import unneeded
from pipelines.critical_path.graph.switches import switch_overrides
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, sync, x

# Models that are skipped although they have rows, because no other model reads these rows.
_READ_BY_NOBODY = {"_queue"}
_WITH_WAITS, _WITHOUT = ("critical_path/alexnet", "ranks/dlrm_8/worker0")


_ASKED = [("default", []), ("hta", []), ("default", [("infer_waits", "never"), ("launch_delay_needs_queue", "true")])]
_QUICK = [(_WITHOUT, *_ASKED[0]), (_WITH_WAITS, *_ASKED[1])]
_SLOW = [(_WITH_WAITS, *_ASKED[0]), (_WITHOUT, *_ASKED[2])]


@pytest.mark.slow
@pytest.mark.parametrize(("trace", "profile", "settings"), [*_QUICK, *_SLOW])
def test_the_path_is_the_same_with_all_rows(
    trace: str, profile: str, settings: list[tuple[str, str]], shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    con, trace_id = connect(shared / "traces" / f"{trace}.json.gz")
    request, overrides = WindowRequest(trace_id, profile=profile), switch_overrides(profile, settings)
    catalog = load_catalog()
    path = answer.critical_path(con, catalog, request, overrides=overrides)
    names = unneeded(con, request, overrides)
    assert names
    request_windows(con, [request], overrides)
    run_models(con, catalog, names)
    for name in names:
        if name not in _READ_BY_NOBODY:
            assert con.execute(f"SELECT count(*) FROM {name}").fetchall() == [(0,)], name
        con.execute(f"DROP TABLE {name}")  # without a request, the table may be a view
    monkeypatch.setattr(answer, "unneeded", lambda *_: frozenset())
    assert answer.critical_path(con, catalog, request, overrides=overrides) == path


def test_each_kind_is_found_somewhere(shared: Path) -> None:
    for trace in (_WITH_WAITS, _WITHOUT):
        con, trace_id = connect(shared / "traces" / f"{trace}.json.gz")
        models = unneeded(con, WindowRequest(trace_id), {})
        assert not models & {"_inferred_waits", "_event_waits"}
        assert not {"_queue"} & unneeded(con, WindowRequest(trace_id, profile="hta"), {})
        of_data = unneeded(con, WindowRequest(trace_id), {("default", "dependencies"): "data"})
        assert models - of_data == {"_stack_events", "_stack_edges", "_work_edges"}
        # Both traces have copies to pageable memory, which block and have no rows of waits.
        assert of_data - models >= {"_thread_roles", "_call_claims", "_gpu_claims"}


@pytest.mark.slow  # 2 s
def test_calls_of_code_with_a_default_stream_per_thread_need_the_same_models() -> None:
    """Code with a default stream per thread calls functions with a suffix: ptsz or ptds in CUDA, spt in HIP."""
    by_suffix = []
    for suffix in ("", "_ptsz", "_ptds", "_spt"):
        names = ("cudaEventRecord", "cudaStreamWaitEvent", "cudaEventQuery", "cudaStreamSynchronize")
        calls = [call(f"{name}{suffix}", 100 + 10 * i, 5, 2 + i) for i, name in enumerate(names)]
        con, trace_id = connect([call("cudaLaunchKernel", 90, 5, 1), kernel("k", 96, 9, 1), *calls])
        by_suffix.append(unneeded(con, WindowRequest(trace_id), {}))
    assert not by_suffix[0] & {"_event_waits", "_inferred_waits", "_poll_loops"}
    assert by_suffix == [by_suffix[0]] * 4


@pytest.mark.slow  # 2 s
def test_a_wait_without_a_correlation_id_is_the_wait_of_no_call() -> None:
    """A wait without a correlation id belongs to no call, so the call's wait is inferred.

    The other kernel's launch shows that the trace records waits.
    """
    launches = [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 6, 90, 1)]
    needed = []
    for correlation in (2, 0):
        wait = [call("cudaStreamSynchronize", 10, 90, correlation), sync("Stream Sync", 11, 86, correlation, 7)]
        con, trace_id = connect([*launches, *wait])
        needed.append("_inferred_waits" not in unneeded(con, WindowRequest(trace_id), {}))
        run_models(con, load_catalog(), ["_inferred_waits"])
        assert con.execute("SELECT count(*) FROM _inferred_waits WHERE basis <> 'call_order'").fetchall() == [
            (int(needed[-1]),)
        ]
    assert needed == [False, True]


def test_a_row_that_shows_where_an_event_was_recorded_is_read_beside_waits_that_state_all() -> None:
    record = x("cuda_event", "cudaEvent", 7, 0.001, 7, 0, correlation=2, stream=7, device=0, event_id=1)
    wait = sync("Stream Wait Event", 8, 1, 3, 8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2)
    events = [call("cudaEventRecord", 6, 1, 2), call("cudaStreamWaitEvent", 8, 1, 3), wait]
    needed = []
    for trace in (events, [*events, record]):
        con, trace_id = connect(trace)
        needed.append("_inferred_waits" not in unneeded(con, WindowRequest(trace_id), {}))
    assert needed == [False, True]
