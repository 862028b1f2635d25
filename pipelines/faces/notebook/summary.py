"""The result of `summary()` in HTA's form: a pandas Series, or a dict that prints like one if pandas is not installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

HEADER = "Critical Path broken down by boundedness = (in % of duration)"
_INDEX, _NAME = "bound_by", "duration"


class Summary(dict[str, float]):
    """Percentages by label. `dict(…)`, `[label]`, `items()`, `get()` and `print()` behave as with the Series."""

    def __str__(self) -> str:
        width = max((len(label) for label in (*self, _INDEX)), default=0)
        rows = [f"{label:{width}}{percent:14.6f}" for label, percent in self.items()]
        return "\n".join([_INDEX, *rows, f"Name: {_NAME}, dtype: float64"])

    __repr__ = __str__


def series(percent: Mapping[str, float | None]) -> pd.Series | Summary:
    """Return the percentages sorted by label, as in HTA. None (for a path of length 0) becomes NaN."""
    values = {label: float("nan") if value is None else value for label, value in sorted(percent.items())}
    try:
        import pandas as pd
    except ImportError:
        return Summary(values)
    return pd.Series(
        list(values.values()), index=pd.Index(list(values), name=_INDEX, dtype="object"), name=_NAME, dtype="float64"
    )
