# SPDX-License-Identifier: Apache-2.0
"""Tracing of tensor functions into a graph of scalars, for one world: torch code as compiled programs and as C."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from neurodyn.core.errors import InputError
from neurodyn.multibody.trace import Expression, Graph, Scalar
from neurodyn.multibody.trace.expression import (
    TINY,
    absolute,
    arctan2,
    cos,
    exp,
    log,
    maximum,
    minimum,
    safe_sqrt,
    select_less,
    sin,
    softplus,
    tanh,
)

Traced = np.ndarray
"""An array of expressions and numbers, in the shape of the tensor that it represents; masks are 0 or 1."""


def trace(
    graph: Graph, function: Callable[..., Any], given: Sequence[Sequence[Scalar]], what: str
) -> list[list[Expression]]:
    """Trace a function of vectors, each passed as a tensor of one world, shape [1, width].

    Args:
        graph: The graph.
        function: Function of float32 tensors that returns a tensor or a tuple of tensors, without side effects.
        given: The input vectors.
        what: Name of the function in the error message.

    Returns:
        The elements of each returned tensor, in row-major order.

    Raises:
        InputError: The function uses an operation without a C form.
    """
    examples = [torch.linspace(0.1, 0.9, len(values))[None] for values in given]
    with torch.no_grad():
        function(*examples)  # creates cached constants outside the trace
        module = make_fx(functionalize(function), tracing_mode="real")(*examples)
    arrays = [_objects([graph.lift(x) for x in values], (1, len(values))) for values in given]
    try:
        results = _Interpreter(module, what).run(*arrays)
    except InputError as error:  # torch has added the place in its graph
        raise InputError(str(error).partition("\n")[0]) from None
    results = results if isinstance(results, tuple | list) else (results,)
    return [[graph.lift(x) for x in _array(one).ravel()] for one in results]


def _objects(values: Sequence[Any], shape: tuple[int, ...]) -> Traced:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


_FAR = 1e30
"""What stands for infinite constants, such as limits of joints that have none."""


def _array(value: Any) -> Traced:
    if isinstance(value, Tensor):
        finite = value.double().clamp(-_FAR, _FAR)
        return _objects([float(x) for x in finite.flatten().tolist()], tuple(value.shape))
    return value if isinstance(value, np.ndarray) else _objects([value], ())


def _plain(value: Any) -> bool:
    """Return whether a value contains nothing traced."""
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return not isinstance(value, np.ndarray)


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph of torch operators on traced arrays; operations that depend on no input are left to torch."""

    def __init__(self, module: torch.fx.GraphModule, what: str) -> None:
        super().__init__(module)
        self._what = what

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is operator.getitem:
            return args[0][args[1]]
        name = target._schema.name.removeprefix("aten::")
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise InputError(f"{self._what}: torch's operator {name!r} draws at random; valid: functions without draws")
        if _plain(args) and _plain(list(kwargs.values())):
            return super().call_function(target, args, kwargs)
        if name not in _OPERATORS:
            raise InputError(f"{self._what}: torch's operator {name!r} has no form in C; valid: the ONNX export")
        return _OPERATORS[name](*args, **kwargs)


def _each(function: Callable[..., Any], *values: Any) -> Traced:
    """Apply a function element-wise, with broadcasting."""
    arrays = np.broadcast_arrays(*(_array(x) for x in values))
    results = [function(*(x.item() if isinstance(x, np.generic) else x for x in row))
             for row in zip(*(a.ravel() for a in arrays), strict=True)]  # fmt: skip
    return _objects(results, arrays[0].shape)


def _elementwise(function: Callable[..., Any]) -> Callable[..., Traced]:
    return lambda *values, **_: _each(function, *values)


def _add_scaled(sign: float) -> Callable[..., Traced]:
    """Return addition of a multiple of the second operand."""

    def added(a: Any, b: Any, alpha: float = 1) -> Traced:
        return _each(lambda x, y: x + sign * alpha * y, a, b)

    return added


def _root(x: Any) -> Any:
    """Return the root, 0 with slope 0 where x is at most `TINY`."""
    return select_less(TINY, x, safe_sqrt(x), 0.0) if isinstance(x, Expression) else math.sqrt(max(x, 0.0))


def _less(a: Any, b: Any) -> Any:
    return select_less(a, b, 1.0, 0.0)


def _not_less(a: Any, b: Any) -> Any:
    return select_less(a, b, 0.0, 1.0)


def _equal(a: Any, b: Any) -> Any:
    return select_less(a, b, 0.0, select_less(b, a, 0.0, 1.0))


def _select(mask: Any, a: Any, b: Any) -> Any:
    return select_less(0.0, mask, a, b)


def _power(x: Any, exponent: Any) -> Any:
    if exponent == 0.5:
        return _root(x)
    if float(exponent).is_integer() and exponent >= 1:
        return x ** int(exponent)
    raise InputError(f"the power {exponent} has no form in C; valid: whole numbers of at least 1")


def _sinc(x: Any) -> Any:
    """Return sin(pi x) / (pi x), with a series near 0."""
    angle = x * math.pi
    square = angle * angle
    safe = select_less(square, 1e-6, 1.0, angle)
    return select_less(square, 1e-6, 1.0 - square * (1.0 / 6.0), sin(safe) / safe)


def _remainder(x: Any, period: Any) -> Any:
    """Return the remainder in [0, period) for a positive period, computed as an angle on a circle."""
    if not isinstance(x, Expression):
        return x % period
    turn = 2.0 * math.pi / period
    angle = arctan2(sin(x * turn), cos(x * turn)) * (1.0 / turn)
    return select_less(angle, 0.0, angle + period, angle)


def _clamp(x: Any, low: Any = None, high: Any = None, **names: Any) -> Traced:
    low, high = names.get("min", low), names.get("max", high)
    values = _array(x)
    values = values if low is None else _each(maximum, values, low)
    return values if high is None else _each(minimum, values, high)


def _sum(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Traced:
    return _reduce(lambda a, b: a + b, x, dim, keepdim)


def _mean(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Traced:
    total = _sum(x, dim, keepdim)
    return _each(lambda value: value * (total.size / _array(x).size), total)


def _reduce(function: Callable[[Any, Any], Any], x: Any, dim: Any, keepdim: bool) -> Traced:
    array = _array(x)
    axes = tuple(range(array.ndim)) if dim is None or dim == [] else tuple(np.atleast_1d(dim) % max(array.ndim, 1))
    rest = [axis for axis in range(array.ndim) if axis not in axes]
    rows = array.transpose([*rest, *axes]).reshape(*(array.shape[axis] for axis in rest), -1)
    result = rows[..., 0]
    for number in range(1, rows.shape[-1]):
        result = _each(function, result, rows[..., number])
    result = _array(result)
    return np.expand_dims(result, axes) if keepdim else result


def _least(x: Any, dim: int = -1, keepdim: bool = False) -> tuple[Traced, Traced]:
    """Return the minimum along an axis, and the index of its first occurrence."""
    rows = np.moveaxis(_array(x), dim, -1)
    value, index = rows[..., 0], _objects([0.0] * rows[..., 0].size, rows.shape[:-1])
    for number in range(1, rows.shape[-1]):
        index = _each(lambda a, b, i, number=number: select_less(a, b, number, i), rows[..., number], value, index)
        value = _each(minimum, value, rows[..., number])
    pair = _array(value), _array(index)
    return tuple(np.expand_dims(one, dim) for one in pair) if keepdim else pair  # type: ignore[return-value]


def _norm(x: Any, order: float = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Traced:
    if order != 2:
        raise InputError(f"a norm of order {order} has no form in C; valid: 2")
    return _each(_root, _sum(_each(lambda a: a * a, x), dim, keepdim))


def _cross(a: Any, b: Any, dim: int = -1) -> Traced:
    one, other = (np.moveaxis(x, dim, -1) for x in np.broadcast_arrays(_array(a), _array(b)))
    parts = [
        _each(lambda p, q, r, s: p * q - r * s, one[..., j], other[..., k], one[..., k], other[..., j])
        for j, k in ((1, 2), (2, 0), (0, 1))
    ]
    return np.moveaxis(np.stack(parts, -1), -1, dim)


def _product(a: Any, b: Any) -> Traced:
    return np.matmul(_array(a), _array(b))


def _gather(x: Any, dim: int, index: Any, **_: Any) -> Traced:
    """Return the elements of `x` at an index, which may be traced, along an axis."""
    if isinstance(index, Tensor):
        return np.take_along_axis(_array(x), index.numpy(), dim)
    rows, at = np.moveaxis(_array(x), dim, -1), np.moveaxis(_array(index), dim, -1)
    parts = [_pick(rows, at[..., number]) for number in range(at.shape[-1])]
    return np.moveaxis(np.stack(parts, -1), -1, dim)


def _pick(rows: Traced, index: Traced) -> Traced:
    result = rows[..., 0]
    for number in range(1, rows.shape[-1]):
        result = _each(lambda i, a, b, n=number: select_less(i, n - 0.5, a, b), index, result, rows[..., number])
    return _array(result)


def _index(x: Any, indices: Sequence[Any]) -> Traced:
    """Return elements by index tensors; a traced one must be the only one, along the first axis."""
    array = _array(x)
    if _plain(list(indices)):
        return array[tuple(slice(None) if i is None else i.numpy() for i in indices)]
    index = _array(indices[0])
    rows = np.broadcast_to(np.moveaxis(array, 0, -1), (*index.shape, *array.shape[1:], array.shape[0]))
    return _pick(rows, index.reshape(*index.shape, *(1 for _ in array.shape[1:])))


def _put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Traced:
    array = _array(x).copy()
    assert not accumulate
    array[tuple(slice(None) if i is None else i.numpy() for i in indices)] = _array(values)
    return array


def _slice_put(x: Any, values: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Traced:
    array = _array(x).copy()
    _slice(array, dim, start, end, step)[...] = _array(values)
    return array


def _select_put(x: Any, values: Any, dim: int, index: int) -> Traced:
    array = _array(x).copy()
    np.moveaxis(array, dim, 0)[index] = _array(values)
    return array


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Traced:
    array = _array(x)
    places = [slice(None)] * array.ndim
    places[dim] = slice(start, end, step)
    return array[tuple(places)]


def _select_row(x: Any, dim: int, index: int) -> Traced:
    return _array(np.take(_array(x), index, axis=dim))


def _expand(x: Any, shape: Sequence[int], **_: Any) -> Traced:
    array = _array(x)
    own = (1,) * (len(shape) - array.ndim) + array.shape
    return np.broadcast_to(array, [a if b == -1 else b for a, b in zip(own, shape, strict=True)])


def _split(x: Any, sizes: Any, dim: int = 0) -> list[Traced]:
    array = _array(x)
    if isinstance(sizes, int):
        sizes = [sizes] * (array.shape[dim] // sizes)
    return np.split(array, np.cumsum(sizes)[:-1].tolist(), axis=dim)


def _concatenate(parts: Sequence[Any], dim: int = 0) -> Traced:
    kept = [array for array in map(_array, parts) if array.shape != (0,)]
    return np.concatenate(kept, axis=dim)


def _like(value: float) -> Callable[..., Traced]:
    def filled(x: Any, *_: Any, **__: Any) -> Traced:
        return _objects([value] * _array(x).size, _array(x).shape)

    return filled


def _same(x: Any, *_: Any, **__: Any) -> Traced:
    return _array(x)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": _add_scaled(1.0),
    "sub": _add_scaled(-1.0),
    "rsub": lambda a, b, alpha=1: _each(lambda x, y: y - alpha * x, a, b),
    "mul": _elementwise(lambda a, b: a * b),
    "div": _elementwise(lambda a, b: a / b),
    "reciprocal": _elementwise(lambda a: 1.0 / a),
    "neg": _elementwise(lambda a: -a),
    "sin": _elementwise(sin),
    "cos": _elementwise(cos),
    "exp": _elementwise(exp),
    "log": _elementwise(log),
    "tanh": _elementwise(tanh),
    "sqrt": _elementwise(_root),
    "rsqrt": _elementwise(lambda a: 1.0 / _root(a)),
    "sigmoid": _elementwise(lambda a: 1.0 / (1.0 + exp(-a))),
    "softplus": _elementwise(softplus),
    "atan2": _elementwise(arctan2),
    "abs": _elementwise(absolute),
    "square": _elementwise(lambda a: a * a),
    "pow": _elementwise(_power),
    "relu": _elementwise(lambda a: maximum(a, 0.0)),
    "minimum": _elementwise(minimum),
    "maximum": _elementwise(maximum),
    "clamp": _clamp,
    "clamp_min": _elementwise(maximum),
    "clamp_max": _elementwise(minimum),
    "lt": _elementwise(_less),
    "gt": _elementwise(lambda a, b: _less(b, a)),
    "ge": _elementwise(_not_less),
    "le": _elementwise(lambda a, b: _not_less(b, a)),
    "eq": _elementwise(_equal),
    "ne": _elementwise(lambda a, b: 1.0 - _equal(a, b)),
    "sinc": _elementwise(_sinc),
    "remainder": _elementwise(_remainder),
    "where": _elementwise(_select),
    "masked_fill": lambda x, mask, value: _each(_select, mask, value, x),
    "any": lambda x, dim=None, keepdim=False: _reduce(maximum, x, dim, keepdim),
    "all": lambda x, dim=None, keepdim=False: _reduce(minimum, x, dim, keepdim),
    "logical_not": _elementwise(lambda a: 1.0 - a),
    "bitwise_not": _elementwise(lambda a: 1.0 - a),
    "logical_and": _elementwise(lambda a, b: a * b),
    "bitwise_and": _elementwise(lambda a, b: a * b),
    "logical_or": _elementwise(maximum),
    "bitwise_or": _elementwise(maximum),
    "addcmul": lambda x, a, b, value=1: _each(lambda u, v, w: u + value * (v * w), x, a, b),
    "lerp": _elementwise(lambda a, b, w: a + w * (b - a)),
    "sum": _sum,
    "mean": _mean,
    "min": _least,
    "amin": lambda x, dim=None, keepdim=False: _reduce(minimum, x, dim, keepdim),
    "amax": lambda x, dim=None, keepdim=False: _reduce(maximum, x, dim, keepdim),
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "linalg_cross": _cross,
    "mm": _product,
    "bmm": _product,
    "addmm": lambda x, a, b: _each(lambda u, v: u + v, x, _product(a, b)),
    "gather": _gather,
    "index": _index,
    "index_select": lambda x, dim, index: np.take(_array(x), index.numpy(), axis=dim),
    "index_put": _put,
    "slice": _slice,
    "slice_scatter": _slice_put,
    "select_scatter": _select_put,
    "copy": lambda x, values, *_: np.broadcast_to(_array(values), _array(x).shape),
    "select": _select_row,
    "expand": _expand,
    "view": lambda x, shape: _array(x).reshape(shape),
    "_unsafe_view": lambda x, shape: _array(x).reshape(shape),
    "reshape": lambda x, shape: _array(x).reshape(shape),
    "permute": lambda x, dims: _array(x).transpose(dims),
    "transpose": lambda x, a, b: _array(x).swapaxes(a, b),
    "t": lambda x: _array(x).T,
    "unsqueeze": lambda x, dim: np.expand_dims(_array(x), dim if dim >= 0 else _array(x).ndim + 1 + dim),
    "squeeze": lambda x, dim=None: np.squeeze(_array(x), None if dim is None else tuple(np.atleast_1d(dim))),
    "unbind": lambda x, dim=0: [_array(one) for one in np.moveaxis(_array(x), dim, 0)],
    "split": _split,
    "split_with_sizes": _split,
    "cat": _concatenate,
    "stack": lambda parts, dim=0: np.stack([_array(x) for x in parts], dim),
    "zeros_like": _like(0.0),
    "ones_like": _like(1.0),
    "full_like": lambda x, value, **_: _like(value)(x),
    "new_full": lambda x, shape, value, **_: _objects([value] * int(np.prod(shape)), tuple(shape)),
    "new_ones": lambda x, shape, **_: _objects([1.0] * int(np.prod(shape)), tuple(shape)),
    "new_zeros": lambda x, shape, **_: _objects([0.0] * int(np.prod(shape)), tuple(shape)),
    "flip": lambda x, dims: np.flip(_array(x), dims),
    "repeat": lambda x, times: np.tile(_array(x), times),
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: np.diagonal(_array(x), offset, dim1, dim2),
    **dict.fromkeys(
        ("clone", "alias", "detach", "_to_copy", "lift_fresh_copy", "contiguous", "to", "_conj", "positive"), _same
    ),
}
"""Operators by name, on traced arrays."""
