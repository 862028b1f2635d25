"""Creation of the engine that a user names (this process or Ray)."""

from __future__ import annotations

from pipelines.base.errors import WrongValue
from pipelines.base.extras import need
from pipelines.engines.engine import Engine
from pipelines.engines.in_process import InProcess

NAMES = ("in-process", "ray")


def open_engine(name: str, address: str | None = None) -> Engine:
    """Return an engine by name. Without an address, Ray starts on this machine.

    Raise MissingExtra if Ray is not installed, ConnectionError if no cluster answers at the address, and WrongValue
    for an unknown name.
    """
    if name == "in-process":
        return InProcess()
    if name == "ray":
        need("ray", "--engine ray")
        from pipelines.engines.on_ray import OnRay

        return OnRay(address)
    raise WrongValue(f"unknown engine {name!r}; choose one of {', '.join(NAMES)}")
