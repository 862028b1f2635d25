"""The rule of the default path holds whatever is wrong with a trace."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.critical_path.invariants import check_rule
from tests.critical_path.mutated import broken
from tests.critical_path.test_polls import launched, polls
from tests.effort import LISTS, SLOW, at_once
from tests.harness import kernel


@settings(
    max_examples=LISTS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(at_once(broken(), 64 if SLOW else 32))
def test_the_rule_holds(traces: list[dict[str, Any]]) -> None:
    """No edge claims more than passed, every node but the start is bound, and the path is as long as its window."""
    check_rule(*traces)


def test_a_call_that_asks_and_has_work_of_its_own() -> None:
    """Its correlation id says that it launched something: it is a node then, in a loop and on a thread that only asks."""
    asking = polls(30, 504)
    of_one = kernel("k", 700, 5, asking[50]["args"]["correlation"])
    alone = polls(40, 504, tid=2)
    of_another = kernel("k", 800, 5, alone[7]["args"]["correlation"])
    check_rule({"traceEvents": [*launched(), *asking, of_one, *alone, of_another]})
