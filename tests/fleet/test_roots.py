"""The root ranks of waiting in nested groups."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.fleet.collectives.root_causes import Arrival, roots

MEETS = 10  # a collective's transfer time, ns


def simulated(program: Sequence[tuple[int, Sequence[int], Sequence[int]]]) -> list[int]:
    """Return the roots of consecutive collectives.

    Each collective is its lane, its ranks, and how long each rank is busy before it arrives.
    """
    free: dict[int, int] = {}
    arrivals: list[Arrival] = []
    ends: dict[int, list[tuple[int, int]]] = {}
    for lane, ranks, busy in program:
        at = [free.get(rank, 0) + ns for rank, ns in zip(ranks, busy, strict=True)]
        last = ranks[at.index(max(at))]
        for rank in ranks:
            free[rank] = max(at) + MEETS
            ends.setdefault(rank, []).append((free[rank], len(arrivals)))
        arrivals.append(Arrival(lane, max(at), last))
    return roots(arrivals, ends, 0)


def test_in_one_group_it_is_the_last_to_arrive() -> None:
    assert simulated([(0, (0, 1, 2), (5, 9, 5)), (0, (0, 1, 2), (8, 3, 3)), (0, (0, 1, 2), (1, 1, 2))]) == [1, 0, 2]


def test_victims_hand_the_blame_on() -> None:
    """The root of the waiting is rank 3, which delays its node (2, 3).

    Rank 2 then comes last to (0, 2), for which all ranks wait, but is a victim of rank 3.
    """
    whole = (9, (0, 1, 2, 3), (5, 5, 5, 5))
    program = [
        whole,
        (1, (0, 1), (50, 50)),
        (2, (2, 3), (50, 300)),
        (3, (0, 2), (20, 21)),
        (4, (1, 3), (20, 20)),
        whole,
    ]
    assert simulated(program)[2:] == [3, 3, 3, 3]


def test_what_happened_before_the_group_last_met_does_not_count() -> None:
    program = [
        (2, (2, 3), (50, 300)),
        (3, (0, 2), (20, 21)),  # because of rank 3
        (3, (0, 2), (20, 40)),  # since then no rank waited for rank 3
        (2, (2, 3), (5, 5)),
        (3, (0, 2), (90, 5)),
    ]
    assert simulated(program)[1:] == [3, 2, 2, 0]


def test_collectives_that_overlap() -> None:
    """Only collectives that ended before a rank's arrival can have delayed the rank.

    Rank 1 leaves the second collective while it is still in the first.
    """
    arrivals = [Arrival(0, 100, 0), Arrival(1, 150, 1), Arrival(2, 400, 1)]
    ends = {0: [(500, 0)], 1: [(200, 1), (500, 0)]}
    assert roots(arrivals, ends, 0) == [0, 1, 1]


def test_clocks_so_wrong_that_collectives_come_before_each_other() -> None:
    arrivals = [Arrival(0, 300, 0), Arrival(1, 290, 1)]
    ends = {0: [(200, 0), (300, 1)], 1: [(200, 1), (290, 0)]}
    assert roots(arrivals, ends, 0) == [0, 1]


def test_a_group_that_meets_twice_at_one_time() -> None:
    """Two collectives of a lane may have their last arrivals in the same ns.

    Calls on two streams or of length 0 can do so.
    """
    arrivals = [Arrival(0, 100, 0), Arrival(0, 100, 1)]
    ends = {rank: [(100, 0), (110, 1)] for rank in (0, 1)}
    assert roots(arrivals, ends, 0) == [0, 1]
