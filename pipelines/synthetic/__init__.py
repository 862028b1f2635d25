"""Captures in Kineto's format with known answers: for the demo, the tests and the benchmarks.

`write_capture(CaptureSpec(...), folder)` simulates N ranks and writes one file per rank. The truth that it returns is
computed during the simulation, from what each piece of work waited for, without the SQL models. The path follows the
`default` profile:

* every node of a thread takes all the time since the one before it: inside operators it is theirs, outside a host gap;
* a blocking call that really waited ends when the work that it waited for has, and the time to return is its own;
* GPU work starts when its launch has arrived, when the work before it on its stream has ended, or when the event that it
  waits for has: whichever is last bound it, and all the time since then is a launch delay or a gap.

So the path is as long as the window. `Capture.again` runs the same program with changed durations: the truth for what-if.
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
