"""Less code for PyTensor's operations: how numba compiles them in graphs of this package."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytensor.link.numba.dispatch.basic as numba_basic  # operations as functions of numba
from numba.core import cgutils  # arrays of machine code
from numba.core import types as numba_types  # what compiled code knows of values
from numba.extending import intrinsic  # functions written as machine code
from pytensor.graph.fg import AbstractFunctionGraph  # graphs, which are kept on disk
from pytensor.link.numba.dispatch.elemwise import (
    _dimshuffle_out_layout as shuffled_layout,  # order in memory after axes were moved
)
from pytensor.scalar.basic import ScalarOp  # operations on numbers
from pytensor.tensor.elemwise import DimShuffle  # axes moved, added or left out

__all__ = ["operations_once"]

#: functions of operations, by PyTensor's key, for as long as a graph uses them
_operations: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()
#: part of all keys on disk: what was compiled is not used after an edit of this file
_CODE = sha256(Path(__file__).read_bytes()).hexdigest()
_ensure_cache = numba_basic.numba_funcify_ensure_cache


@contextmanager
def operations_once() -> Iterator[None]:
    """Compile equal operations once, and small ones as a part of what calls them, meanwhile.

    PyTensor wraps every operation, to keep it on disk by itself, and reads it from there for each
    graph that it is in. Operations on numbers and views are kept with what calls them.
    """
    held = numba_basic.numba_funcify_ensure_cache
    numba_basic.numba_funcify_ensure_cache = _shared
    try:
        yield
    finally:
        numba_basic.numba_funcify_ensure_cache = held


def _shared(op: Any, *args: Any, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    """Give equal operations one function."""
    cached = bool(numba_basic.config.numba__cache)
    if not cached or isinstance(op, AbstractFunctionGraph):
        return _ensure_cache(op, *args, **kwargs)
    small = isinstance(op, ScalarOp | DimShuffle)
    key: str | None
    if isinstance(op, DimShuffle) and op.input_ndim and op._new_order:
        made, key = _shuffle(op, kwargs["node"])
    elif small:
        made, key = numba_basic.numba_funcify_and_cache_key(op, *args, **kwargs)
    else:
        made, key = _ensure_cache(op, *args, **kwargs)
    if key is None:
        return made, None
    node = kwargs["node"]
    kinds = [getattr(v.type, "broadcastable", v.type) for v in (*node.inputs, *node.outputs)]
    dtypes = [getattr(v.type, "dtype", None) for v in (*node.inputs, *node.outputs)]
    name = (key, small, bool(numba_basic.config.numba__fastmath), *kinds, *dtypes)
    return _operations.setdefault(name, made), f"{key} {_CODE}"


def _shuffle(op: DimShuffle, node: Any) -> tuple[Callable[..., Any], str]:
    """Move axes in one function, where PyTensor's implementation takes six."""
    lengths = node.inputs[0].type.shape
    unit_axes = frozenset(axis for axis, length in enumerate(lengths) if length == 1)
    order, drop = tuple(op._new_order), tuple(op.drop)
    return _view(order, drop, unit_axes), f"view {order} {drop} {sorted(unit_axes)}"


@cache
def _view(order: tuple[int, ...], drop: tuple[int, ...], unit_axes: frozenset[int]) -> Any:
    @intrinsic
    def view(typing_context: Any, x: Any) -> Any:
        layout: Any = shuffled_layout(x.layout, order, unit_axes)
        made: Any = numba_types.Array(x.dtype, len(order), layout)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(x)(context, builder, args[0])
            shape = cgutils.unpack_tuple(builder, array.shape)
            strides = cgutils.unpack_tuple(builder, array.strides)
            size = context.get_value_type(numba_types.intp)
            for axis in drop:
                with builder.if_then(builder.icmp_signed("!=", shape[axis], size(1)), likely=False):
                    message = "An axis that is left out has a length other than one."
                    context.call_conv.return_user_exc(builder, ValueError, (message,))
            out = context.make_array(made)(context, builder)
            context.populate_array(
                out,
                data=array.data,
                shape=cgutils.pack_array(
                    builder, [size(1) if k < 0 else shape[k] for k in order], ty=size
                ),
                strides=cgutils.pack_array(
                    builder, [size(0) if k < 0 else strides[k] for k in order], ty=size
                ),
                itemsize=array.itemsize,
                meminfo=array.meminfo,
                parent=array.parent,
            )
            value = out._getvalue()
            context.nrt.incref(builder, made, value)
            return value

        return made(x), generate

    @numba_basic.numba_njit
    def dimshuffle(x: Any) -> Any:
        return view(x)  # type: ignore[call-arg]

    return dimshuffle
