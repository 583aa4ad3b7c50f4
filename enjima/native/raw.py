"""Raw memory for kernels: records at an address, bytes copied, state that outlives a call."""

from pathlib import Path

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from haren.native.atomics import WORD
from haren.native.compiler import register_sources

register_sources(Path(__file__).parent)
register_sources(Path(__file__).parent.parent / "memory")

_BYTE = ir.IntType(8).as_pointer()


@intrinsic
def copy(typingctx, target, source, size):
    """Copy ``size`` bytes between places that do not overlap."""

    def codegen(context, builder, signature, args):
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [_BYTE, _BYTE, WORD])
        places = [builder.inttoptr(args[0], _BYTE), builder.inttoptr(args[1], _BYTE)]
        builder.call(memcpy, [*places, args[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def reallocate(typingctx, address, size):
    """C's realloc: memory of an operator's own state, grown off the path of most events."""

    def codegen(context, builder, signature, args):
        module = builder.module
        function = module.globals.get("realloc") or ir.Function(
            module, ir.FunctionType(WORD, [WORD, WORD]), "realloc"
        )
        return builder.call(function, args)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def release(typingctx, address):
    """C's free."""

    def codegen(context, builder, signature, args):
        module = builder.module
        function = module.globals.get("free") or ir.Function(
            module, ir.FunctionType(ir.VoidType(), [WORD]), "free"
        )
        builder.call(function, args)
        return context.get_dummy_value()

    return types.none(types.int64), codegen
