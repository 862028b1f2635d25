"""tracelake in a training script. Needs torch.

from tracelake.torch import trace_handler, why

with torch.profiler.profile(schedule=…, on_trace_ready=trace_handler("/data/lake", job="vision-12")) as profiler: …
with why(steps=5) as answer: …  # profiles five steps and prints why once, on rank 0
"""

from __future__ import annotations

from pipelines.faces.training.callbacks import hugging_face_callback, lightning_callback
from pipelines.faces.training.trace_handler import TraceHandler, trace_handler
from pipelines.faces.training.why_loop import LoopAnswer, why

__all__ = ["LoopAnswer", "TraceHandler", "hugging_face_callback", "lightning_callback", "trace_handler", "why"]
