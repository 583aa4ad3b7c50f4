"""What could run at each decision of a simulation, told from its trace alone."""

import haren

__all__ = ["Replay"]


class Replay:
    """The events that wait before each operator; `began` and `ended` take note of a run, `ran` of both."""

    def __init__(self, net: haren.Simulation, result) -> None:
        self.engine = result._engine
        self.graph = self.engine.graph
        self.number = {name: op for op, name in enumerate(self.graph.names)}
        self.waiting = dict.fromkeys(range(len(self.graph)), 0)

    def could_run(self, op: int, now: int) -> bool:
        one = self.engine.operators[op]
        if one.kind == 0:
            position = -self.waiting[op]
            return position < one.count and int(position * (1e9 / one.rate)) <= now
        return self.waiting[op] > 0

    def ran(self, row) -> None:
        self.began(row)
        self.ended(row)

    def began(self, row) -> None:
        self.waiting[self.number[row.operator]] -= row.events_in

    def ended(self, row) -> None:
        op = self.number[row.operator]
        for up, down in self.graph.edges:
            if up == op:
                self.waiting[down] += row.events_out
