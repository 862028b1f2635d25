"""Submissions in one fixed order, independent of the submitting threads."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition

from pipelines.schedule.errors import PipelineTimeout


class _SubmissionSequencer:
    """Sequencer that runs functions in the order of their numbers, so that every rank calls its collectives in one order.

    Each number is used once. `abort` wakes all waiters, which return False without running their functions.
    """

    def __init__(self, timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self._next_seq = 0
        self._aborted = False
        self._turn = Condition()

    def reset(self) -> None:
        """Start again at number 0."""
        with self._turn:
            self._next_seq = 0
            self._aborted = False

    def execute_ordered(self, seq: int, fn: Callable[[], None]) -> bool:
        """Run fn() after the functions of all lower numbers. Return False after `abort`.

        Raise PipelineTimeout after `timeout_s`.
        """
        with self._turn:
            if not self._turn.wait_for(lambda: self._next_seq == seq or self._aborted, self.timeout_s):
                raise PipelineTimeout(
                    f"waited {self.timeout_s:g} s for submission number {self._next_seq} of the globally ordered tasks "
                    f"before number {seq} could follow"
                )
            if self._aborted:
                return False
        try:
            fn()
        finally:
            with self._turn:
                self._next_seq += 1
                self._turn.notify_all()
        return True

    def abort(self) -> None:
        """Wake all waiters. Until `reset`, calls return False without waiting."""
        with self._turn:
            self._aborted = True
            self._turn.notify_all()
