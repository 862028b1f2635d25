"""Dagster's SQLite storage, except that the event files stay open between events.

Dagster opens and closes the file for every event, and closing flushes it to the disk. On a busy disk, a flush takes 50
ms. A run has several hundred events, so flushes take most of the time of a small run. Here the two or three files in
use stay open, and a commit is not flushed. A power cut may lose the last seconds of a run's log, but a killed process
loses nothing. The file format is Dagster's, so a DAGSTER_HOME can switch between the two storages.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import sqlalchemy as db
from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqliteEventLogStorage
from dagster._core.storage.sql import create_engine
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage, SqliteStorageConfig
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.pool import StaticPool

_MOST_OPEN = 4
"""Maximum number of open files: one for all runs together, and one for each run in progress or open in the UI."""


class EventLog(SqliteEventLogStorage):
    """Dagster's event log, which keeps the most recently used files open."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the log in folder `base_dir`, as Dagster does."""
        self._open: OrderedDict[str, Engine] = OrderedDict()
        super().__init__(base_dir, inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:  # one thread at a time uses the connection
            engine = self._engine(shard)
            with engine.connect() as con, con.begin():
                yield con

    def _engine(self, shard: str) -> Engine:
        engine = self._open.pop(shard, None)
        if engine and not os.path.exists(self.path_for_shard(shard)):  # the run was deleted
            engine.dispose()
            self._initialized_dbs.discard(shard)
            engine = None
        if engine is None:
            while len(self._open) >= _MOST_OPEN:
                self._open.popitem(last=False)[1].dispose()
            engine = self._opened(shard)
        self._open[shard] = engine
        return engine

    def _opened(self, shard: str) -> Engine:
        options = {"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
        engine = create_engine(self.conn_string_for_shard(shard), poolclass=StaticPool, connect_args=options)
        if shard not in self._initialized_dbs:
            self._initdb(engine)
            self._initialized_dbs.add(shard)
        with engine.connect() as con:
            con.execute(db.text("PRAGMA synchronous=NORMAL"))
        return engine

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event, and touch the run's file. Watchers wait for a change of that file, but SQLite writes to its log first."""
        super().store_event(event)
        with suppress(FileNotFoundError):  # the run has just been deleted
            os.utime(self.path_for_shard(event.run_id))

    def dispose(self) -> None:
        """Close the files."""
        super().dispose()
        with self._db_lock:
            while self._open:
                self._open.popitem()[1].dispose()


class Records(DagsterSqliteStorage):
    """Dagster's SQLite storage with this event log. `dagster.yaml` names the class."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        """Open the storage in folder `base_dir` (DAGSTER_HOME)."""
        super().__init__(base_dir, inst_data)
        self._event_log_storage = EventLog(os.path.join(base_dir, "history", "runs", ""))

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData, config_value: SqliteStorageConfig) -> Records:
        """Return the storage for a configuration from `dagster.yaml`. Dagster calls this."""
        return cls.from_local(inst_data=inst_data, **config_value)
