"""`python gloo_ranks.py FOLDER`: run jobs of three gloo ranks on the CPU, and write the dumps of their ranks.

Some jobs hang. PyTorch is imported once, and every rank is a fork, so a job costs little. The ranks find each other by
a file and communicate over loopback. All ranks end with this program: each has an alarm, and the program kills ranks
that are still alive at the end.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta
from pathlib import Path

os.environ.update(TORCH_FR_BUFFER_SIZE="200", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch._C._profiler import gather_traceback, symbolize_tracebacks

WORLD, CALLS, AT = 3, 5, 3  # AT: the call (from 0) that goes wrong
SECONDS = 40


calls: list[None] = []
"""One entry for each call that a hanging job has made or is about to make."""


def train(steps: int, size: int = 4, group=None) -> None:
    """Call a collective per step, as a user's training loop does."""
    for _ in range(steps):
        calls.append(None)
        dist.all_reduce(torch.ones(size), group=group)


def skipped(rank: int) -> None:
    train(CALLS - 1 if rank == 1 else CALLS)


def wrong_size(rank: int) -> None:
    train(AT)
    train(1, 6 if rank == 2 else 4)
    train(CALLS - AT - 1)


def wrong_order(rank: int) -> None:
    train(AT)
    for op in ("broadcast", "all_reduce") if rank == 1 else ("all_reduce", "broadcast"):
        if op == "all_reduce":
            train(1)
        else:
            calls.append(None)
            dist.broadcast(torch.ones(4), 0)


def dead(rank: int) -> None:
    train(AT)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    train(1)


def slow(rank: int) -> None:
    train(AT)
    time.sleep(0.5 if rank == 1 else 0)
    train(CALLS - AT)


def several_groups(rank: int) -> None:
    """Let rank 2 omit the second collective of its pair, while rank 0 continues to the next collective of all ranks."""
    first, second = dist.new_group([0, 1], group_desc="first"), dist.new_group([1, 2], group_desc="second")
    train(1)
    if rank < 2:
        train(1, group=first)
    if rank > 0:
        train(2 if rank == 1 else 1, group=second)
    if rank == 0:
        train(1)


def crossed(rank: int) -> None:
    """Let ranks 0 and 1 call two groups in different orders, so each waits for the other."""
    groups = dist.new_group([0, 1], group_desc="one"), dist.new_group([0, 1], group_desc="other")
    if rank < 2:
        for group in (*groups, *(groups[::-1] if rank == 1 else groups)):
            train(1, group=group)


def all_kinds(rank: int) -> None:
    """Call a collective of each kind; entries differ by rank where that is legal."""
    pair = dist.new_group([0, 1], group_desc="pair")
    x, parts = torch.ones(4), [torch.zeros(4) for _ in range(WORLD)]
    if rank < 2:
        dist.all_reduce(x, group=pair)
    dist.all_gather(parts, x)
    dist.reduce_scatter(x, [torch.ones(4) for _ in range(WORLD)])
    dist.broadcast(x, 0)
    dist.gather(x, parts if rank == 0 else None, 0)
    dist.scatter(x, parts if rank == 0 else None, 0)
    dist.reduce(x, 0)
    dist.all_to_all_single(torch.zeros(WORLD), torch.ones(WORLD))
    dist.barrier()
    dist.all_gather_object([None] * WORLD, {"a": 1})
    dist.monitored_barrier()
    right, left = (rank + 1) % WORLD, (rank - 1) % WORLD
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, torch.zeros(4), left)]
    ):
        work.wait()
    dist.all_reduce(x)


JOBS = (skipped, wrong_size, wrong_order, dead, slow, several_groups, crossed, all_kinds)
# Calls that each rank makes until it hangs or has finished.
HANGS = {
    skipped: (5, 4, 5),
    wrong_size: (4, 4, 4),
    wrong_order: (4, 4, 4),
    several_groups: (3, 4, 2),
    crossed: (3, 3, 0),
}


def tell(path: Path, number: int) -> None:
    """Write the number atomically."""
    new = path.with_suffix(".new")
    new.write_text(str(number))
    new.rename(path)


def run(job, rank: int, folder: Path) -> None:
    """Run a rank, and write its dump when all ranks have finished or hang."""
    signal.alarm(SECONDS)
    store = dist.FileStore(str(folder / "store"), WORLD)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD, store=store, timeout=timedelta(seconds=SECONDS))

    def work() -> None:
        try:
            job(rank)
        except RuntimeError as error:  # the other rank died
            folder.joinpath(f"error_{rank}").write_text(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    # A rank that hangs cannot report it, so its calls are counted, and it gets a moment to continue. Dumps are taken
    # only when no rank calls anything. PyTorch records a call under a lock and then needs the GIL, while a dump holds
    # the GIL and needs the lock.
    while thread.is_alive():
        tell(folder / f".calls_{rank}", len(calls))
        counts = [folder / f".calls_{other}" for other in range(WORLD)]
        least = HANGS.get(job, (math.inf,) * WORLD)
        are_there = all(path.exists() and int(path.read_text()) >= n for path, n in zip(counts, least, strict=True))
        thread.join(0.5)
        if are_there:
            break
    # A call returns a moment before gloo's thread retires it.
    while not thread.is_alive() and b'"retired":false' in c10d._dump_fr_trace_json():
        time.sleep(0.02)
    tell(folder / f".calls_{rank}", 99)
    folder.joinpath(f"nccl_trace_rank_{rank}").write_bytes(c10d._dump_fr_trace())
    folder.joinpath("json").mkdir(exist_ok=True)
    folder.joinpath("json", f"nccl_trace_rank_{rank}.json").write_bytes(c10d._dump_fr_trace_json())
    alive = WORLD - (job is dead)
    while len(list(folder.glob("nccl_trace_rank_*"))) < alive:  # a rank that exits ends the waiting of the others
        time.sleep(0.02)


def main(root: Path) -> None:
    torch.set_num_threads(1)
    symbolize_tracebacks(
        [gather_traceback(python=True, script=True, cpp=False)]
    )  # takes seconds, so it is done once and not in each rank
    ranks = []
    for job in JOBS:
        folder = root / job.__name__
        folder.mkdir(parents=True)
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    run(job, rank, folder)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            ranks.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in ranks]
    assert sum(map(bool, statuses)) == 1, statuses  # the rank of `dead`


if __name__ == "__main__":
    main(Path(sys.argv[1]))
