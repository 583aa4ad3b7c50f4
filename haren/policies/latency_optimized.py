"""Latency-optimized: the cheapest way to the next result first, but only where it is worth a turn.

Optimizes mean latency and throughput together. Enjima paper, 3.2.1, made for shared dispatch. Priority: one
over the time to bring one result out (equations 1 and 2), weighted by how fast the query's latency grows
(3). An operator is eligible from ``event_threshold`` waiting events on (ET), or when it has not run for
``idle_threshold`` seconds (IT); both follow the query's latency (5). A turn lasts to the end of the epoch
(4).

Features: cost, selectivity, pending, last_scheduled, latency_gradient. What the paper leaves open or cannot
mean, and what is done here:

- Equation 2 adds the *costs per result* of all operators behind, not only of the next ones; its worked
  example (table 1) needs that. ``literal=True`` adds the next ones only.
- A sink's selectivity counts as 1, since a result is what reaches it. One that was never seen to be above a
  millionth counts as a millionth: windows produce nothing for a long time, and who is before or behind them
  must still be told apart.
- The latency gradient is seconds of latency per second, of a query's sinks; -1 to 1 is then the whole range
  of a query that catches up or stands still.
- Algorithm 1 makes any idle operator eligible; here it must have something to do, as the dispatch makes sure.
  "Above" the event threshold includes the threshold, as table 1 needs it.
- Equation 5 bounds only growth, and refers to itself; here a step is bounded both ways, and thresholds stay
  between one event (one microsecond) and below their maximum. A step that was followed by a larger gradient
  is taken back, once.
"""

import math

from haren.errors import PolicyError
from haren.features import Feature
from haren.graph import downstream
from haren.policy import Policy
from haren.quantum import rest_of_round
from haren.registry import register

LEAST_SELECTIVITY = 1e-6
LEAST_EVENTS, LEAST_IDLE_NS = 1.0, 1000.0

# the columns of the state
EVENTS, IDLE, FORMER_EVENTS, FORMER_IDLE, FORMER_GRADIENT, STEPPED = range(6)


def output_selectivity(op, F, graph):
    """Results at a sink for one event of the operator, through the best branch: equation 1."""
    below = downstream(graph, op)
    if len(below) == 0:
        return 1.0
    best = 0.0
    for other in below:
        best = max(best, F.output_selectivity[other])
    return max(F.selectivity[op], LEAST_SELECTIVITY) * best


def cost_per_result(op, F, graph):
    """Time until one result is out, from here on through all that is behind: equation 2."""
    total = F.cost[op] / F.output_selectivity[op]
    for other in downstream(graph, op):
        total += F.cost_per_result[other]
    return total


def cost_per_result_as_printed(op, F, graph):
    """Equation 2 to the letter: the operator and the next ones."""
    total = F.cost[op] / F.output_selectivity[op]
    for other in downstream(graph, op):
        total += F.cost[other] / F.output_selectivity[other]
    return total


OUTPUT_SELECTIVITY = Feature(
    "output_selectivity", output_selectivity, ("selectivity",), "events/event", "downstream",
    what="results at a sink for one event, through the best branch", start=1.0,
)  # fmt: skip
COST_PER_RESULT, AS_PRINTED = (
    Feature("cost_per_result", function, ("cost", "output_selectivity"), "ns/event", "downstream",
            what="time until one result is out", start=1.0)
    for function in (cost_per_result, cost_per_result_as_printed)
)  # fmt: skip


def growth(gradient):
    """Seconds by which latency grows in a second, from -1 to 1."""
    return max(min(gradient * 1e-9, 1.0), -1.0)


def weighted_by_latency(op, F):
    """The priority: results per time, up to a tenth more for queries that slow down (equation 3)."""
    return (growth(F.latency_gradient[op]) / 10.0 + 1.0) / max(F.cost_per_result[op], 1e-3)


def worth_a_turn(op, F, now, state):
    """Algorithm 1, but for back-pressure, which the dispatch sees to."""
    return F.pending[op] >= state[op, EVENTS] or now - F.last_scheduled[op] > state[op, IDLE]


@register("latency-optimized")
def latency_optimized(
    *,
    event_threshold: float = 1000,
    event_threshold_max: float = 10_000,
    event_step: float = 1000,
    idle_threshold: float = 0.001,
    idle_threshold_max: float = 0.1,
    idle_step: float = 0.01,
    least_turn: int = 1000,
    adaptive: bool = True,
    literal: bool = False,
) -> Policy:
    """The cheapest way to a result first, if there is enough to do: for mean latency and throughput."""
    limits = {
        "event_threshold": (event_threshold, LEAST_EVENTS, event_threshold_max if adaptive else math.inf),
        "idle_threshold": (idle_threshold, LEAST_IDLE_NS / 1e9, idle_threshold_max if adaptive else math.inf),
        "event_step": (event_step, 0.0, math.inf),
        "idle_step": (idle_step, 0.0, math.inf),
    }
    for name, (value, least, most) in limits.items():
        if not least <= value <= most:
            raise PolicyError(
                f"latency-optimized: {name}={value!r} is out of range, from {least:g} to {most:g}",
                policy="latency-optimized",
            )
    most_events, most_idle = float(event_threshold_max), idle_threshold_max * 1e9
    most_step, most_idle_step = float(event_step), idle_step * 1e9

    def moved(value, gradient, step, least, most):
        new = value + max(min(gradient * value, step), -step)
        return new if least <= new < most else value

    def adapt(op, F, state):
        gradient = growth(F.latency_gradient[op])
        if state[op, STEPPED] != 0.0 and gradient > state[op, FORMER_GRADIENT]:
            state[op, EVENTS], state[op, IDLE] = state[op, FORMER_EVENTS], state[op, FORMER_IDLE]
            state[op, STEPPED] = 0.0
        else:
            events, idle = state[op, EVENTS], state[op, IDLE]
            state[op, EVENTS] = moved(events, gradient, most_step, LEAST_EVENTS, most_events)
            state[op, IDLE] = moved(idle, gradient, most_idle_step, LEAST_IDLE_NS, most_idle)
            state[op, FORMER_EVENTS], state[op, FORMER_IDLE] = events, idle
            state[op, STEPPED] = 1.0 if state[op, EVENTS] != events or state[op, IDLE] != idle else 0.0
        state[op, FORMER_GRADIENT] = gradient

    idle_ns = idle_threshold * 1e9
    return Policy(
        "latency-optimized",
        g=weighted_by_latency,
        eligible=worth_a_turn,
        quantum=rest_of_round(least_turn),
        adapt=adapt if adaptive else None,
        features=[
            OUTPUT_SELECTIVITY, AS_PRINTED if literal else COST_PER_RESULT,
            "pending", "last_scheduled", "latency_gradient",
        ],
        state=(event_threshold, idle_ns, event_threshold, idle_ns, 0.0, 0.0),
        dispatch="shared",
    )  # fmt: skip
