"""The YAML file next to a job's Parquet file, with the sizes of the job's parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.base.paths import path_text
from pipelines.fleet.op_job.job import JobMeta, JobRejected

_MOST_BYTES, _MOST_NESTED = 1 << 20, 1000
SIZES = ("dp_size", "dsp_size", "pp_size", "tp_size", "vpp_size", "world_size")


def meta_names(path: Path) -> list[str]:
    """Return the possible names of the YAML file: `X.yaml`, or `meta-X.yaml` for `trace-X.parquet`."""
    stems = [path.stem, f"meta-{path.stem.removeprefix('trace-')}"]
    return [f"{stem}{ending}" for stem in stems for ending in (".yaml", ".yml")]


def meta_file(path: Path) -> Path:
    """Return the YAML file next to a job's Parquet file (`meta_names`). Raise JobRejected if it does not exist."""
    names = meta_names(path)
    for name in names:
        if (path.parent / name).is_file():
            return path.parent / name
    raise JobRejected(f"{path}: no {' or '.join(names)} next to it; write its sizes there: {', '.join(SIZES)}")


def read_meta(path: Path) -> JobMeta:
    """Read a job's YAML file.

    Raise JobRejected if it is too large, is not a mapping, a size is missing or invalid, or the world size is not
    dp·dsp·pp·tp.
    """
    import yaml

    if path.stat().st_size > _MOST_BYTES:
        raise JobRejected(f"{path}: more than {_MOST_BYTES >> 10} KiB; it should state a job's sizes in a few lines")
    try:
        text = path.read_text(encoding="utf-8")
        if max(text.count("["), text.count("{"), text.count("*"), text.count("- - ")) > _MOST_NESTED:
            raise JobRejected(
                f"{path}: over {_MOST_NESTED} brackets; it should state a job's sizes as `name: value` lines"
            )
        mapping = yaml.safe_load(text)
    except RecursionError:
        raise JobRejected(f"{path}: nested too deep; it should state a job's sizes as `name: value` lines") from None
    except (yaml.YAMLError, ValueError) as error:
        raise JobRejected(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(mapping, dict):
        raise JobRejected(f"{path}: holds {type(mapping).__name__}, not `name: value` lines; write {', '.join(SIZES)}")
    sizes = {key: _size(path, mapping, key) for key in SIZES}
    dp, dsp, pp, tp, vpp, world = sizes.values()
    if world != dp * dsp * pp * tp:
        raise JobRejected(
            f"{path}: world_size is {world}, but dp·dsp·pp·tp is {dp * dsp * pp * tp}; correct one of them"
        )
    return JobMeta(
        str(mapping.get("trial_name") or path_text(path.stem.removeprefix("meta-"))), dp, dsp, pp, tp, vpp, world
    )


def _size(path: Path, mapping: dict[Any, Any], key: str) -> int:
    value = mapping.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        value_text = (
            repr(value)[:40] if value is None or isinstance(value, int | float | str) else f"a {type(value).__name__}"
        )
        raise JobRejected(f"{path}: {key} is {value_text}; it must be a whole number from 1 to 2^31")
    return value
