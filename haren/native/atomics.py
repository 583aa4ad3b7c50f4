"""Words of shared memory: plain and atomic access by address, and calls through an address.

Everything the native code shares between threads is a 64-bit word at an address, so these few
intrinsics are all the LLVM the schedulers need. The orders are written for a weak memory model
(acquire/release), as ARM needs them; only x86-64 has been tested.
"""

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

WORD = ir.IntType(64)
CACHE_LINE = 64


def _pointer(builder, address, kind=WORD):
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load(typingctx, address):
    """The word at ``address``, read plainly: for memory only one thread touches."""

    def codegen(context, builder, signature, args):
        return builder.load(_pointer(builder, args[0]), align=8)

    return types.int64(types.int64), codegen


@intrinsic
def store(typingctx, address, value):
    """Write ``value`` plainly: for memory only one thread touches."""

    def codegen(context, builder, signature, args):
        builder.store(args[1], _pointer(builder, args[0]), align=8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


@intrinsic
def load_acquire(typingctx, address):
    """Read a word another thread publishes; what it wrote before publishing is visible after."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(typingctx, address, value):
    """Publish a word: everything written before it is visible to whoever acquires it."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


@intrinsic
def fetch_add(typingctx, address, value):
    """Add atomically and return the word's former value."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def compare_exchange(typingctx, address, expected, desired):
    """Replace ``expected`` by ``desired`` atomically; True if this thread did it."""

    def codegen(context, builder, signature, args):
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "acquire")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def fence(typingctx):
    """Full fence: no later read overtakes an earlier write."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.none(), codegen


@intrinsic
def prefetch(typingctx, address):
    """Let the line at ``address`` be fetched, which need not exist; nobody waits for it."""

    def codegen(context, builder, signature, args):
        place = _pointer(builder, args[0], ir.IntType(8))
        int32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, int32, int32, int32])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(fetch, [place, int32(0), int32(3), int32(1)])
        return context.get_dummy_value()

    return types.none(types.int64), codegen


@intrinsic
def call(typingctx, address, arguments):
    """Call the native function at ``address`` with int64 arguments, given as a tuple; int64 back."""
    count = len(arguments)

    def codegen(context, builder, signature, args):
        function = ir.FunctionType(WORD, [WORD] * count)
        values = [builder.extract_value(args[1], i) for i in range(count)]
        return builder.call(_pointer(builder, args[0], function), values)

    return types.int64(types.int64, types.UniTuple(types.int64, count)), codegen


@njit
def add_to(address, amount):
    """Add to a word only this thread writes."""
    store(address, load(address) + amount)


@intrinsic
def pointer(typingctx, address):
    """``address`` as a pointer, for ``numba.carray``."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@intrinsic
def as_float(typingctx, bits):
    """The float64 whose bits these are."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@intrinsic
def as_bits(typingctx, number):
    """The bits of a float64."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], WORD)

    return types.int64(types.float64), codegen
