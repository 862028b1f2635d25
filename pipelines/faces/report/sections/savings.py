"""What would shorten a rank's critical path, and by how much: a few what-if scenarios, computed for the page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np

from pipelines.base import database
from pipelines.critical_path.graph.bounds import CPU
from pipelines.critical_path.graph.windows import WindowNotFound, WindowRequest
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.sensitivity import ONLY_WAITS
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.window import NoGraph, Window, load
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog

_MOST_EVENTS = 2_000_000
"""Of longer traces the graph is not built again for the page."""
_TRIED = 2
"""Names of each class that are tried one by one: those with most time on the path."""


@dataclass(frozen=True)
class Saving:
    """A change and what it saves: the path's length before and after, us; `option` is the option of `tracelake what-if`.

    `what` says what takes the time, `advice` what to do about it.
    """

    what: str
    advice: str
    change: str
    option: str
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        """Returns by how much the path gets shorter."""
        return self.before_us - self.after_us

    @property
    def percent(self) -> float:
        """Returns the same in percent of the path."""
        return 100 * self.saved_us / self.before_us if self.before_us else 0.0


@dataclass(frozen=True)
class Savings:
    """The savings, largest first; or `why_not`. `n_inferred`: waits of the graph that were inferred."""

    found: list[Saving]
    n_inferred: int = 0
    why_not: str = ""


_KERNEL_ADVICE = (
    (r"flash|attention|fmha", "a newer attention kernel, a lower precision, shorter or packed sequences"),
    # Names of templates also say how they load and store: `PredicatedTileIterator`, `Copy_Atom`.
    (
        r"gemm|cutlass|xmma|gmma|cublas|Cijk|conv(?!ert)",
        "lower precision (bf16, fp8), shapes in multiples of 8 or 64, larger batches; see the roofline below",
    ),
    (
        r"elementwise|reduce_kernel|copy|CatArray|_cat_|norm",
        "fuse it with its neighbors (torch.compile, a fused kernel); store less: lower precision, fewer copies",
    ),
    ("", "look at its shapes and its share of the roofline below; a tuned or fused implementation"),
)
"""What to do about a kernel, by what its name contains; the first that fits."""

HOST = "host work on the critical path"
"""What takes the time where a faster host would help."""

_HOST_ADVICE = (
    (
        r"^(cuda|hip|cu)(DeviceGet|GetDevice|FuncGetAttributes|ModuleLoad|LibraryLoad|KernelGet|Init)",
        "what loads the runtime and its kernels once: let the profiler skip the first steps (schedule(wait=1, warmup=1))",
    ),
    (
        r"Malloc|Free|HostAlloc",
        "allocate less often: warm up before profiling, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, preallocate",
    ),
    (
        r"Memcpy|aten::(to|copy_|item|_local_scalar_dense|nonzero)",
        "avoid copies that wait: pinned memory, non_blocking=True, no .item() in the step",
    ),
    (
        r"Compiled|CompiledFxGraph|Torch-Compiled",
        "the host is inside a compiled region: CUDA graphs (mode='reduce-overhead'), fewer graph breaks and guards",
    ),
    (r"Launch", "fewer launches: fuse (torch.compile, foreach optimizers) or replay a CUDA graph"),
    (r"DataLoader|collate|stack", "load and collate in workers (num_workers, prefetch_factor, pin_memory)"),
    ("", "call it less often, batch it, or move it off the thread that launches"),
)
_OF_NAMES = {
    "COMPUTATION": (_KERNEL_ADVICE, "if this kernel were twice as fast", "--scale {0}", 0.5),
    CPU: (_HOST_ADVICE, "without this call's own time", "--remove {1}", 0.0),
}
"""By class: what to do, the change in words, the option (with `{0}` the target and its factor, `{1}` the target), the factor."""

Change = tuple[str, str, str, str, Scenario]
"""What takes the time, what to do about it, the change in words, the option of `tracelake what-if`, the scenario."""

_CHANGES: tuple[Change, ...] = (
    (
        "communication that nothing hides",
        "overlap it with computing (larger or smaller buckets, prefetching, more streams) or send less",
        "if computing hid as much communication as it can",
        "--perfect-overlap",
        Scenario(perfect_overlap=True),
    ),
    (
        "launches that reach the GPU late",
        "launch further ahead: fewer synchronizations, CUDA graphs, torch.compile, fewer small operators",
        "without launch delays",
        "--remove launch_overhead",
        Scenario((("launch_overhead", 0.0),)),
    ),
    (
        "gaps between kernels of a busy stream",
        "fuse small kernels (torch.compile, fused optimizers) or replay them as a CUDA graph",
        "without gaps between kernels",
        "--remove kernel_gaps",
        Scenario((("kernel_gaps", 0.0),)),
    ),
    (
        "copies and memsets",
        "pin host memory, copy with non_blocking=True, prefetch, keep data on the GPU",
        "without copies",
        "--remove memory",
        Scenario((("memory", 0.0),)),
    ),
)


def savings(con: duckdb.DuckDBPyConnection, trace_id: str, n_events: int) -> Savings:
    """Returns what the scenarios save on the whole trace. `con`: the analysts' file of the lake that holds the trace."""
    if n_events > _MOST_EVENTS:
        return Savings(
            [], why_not="the trace is long: `tracelake what-if TRACE --sensitivity` ranks what is worth changing"
        )
    (path,) = con.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchall()[0]
    with database.connect() as own:
        Lake(Path(path).parent).create_views(own, ["events", "findings"], trace_id)
        try:
            window = load(own, load_catalog(), WindowRequest(trace_id))
        except (NoGraph, WindowNotFound) as error:
            return Savings([], why_not=str(error))
        found = [saving for saving in _each(window) if saving.saved_us > 0]
    return Savings(sorted(found, key=lambda one: (-one.saved_us, one.option)), window.n_inferred)


def _each(window: Window) -> Iterator[Saving]:
    for what, advice, change, option, scenario in (*_CHANGES, _faster_host(window), *_faster_names(window)):
        try:
            (answer,) = what_if(window, [scenario])
        except NothingMatches:  # the trace has none of it
            continue
        yield Saving(what, advice, change, option, answer.before.length_us, answer.after.length_us)


def _faster_host(window: Window) -> Change:
    """The host twice as fast, but for calls that only wait: these end when the GPU's work does."""
    waits = sorted(name for of, name in window.events.families if of == CPU and name in ONLY_WAITS)
    scale = (("cpu", 0.5), *((name, 2.0) for name in waits))
    return (
        HOST,
        "a larger batch, less Python per step (torch.compile, CUDA graphs), data loading in workers",
        "if the host were twice as fast",
        " ".join(f"--scale {shlex.quote(f'{target}={factor:g}')}" for target, factor in scale),
        Scenario(scale),
    )


def _faster_names(window: Window) -> Iterator[Change]:
    """The computing kernels with most time on the path, each twice as fast; operators and calls, each left out."""
    families = window.events.families
    path = window.forest.longest_path(window.forest.distances(window.graph.weight))
    on_path = np.bincount(window.family[path], window.graph.weight[path], minlength=len(families) + 1)
    names = {name for _, name in families}
    for of, (advised, change, option, factor) in _OF_NAMES.items():
        own = [
            i for i, (known, name) in enumerate(families) if known == of and on_path[i] > 0 and name not in ONLY_WAITS
        ]
        for family in sorted(own, key=lambda i: (-on_path[i], families[i][1]))[:_TRIED]:
            name = families[family][1]
            target = f"name:{_pattern(name, names)}"
            yield (
                name,
                advice_for(name, advised),
                change,
                option.format(shlex.quote(f"{target}=0.5"), shlex.quote(target)),
                Scenario(((target, factor),)),
            )


def advice_for(name: str, advised: Sequence[tuple[str, str]] = _KERNEL_ADVICE) -> str:
    """Returns what to do about a kernel, or about what `advised` is for, by its name."""
    return next(said for kinds, said in advised if re.search(kinds, name, re.IGNORECASE))


def _pattern(name: str, names: set[str]) -> str:
    """The name, or a shorter pattern that no other name fits."""
    for head, tail in ((24, 0), (40, 0), (40, 24), (60, 40), (80, 80)):
        if head + tail + 1 < len(name) and not set("*?") & set(name[:head] + name[len(name) - tail :]):
            start, end = name[:head], name[len(name) - tail :]
            if (
                sum(other.startswith(start) and other.endswith(end) and len(other) >= head + tail for other in names)
                == 1
            ):
                return f"{start}*{end}"
    return name
