"""Result of reading one trace file: the trace, its findings, or the reason for its rejection."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.base.paths import path_text, text_path


@dataclass(frozen=True)
class Finding:
    """A fault or peculiarity of a trace, which occurs `n` times. `detail` explains it."""

    check_name: str
    severity: str  # 'info' | 'warning' | 'error'
    n: int
    detail: str


@dataclass(frozen=True)
class ReadTrace:
    """A trace that was read completely."""

    trace_id: str  # first 16 hex digits of the SHA-256 of the decompressed content
    path: Path
    n_events: int
    unpacked_bytes: int
    trace_start_ns: int | None  # earliest start and latest end of events with a duration; None without such events
    trace_end_ns: int | None
    format: str  # 'json.gz/object', 'json/array', ...
    metadata: dict  # every top-level key except traceEvents
    findings: tuple[Finding, ...]
    status: str  # 'ok' | 'repaired' | 'partial'


@dataclass(frozen=True)
class KnownTrace:
    """A trace whose content is already in the lake, so it was not read further."""

    trace_id: str
    metadata: dict  # the part that can be read without reading all events


class TraceRejected(TracelakeError):
    """A file that is not ingested. `path`: the file's path as text (`path_text`).

    `byte_offset`: position of the fault in the decompressed content, None if the fault has no position.
    """

    def __init__(self, path: Path, byte_offset: int | None, reason: str) -> None:
        self.path = path_text(path)
        place = "" if byte_offset is None else f", byte {byte_offset}"
        super().__init__(f"{self.path}{place}: {reason}")
        self.byte_offset = byte_offset
        self.reason = reason

    def __reduce__(self) -> tuple:
        return (TraceRejected, (text_path(self.path), self.byte_offset, self.reason))


CHANGED = "the file changed while it was being read: try again when it is complete"
SEVERITY = {
    "truncated": "error",
    "unreadable_event": "error",
    "time_not_a_number": "error",
    "time_out_of_range": "error",
    "unusable_number": "warning",
    "second_event_array": "error",
    "duplicate_metadata_key": "warning",
    "trailing_text": "warning",
    "unreadable_metadata": "warning",
    "unmatched_begin": "warning",
    "unmatched_end": "warning",
    "negative_duration": "warning",
    "sub_nanosecond_time": "info",
    "not_an_object": "warning",
}
MEANING = {
    "repaired_nan": "bare NaN or infinity became null",
    "repaired_control_character": "raw control characters: in strings they were escaped, elsewhere removed",
    "repaired_utf8": "bytes that are not UTF-8 became U+FFFD",
    "repaired_escape": "backslashes that start no JSON escape were doubled",
    "repaired_surrogate": "lone surrogates became U+FFFD",
    "repaired_quote": "quotes inside a string were escaped",
    "repaired_comma": "missing commas were added, surplus ones removed",
    "repaired_comment": "comments, which JSON does not allow, were removed",
    "repaired_bracket": "surplus closing brackets between entries were removed",
    "repaired_value": "missing values became null, unknown bare words strings",
    "repaired_duplicate_key": "duplicate keys in one object of an event: the last one is used",
    "repaired_bom": "the byte order mark was removed",
    "truncated": "the file is truncated; everything readable before that is kept",
    "unreadable_event": "entries that cannot be read keep their position as empty rows",
    "not_an_object": "entries that are not objects keep their position as empty rows",
    "trailing_text": "text after the end of the trace was ignored",
    "unreadable_metadata": "top-level keys outside traceEvents cannot be read",
    "time_not_a_number": "ts or dur that is not a number became NULL",
    "time_out_of_range": "times over 52 days from the middle event's, before 1824 or after 2115, and durations over 104 days, became NULL",
    "second_event_array": "traceEvents occurs again in the file: the later ones were ignored",
    "duplicate_metadata_key": "duplicate keys in the metadata: the first one is used",
    "unusable_number": "invalid or too large numbers in the metadata or the file name were removed",
    "sub_nanosecond_time": "times finer than a nanosecond were rounded, halves away from zero",
    "negative_duration": "events with a negative duration",
    "unmatched_begin": "B events without their E",
    "unmatched_end": "E events without their B",
    "counter_ranges": "ranges with hardware counters (Kineto's range profiler), whose values are in kernel_counters: the times of "
    "ranges are made up, and a counted run is slower than another one",
    "empty_counter_ranges": "ranges of Kineto's range profiler without a value of a hardware counter",
    "no_counters": "kernels without operators, as PyTorch records them where hardware counters are asked for (profiler_metrics of "
    "_ExperimentalConfig), but no counters (cuda_profiler_range): if you asked for counters, this PyTorch or its CUPTI cannot "
    "collect them; count with `ncu --csv` (docs/hardware-counters.md)",
}


@dataclass
class FindingCounter:
    """Counts of findings by check, and the position of the first finding of each check."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, check: str, n: int = 1, place: str = "") -> None:
        if n:
            self.counts[check] += n
            if place:
                self.places.setdefault(check, place)

    def findings(self) -> tuple[Finding, ...]:
        """Return all counted findings. Checks without an entry in SEVERITY, such as repaired_*, are warnings."""
        return tuple(
            Finding(check, SEVERITY.get(check, "warning"), n, self._detail(check))
            for check, n in sorted(self.counts.items())
        )

    def status(self) -> str:
        """Return 'partial' if a part of the trace is missing, 'repaired' if its text was repaired, else 'ok'."""
        if any(self.counts[check] for check in ("truncated", "unreadable_event", "second_event_array")):
            return "partial"
        return "repaired" if any(check.startswith("repaired_") for check in self.counts) else "ok"

    def _detail(self, check: str) -> str:
        position = self.places.get(check)
        return MEANING[check] + (f"; first at {position}" if position else "")
