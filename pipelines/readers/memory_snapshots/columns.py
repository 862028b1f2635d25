"""Columns of the tables of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.readers.inputs.row_files import AT_ONCE

_WHOLE, _TEXT, _FLAG = pa.int64(), pa.string(), pa.bool_()
# Columns by table, as sql/ingest/<table>.sql reads them.
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "snapshot_events": {
        **{"device": _WHOLE, "seq": _WHOLE, "action": _TEXT, "address": _WHOLE, "size_bytes": _WHOLE},
        **{"device_free_bytes": _WHOLE, "stream": _WHOLE, "at_ns": _WHOLE, "pool_id": _TEXT},
        **{"compile_context": _TEXT, "user_metadata": _TEXT, "stack_id": _WHOLE},
    },
    "snapshot_segments": {
        **{"segment_id": _WHOLE, "device": _WHOLE, "address": _WHOLE, "total_bytes": _WHOLE},
        **{"allocated_bytes": _WHOLE, "active_bytes": _WHOLE, "requested_bytes": _WHOLE, "stream": _WHOLE},
        **{"segment_type": _TEXT, "pool_id": _TEXT, "is_expandable": _FLAG, "stack_id": _WHOLE},
    },
    "snapshot_blocks": {
        **{"segment_id": _WHOLE, "place": _WHOLE, "device": _WHOLE, "address": _WHOLE, "size_bytes": _WHOLE},
        **{"requested_bytes": _WHOLE, "state": _TEXT, "stack_id": _WHOLE},
    },
    "snapshot_stacks": {"stack_id": _WHOLE, "n_frames": _WHOLE, "user_frame": _TEXT},
    "snapshot_frames": {
        **{"stack_id": _WHOLE, "depth": _WHOLE, "file": _TEXT, "line": _WHOLE, "function": _TEXT, "fx_node": _TEXT},
    },
    "snapshot_annotations": {"place": _WHOLE, "device": _WHOLE, "name": _TEXT, "stage": _TEXT, "at_ns": _WHOLE},
}


def with_devices(events: Path, devices: Sequence[int]) -> Path:
    """Return a copy of the file `events` with devices in its column `device`, instead of numbers of histories.

    `events`: rows of `snapshot_events`. `devices`: the device of each history. Return `events` itself if the numbers
    are equal.
    """
    if list(devices) == list(range(len(devices))):
        return events
    target = events.with_name("events_by_device.parquet")
    device_by_number = pa.array(devices, _WHOLE)
    with pq.ParquetFile(events) as file, pq.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in file.iter_batches(AT_ONCE):
            column = batch.schema.get_field_index("device")
            writer.write_batch(batch.set_column(column, "device", device_by_number.take(batch.column(column))))
    return target
