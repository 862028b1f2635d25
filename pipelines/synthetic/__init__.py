"""Captures in Kineto's format with known answers, for the demo, the tests and the benchmarks.

`write_capture(CaptureSpec(...), folder)` simulates N ranks and writes one file per rank. The truth that it returns is
computed during the simulation, from the real cause of each wait, without the SQL models. The path follows the `default`
profile:

* The time from a node of a thread to the thread's next node belongs to the edge between them. Inside operators, it is
  the operator's self time. Outside, it is a host gap.
* The edge into the end of a blocking call that really waited comes from the end of the awaited work. The time from
  there to the call's return is the call's self time.
* GPU work starts when its launch has arrived, when the previous work on its stream has ended, or when the awaited event
  has completed. The last of these causes determines the start. The time from the cause to the start is a launch delay
  or a gap.

The path is therefore as long as the window. `Capture.again` runs the same program with changed durations, as truth for
what-if.
"""

from .capture import Capture, PathTruth, RankCapture, Truth, steps_for, write_capture
from .changes import Changes
from .spec import CaptureSpec

__all__ = [
    "Capture",
    "CaptureSpec",
    "Changes",
    "PathTruth",
    "RankCapture",
    "Truth",
    "steps_for",
    "write_capture",
]
