"""The words of a worker, of an operator and of a bell, as the worker loop and the dispatches share them."""

# what `next` returns besides the number of an operator
NOTHING = -1  # there is nothing to run before WAKE_AT
ROUND = -2  # it is time for the scheduling task, which all threads take part in

# the words of a worker
THREAD = 0
STOP = 8  # address of the stop flag
BELL = 16  # address of the bell this worker sleeps on when idle
ENGINE = 24
RUN = 32
DISPATCH = 40
NEXT = 48
DONE = 56
SPARE = 64
OPERATORS = 72  # address of the operator records
READY_AT = 80
BELLS = 88  # address of all bells, a cache line each
MEASURE = 96
ROUNDS = 104  # address of the phases of T_S; 0 if there is none
TRACE = 112  # address of the ring of trace rows; 0: nothing is recorded
TRACE_MASK = 120
QUOTA = 128
WAKE_AT = 136
BUSY_NS = 144
SLEEPS = 152
DECISIONS = 160
REASON = 168  # why the operator was chosen, and from bit 8 on its place in the ranking
TRACED = 176  # trace rows written ever
WORKER_BYTES = 192

# the words of an operator, as the scheduler sees it; its claim has a cache line of its own
CLAIM = 0  # 0, or 1 + the thread that runs it
RUNS = 64
OPERATOR_BUSY_NS = 72
EVENTS = 80
LAST_RUN = 88
COST_NS = 96  # recent nanoseconds per event, in 1/1024, and of which counters it was made
EXECUTED = 104  # 1: it ran since its features were refreshed
TRACED_OUT = 112  # events out at its last trace row
COSTED_NS = 120
COSTED_EVENTS = 128
OPERATOR_BYTES = 192

# further words of a bell
WATCHED = 16  # the time a sleeper already watches for; 0 if none does
SLEPT = 24  # the ticket the last sleeper had read

# a trace row: start, end, operator | REASON << 32, events in | events out << 32
TRACE_BYTES = 32

# why an operator was chosen
REASON_TURN = 0  # its turn, of a dispatch without priorities
REASON_BEST = 1  # the first of the ranking that could run
REASON_EQUAL = 2  # could run and has the same priority as the one before it
REASON_DELAYED = 3  # had not run for d
REASON_ELIGIBLE = 4  # the best of those that were eligible, of all threads
REASON_ANYWAY = 5  # nothing was eligible, and this was the best that could run
