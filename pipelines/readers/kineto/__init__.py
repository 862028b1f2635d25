"""Reader of one trace file, which returns Arrow tables of its events, its metadata and its findings."""

from pipelines.readers.kineto.reader import TraceReader, base_of, connect_reader
from pipelines.readers.kineto.reading_result import Finding, KnownTrace, ReadTrace, TraceRejected
from pipelines.readers.read_request import ReadRequest

__all__ = [
    "Finding",
    "KnownTrace",
    "ReadRequest",
    "ReadTrace",
    "TraceReader",
    "TraceRejected",
    "base_of",
    "connect_reader",
]
