"""The Ibis expression of docs/other-engines.md, as the page has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.pages import DOCS


def busy() -> Callable[[Any], Any]:
    """Return the page's function, which maps an Ibis connection to the expression."""
    names: dict[str, Any] = {}
    (code,) = re.findall(r"^```py\n(def busy.*?)^```$", (DOCS / "other-engines.md").read_text(), re.M | re.DOTALL)
    exec(code, names)
    return names["busy"]
