"""The words of an operator, a source and an engine in native memory, in bytes."""

# engine
OPERATOR_TABLE = 0  # address of an array of operator addresses
MAIN_BELL = 8  # rung when a sink ends or a query fails
ENGINE_BYTES = 64

# operator: what it is
KIND = 0
BATCH = 8  # address of its batch kernel
STATE = 16  # address of the kernel's own state
INPUT = 24  # channel read from (the first of several); 0 for a source
OUTPUT_COUNT = 32
OUTPUTS = 40  # address of an array of channels
EVENT_OUT_BYTES = 48
QUERY_FAILED = 56  # address of its query's failure flag
MARKER_LATENCY = 64  # address of a sink's marker histogram
RESULT_LATENCY = 72  # address of a sink's result histogram
FAILED_EVENT = 80  # address of a place for the event a user function failed on
INPUT_BYTES = 88
TIME_AT = 96  # offset of the (int64) event time in what it reads, or emits if a source; -1 if there is none
SHIFT = 104  # set before the call: to be added to event times read
INPUT_COUNT = 112
PORTS = 120  # address of its ports, one for each input, if it has several
# operator: what happens (written only by the thread that runs it)
PRODUCED = 128  # set by the kernel: events written in this call
ERROR = 136  # set by the kernel: why it stopped
MORE = 144  # set by the kernel: it holds output it had no room for
TIME = 152  # set before the call: the watermark to act on; set by the kernel: the one to promise
EVENTS_IN = 160
EVENTS_OUT = 168
DONE = 176  # the end of the stream has been passed on
LATE = 184  # late events dropped
SPILL = 192  # overflow: address, origins' address, count, capacity, next to flush
SPILL_ORIGINS = 200
SPILL_COUNT = 208
SPILL_CAPACITY = 216
SPILL_NEXT = 224
GROWTHS = 232  # how often the state or the overflow had to grow
ERROR_VALUE = 240  # a number that explains the error
PROGRESS = 248  # how far a kernel's loop came before the user's function raised
MOVED = 256  # set by the kernel: the user's function changed event times
LATEST = 264  # set by the kernel: then, the event time it produced last
BLOCKED_ON = 272  # 1 + the input without which an operator with several cannot go on; 0 if none
WANTS_END = 280  # 1: the kernel of a sink is called once more at the end of the stream, with no event
EVENTWISE = 288  # 1: queue memory, one event at a time
OPERATOR_BYTES = 320

# kinds
SOURCE = 0
TRANSFORM = 1  # at most one output an input: a batch is limited by free output slots
EXPANDER = 2  # any number of outputs an input; overflow is kept by the operator
TIMED = 3  # also acts on watermarks
SINK = 4
MERGER = 5  # has several inputs, read in the order of event time through ports; overflow as an expander

# port: one input of an operator with several. What cannot be used before other inputs have come further
# waits in the channel and, when that is full, in the inbox, so that a waiting input never blocks its writer.
PORT_CHANNEL = 0
PORT_EVENT_BYTES = 8
PORT_TIME_AT = 16  # offset of the (int64) event time; -1 if it has fewer bits
PORT_INBOX = 24  # address, origins' address, first, count (behind first), capacity
PORT_INBOX_ORIGINS = 32
PORT_INBOX_FIRST = 40
PORT_INBOX_COUNT = 48
PORT_INBOX_CAPACITY = 56
PORT_EVENTS = 64  # the run offered to the kernel: address, origins' address, count, shift of event times
PORT_ORIGINS = 72
PORT_COUNT = 80
PORT_SHIFT = 88
PORT_TAKEN = 96  # set by the kernel: events of the run it has used
PORT_FRONTIER = 104  # no event behind the run is older than this
PORT_LATEST = 112  # largest event time used so far
PORT_PROCESSED = 120  # events used ever
PORT_FROM_INBOX = 128  # 1: the run lies in the inbox
PORT_BYTES = 192

# errors
USER_ERROR = 1  # the user's function raised
TIME_BACKWARDS = 2  # a source's event time decreased
LATE_EVENT = 3  # an event of a window that is closed
RESULT_ERROR = 4  # the user's function raised on a state, whose address is the error's value

# source state (the operator's STATE)
RECORDS = 0  # address of the array replayed
LENGTH = 8
POSITION = 16  # events emitted, published
LIMIT = 24  # events there are so far, published by whoever feeds the source
FINAL = 32  # 1: LIMIT will not grow
STARTED = 40  # clock time of event 0; 0 until the first run
NS_PER_EVENT = 48  # bits of a float64; 0.0: as fast as possible
GRANULARITY = 56  # a paced source is not woken more often than this
MARKER_EVERY = 64  # ns between markers; 0: one per run; -1: none
NEXT_MARKER = 72
TIME_SHIFT = 80  # added to event times per loop over the array
STOPPED = 88  # 1: emit nothing more
NEXT_RUN = 96
LENDS = 104  # 1: its array is lent to readers block by block instead of copied
LENT_INDEX = 112  # where in the array the next event to be lent lies, and the shift of its time
LENT_SHIFT = 120
SOURCE_BYTES = 128
