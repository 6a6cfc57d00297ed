"""Larger graphs, and properties of broadcasting, promotion and slicing, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from graphs import CPU, Array, data, run, tensor
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import Graph, TensorValue, Weight, dtype_promotion, ops

SESSION = InferenceSession()
FEW = settings(max_examples=40, deadline=None)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_a_perceptron(session: InferenceSession) -> None:
    """The example of the reference's documentation, with its imports changed."""

    class Linear:
        def __init__(self, name: str, rows: int, columns: int) -> None:
            self.weight = Weight(f"{name}.weight", DType.float32, [rows, columns], CPU)
            self.bias = Weight(f"{name}.bias", DType.float32, [rows], CPU)

        def __call__(self, x: TensorValue) -> TensorValue:
            return x @ self.weight.T + self.bias

    layers = [Linear("up", 16, 5), Linear("down", 3, 16)]
    with Graph("mlp", input_types=[tensor("float32", "batch", 5)]) as graph:
        x = graph.inputs[0].tensor
        graph.output(layers[1](ops.relu(layers[0](x))))
    weights = {
        "up.weight": data(16, 5), "up.bias": data(16), "down.weight": data(3, 16), "down.bias": data(3)
    }  # fmt: skip
    model = session.load(graph, weights_registry=weights)
    for batch in (1, 7):
        x = data(batch, 5)
        hidden = np.maximum(x @ weights["up.weight"].T + weights["up.bias"], 0)
        expected = hidden @ weights["down.weight"].T + weights["down.bias"]
        np.testing.assert_allclose(model.execute(x)[0].to_numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_transformer_block(session: InferenceSession) -> None:
    heads, size, width = 4, 8, 32
    shapes = {
        "norm": [width],
        "q": [width, width],
        "k": [width, width],
        "v": [width, width],
        "o": [width, width],
    }
    shapes |= {"norm2": [width], "gate": [64, width], "up": [64, width], "down": [width, 64]}
    w = {name: Weight(name, DType.float32, shape, CPU) for name, shape in shapes.items()}

    def block(x: TensorValue) -> TensorValue:
        batch, length = x.shape[0], x.shape[1]
        h = ops.rms_norm(x, w["norm"], 1e-5)
        q, k, v = (
            (h @ w[name].T).reshape([batch, length, heads, -1]).permute([0, 2, 1, 3])
            for name in ("q", "k", "v")
        )
        scores = q @ k.transpose(-1, -2) / size**0.5
        position = ops.range(0, length, dtype=DType.int64, device=CPU)
        mask = ops.unsqueeze(position, 1) >= position
        scores = ops.where(mask, scores, float("-inf"))
        attention = (ops.softmax(scores) @ v).permute([0, 2, 1, 3]).reshape([batch, length, -1])
        x = x + attention @ w["o"].T
        h = ops.rms_norm(x, w["norm2"], 1e-5)
        return x + (ops.silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T

    def expected(x: Array, w: dict[str, Array]) -> Array:
        def norm(x: Array, weight: Array) -> Array:
            result: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight
            return result

        batch, length, _ = x.shape
        h = norm(x, w["norm"])
        q, k, v = (
            (h @ w[name].T).reshape(batch, length, heads, size).transpose(0, 2, 1, 3) for name in "qkv"
        )
        scores = q @ k.swapaxes(-1, -2) / size**0.5
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
        x = x + (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, width) @ w["o"].T
        h = norm(x, w["norm2"])
        gate = h @ w["gate"].T
        return x + (gate / (1 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T

    values = {name: data(*shape, seed=i) / 5 for i, (name, shape) in enumerate(shapes.items())}
    graph = Graph("block", block, [tensor("float32", "batch", "length", width)])
    assert graph.output_types == [tensor("float32", "batch", "length", width)]
    model = session.load(graph, weights_registry=values)
    for batch, length in ((1, 1), (2, 5), (3, 17)):
        x = data(batch, length, width)
        np.testing.assert_allclose(model.execute(x)[0].to_numpy(), expected(x, values), rtol=1e-3, atol=1e-4)


@FEW
@given(st.data())
def test_broadcasting_is_numpys(draw: st.DataObject) -> None:
    full = draw.draw(st.lists(st.integers(1, 4), max_size=4))

    def part() -> list[int]:
        kept = full[draw.draw(st.integers(0, len(full))) :]
        return [draw.draw(st.sampled_from([1, size])) for size in kept]

    x, y = data(*part()), data(*part(), seed=1)
    x, y = np.asarray(x, np.float32), np.asarray(y, np.float32)
    (z,) = run(SESSION, ops.add, [x, y])
    np.testing.assert_array_equal(z, x + y)


@FEW
@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=3), st.lists(st.integers(2, 4), min_size=1, max_size=3)
)
def test_what_numpy_does_not_broadcast_is_refused(a: list[int], b: list[int]) -> None:
    try:
        np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        with Graph("g", input_types=[tensor("float32", *a), tensor("float32", *b)]) as graph:
            with pytest.raises(ValueError, match="do not broadcast"):
                ops.mul(*graph.inputs)
    else:
        assume(False)


DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"
]  # fmt: skip


@pytest.mark.parametrize("a", DTYPES)
def test_promotion_gives_one_of_the_dtypes_as_numpy_or_refuses(a: str) -> None:
    for b in DTYPES:
        with Graph("g", input_types=[tensor(a, "n"), tensor(b, "n")]) as graph:
            wide = np.promote_types(a, b).name
            try:
                x, y = dtype_promotion.promote_weak_dtypes(*graph.inputs)
            except ValueError as error:
                assert "no dtype of the operands holds them all" in str(error)
                # If NumPy returns one of the two, their categories differ: it widens floats for integers.
                assert wide not in (a, b) or {a[0], b[0]} & {"f"}
            else:
                assert x.dtype is y.dtype and x.dtype.name in (a, b)
                assert x.dtype.name == wide or {a[0], b[0]} & {"f"}


@FEW
@given(st.data())
def test_slices_are_numpys(draw: st.DataObject) -> None:
    shape = draw.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    x = data(*shape, dtype="int32")
    ends = st.none() | st.integers(-7, 7)
    indices: list[Any] = []
    for size in shape[: draw.draw(st.integers(1, len(shape)))]:
        at = st.integers(-size, size - 1)
        steps = st.none() | st.integers(1, 3) | st.integers(-3, -1)
        indices.append(draw.draw(at | st.builds(slice, ends, ends, steps)))
    indices.insert(
        draw.draw(st.integers(0, len(indices))), draw.draw(st.sampled_from([None, ..., slice(None)]))
    )
    try:
        expected = x[tuple(indices)]
    except IndexError:
        with pytest.raises(ValueError):
            run(SESSION, lambda x: x[tuple(indices)], [x])
    else:
        (y,) = run(SESSION, lambda x: x[tuple(indices)] + 0, [x])
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype, good, bad", [
    ("float16", [2048, 0.1, True], [2049, 1e9]),
    ("float32", [2**24, 1e-9], [2**24 + 1]),
    ("uint8", [255, False], [256, -1, 0.5]),
    ("int64", [2**62], [2**63, 1.0]),
])  # fmt: skip
def test_numbers_take_the_dtype_of_the_tensor(dtype: str, good: list[Any], bad: list[Any]) -> None:
    with Graph("g", input_types=[tensor(dtype, "n")]) as graph:
        x = graph.inputs[0].tensor
        for number in good:
            assert (x * number).dtype is x.dtype and (number + x).dtype is x.dtype
        for number in bad:
            with pytest.raises(ValueError):
                x * number
