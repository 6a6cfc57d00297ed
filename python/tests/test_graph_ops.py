"""Each op through a graph built in Python, against NumPy; with sizes that are known, and with symbols."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from graphs import CPU, Array, data, run, tensor

from perihelion.driver import Buffer
from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import (
    BufferType,
    ConvInputLayout,
    FilterLayout,
    Graph,
    QuantizationConfig,
    QuantizationEncoding,
    TensorValue,
    Type,
    ops,
)


@dataclass
class Case:
    name: str
    op: Callable[..., Any]
    expected: Callable[..., Any]
    arrays: Sequence[Array]
    dynamic: bool = True
    tolerance: float = 1e-5


def np_erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: Array, w: Array, b: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def rms_norm(x: Array, w: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def group_norm(x: Array, w: Array, b: Array, groups: int) -> Array:
    shape = x.shape
    g = x.reshape(shape[0], groups, -1)
    g = (g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)
    per_channel = (1, shape[1]) + (1,) * (len(shape) - 2)
    return g.reshape(shape) * w.reshape(per_channel) + b.reshape(per_channel)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


x, y = data(3, 5, 7), data(3, 5, 7, seed=1)
column, row = data(5, 1), data(7)
ints = data(3, 5, dtype="int32")
units = np.tanh(x)
positive = np.abs(x) + 0.1
flags = data(3, 5, 7, dtype="bool")
more_flags = data(3, 5, 7, dtype="bool", seed=1)
special = np.array([np.nan, np.inf, -np.inf, 0, 1], np.float32)

UNARY: dict[str, tuple[Callable[..., Any], Array]] = {
    "abs": (np.abs, x),
    "exp": (np.exp, x),
    "erf": (np_erf, x),
    "log": (np.log, positive),
    "log1p": (np.log1p, positive),
    "sqrt": (np.sqrt, positive),
    "rsqrt": (lambda x: 1 / np.sqrt(x), positive),
    "sin": (np.sin, x),
    "cos": (np.cos, x),
    "tanh": (np.tanh, x),
    "atanh": (np.arctanh, units),
    "acos": (np.arccos, units),
    "ceil": (np.ceil, x),
    "floor": (np.floor, x),
    "round": (np.round, np.array([0.5, 1.5, -0.5, 2.4], np.float32)),
    "trunc": (np.trunc, x * 3),
    "negate": (np.negative, x),
    "relu": (lambda x: np.maximum(x, 0), x),
    "sigmoid": (sigmoid, x),
    "silu": (lambda x: x * sigmoid(x), x),
    "is_nan": (np.isnan, special),
    "is_inf": (np.isinf, special),
    "logical_not": (np.logical_not, flags),
}

BINARY: dict[str, tuple[Callable[..., Any], Array, Array]] = {
    "add": (np.add, x, column),
    "sub": (np.subtract, row, x),
    "mul": (np.multiply, x, y),
    "div": (np.divide, x, positive),
    "floor_div": (np.floor_divide, x, positive),
    "mod": (np.mod, x, positive),
    "pow": (np.power, positive, x),
    "min": (np.minimum, x, y),
    "max": (np.maximum, x, row),
    "equal": (np.equal, ints, ints.T.copy().reshape(3, 5)),
    "not_equal": (np.not_equal, ints, ints[::-1].copy()),
    "greater": (np.greater, x, y),
    "greater_equal": (np.greater_equal, ints, ints[::-1].copy()),
    "logical_and": (np.logical_and, flags, more_flags),
    "logical_or": (np.logical_or, flags, more_flags),
    "logical_xor": (np.logical_xor, flags, more_flags),
}

CASES = [
    *(Case(name, getattr(ops, name), expected, [a]) for name, (expected, a) in UNARY.items()),
    *(Case(name, getattr(ops, name), expected, [a, b]) for name, (expected, a, b) in BINARY.items()),
    Case("gelu", ops.gelu, lambda x: x * (1 + np_erf(x / np.sqrt(2))) / 2, [x]),
    Case(
        "gelu tanh",
        lambda x: ops.gelu(x, "tanh"),
        lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        [x],
    ),
    Case("gelu quick", lambda x: ops.gelu(x, approximate="quick"), lambda x: x * sigmoid(1.702 * x), [x]),
    Case("div of integers", ops.div, np.divide, [ints, ints * 0 + 4]),
    Case("where", ops.where, np.where, [flags, x, row]),
    Case("cast", lambda x: ops.cast(x, DType.int32), lambda x: x.astype(np.int32), [x]),
    # Operators.
    Case("reflected", lambda x: 2 - x, lambda x: 2 - x, [x]),
    Case("numpy on the left", lambda x: row * x, lambda x: row * x, [x], dynamic=False),
    Case("divmod", lambda x: list(divmod(x, 2)), lambda x: list(divmod(x, 2)), [ints]),
    Case("power", lambda x: 2**x + x**2, lambda x: 2**x + x**2, [x]),
    Case("unary operators", lambda x: abs(-x) + round(x), lambda x: abs(-x) + np.round(x), [x]),
    Case("logical operators", lambda a, b: ~a & b | a ^ b, lambda a, b: ~a & b | a ^ b, [flags, more_flags]),
    Case(
        "comparisons",
        lambda a, b: [a < b, a <= b, a == b, a != b],
        lambda a, b: [a < b, a <= b, a == b, a != b],
        [ints, ints[::-1].copy()],
    ),
    Case("transposed", lambda x: x.T, lambda x: x.swapaxes(-1, -2), [x]),
    Case(
        "methods",
        lambda x: [x.max(), x.min(0), x.mean(-2), x.var(1), x.stdev()],
        lambda x: [
            x.max(-1, keepdims=True),
            x.min(0, keepdims=True),
            x.mean(-2, keepdims=True),
            x.var(1, keepdims=True),
            x.std(-1, keepdims=True),
        ],
        [x],
    ),
    # Along an axis.
    *(
        Case(
            f"{name} {axis}",
            lambda x, name=name, axis=axis: getattr(ops, name)(x, axis=axis),
            lambda x, name=name, axis=axis: getattr(np, name)(x, axis=axis, keepdims=True),
            [x],
        )
        for name in ("sum", "mean", "prod", "min", "max")
        for axis in (-1, 0, 1)
    ),
    *(
        Case(name, getattr(ops, name), lambda x, name=name: getattr(np, name)(x, axis=-1, keepdims=True), [x])
        for name in ("argmin", "argmax")
    ),
    Case("softmax", ops.softmax, softmax, [x]),
    Case("softmax 1", lambda x: ops.softmax(x, axis=1), lambda x: softmax(x, 1), [x]),
    Case("logsoftmax", ops.logsoftmax, lambda x: np.log(softmax(x)), [x]),
    Case("layer_norm", lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), layer_norm, [x, row, data(7, seed=2)]),
    Case(
        "layer_norm of arrays",
        lambda x: ops.layer_norm(x, row, row, 1e-5),
        lambda x: layer_norm(x, row, row),
        [x],
        dynamic=False,
    ),
    Case("rms_norm", lambda x, w: ops.rms_norm(x, w, 1e-5), rms_norm, [x, row]),
    Case(
        "rms_norm with an offset",
        lambda x, w: ops.rms_norm(x, w, 1e-5, weight_offset=1.0),
        lambda x, w: rms_norm(x, w + 1),
        [x, row],
    ),
    Case(
        "rms_norm multiplied first",
        lambda x, w: ops.rms_norm(x, w, 1e-5, 1.0, True),
        lambda x, w: rms_norm(x, w + 1),
        [x, row],
    ),
    Case(
        "group_norm",
        lambda x, w, b: ops.group_norm(x, w, b, 2, 1e-5),
        lambda x, w, b: group_norm(x, w, b, 2),
        [data(2, 4, 3, 5), data(4), data(4, seed=1)],
        dynamic=False,
    ),
    Case("cumsum", ops.cumsum, lambda x: np.cumsum(x, -1), [x]),
    Case(
        "cumsum exclusive",
        lambda x: ops.cumsum(x, 1, exclusive=True, reverse=True),
        lambda x: np.flip(np.cumsum(np.flip(x, 1), 1), 1) - x,
        [x],
    ),
    Case("argsort", ops.argsort, lambda x: np.argsort(x, kind="stable"), [data(9)]),
    Case(
        "argsort descending",
        lambda x: ops.argsort(x, ascending=False),
        lambda x: np.argsort(-x, kind="stable"),
        [data(9)],
    ),
    Case(
        "top_k",
        lambda x: list(ops.top_k(x, 3)),
        lambda x: [-np.sort(-x, -1)[..., :3], np.argsort(-x, -1)[..., :3]],
        [x],
    ),
    Case(
        "bottom_k",
        lambda x: list(ops.bottom_k(x, 2, axis=1)),
        lambda x: [np.sort(x, 1)[:, :2], np.argsort(x, 1)[:, :2]],
        [x],
    ),
    # Products.
    Case("matmul", ops.matmul, np.matmul, [data(2, 5, 7), data(7, 3)]),
    Case("matmul operator", lambda a, b: a @ b, np.matmul, [data(4, 5, 7), data(4, 7, 3)]),
    Case(
        "matmul with an array",
        lambda a: data(4, 5) @ a,
        lambda a: data(4, 5) @ a,
        [data(5, 3)],
        dynamic=False,
    ),
    Case("outer", ops.outer, np.outer, [data(5), data(7)]),
    # Shapes.
    Case("reshape", lambda x: ops.reshape(x, [7, -1]), lambda x: x.reshape(7, -1), [x], dynamic=False),
    Case(
        "reshape by dims", lambda x: x.reshape([x.shape[0] * x.shape[1], -1]), lambda x: x.reshape(15, 7), [x]
    ),
    Case("flatten", ops.flatten, np.ravel, [x]),
    Case("flatten two", lambda x: x.flatten(1), lambda x: x.reshape(3, -1), [x]),
    Case("squeeze", lambda x: ops.squeeze(x, 1), lambda x: x.squeeze(1), [column], dynamic=False),
    Case("unsqueeze", lambda x: ops.unsqueeze(x, -2), lambda x: x[:, :, None], [x]),
    Case("permute", lambda x: ops.permute(x, [2, 0, -2]), lambda x: x.transpose(2, 0, 1), [x]),
    Case("transpose", lambda x: ops.transpose(x, 0, -1), lambda x: x.swapaxes(0, -1), [x]),
    Case(
        "broadcast_to",
        lambda x: ops.broadcast_to(x, [5, 4]),
        lambda x: np.broadcast_to(x, (5, 4)),
        [data(5, 1)],
        dynamic=False,
    ),
    Case(
        "concat",
        lambda a, b: ops.concat([a, b, a], axis=-1),
        lambda a, b: np.concatenate([a, b, a], -1),
        [x, y],
    ),
    Case("stack", lambda a, b: ops.stack([a, b], axis=1), lambda a, b: np.stack([a, b], 1), [x, y]),
    Case(
        "split",
        lambda x: ops.split(x, [1, 2, 4], axis=-1),
        lambda x: np.split(x, [1, 3], -1),
        [x],
        dynamic=False,
    ),
    Case(
        "split by dims",
        lambda x, y: ops.split(ops.concat([x, y], 1), [1, x.shape[1] - 1, y.shape[1]], axis=1),
        lambda x, y: np.split(np.concatenate([x, y], 1), [1, 5], 1),
        [x, y],
    ),
    Case("chunk", lambda x: ops.chunk(x, 3), lambda x: np.split(x, 3), [x], dynamic=False),
    Case("tile", lambda x: ops.tile(x, [2, 1, 3]), lambda x: np.tile(x, (2, 1, 3)), [x]),
    Case("repeat_interleave", lambda x: ops.repeat_interleave(x, 2), lambda x: np.repeat(x, 2), [x]),
    Case(
        "repeat_interleave along",
        lambda x: ops.repeat_interleave(x, 3, axis=1),
        lambda x: np.repeat(x, 3, 1),
        [x],
    ),
    Case(
        "repeat_interleave by counts",
        lambda x, n: ops.repeat_interleave(x, n, 0, "total"),
        lambda x, n: np.repeat(x, n, 0),
        [x, np.array([2, 0, 3])],
    ),
    Case(
        "pad",
        lambda x: ops.pad(x, [0, 1, 2, 0, 1, 1], value=5),
        lambda x: np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=5),
        [x],
    ),
    Case(
        "pad reflect",
        lambda x: ops.pad(x, [0, 0, 2, 1, 0, 3], "reflect"),
        lambda x: np.pad(x, ((0, 0), (2, 1), (0, 3)), "reflect"),
        [x],
        dynamic=False,
    ),
    Case(
        "pad edge",
        lambda x: ops.pad(x, [1, 0, 0, 0, 0, 3], "edge"),
        lambda x: np.pad(x, ((1, 0), (0, 0), (0, 3)), "edge"),
        [x],
        dynamic=False,
    ),
    Case(
        "slices",
        lambda x: [x[0], x[-1, 2:], x[..., 1:6:2], x[:, None, 3], x[1:2, :, -3:-1]],
        lambda x: [x[0], x[-1, 2:], x[..., 1:6:2], x[:, None, 3], x[1:2, :, -3:-1]],
        [x],
    ),
    Case("slice at a tensor", lambda x, i: x[:, i], lambda x, i: x[:, i], [x, np.array(2)]),
    Case(
        "slice between tensors",
        lambda x, i, j: x[(slice(i, j), "some"), 0],
        lambda x, i, j: x[i:j, 0],
        [x, np.array(1), np.array(3)],
    ),
    Case(
        "slice to a dim",
        lambda x: [x[: x.shape[1] // 2], x[x.shape[0] - 2 :, 0][: x.shape[0] - 1]],
        lambda x: [x[:2], x[1:, 0]],
        [x],
    ),
    Case("rebind", lambda x: ops.rebind(x, ["a", 5, "c"]), lambda x: x, [x]),
    Case("shape_to_tensor", lambda x: ops.shape_to_tensor(x.shape), lambda x: np.array(x.shape), [x]),
    Case("band_part", lambda x: ops.band_part(x, 1, 2), lambda x: np.tril(np.triu(x, -1), 2), [x]),
    Case(
        "band_part excluded", lambda x: ops.band_part(x, None, 0, exclude=True), lambda x: np.triu(x, 1), [x]
    ),
    Case(
        "as_interleaved_complex",
        ops.as_interleaved_complex,
        lambda x: x.reshape(3, 4, 2),
        [data(3, 8)],
        dynamic=False,
    ),
    Case(
        "complex.mul",
        ops.complex.mul,
        lambda a, b: (lambda z: np.stack([z.real, z.imag], -1))(
            (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + 1j * b[..., 1])
        ),
        [data(3, 4, 2), data(4, 2)],
        dynamic=False,
    ),
    # Indices.
    Case("gather", lambda x, i: ops.gather(x, i, 1), lambda x, i: x[:, i], [x, np.array([[4, 0], [1, 1]])]),
    Case("gather of an array", lambda x: ops.gather(x, np.array([2, 0]), -1), lambda x: x[..., [2, 0]], [x]),
    Case(
        "gather_nd",
        lambda x, i: ops.gather_nd(x, i),
        lambda x, i: x[i[:, 0], i[:, 1]],
        [x, np.array([[0, 1], [2, 4]])],
        dynamic=False,
    ),
    Case("nonzero", lambda x: ops.nonzero(x, "found"), lambda x: np.argwhere(x), [flags]),
    Case(
        "masked_scatter",
        lambda x, m, u: ops.masked_scatter(x, m, u, "places"),
        lambda x, m, u: (lambda z: (z.__setitem__(m, u[: m.sum()]), z)[1])(x.copy()),
        [x, flags, data(200)],
    ),
    # Values of nothing.
    Case(
        "constant",
        lambda x: x + ops.constant([[1, 2], [3, 4]], DType.float32, CPU),
        lambda x: x + np.array([[1, 2], [3, 4]], np.float32),
        [data(3, 2, 2)],
        dynamic=False,
    ),
    Case(
        "range",
        lambda x: x + ops.range(0, 7, dtype=DType.float32, device=CPU),
        lambda x: x + np.arange(7, dtype=np.float32),
        [x],
        dynamic=False,
    ),
    Case(
        "range to a dim",
        lambda x: ops.range(0, x.shape[0], dtype=DType.int32, device=CPU),
        lambda x: np.arange(9, dtype=np.int32),
        [data(9)],
    ),
    Case(
        "range of tensors",
        lambda a, b: ops.range(a, b, 2, "n", dtype=DType.int64, device=CPU),
        lambda a, b: np.arange(a, b, 2),
        [np.array(3), np.array(12)],
    ),
    Case(
        "hann_window",
        lambda x: x * ops.hann_window(7, CPU, periodic=False),
        lambda x: x * np.hanning(7).astype(np.float32),
        [x],
        dynamic=False,
    ),
    Case(
        "conv2d as a product",
        lambda x, w: ops.conv2d(x, w),
        lambda x, w: x @ w[0, 0],
        [data(2, 4, 5, 3), data(1, 1, 3, 6)],
        dynamic=False,
        tolerance=1e-4,
    ),
    Case(
        "conv2d channels first",
        lambda x, w: ops.conv2d(x, w, input_layout=ConvInputLayout.NCHW, filter_layout=FilterLayout.FCRS),
        lambda x, w: np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0]),
        [data(2, 3, 4, 5), data(6, 3, 1, 1)],
        dynamic=False,
        tolerance=1e-4,
    ),
    Case(
        "conv2d in one dimension",
        lambda x, w: ops.conv2d(x, w, padding=(0, 0, 1, 1), bias=np.array([2], np.float32)),
        lambda x, w: np.convolve(x.ravel(), w.ravel()[::-1], "same").reshape(1, 1, 9, 1) + 2,
        [data(1, 1, 9, 1), data(1, 3, 1, 1)],
        dynamic=False,
        tolerance=1e-4,
    ),
    Case(
        "conv3d as a product",
        lambda x, w: ops.conv3d(x, w),
        lambda x, w: x @ w[0, 0, 0],
        [data(1, 2, 4, 5, 3), data(1, 1, 1, 3, 6)],
        dynamic=False,
        tolerance=1e-4,
    ),
    Case(
        "conv2d_transpose",
        lambda x, w: ops.conv2d_transpose(x, w, stride=(2, 2)),
        lambda x, w: np.kron(x[0, :, :, 0], w[:, :, 0, 0])[None, :, :, None],
        [data(1, 3, 2, 1), data(2, 2, 1, 1)],
        dynamic=False,
    ),
    Case(
        "avg_pool2d",
        lambda x: ops.avg_pool2d(x, (2, 2), stride=2),
        lambda x: x.reshape(2, 2, 2, 3, 2, 3).mean((2, 4)),
        [data(2, 4, 6, 3)],
        dynamic=False,
    ),
    Case(
        "max_pool2d",
        lambda x: ops.max_pool2d(x, (2, 2), stride=(2, 2)),
        lambda x: x.reshape(2, 2, 2, 3, 2, 3).max((2, 4)),
        [data(2, 4, 6, 3)],
        dynamic=False,
    ),
    Case(
        "fold",
        lambda x: ops.fold(x, (4, 6), 2, stride=2),
        lambda x: x.reshape(1, 3, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 3, 4, 6),
        [data(1, 12, 6)],
        dynamic=False,
    ),
    Case(
        "resize nearest",
        lambda x: ops.resize(x, [1, 2, 4, 6], ops.InterpolationMode.NEAREST),
        lambda x: x.repeat(2, 2).repeat(2, 3),
        [data(1, 2, 2, 3)],
        dynamic=False,
    ),
    Case(
        "resize_linear",
        lambda x: ops.resize_linear(x, [1, 1, 1, 5], coordinate_transform_mode=1),
        lambda x: np.interp(np.linspace(0, 2, 5), range(3), x.ravel()).reshape(1, 1, 1, 5),
        [data(1, 1, 1, 3)],
        dynamic=False,
    ),
    Case(
        "resize_nearest",
        lambda x: ops.resize_nearest(x, [6], 2, 2),
        lambda x: x.repeat(2),
        [data(3)],
        dynamic=False,
    ),
    Case("resize_bicubic", lambda x: ops.resize_bicubic(x, [5, 7]), lambda x: x, [data(5, 7)], dynamic=False),
    Case(
        "roi_align",
        lambda x, r: ops.roi_align(x, r, 2, 2, sampling_ratio=1, aligned=True),
        lambda x, r: x[:, 1:3, 1:3],
        [data(1, 5, 5, 2), np.array([[0, 1, 1, 3, 3]], np.float32)],
        dynamic=False,
    ),
    Case(
        "irfft",
        lambda x: ops.irfft(x, 8, input_is_complex=True),
        lambda x: np.fft.irfft(x[..., 0] + 1j * x[..., 1], 8),
        [data(3, 5, 2)],
        dynamic=False,
    ),
    Case(
        "irfft of real parts",
        lambda x: ops.irfft(x, normalization="ortho"),
        lambda x: np.fft.irfft(x, norm="ortho"),
        [data(3, 5)],
        dynamic=False,
    ),
    Case(
        "non_maximum_suppression",
        lambda b, s: ops.non_maximum_suppression(b, s, 5, 0.5, 0.1),
        lambda b, s: np.array([[0, 0, 1], [0, 0, 2]]),
        [
            np.array([[[0, 0, 1, 1], [0, 0, 1, 1.1], [3, 3, 4, 4]]], np.float32),
            np.array([[[0.7, 0.9, 0.5]]], np.float32),
        ],
        dynamic=False,
    ),
    Case(
        "shard_and_stack",
        lambda a, b: ops.shard_and_stack([a, b], [CPU, CPU], axis=1),
        lambda a, b: [np.stack([a[:, :2], b[:, :2]]), np.stack([a[:, 2:], b[:, 2:]])],
        [data(3, 4), data(3, 4, seed=1)],
        dynamic=False,
    ),
    Case("parallel", lambda a, b: ops.parallel([a, b], lambda x: x + 1), lambda a, b: [a + 1, b + 1], [x, y]),
    Case("transfer_to", lambda x: [ops.transfer_to(x, CPU), x.to(CPU)], lambda x: [x, x], [x]),
]


def compare(outputs: Sequence[Array], expected: Any, tolerance: float) -> None:
    expected = expected if isinstance(expected, (list, tuple)) else [expected]
    assert len(outputs) == len(expected)
    for output, wanted in zip(outputs, expected):
        wanted = np.asarray(wanted)
        assert output.shape == wanted.shape
        assert output.dtype.kind == wanted.dtype.kind
        if output.dtype.kind == "f":
            np.testing.assert_allclose(output, wanted, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(output, wanted)


RUNS = [(case, dynamic) for case in CASES for dynamic in (False, True) if case.dynamic or not dynamic]


@pytest.mark.parametrize(
    "case, dynamic", RUNS, ids=[f"{case.name}{' symbols' * dynamic}" for case, dynamic in RUNS]
)
def test_op(session: InferenceSession, case: Case, dynamic: bool) -> None:
    arrays = [np.require(array, requirements="C") for array in case.arrays]
    compare(run(session, case.op, arrays, dynamic), case.expected(*arrays), case.tolerance)


@pytest.mark.parametrize("kind", ["", "_add", "_max", "_min", "_mul"])
def test_scatter(session: InferenceSession, kind: str) -> None:
    u, indices = data(3, 2, 7, seed=1), np.array([[[4] * 7, [1] * 7]] * 3)
    expected, whole = x.copy(), x.copy()
    function = {
        "": lambda a, b: b,
        "_add": np.add,
        "_max": np.maximum,
        "_min": np.minimum,
        "_mul": np.multiply,
    }[kind]
    for j, target in enumerate([4, 1]):
        expected[:, target] = function(expected[:, target], u[:, j])
    whole[[2, 0]] = function(whole[[2, 0]], y[:2])
    scatter, scatter_nd = getattr(ops, f"scatter{kind}"), getattr(ops, f"scatter_nd{kind}")

    def build(
        x: TensorValue, u: TensorValue, i: TensorValue, y: TensorValue, j: TensorValue
    ) -> list[TensorValue]:
        return [scatter(x, u, i, axis=1), scatter_nd(x, y, j)]

    outputs = run(session, build, [x, u, indices, y[:2].copy(), np.array([[2], [0]])])
    compare(outputs, [expected, whole], 1e-6)


def test_random(session: InferenceSession) -> None:
    like = tensor("float32", 100, 100)

    def build() -> list[TensorValue]:
        with pytest.raises(RuntimeError, match="seed"):
            ops.random.normal(like)
        ops.random.set_seed(7)
        return [ops.random.normal(like, 3, 2), ops.random.uniform(like, (-1, 5)), ops.random.gaussian(like)]

    normal, uniform, standard = run(session, build, [])
    assert abs(normal.mean() - 3) < 0.1 and abs(normal.std() - 2) < 0.1
    assert -1 <= uniform.min() and uniform.max() < 5 and abs(uniform.mean() - 2) < 0.1
    assert abs(standard.mean()) < 0.05
    np.testing.assert_array_equal(run(session, build, [])[0], normal)


def test_constants(session: InferenceSession) -> None:
    def build() -> list[TensorValue]:
        return [
            ops.constant(np.array([True, False])),
            ops.constant(2.5, DType.float16, CPU),
            ops.constant(np.float64(1), DType.float32, CPU),
            ops.constant(2**63, DType.uint64, CPU),
        ]

    outputs = run(session, build, [])
    assert [output.dtype.name for output in outputs] == ["bool", "float16", "float32", "uint64"]
    assert [output.tolist() for output in outputs] == [[True, False], 2.5, 1, 2**63]
    with Graph("g"):
        for value, dtype in ((256, DType.uint8), (0.5, DType.int8), ([[1], [2, 3]], DType.int8), (1, None)):
            with pytest.raises(ValueError):
                ops.constant(value, dtype, CPU)
        with pytest.raises(TypeError):
            ops.constant(1, DType.float4_e2m1fn, CPU)


def test_constants_are_copies(session: InferenceSession) -> None:
    array = np.ones(3, np.float32)
    graph = Graph("g", lambda x: x + array, [tensor("float32", 3)])
    array[:] = 7
    np.testing.assert_array_equal(
        session.load(graph).execute(np.zeros(3, np.float32))[0].to_numpy(), np.ones(3)
    )


def test_print(session: InferenceSession, capfd: pytest.CaptureFixture[str]) -> None:
    def build(x: TensorValue) -> None:
        ops.print("here", label="text")
        x.print("values")

    run(session, build, [np.array([1, 2], np.float32)])
    out = capfd.readouterr().out
    assert "text = here" in out and "values = tensor([[1.0000, 2.0000]], dtype=f32, shape=[2])" in out


def test_collectives_of_one_device(session: InferenceSession) -> None:
    def build(x: TensorValue, signal: Any) -> list[TensorValue]:
        results = [
            *ops.allgather([x], [signal]),
            *ops.allreduce.sum([x], [signal]),
            *ops.bundled_allreduce.sum([x], [signal]),
            *ops.reducescatter.sum([x], [signal]),
            *ops.distributed_broadcast(x, [signal]),
            *ops.distributed_scatter([x], [signal]),
        ]
        with pytest.raises(ValueError, match="signal buffer"):
            ops.allreduce.sum([x], [])
        return results

    types: list[Type] = [tensor("float32", 3), BufferType(DType.uint8, [1], CPU)]
    outputs = session.load(Graph("g", build, types)).execute(data(3), Buffer.zeros([1], DType.uint8))
    assert len(outputs) == 6
    for output in outputs:
        np.testing.assert_array_equal(output.to_numpy(), data(3))


def test_quantized(session: InferenceSession) -> None:
    # A block of Q4_0: the scale as float16, and 32 weights of 4 bits, the first 16 in the low halves of the bytes.
    codes = np.arange(32) % 16
    block = np.concatenate(
        [np.frombuffer(np.float16(0.5).tobytes(), np.uint8), (codes[:16] | codes[16:] << 4).astype(np.uint8)]
    )
    w = np.stack([block, block[::1]])
    elements = np.tile((codes - 8) * np.float32(0.5), (2, 1))
    q4 = QuantizationEncoding.Q4_0

    def build(x: TensorValue, w: TensorValue) -> list[TensorValue]:
        with pytest.raises(TypeError, match="rhs is of float32"):
            ops.qmatmul(q4, None, x, x)
        for encoding, config in ((QuantizationEncoding.Q5_K, None), (QuantizationEncoding.GPTQ, None)):
            with pytest.raises(ValueError):
                ops.qmatmul(encoding, config, x, w)
        with pytest.raises(ValueError):
            ops.qmatmul(QuantizationEncoding.GPTQ, QuantizationConfig("gptq", 4, 128, sym=True), x, w)
        return [ops.dequantize(q4, w), ops.qmatmul(q4, None, x, w)]

    values, product = run(session, build, [data(3, 32), w])
    np.testing.assert_array_equal(values, elements)
    np.testing.assert_allclose(product, data(3, 32) @ elements.T, atol=0.15)


def test_dtypes_of_16_bits(session: InferenceSession) -> None:
    a, w = data(3, 8, dtype="float16"), data(8, dtype="float16", seed=1)

    def build(x: TensorValue, w: TensorValue) -> list[TensorValue]:
        return [
            ops.rms_norm(x, w, 1e-5),
            ops.layer_norm(x, w, w, 1e-5),
            ops.softmax(x),
            x.cast(DType.bfloat16).cast(DType.float32),
        ]

    norm, layer, soft, rounded = run(session, build, [a, w])
    wide, wide_w = a.astype(np.float32), w.astype(np.float32)
    assert norm.dtype == layer.dtype == np.float16
    np.testing.assert_allclose(norm, rms_norm(wide, wide_w), atol=4e-3)
    np.testing.assert_allclose(layer, layer_norm(wide, wide_w, wide_w), atol=4e-3)
    np.testing.assert_allclose(rounded, wide, rtol=2**-8)
