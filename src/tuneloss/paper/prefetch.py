"""A compiler intrinsic that loads memory into the cache before it is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LINE = 64  # bytes of a cache line, on x86-64 and most ARM processors


def _prefetch(context: Any, address: Any) -> Any:
    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        to_read, second_cache, data = number(0), number(2), number(1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), to_read, second_cache, data])
        return context.get_dummy_value()

    return types.void(types.intp), emit


# prefetch(address) starts to load the cache line at an address into the second-level cache. It changes no values.
prefetch = cast(Callable[[int], None], intrinsic(_prefetch))
