"""The public names of `pipelines.schedule`. The program is still run as `python -m pipelines.schedule.run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pipelines.schedule as _schedule

if TYPE_CHECKING:
    from pipelines.schedule import *  # noqa: F403

__all__: list[str] = []
__all__ += _schedule.__all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_schedule, name)
