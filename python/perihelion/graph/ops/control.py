"""Conditions, loops, calls of graphs, and ops of libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from perihelion import _perihelion
from perihelion.driver import Device, DLPackArray
from perihelion.dtype import DType

from ..shape import Shape
from ..type import DeviceRef, TensorType, Type
from ..value import (
    BufferValue,
    HasBufferValue,
    TensorValueLike,
    Value,
    _current,
    _to_tensor,
    _wrap,
)

if TYPE_CHECKING:
    from ..graph import Graph

__all__ = ["call", "cond", "custom", "inplace_custom", "while_loop"]

_Results = Union[None, Value, TensorValueLike, Iterable[Union[Value, TensorValueLike]]]

_Parameter = Union[bool, int, float, str, DType]


def cond(
    pred: TensorValueLike,
    out_types: Iterable[Type] | None,
    then_fn: Callable[[], _Results],
    else_fn: Callable[[], _Results],
) -> list[Value]:
    """The results of one function or of another. Both can use the values of the graph, and write its buffers.

    Args:
        pred: one bool on the CPU.
        out_types: the types of the results.
        then_fn: for true.
        else_fn: for false; both are called once, when the graph is built.

    Raises:
        ValueError: `pred` is not one bool on the CPU.
        TypeError: a function gives other types.

    >>> from perihelion.graph import Graph, TensorType, ops
    >>> types = [TensorType(DType.bool, [], DeviceRef.CPU()), TensorType(DType.float32, ["n"], DeviceRef.CPU())]
    >>> with Graph("g", input_types=types) as graph:
    ...     flag, x = graph.inputs
    ...     [y] = ops.cond(flag, [x.type], lambda: x * 2, lambda: x)
    ...     y.type
    TensorType(dtype=float32, shape=[Dim('n')], device=cpu:0)
    """
    graph = _current()
    predicate = _to_tensor("pred", pred)
    if predicate.type != TensorType(DType.bool, (), DeviceRef.CPU()):
        raise ValueError(f"cond: pred is {predicate.type!r}, expected one bool on the CPU")
    then, then_types = _region(graph, "then", (), then_fn)
    otherwise, else_types = _region(graph, "otherwise", (), else_fn)
    expected = then_types if out_types is None else list(out_types)
    for name, given in (("then_fn", then_types), ("else_fn", else_types)):
        if given != expected:
            raise TypeError(f"cond: {name} gives {given}, expected {expected}")
    results = _current()._native.cond(predicate._native, then, otherwise)
    return [_wrap(result, graph) for result in results]


def while_loop(
    initial_values: Value | TensorValueLike | Iterable[Value | TensorValueLike],
    predicate: Callable[..., TensorValueLike],
    body: Callable[..., _Results],
) -> list[Value]:
    """The last values of a loop. Both functions get the values so far, and can use those of the graph.

    Args:
        initial_values: the first values.
        predicate: gives one bool on the CPU: whether to go on.
        body: gives the next values, of the same types. Both are called once, when the graph is built.

    Raises:
        ValueError: `initial_values` is empty, or `predicate` does not give one bool.
        NotImplementedError: a value is a buffer.
        TypeError: `body` gives other types.
    """
    graph = _current()
    initial = [_to_value("initial_values", value) for value in _listed(initial_values)]
    if not initial:
        raise ValueError("while_loop: initial_values is empty")
    if any(isinstance(value, BufferValue) for value in initial):
        raise NotImplementedError("while_loop: got a buffer; functions can use those of the graph")
    types = [value.type for value in initial]
    condition, [*given] = _region(graph, "predicate", types, predicate)
    if given != [TensorType(DType.bool, (), DeviceRef.CPU())]:
        raise ValueError(f"while_loop: predicate gives {given}, expected one bool on the CPU")
    step, given = _region(graph, "body", types, body)
    if given != types:
        raise TypeError(f"while_loop: body gives {given}, expected {types}")
    results = _current()._native.while_loop([value._native for value in initial], condition, step)
    return [_wrap(result, graph) for result in results]


def _region(
    graph: Graph, name: str, types: Iterable[Type], function: Callable[..., _Results]
) -> tuple[_perihelion.Region, list[Type]]:
    """A graph within a graph, of what a function does with its inputs, and the types of its results."""
    inputs = graph._native.begin_region(name, [type._native for type in types])
    try:
        results = function(*(_wrap(value, graph) for value in inputs))
        values = [_to_value(name, value) for value in _listed(results)]
        natives = [value._native for value in values]
    except BaseException:
        graph._native.discard_region()
        raise
    return graph._native.end_region(natives), [value.type for value in values]


def _listed(values: Any) -> Iterable[Any]:
    """Values that may be none, one or several."""
    if values is None:
        return ()
    if isinstance(values, Iterable) and not isinstance(values, (Value, Shape, DLPackArray)):
        return values
    return (values,)


def call(graph: Graph, *args: Value | TensorValueLike, prefix: str = "") -> list[Value]:
    """The results of another graph.

    Args:
        graph: what `Graph.add_subgraph` gave.
        args: its inputs.
        prefix: what stands before the names of its weights, so that one graph serves many layers.

    Raises:
        ValueError: the arguments do not fit the graph's inputs.
    """
    current = _current()
    operands = [_to_value("args", value)._native for value in args]
    results = current._native.call(graph._native, operands, prefix)
    return [_wrap(result, current) for result in results]


def custom(
    name: str,
    device: Device | DeviceRef,
    values: Sequence[Value | TensorValueLike],
    out_types: Sequence[Type],
    parameters: Mapping[str, _Parameter] | None = None,
) -> list[Value]:
    """An op of one of the graph's libraries.

    Args:
        name: of the op.
        device: where it runs.
        values: its operands.
        out_types: the types of its results.
        parameters: the op's attributes.

    Raises:
        ValueError: no library has the op, or it takes or gives something else.
        TypeError: an operand is a buffer, or a parameter is not a bool, number, text or dtype.
    """
    operands = [_to_value("values", value) for value in values]
    if any(isinstance(operand, BufferValue) for operand in operands):
        raise TypeError("custom: got a buffer; use inplace_custom")
    return _custom(name, operands, out_types, parameters, inplace=False)


def inplace_custom(
    name: str,
    device: Device | DeviceRef,
    values: Sequence[Value | TensorValueLike],
    out_types: Sequence[Type] | None = None,
    parameters: Mapping[str, _Parameter] | None = None,
) -> list[Value]:
    """An op of one of the graph's libraries that reads or writes buffers; see `custom`.

    Raises:
        TypeError: no operand is a buffer.
    """
    operands = [_to_value("values", value) for value in values]
    if not any(isinstance(operand, BufferValue) for operand in operands):
        raise TypeError("inplace_custom: got no buffer; use custom")
    return _custom(name, operands, out_types or (), parameters, inplace=True)


def _custom(
    name: str,
    operands: Iterable[Value],
    out_types: Iterable[Type],
    parameters: Mapping[str, _Parameter] | None,
    inplace: bool,
) -> list[Value]:
    graph = _current()
    results = graph._native.custom(
        graph._library._native,
        name,
        [operand._native for operand in operands],
        [type._native for type in out_types],
        [(key, _parameter(value)) for key, value in (parameters or {}).items()],
        inplace,
    )
    return [_wrap(result, graph) for result in results]


def _parameter(value: _Parameter) -> _perihelion._Parameter:
    return (value.value,) if isinstance(value, DType) else value


def _to_value(parameter: str, value: Any) -> Value:
    """The tensor or buffer that an object stands for."""
    if isinstance(value, BufferValue):
        return value
    if isinstance(value, HasBufferValue):
        return value.__buffervalue__()
    return _to_tensor(parameter, value)
