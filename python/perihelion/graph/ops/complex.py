"""Complex numbers, whose real and imaginary parts are the last axis."""

from __future__ import annotations

from ..value import TensorValue, TensorValueLike, _current, _native, _native_data, _wrap_tensor

__all__ = ["mul"]


def mul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of each pair of complex numbers: [.., 2], whose shapes broadcast."""
    graph = _current()
    return _wrap_tensor(graph._native.complex_mul(_native("lhs", lhs), _native_data("rhs", rhs)), graph)
