"""Every SQL model on other engines, compared with DuckDB: `python -m bench.scale_engines [spark] [datafusion]`.

The SQL is tried unchanged, translated by sqlglot alone, and translated after pipelines/engines/spark/rules.py. A model
is equal if EXCEPT ALL is empty both ways, with floats compared to 9 digits. Exits with 1 if a model in Spark's last
line is not equal. Needs the extra `spark` and Java. An engine that is missing is skipped with a message.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pipelines.engines.spark.rules import carried_over
from pipelines.engines.spark.session import NoSpark, connect
from pipelines.models.catalog import Model, load_catalog
from tests.engines.spark.conftest import QUICK
from tests.engines.spark.everything import lake_of_everything
from tests.engines.spark.models import Outcome, Run, compare, compared_models, on_datafusion, on_spark, reference

ENGINES = ("spark", "datafusion")
TRACES = Path(__file__).parents[1] / "../shared/traces"
WAYS: dict[str, tuple[str | None, Callable[[str], str]]] = {
    "text unchanged": (None, str),
    "sqlglot alone": ("duckdb", str),
    "with our rules": ("duckdb", carried_over),
}


def _engine(name: str) -> str:
    if name not in ENGINES:
        raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(ENGINES)}")
    return name


def main() -> int:
    """Print the table of each engine.

    Return 1 if a model differs from DuckDB in the last line of Spark's table (SQL translated with our rules), else 0.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    # `choices` would reject an empty list before Python 3.12.
    parser.add_argument("engines", nargs="*", type=_engine, metavar="{spark,datafusion}")
    parser.add_argument("--traces", type=Path, default=TRACES, help="the folder of real traces")
    parser.add_argument("--quick", action="store_true", help="the last line of each engine only")
    parser.add_argument("--only", default="", help="only models whose name contains this")
    asked = parser.parse_args()
    engines = asked.engines or list(ENGINES)
    models = [model for model in compared_models(load_catalog()) if asked.only in model.name]
    with tempfile.TemporaryDirectory(prefix="tracelake-engines-") as name:
        folder = Path(name)
        lake = lake_of_everything(folder, asked.traces)
        began = time.perf_counter()
        rows = reference(lake, folder / "reference")
        print(f"{len(models)} models, {sum(rows.values()):,} rows of {len(rows)} tables, ", end="")
        print(
            f"{sum(rows[m.name] == 0 for m in models)} models without a row; DuckDB: {time.perf_counter() - began:.0f} s"
        )
        ways = list(WAYS)[-1:] if asked.quick else list(WAYS)
        passed = [_tried(engine, folder / "reference", models, ways) for engine in engines]
    return int("spark" in engines and not passed[engines.index("spark")])


def _tried(engine: str, folder: Path, models: list[Model], ways: list[str]) -> bool:
    """Print an engine's table. Return whether all models are equal in its last line."""
    try:
        make = _spark if engine == "spark" else _datafusion
        backend, runner = make()
    except (ImportError, NoSpark) as error:
        print(f"{engine}: left out: {error}")
        return True
    print(f"{engine} {backend.version}\n  {'':16}  equal  differs  error  seconds")
    for way in ways:
        dialect, written = WAYS[way]
        began = time.perf_counter()
        texts = {model.name: written(model.sql) for model in models}
        outcomes = list(compare(runner(backend, folder, dialect), folder, models, texts))
        _print(way, outcomes, time.perf_counter() - began)
    return all(outcome.is_equal for outcome in outcomes)


def _print(way: str, outcomes: list[Outcome], seconds: float) -> None:
    n = Counter("equal" if outcome.is_equal else outcome.how for outcome in outcomes)
    print(f"  {way:16}  {n['equal']:5}  {n['differs']:7}  {n['error']:5}  {seconds:7.0f}", flush=True)
    for outcome in outcomes:
        if outcome.how == "differs" or (way == list(WAYS)[-1] and not outcome.is_equal):
            print(f"    {outcome.name} {outcome.how}: {outcome.why[:160]}")


def _spark() -> tuple[Any, Callable[[Any, Path, str | None], Run]]:
    return connect("local[*]", QUICK), on_spark


def _datafusion() -> tuple[Any, Callable[[Any, Path, str | None], Run]]:
    if find_spec("datafusion") is None:
        raise ImportError("pip install datafusion")
    import ibis

    try:
        return ibis.datafusion.connect(), on_datafusion
    except TypeError as error:  # since DataFusion 52, an argument has another name than in Ibis 12
        raise ImportError(
            f"Ibis does not fit this version of DataFusion: pip install 'datafusion<51' ({error})"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
