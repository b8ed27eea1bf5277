"""Values of 16, 8, 4 and 1 float32 in compiled code; 16 are one register where the processor has AVX-512.

LLVM vectorises a loop over the columns of a row only behind checks of lengths and overlaps, which cost as much as the row. These
values need none. Every operation is that of IEEE 754 on each lane, so vectors of any width give the same bits. A row is a sequence
of 16 columns, then at most one of 8, one of 4, and single ones. With ``NUMBA_BOUNDSCHECK=1`` loads and stores check their positions
as numba does for elements.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils, config, types
from numba.core.imputils import lower_builtin
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, models, register_model

#: The lanes of the widest vectors.
LANES = 16


class _VectorType(types.Type):
    """The numba type of this many float32."""

    def __init__(self, lanes: int) -> None:
        super().__init__(name=f"float32x{lanes}")
        self.lanes = lanes
        self.values = ir.VectorType(ir.FloatType(), lanes)


@register_model(_VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, fe_type.values)


_VECTORS = tuple(_VectorType(lanes) for lanes in (LANES, 8, 4, 1))
vector = _VECTORS[0]


def _lower_operator(symbol: Any, instruction: str) -> None:
    @infer_global(symbol)
    class Operator(ConcreteTemplate):
        cases = tuple(signature(one, one, one) for one in _VECTORS)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, instruction)(*args)

    for one in _VECTORS:
        lower_builtin(symbol, one, one)(lower)


for _symbol, _instruction in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv")
):  # fmt: skip
    _lower_operator(_symbol, _instruction)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any, lanes: int) -> Any:
    """The address of ``lanes`` values of a flat array, checked in debugging mode."""
    held = context.make_array(array_type)(context, builder, array)
    if config.BOUNDSCHECK:
        size = cgutils.unpack_tuple(builder, held.shape)[0]
        last = builder.add(index, ir.Constant(index.type, lanes - 1))
        for position in (index, last):
            cgutils.do_boundscheck(context, builder, position, size)
    return builder.gep(held.data, [index])


def _is_flat(array: Any) -> bool:
    return isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"


def _is_floats(array: Any) -> bool:
    return _is_flat(array) and bool(array.dtype == types.float32)


def _as_index(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    return context.cast(builder, value, kind, types.intp)


def _load(kind: _VectorType) -> Any:
    """Code that loads such a vector: arguments are an array, a position, and what else the type is taken from."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _as_index(context, builder, args[1], sig.args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], at, kind.lanes)
        return builder.load(builder.bitcast(pointer, kind.values.as_pointer()), align=4)

    return codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """The 16 values of a flat float32 array from ``index`` on."""
    if not _is_floats(array) or not isinstance(index, types.Integer):
        return None
    return vector(array, index), _load(vector)


@intrinsic
def load_as(typingctx: Any, array: Any, index: Any, like: Any) -> Any:
    """As many values of a flat float32 array as ``like`` has, from ``index`` on."""
    if not _is_floats(array) or not isinstance(index, types.Integer) or like not in _VECTORS:
        return None
    return like(array, index, like), _load(like)


@intrinsic
def item(typingctx: Any, array: Any, index: Any) -> Any:
    """``array[index]`` of a flat array, without the test for a negative index, which numba makes at each access."""
    if not _is_flat(array) or not isinstance(index, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _as_index(context, builder, args[1], sig.args[1])
        return builder.load(_pointer(context, builder, sig.args[0], args[0], at, 1))

    return array.dtype(array, index), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Write the values of a vector into a flat float32 array from ``index`` on."""
    if not _is_floats(array) or not isinstance(index, types.Integer) or value not in _VECTORS:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _as_index(context, builder, args[1], sig.args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], at, value.lanes)
        builder.store(args[2], builder.bitcast(pointer, value.values.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


@intrinsic
def stream(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """As :func:`store` past the caches, for what is not read soon; the address must be a multiple of the vector's bytes."""
    if not _is_floats(array) or not isinstance(index, types.Integer) or value not in _VECTORS:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _as_index(context, builder, args[1], sig.args[1])
        pointer = _pointer(context, builder, sig.args[0], args[0], at, value.lanes)
        written = builder.store(args[2], builder.bitcast(pointer, value.values.as_pointer()), align=4 * value.lanes)
        written.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


def _splat(kind: _VectorType) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        lanes, nothing = ir.VectorType(ir.IntType(32), kind.lanes), ir.Constant(kind.values, ir.Undefined)
        first = builder.insert_element(nothing, args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(lanes, [0] * kind.lanes))

    return codegen


def _splat_of(kind: _VectorType) -> Any:
    @intrinsic
    def splat_to(typingctx: Any, value: Any) -> Any:
        return (kind(value), _splat(kind)) if value == types.float32 else None

    return splat_to


#: Vectors of 16, 8, 4 and 1 times one float32.
splat, splat8, splat4, splat1 = (_splat_of(kind) for kind in _VECTORS)


@intrinsic
def splat_as(typingctx: Any, value: Any, like: Any) -> Any:
    """A vector of as many values as ``like`` has, each one float32."""
    if value != types.float32 or like not in _VECTORS:
        return None
    return like(value, like), _splat(like)


@intrinsic
def total(typingctx: Any, value: Any) -> Any:
    """The sum of the lanes, added pairwise: always in the same order."""
    if value != vector:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        (held,) = args
        half = LANES // 2
        while half:
            kind = ir.VectorType(ir.IntType(32), half)
            nothing = ir.Constant(held.type, ir.Undefined)
            low = builder.shuffle_vector(held, nothing, ir.Constant(kind, list(range(half))))
            high = builder.shuffle_vector(held, nothing, ir.Constant(kind, list(range(half, 2 * half))))
            held = builder.fadd(low, high)
            half //= 2
        return builder.extract_element(held, ir.Constant(ir.IntType(32), 0))

    return types.float32(value), codegen


def _function_of_one(name: str) -> Any:
    """LLVM's intrinsic of this name, on a vector or a float32."""

    @intrinsic
    def apply(typingctx: Any, value: Any) -> Any:
        if value not in (*_VECTORS, types.float32):
            return None

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = args[0].type
            suffix = "f32" if kind == ir.FloatType() else f"v{kind.count}f32"
            function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind]), f"{name}.{suffix}")
            return builder.call(function, args)

        return value(value), codegen

    return apply


#: The square root of a vector or a float32.
root = _function_of_one("llvm.sqrt")
#: The largest whole number <= a vector's or a float32's value.
floor = _function_of_one("llvm.floor")


@intrinsic
def power(typingctx: Any, value: Any, exponent: Any) -> Any:
    """``value ** exponent`` of two vectors, lane by lane."""
    if value not in _VECTORS or exponent != value:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = context.get_function(operator.pow, signature(types.float32, types.float32, types.float32))
        found = ir.Constant(value.values, ir.Undefined)
        for lane in range(value.lanes):
            at = ir.Constant(ir.IntType(32), lane)
            raised = function(builder, [builder.extract_element(one, at) for one in args])
            found = builder.insert_element(found, raised, at)
        return found

    return value(value, exponent), codegen


@intrinsic
def clip(typingctx: Any, value: Any, least: Any, most: Any) -> Any:
    """``value`` limited to [least, most]: NaN stays NaN. Three vectors of one width or three float32."""
    if value not in (*_VECTORS, types.float32) or least != value or most != value:
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        held, low, high = args
        held = builder.select(builder.fcmp_ordered("<", held, low), low, held)
        return builder.select(builder.fcmp_ordered(">", held, high), high, held)

    return value(value, least, most), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of an element that is read soon. Any index is allowed."""
    if not isinstance(array, types.Array) or array.ndim != 1 or not isinstance(index, types.Integer):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        held = context.make_array(sig.args[0])(context, builder, args[0])
        at = _as_index(context, builder, args[1], sig.args[1])
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(builder.gep(held.data, [at]), byte)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, *(ir.Constant(number, flag) for flag in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, index), codegen


def _fence_of(order: str) -> Any:
    @intrinsic
    def fence(typingctx: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            builder.fence(order)
            return context.get_dummy_value()

        return types.void(), codegen

    return fence


#: What this thread reads later is at least as new as what it has read.
acquire = _fence_of("acquire")
#: What this thread has written is seen by a thread that sees what it writes later.
release = _fence_of("release")
