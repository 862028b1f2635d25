"""Findings that limit what can be concluded from a trace or a capture (sql/rules/lake/limiting_findings.csv).

Every interface shows them with its answers. Examples are a truncated file, GPU work that the profiler lost or wrote
twice, and a capture without some of its ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.base.datafiles import rule_rows
from pipelines.base.units import counted
from pipelines.models.questions import Limit, part_of
from pipelines.models.sqltext import quoted, row

if TYPE_CHECKING:
    from pipelines.lake.read.sandbox import LockedLake

_TRUNCATED = "truncated"
_SHOWN = 5
_PART = 100  # rows fetched at a time
_TABLES = {"trace": ("findings", "quality"), "capture": ("capture_quality",)}
"""The tables whose rows are the findings."""


class LimitingFinding(NamedTuple):
    """A finding about a trace or a capture. `trace_id` is None for a capture.

    `file` is the trace's file, empty for a capture. `findings_of_newest` adds the job to it.
    """

    trace_id: str | None
    file: str
    check: str
    severity: str
    detail: str

    @property
    def sentence(self) -> str:
        """Return the caveat, without a full stop."""
        if self.check == _TRUNCATED:
            return f"{self.file} is truncated: all numbers cover only the part that was read, not the whole run"
        return f"{self.file}: {self.detail}" if self.file else self.detail

    def as_json(self) -> dict[str, str]:
        """Return the caveat for `--json`."""
        detail = f"{self.sentence} ({self.detail})" if self.check == _TRUNCATED else self.sentence
        return {"caveat": self.check, "severity": self.severity, "detail": detail}


def sentences(findings: Collection[LimitingFinding]) -> Iterator[str]:
    """Yield the caveats, at most five of each check, and the number of the others."""
    for check in dict.fromkeys(finding.check for finding in findings):
        of_check = [finding for finding in findings if finding.check == check]
        yield from (finding.sentence for finding in of_check[:_SHOWN])
        if (n_more := len(of_check) - _SHOWN) > 0:
            more = f"to {counted(n_more, 'more file')}" if of_check[0].trace_id else counted(n_more, "more time")
            yield f"the same applies {more}"


def worded(caveats: Iterable[dict[str, Any]], file: str) -> list[dict[str, Any]]:
    """Return the caveats of a path, with the caveat about a truncated file worded as in all other answers."""
    return [
        LimitingFinding(None, file, _TRUNCATED, caveat["severity"], caveat["detail"]).as_json()
        if caveat.get("caveat") == _TRUNCATED
        else caveat
        for caveat in caveats
    ]


def with_findings(caveats: Iterable[dict[str, Any]], findings: Iterable[LimitingFinding]) -> list[dict[str, Any]]:
    """Return the caveats of a path, followed by the findings that are not among them."""
    listed = list(caveats)
    known = {caveat["detail"] for caveat in listed}
    added = [(finding.detail, finding.as_json()) for finding in findings]
    return [*listed, *(caveat for detail, caveat in added if known.isdisjoint((detail, caveat["detail"])))]


def _checks(scope: str) -> list[str]:
    """Return the names of the checks whose findings limit answers about a trace or a capture."""
    return [rule["check_name"] for rule in rule_rows("limiting_findings") if rule["scope"] == scope]


def findings_of_saved(meta: dict[str, Any]) -> list[LimitingFinding]:
    """Return the findings about the trace of a saved path, without reading the trace, which may no longer exist.

    `meta`: as in SavedPath.
    """
    trace = meta["trace"]
    findings = trace.get("findings")
    if findings is None:  # a path saved by version 0.2
        cut, lost = trace["truncated"], trace.get("lost_kernels")
        findings = [{"check_name": _TRUNCATED, "severity": "error", "detail": cut}] if cut else []
        findings += [{"check_name": "lost_kernels", **lost}] if lost else []
    return [
        LimitingFinding(trace["trace_id"], trace["file"], finding["check_name"], finding["severity"], finding["detail"])
        for finding in findings
        if finding["check_name"] in _checks("trace")
    ]


def _traces_query(condition: str) -> str:
    """Return the query for the findings about the traces `t` that meet the condition, by file."""
    return (
        "SELECT t.trace_id, t.file, f.check_name, max(f.severity) AS severity, max(f.detail) AS detail "
        "FROM traces AS t JOIN findings AS f USING (trace_id) "
        f"WHERE f.check_name IN {row(_checks('trace'))} AND ({condition}) GROUP BY ALL ORDER BY t.file, t.trace_id, f.check_name"
    )


def _captures_query(condition: str, file: str = "''") -> str:
    """Return the query for the findings about the captures `c` that meet the condition.

    `file`: SQL of the column `file`.
    """
    return (
        f"SELECT DISTINCT NULL AS trace_id, {file} AS file, c.check_name, c.severity, c.detail FROM capture_quality AS c "
        f"WHERE c.check_name IN {row(_checks('capture'))} AND ({condition}) ORDER BY ALL"
    )


def findings_of_traces(con: Any, of: str = "") -> list[LimitingFinding]:
    """Return the findings about the traces in `con` (tables `traces` and `findings`), by file.

    `of`: prefix of a trace id, or of the id of a capture (table `capture_ranks`) whose traces count, or "" for all
    traces.
    """
    condition = "true"
    if of:
        members = f"SELECT trace_id FROM capture_ranks WHERE starts_with(capture_id, {quoted(of)})"
        condition = f"starts_with(t.trace_id, {quoted(of)}) OR t.trace_id IN ({members})"
    return [LimitingFinding(*values) for values in con.execute(_traces_query(condition)).fetchall()]


def query_of_part(limits: Mapping[str, Limit]) -> str:
    """Return the query for the findings about the traces within the limits of a saved question."""
    return part_of(_traces_query("true"), "traces AS t", limits)


def findings_of_captures(con: Any, of: str = "") -> list[LimitingFinding]:
    """Return the findings about the captures in `con` (table `capture_quality`) whose ids have the prefix `of`."""
    query = _captures_query(f"starts_with(c.capture_id, {quoted(of)})")
    return [LimitingFinding(*values) for values in con.execute(query).fetchall()]


def findings_of_captures_of(con: Any, trace_ids: Iterable[str]) -> list[LimitingFinding]:
    """Return the findings about the captures in `con` (tables `capture_quality`, `capture_ranks`) that contain any of these traces."""
    members = f"SELECT capture_id FROM capture_ranks WHERE trace_id IN {row(sorted(trace_ids))}"
    return [
        LimitingFinding(*values) for values in con.execute(_captures_query(f"c.capture_id IN ({members})")).fetchall()
    ]


def findings_of_capture(ask: Callable[[str], list[dict[str, Any]]], capture_id: str) -> list[LimitingFinding]:
    """Return the findings about a capture and its traces, with rows from `ask`, which maps a query to its rows by column."""
    capture = f"capture_id = {quoted(capture_id)}"
    members = f"t.trace_id IN (SELECT trace_id FROM capture_ranks WHERE {capture})"
    rows = [*ask(_captures_query(f"c.{capture}")), *ask(_traces_query(members))]
    return [LimitingFinding(*row_by_column.values()) for row_by_column in rows]


def findings_of_trace(ask: Callable[[str], list[dict[str, Any]]], trace_id: str) -> list[LimitingFinding]:
    """Return the findings about a trace. `ask` maps a query to its rows by column."""
    rows = ask(_traces_query(f"t.trace_id = {quoted(trace_id)}"))
    return [LimitingFinding(*row_by_column.values()) for row_by_column in rows]


def findings_of_newest(con: Any, jobs: Iterable[Mapping[str, Any]]) -> list[LimitingFinding]:
    """Return the findings about the newest capture of each job and about its traces, with the job's name.

    `con`: with the tables `traces`, `findings`, `capture_ranks` and `capture_quality`. `jobs`: rows of table `jobs`.
    """
    names = {job["capture_id"]: f"job {job['job']}" if job["job"] else f"capture {job['capture_id']}" for job in jobs}
    if not names:
        return []
    captures = f"capture_id IN {row(sorted(names))}"
    members = f"SELECT trace_id FROM capture_ranks WHERE {captures}"
    capture_of = dict(con.execute(f"SELECT trace_id, capture_id FROM capture_ranks WHERE {captures}").fetchall())
    of_captures = con.execute(_captures_query(f"c.{captures}", "c.capture_id")).fetchall()
    of_traces = con.execute(_traces_query(f"t.trace_id IN ({members})")).fetchall()
    return [
        *(LimitingFinding(None, names[capture], *values) for _, capture, *values in of_captures),
        *(
            LimitingFinding(trace, f"{file} of {names[capture_of[trace]]}", *values)
            for trace, file, *values in of_traces
        ),
    ]


def caveats_of_query(locked: LockedLake, query: str) -> list[str]:
    """Return the caveats about the traces and captures in the tables that a query reads, a sentence per check.

    If the query selects traces or captures by id, only these count, otherwise all in the lake. A query of the findings
    themselves has no caveats. No table is computed, so captures that are not in `capture_quality` yet have no findings.
    Raise LimitReached and QueryStopped as the query itself does, because counting the findings also reads the lake's
    tables.
    """
    # Imported here, because every command imports this module, and most commands need not import DuckDB.
    import duckdb

    from pipelines.lake.names import MARK, REDUCED
    from pipelines.lake.read.named_traces import condition_in
    from pipelines.lake.read.query_tables import tables_named, tables_read
    from pipelines.models.catalog import load_catalog

    con = locked.con
    models, names = load_catalog().models, tables_named(query, con)
    # Without `traces`, because few queries of it use its column capture_id. `tables_read` adds the tables that views read.
    read = {*names, *tables_read(query, con)} - {MARK}
    stored = [name for name in read if name in models and models[name].kind != "rules"]
    columns = {column.name for name in stored for column in models[name].columns}
    is_of_captures = "capture_id" in columns
    is_of_traces = is_of_captures or "trace_id" in columns or MARK in names
    scopes = [
        scope
        for scope, is_read in (("trace", is_of_traces), ("capture", is_of_captures))
        if is_read and names.isdisjoint(_TABLES[scope])
    ]
    if not scopes:
        return []
    ids = {}
    for scope in _TABLES:
        condition = condition_in(con, query, f"{scope}_id")
        ids[scope] = condition.ids if condition and not condition.others else ()
    counts = " UNION ALL ".join(_count_query(scope, ids) for scope in scopes)
    try:
        with locked.asked(counts) as answer:
            assert answer is not None  # a SELECT has an answer
            # In parts, because the limit of rows is that of the user's query.
            by_check = {check: values for part in answer.parts(_PART) for check, *values in part}
    except duckdb.Error as error:  # a file of the findings is damaged
        return [f"the caveats of the answer are unknown: {str(error).splitlines()[0]}"]
    # `TablesOfLake.reduced` reports the tables in which digests have no rows.
    rules = [rule for rule in rule_rows("limiting_findings") if rule["check_name"] != REDUCED]
    return [_of_many(rule, *by_check[rule["check_name"]]) for rule in rules if rule["check_name"] in by_check]


def _count_query(scope: str, ids: Mapping[str, tuple[str, ...]]) -> str:
    """Return the query that counts the traces or captures with each finding.

    Its columns: check, count, count of all, a file, a detail. `ids`: ids of traces and captures by scope, empty for all.
    """
    other = "capture" if scope == "trace" else "trace"
    if ids[scope]:
        condition = f"{scope}_id IN {row(ids[scope])}"
    elif ids[other]:
        condition = f"{scope}_id IN (SELECT {scope}_id FROM capture_ranks WHERE {other}_id IN {row(ids[other])})"
    else:
        condition = "true"
    file = "max(a.file)" if scope == "trace" else "''"
    all_of_scope = f"(SELECT * FROM {scope}s WHERE {condition})"
    return (
        f"SELECT f.check_name, count(DISTINCT {scope}_id), (SELECT count(*) FROM {all_of_scope}), {file}, max(f.detail) "
        f"FROM {all_of_scope} AS a JOIN {_TABLES[scope][0]} AS f USING ({scope}_id) "
        f"WHERE f.check_name IN {row(_checks(scope))} GROUP BY f.check_name"
    )


def _of_many(rule: Mapping[str, str], n: int, n_all: int, file: str, detail: str) -> str:
    """Return the caveat about `n` of `n_all` traces or captures. If `n_all` is 1, return the finding's own sentence."""
    check, scope = rule["check_name"], rule["scope"]
    if n_all == 1:
        return LimitingFinding(None, file, check, "", detail).sentence
    # For captures, `n_all` would be too large, because some may not be in capture_quality yet.
    which = f"{n:,} of {n_all:,} traces" if scope == "trace" else counted(n, scope)
    verb = "has" if n == 1 else "have"
    return f"{which} {verb} {rule['meaning']}: SELECT * FROM {_TABLES[scope][0]} WHERE check_name = '{check}'"
