"""Threads that compute with as many OpenMP threads as the thread that makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

import torch


def computing_thread(name: str, work: Callable[..., Any], arguments: Sequence[Any] = ()) -> Thread:
    """Return a daemon thread, not started yet, that calls `work` with the caller's torch.get_num_threads().

    OpenMP keeps the number per thread. A new thread would begin with one for each core, whatever the caller has set, and the
    threads of several streams would take the cores from one another.
    """
    return Thread(target=_work, args=(torch.get_num_threads(), work, *arguments), name=name, daemon=True)


def _work(n_threads: int, work: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(n_threads)
    work(*arguments)
