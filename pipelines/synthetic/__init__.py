"""Captures in Kineto's format with known answers: for the demo, the tests and the benchmarks.

`write_capture(CaptureSpec(...), folder)` simulates N ranks and writes one file per rank. The truth that it returns is
computed during the simulation, from what each piece of work waited for, without the SQL models. The path follows the
`default` profile:

* inside an operator every stretch of CPU time counts; gaps between top-level operators weigh 0;
* a blocking call that really waited has weight 0 into its end, and an edge of weight 0 from the work waited for;
* GPU work whose stream was idle when its launch began (no work, and no event that it waits for, ended at or after the
  launch's start) has an edge from the launch's start, weighing the time between the two starts;
* else, when the work before on the stream ended after every event waited for: an edge from there, weighing the gap,
  and one of weight 0 from the launch; else only edges of weight 0, from the events and from the launch;
* every event waited for gives an edge of weight 0.
"""

from .capture import Capture, PathTruth, RankCapture, Truth, steps_for, write_capture
from .spec import CaptureSpec

__all__ = [
    "Capture",
    "CaptureSpec",
    "PathTruth",
    "RankCapture",
    "Truth",
    "steps_for",
    "write_capture",
]
