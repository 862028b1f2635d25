"""Specification of a synthetic capture: sizes, and mean durations from which its programs draw."""

from __future__ import annotations

from dataclasses import dataclass

SHAPES = (
    "training", "inference", "inference_graph", "serving", "parallel", "loop", "polling", "full_queue", "accumulation", "waits",
    "pool", "devices", "planted",
)  # fmt: skip
GRAPH_ORIGINS = ("none", "warm_up", "capture", "both")


@dataclass(frozen=True)
class CaptureSpec:
    """Specification of a capture. Times are ns. Durations of a step's parts are means.

    Attributes:
        compute_streams: number of streams of compute kernels. The first is stream 7.
        bucket_layers: layers of the backward pass that share one all-reduce.
        straggler: the rank whose compute kernels take `straggler_slowdown` times as long, or None.
        clock_offset_ns: lead of each rank's clock over true time. Missing ranks have 0.
        fractional_ts: microseconds with three decimals and `baseTimeNanoseconds`. Otherwise whole microseconds, and
            offsets must be whole microseconds, too.
        shape: one of SHAPES.
            training: data-parallel training.
            inference: steps that decode `tokens` tokens with small operators on one thread.
            inference_graph: the same, but each token is one CUDA graph.
            serving: no profiler steps. Each batch reads the prompts of new requests and decodes `tokens` tokens for each,
                with vLLM's step names.
            parallel: training with process groups for tensor, pipeline and data parallelism.
            loop: Python between operators, and data that is loaded and preloaded.
            polling: steps that poll events until they have ended.
            full_queue: launches that block.
            accumulation: accumulation of gradients over micro-batches.
            waits: cudaFree and other calls that wait.
            pool: work that two threads launch concurrently.
            devices: layers on two devices.
            planted: steps that are long because of one cause.
        plant: the cause, for `planted` (planted.PLANTS).
        graph_origin: origin of an inference_graph in the trace, before its first token: none, the warm_up that ran the same
            operators, their stream capture, or both.
        tensor, pipeline: number of ranks in a tensor-parallel group (neighbouring ranks, a node), and number of
            pipeline stages, for `parallel`.
        queue_limit: launches in a stream's queue before the next launch blocks, or None for no limit.
        watchdog: whether a separate thread polls events without waiting, for `polling`.
        launch_jitter: maximum relative deviation of launch latencies from their mean, 0 to 1.
        sync_each_step: end each step with a device sync. Otherwise the truth has no paths of single steps.
    """

    ranks: int = 2
    steps: int = 3
    layers: int = 4
    ops_per_layer: int = 3
    seed: int = 0
    compute_streams: int = 2
    bucket_layers: int = 2
    op_ns: int = 24_000
    kernel_ns: int = 40_000
    collective_ns: int = 150_000
    collective_skew_ns: int = 1_000
    straggler: int | None = None
    straggler_slowdown: float = 1.5
    clock_offset_ns: tuple[int, ...] = ()
    include_python_frames: bool = False
    fractional_ts: bool = True
    sync_each_step: bool = True
    launch_jitter: float = 0.5
    gz: bool = True
    first_step: int = 0
    shape: str = "training"
    tokens: int = 16
    graph_origin: str = "none"
    tensor: int = 1
    pipeline: int = 1
    plant: str = "none"
    queue_limit: int | None = None
    watchdog: bool = False

    def __post_init__(self) -> None:
        if min(self.ranks, self.steps, self.layers, self.ops_per_layer, self.compute_streams, self.bucket_layers) < 1:
            raise ValueError("ranks, steps, layers, ops_per_layer, compute_streams and bucket_layers must be positive")
        if self.shape not in SHAPES or self.tokens < 1:
            raise ValueError(f"shape must be one of {', '.join(SHAPES)}, and tokens positive")
        if self.graph_origin not in GRAPH_ORIGINS or (self.graph_origin != "none" and self.shape != "inference_graph"):
            raise ValueError(f"graph_origin must be one of {', '.join(GRAPH_ORIGINS)}, and the shape inference_graph")
        if self.plant != "none" and self.shape != "planted":
            raise ValueError("a plant needs the shape planted")
        if min(self.tensor, self.pipeline) < 1 or self.ranks % (self.tensor * self.pipeline):
            raise ValueError(f"{self.ranks} ranks are not whole groups of {self.tensor} x {self.pipeline}")
        if self.straggler is not None and not 0 <= self.straggler < self.ranks:
            raise ValueError(f"straggler {self.straggler} is not one of {self.ranks} ranks")
        if not self.fractional_ts and any(offset % 1000 for offset in self.clock_offset_ns):
            raise ValueError("clock offsets must be whole microseconds if timestamps are")

    def offset_ns(self, rank: int) -> int:
        """Return the clock offset of a rank, ns."""
        return self.clock_offset_ns[rank] if rank < len(self.clock_offset_ns) else 0
