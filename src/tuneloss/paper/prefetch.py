"""Memory that compiled code will need soon, asked for ahead of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LINE = 64  # bytes that are loaded together


def _prefetch(context: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, second_cache, data = number(0), number(2), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), to_read, second_cache, data])
        return context.get_dummy_value()

    return types.void(types.intp), emit


# prefetch(address): begin to load the line of this address into the second cache. Nothing is read or changed by it.
prefetch = cast(Callable[[int], None], intrinsic(_prefetch))
