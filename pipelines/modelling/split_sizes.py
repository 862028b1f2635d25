"""The rows that a rank sends to and receives from each rank in an all-to-all, from the lists in the call's arguments.

PyTorch writes the lists as text, `[3, 0, 5]`, and truncates them after 30 numbers, `[3, …, 5, ...]`
(torch/csrc/profiler/util.cpp: format_list). An empty list means equal parts (all_to_all_single without sizes) or
unknown sizes (all_to_all).
"""

from __future__ import annotations

import re

import duckdb

from pipelines.models.python_tables import create_table, insert_columns, python_model

_LIST = re.compile(r"\[ *([0-9]{1,19}(?: *, *[0-9]{1,19})*)( *, *\.\.\.)? *\]")
_ASKED = """
    SELECT trace_id, event_id, args ->> '$."In split size"', args ->> '$."Out split size"', args ->> '$."Process Group Ranks"'
    FROM _collective_args
    WHERE contains(args, '"In split size"') AND contains(args, '"Out split size"')
    ORDER BY trace_id, event_id
"""
_LARGEST = 2**62


@python_model(
    "_split_sizes",
    layer="modelling",
    doc="One row: a communication kernel of a rank and a rank that it exchanges rows with, by the split sizes of its arguments.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("event_id", "BIGINT", "The kernel's position in traceEvents."),
        ("peer", "BIGINT", "Index of the other rank in the process group, from 0; the rank itself is included."),
        ("peer_rank", "BIGINT", "Its rank in the job; NULL if the trace does not list the group's ranks."),
        ("sent_rows", "BIGINT", "Rows sent to it; NULL if the list is empty or cut off before it."),
        ("received_rows", "BIGINT", "Rows received from it; NULL if the list is empty or cut off before it."),
        ("all_sent_rows", "BIGINT", "Rows sent to all; NULL if the list is empty or cut off."),
        ("all_received_rows", "BIGINT", "Rows received from all; NULL if the list is empty or cut off."),
    ),
    reads=("_collective_args",),
    checks=("unique(trace_id, event_id, peer)",),
)
def split_sizes(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `_split_sizes`."""
    create_table(con, "_split_sizes")
    rows: list[tuple] = []
    for trace_id, event_id, sent, received, ranks in con.execute(_ASKED).fetchall():
        rows += [(trace_id, event_id, *peer) for peer in peers(sent, received, ranks)]
    names = (
        "trace_id",
        "event_id",
        "peer",
        "peer_rank",
        "sent_rows",
        "received_rows",
        "all_sent_rows",
        "all_received_rows",
    )
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    insert_columns(con, "_split_sizes", dict(zip(names, columns, strict=True)))


def peers(sent: str | None, received: str | None, ranks: str | None) -> list[tuple[int | None, ...]]:
    """Return a row (columns peer to all_received_rows of `_split_sizes`) for each rank that one of the lists covers."""
    sent_rows, is_all_sent = _numbers(sent)
    received_rows, is_all_received = _numbers(received)
    group, _ = _numbers(ranks)
    totals = (sum(sent_rows) if is_all_sent else None, sum(received_rows) if is_all_received else None)
    return [
        (peer, *(_at(numbers, peer) for numbers in (group, sent_rows, received_rows)), *totals)
        for peer in range(max(len(sent_rows), len(received_rows)))
    ]


def _numbers(text: str | None) -> tuple[list[int], bool]:
    """Return the numbers of a list and whether it is complete, or ([], False) for an empty list or another text."""
    match = _LIST.fullmatch(text.strip()) if text else None
    if match is None:
        return [], False
    numbers = [int(number) for number in match[1].split(",")]
    return (numbers, match[2] is None) if sum(numbers) < _LARGEST else ([], False)


def _at(numbers: list[int], index: int) -> int | None:
    return numbers[index] if index < len(numbers) else None
