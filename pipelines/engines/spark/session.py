"""Spark sessions, configured to compute as DuckDB does."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError
from pipelines.base.extras import need

if TYPE_CHECKING:
    from ibis.backends.pyspark import Backend

MASTER = "TRACELAKE_SPARK_MASTER"
LOCAL = "local[*]"
# Settings that a user's spark-defaults.conf or SPARK_CONF_DIR must not change, because answers depend on them.
_MEANING = {
    "spark.sql.ansi.enabled": "true",  # overflow and failed casts raise, as in DuckDB, and do not become NULL or wrap
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.runSQLOnFiles": "false",  # no FROM parquet.`path`
    "spark.sql.variable.substitute": "false",  # no ${…} in a query
}
_USUAL = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_STACK = "-Xss16m"  # thread stack size, because Spark's optimizer recurses through long queries


class NoSpark(TracelakeError, ValueError):
    """Spark cannot be started. The message gives the reason."""


def connect(master: str = "", settings: dict[str, str] | None = None) -> Backend:
    """Return Ibis over the running Spark session, or over a new session.

    `master`: where Spark runs, as in `spark-submit --master`. The default is the environment variable
    TRACELAKE_SPARK_MASTER, or else all cores of this machine. Raise MissingExtra without PySpark or Ibis, NoSpark
    without a Java runtime.
    """
    need_spark()
    import ibis
    from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

    options = {"spark.driver.extraJavaOptions": _STACK, "spark.executor.extraJavaOptions": _STACK, **_USUAL}
    options |= {**(settings or {}), **_MEANING, "spark.app.name": "tracelake"}
    options["spark.master"] = master or os.environ.get(MASTER) or LOCAL
    if SparkSession.getActiveSession() is None:
        _start(options)
    builder = SparkSession.builder
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").disabled = True  # errors are raised anyway
    return ibis.pyspark.connect(session)


def _start(options: dict[str, str]) -> None:
    """Start the Java process that talks to Spark. If it does not start, its log is part of the error."""
    from pyspark import SparkConf, SparkContext  # pyright: ignore[reportMissingImports]
    from pyspark.errors import PySparkRuntimeError  # pyright: ignore[reportMissingImports]
    from pyspark.java_gateway import launch_gateway  # pyright: ignore[reportMissingImports]

    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    with tempfile.TemporaryFile() as log:
        started: dict[str, Any] = {"stderr": log}
        try:
            gateway = launch_gateway(conf, popen_kwargs=started)
        except PySparkRuntimeError as error:
            log.seek(0)
            log_text = log.read().decode(errors="replace").strip()[-1000:]
            raise NoSpark(f"Spark does not start: {error}: {log_text}") from None
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def need_spark() -> None:
    """Raise MissingExtra without PySpark or Ibis, NoSpark without a Java runtime."""
    need("spark", "--engine spark")
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").exists():
        raise NoSpark(f"JAVA_HOME is {home}, which has no bin/java: Spark needs a Java runtime, 17 or newer")
    if not home and shutil.which("java") is None:
        raise NoSpark("Spark needs a Java runtime, 17 or newer: there is no `java` on the PATH and no JAVA_HOME")
