"""Processes for programs of several ranks on one device: their process group, and their results by rank."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

# NCCL refuses two ranks on one GPU of one host. With a different host ID for each rank, NCCL assumes different hosts,
# which communicate over sockets. The number of channels is low, because the kernels of all ranks share the GPU's units.
NCCL = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_NET": "Socket",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_RAS_ENABLE": "0",
    "NCCL_MAX_NCHANNELS": "2",
    "GLOO_SOCKET_IFNAME": "lo",
}


def join(backend: str, rank: int, ranks: int, store: Path) -> None:
    """Join the process group whose members meet at the file `store`."""
    os.environ.update(NCCL, NCCL_HOSTID=f"rank{rank}")
    if backend == "nccl":
        torch.cuda.set_device(0)
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )


def check_backend(rank: int, ranks: int, backend: str, device: str, store: Path) -> dict[str, Any]:
    """Return the seconds of a sum of a megabyte over the ranks. Raise an error if the backend cannot compute it."""
    join(backend, rank, ranks, store)
    seconds = 0.0
    for _ in range(3):  # the first sum connects the ranks
        start = time.perf_counter()
        ones = torch.ones(1 << 18, device=device)
        dist.all_reduce(ones)
        total, seconds = int(ones[0].item()), time.perf_counter() - start
        if total != ranks:
            raise RuntimeError(f"the sum over {ranks} ranks is {total}")
    return {"seconds": seconds}


def start_ranks(
    target: Callable[..., dict[str, Any]], ranks: int, *arguments: Any, scratch: Path
) -> list[dict[str, Any]]:
    """Run `target(rank, ranks, *arguments, store)` in a process for each rank, and return their results by rank.

    If a rank fails, the others are ended, and its error is raised.
    """
    store = scratch / f"store.{time.monotonic_ns()}"
    results = [scratch / f"{store.name}.rank{rank}" for rank in range(ranks)]
    processes = [
        multiprocessing.Process(target=_rank, args=(target, rank, ranks, *arguments, store, results[rank]))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    while any(process.is_alive() for process in processes) and not any(process.exitcode for process in processes):
        time.sleep(0.02)
    for process in processes:
        if process.is_alive():
            process.join(0.5)
            process.kill()
        process.join()
    read = [json.loads(result.read_text()) if result.exists() else None for result in results]
    errors = [f"rank {rank}: {outcome['error']}" for rank, outcome in enumerate(read) if outcome and "error" in outcome]
    if errors or None in read:
        raise RuntimeError("; ".join(errors) or f"ranks ended with {[process.exitcode for process in processes]}")
    return [outcome for outcome in read if outcome is not None]


def _rank(target: Callable[..., dict[str, Any]], rank: int, ranks: int, *arguments: Any) -> None:
    *passed, store, result = arguments
    try:
        outcome = target(rank, ranks, *passed, store)
    except Exception as error:
        outcome = {"error": f"{type(error).__name__}: {error}"[-1500:]}
    partial = result.with_name(f"{result.name}.partial")
    partial.write_text(json.dumps(outcome))
    partial.rename(result)
    os._exit(1 if "error" in outcome else 0)  # destructors of process groups wait for ranks that may have ended
