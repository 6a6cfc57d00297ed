"""Products of matrices and vectors, and quantized weights."""

from __future__ import annotations

from perihelion.dtype import DType

from ..quantization import QuantizationConfig, QuantizationEncoding
from ..value import TensorValue, TensorValueLike, _binary, _current, _native, _native_data, _wrap_tensor

__all__ = ["dequantize", "matmul", "outer", "qmatmul"]


def matmul(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of matrices, the last two axes; those before broadcast."""
    return _binary("matmul", lhs, rhs)


def outer(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The product of each pair of elements of two vectors: [m], [n] to [m, n]."""
    return _binary("outer", lhs, rhs)


def qmatmul(
    encoding: QuantizationEncoding,
    config: QuantizationConfig | None,
    lhs: TensorValueLike,
    *rhs: TensorValueLike,
) -> TensorValue:
    """The product with the transpose of a quantized matrix.

    Args:
        encoding: of the matrix.
        config: its settings, for GPTQ.
        lhs: [.., columns], of float32, or of a 16-bit float for GPTQ.
        rhs: the bytes of the matrix, uint8 [rows, bytes]. For GPTQ, also the order of the columns if `desc_act`, and
            the zero points unless `sym`.

    Raises:
        ValueError: the encoding has no products, or shapes do not fit.
        TypeError: a dtype is another.
    """
    x, weights = _native("lhs", lhs), [_native_data("rhs", weight) for weight in rhs]
    if encoding is QuantizationEncoding.GPTQ:
        if config is None:
            raise ValueError("qmatmul: GPTQ takes a config")
        group_size = None if config.group_size == -1 else config.group_size
        graph = _current()
        native = graph._native.gptq_matmul(x, weights, config.bits, group_size, config.desc_act, config.sym)
        return _wrap_tensor(native, graph)
    if encoding is QuantizationEncoding.Q5_K:
        raise ValueError("qmatmul: Q5_K has no products; dequantize it")
    if len(weights) != 1:
        raise ValueError(f"qmatmul: got {len(weights)} operands of {encoding.name}, expected 1")
    for name, operand, dtype in (("lhs", x, DType.float32), ("rhs", weights[0], DType.uint8)):
        if operand.type[1] != dtype.value:
            raise TypeError(f"qmatmul: {name} is of {DType(operand.type[1])!r}, expected {dtype!r}")
    graph = _current()
    return _wrap_tensor(graph._native.qmatmul(encoding._block_dtype, x, weights[0]), graph)


def dequantize(encoding: QuantizationEncoding, quantized: TensorValueLike) -> TensorValue:
    """The elements (float32) of quantized weights: uint8 [.., bytes] to [.., elements]."""
    if not encoding.is_gguf:
        raise ValueError(f"dequantize: {encoding.name} has no blocks")
    graph = _current()
    return _wrap_tensor(
        graph._native.dequantize(encoding._block_dtype, _native("quantized", quantized)), graph
    )
