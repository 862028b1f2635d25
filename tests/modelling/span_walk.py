"""The rules of spans as a plain walk up the stack for each event; times in whole microseconds."""

from __future__ import annotations

from typing import Any

Owner = tuple[str, int, str]
"""(name of the kernel, index of the span, phase)"""


def is_module(event: dict) -> bool:
    return event["name"].startswith("nn.Module: ")


def is_span(event: dict) -> bool:
    return event["cat"] in ("user_annotation", "python_function")


def forward_thread(event: dict) -> int:
    return event["args"].get("Fwd thread id", 0)


def stacks(events: list[dict]) -> dict[int, int | None]:
    """Return each host event's parent, which is the top of the stack when the event starts."""
    parent: dict[int, int | None] = {}
    for tid in {e["tid"] for e in events if e["cat"] != "kernel"}:
        stack: list[int] = []
        on = [i for i, e in enumerate(events) if e["cat"] != "kernel" and e["tid"] == tid]
        for i in sorted(on, key=lambda i: (events[i]["ts"], -events[i]["dur"], i)):
            start = events[i]["ts"]
            while stack:
                top = events[stack[-1]]
                end = top["ts"] + top["dur"]
                if not (end < start or (end == start and top["ts"] < start)):
                    break
                stack.pop()
            parent[i] = stack[-1] if stack else None
            stack.append(i)
    return parent


class Walk:
    """A trace without arrows, walked from every launch."""

    def __init__(self, events: list[dict]) -> None:
        self.events = events
        self.parent = stacks(events)

    def up(self, i: int) -> tuple[list[int], int | None, list[int]]:
        """Walk up from an event, and return the enclosing spans around the first backward operator.

        These are the spans below the operator, the operator (or None), and the spans that enclose it.
        """
        before: list[int] = []
        met: list[int] = before
        after: list[int] = []
        backward = None
        at = self.parent[i]
        while at is not None:
            if is_span(self.events[at]):
                met.append(at)
            elif backward is None and forward_thread(self.events[at]):
                backward, met = at, after
            at = self.parent[at]
        return before, backward, after

    def forward_of(self, backward: int) -> int | None:
        """Return the last operator on another thread that has the backward operator's sequence number.

        It starts no later than the backward operator. Without arrows the forward's thread is unknown.
        """
        b = self.events[backward]
        candidates = [
            (e["ts"], -e["dur"], i)
            for i, e in enumerate(self.events)
            if e["args"].get("Sequence number") == b["args"]["Sequence number"]
            and not forward_thread(e)
            and e["tid"] != b["tid"]
            and e["ts"] <= b["ts"]
        ]
        return max(candidates)[2] if candidates else None

    def above(self, forward: int | None, inside: list[int], deeper: int = 1) -> list[int]:
        """Return the modules around a forward operator, innermost first.

        Leave out the recomputed modules (`inside`) and the modules below them.
        """
        if forward is None:
            return []
        before, backward, _ = self.up(forward)
        chain = [i for i in before if is_module(self.events[i])]
        if backward is not None and deeper:
            chain += self.above(self.forward_of(backward), chain, deeper - 1)
        if inside:
            again = [k for k, i in enumerate(chain) if self.events[i]["name"] == self.events[inside[-1]]["name"]]
            chain = chain[max(again) + 1 :] if again else chain
        return chain

    def owners(self) -> set[Owner]:
        launches = {e["args"]["correlation"]: i for i, e in enumerate(self.events) if e["cat"] == "cuda_runtime"}
        owners: set[Owner] = set()
        for event in self.events:
            if event["cat"] == "kernel":
                launch = launches[event["args"]["correlation"]]
                owners |= {(event["name"], *owner) for owner in (*self._walked(launch), *self._windows(launch))}
        return owners

    def _walked(self, launch: int) -> set[tuple[int, str]]:
        before, backward, after = self.up(launch)
        if backward is None:
            return {(i, "fwd") for i in before}
        inside = [i for i in before if is_module(self.events[i])]
        chain = self.above(self.forward_of(backward), inside)
        return {
            *((i, "recompute" if inside else "bwd_direct") for i in before),
            *((i, "recompute" if inside else "bwd") for i in chain),
            *((i, "bwd_direct") for i in after if not is_module(self.events[i])),
        }

    def _windows(self, launch: int) -> set[tuple[int, str]]:
        at = self.events[launch]["ts"]
        held: list[Any] = [
            i for i, e in enumerate(self.events) if e["cat"] == "user_annotation" and e["ts"] <= at < e["ts"] + e["dur"]
        ]
        return {(i, "window") for i in held}
