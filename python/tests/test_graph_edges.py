"""Graphs at their edges: truth values, axes that are not there, small floats, spans of buffers, other devices."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import CPU, data, run, tensor

import perihelion
from perihelion import PipelineConfig, SamplingParams
from perihelion.driver import Buffer
from perihelion.dtype import DType
from perihelion.engine import CompilationStopped, InferenceSession
from perihelion.graph import BufferType, DeviceRef, Dim, Graph, Segment, TensorType, Weight, ops
from perihelion.graph.buffer_utils import cast_dlpack_to, cast_tensors_to
from perihelion.graph.weight import (
    axiswise_sharding_strategy,
    col_sharding_strategy,
    gate_up_sharding_strategy,
    head_aware_col_sharding_strategy,
    replicate_sharding_strategy,
    row_sharding_strategy,
    segmented_sharding_strategy,
    stacked_qkv_sharding_strategy,
)

GPU = DeviceRef.GPU()


def types_of(build: Callable[..., Any], *types: TensorType | BufferType) -> list[str]:
    """The types of the outputs of a function."""
    return [f"{t.dtype!r} {t.shape} {t.device}" for t in Graph("g", build, types).output_types]


class TestTruth:
    def test_a_tensor_has_no_truth_value(self) -> None:
        with Graph("g", input_types=[tensor("float32", 3)]) as graph:
            x = graph.inputs[0].tensor
            with pytest.raises(TypeError, match=r"ops\.where or ops\.cond .* & \| ~"):
                x if x > 0 else -x
            with pytest.raises(TypeError, match="neither true nor false"):
                max(x, 0.0)
            with pytest.raises(TypeError, match="neither true nor false"):
                (x > 0) and (x < 1)

    @pytest.mark.parametrize(
        ("op", "expected"),
        [
            (ops.add, np.logical_or),
            (ops.mul, np.logical_and),
            (ops.sub, np.logical_xor),
            (ops.max, np.maximum),
            (ops.min, np.minimum),
            (ops.greater, np.greater),
            (ops.matmul, np.matmul),
        ],
    )
    def test_arithmetic(self, session: InferenceSession, op: Any, expected: Any) -> None:
        x, y = data(4, 4, dtype="bool", seed=1), data(4, 4, dtype="bool", seed=2)
        (result,) = run(session, op, [x, y])
        assert result.dtype == np.bool_
        np.testing.assert_array_equal(result, expected(x, y))

    @pytest.mark.parametrize(
        ("op", "expected"),
        [(ops.prod, np.all), (ops.max, np.any), (ops.min, np.all), (ops.mean, np.any)],
    )
    def test_reductions(self, session: InferenceSession, op: Any, expected: Any) -> None:
        x = data(5, 3, dtype="bool")
        (result,) = run(session, op, [x])
        np.testing.assert_array_equal(result, expected(x, axis=-1, keepdims=True))
        (index,) = run(session, ops.argmax, [x])
        np.testing.assert_array_equal(index[:, 0], x.argmax(-1))

    def test_sums_count(self, session: InferenceSession) -> None:
        x = data(5, 3, dtype="bool")
        (result,) = run(session, ops.sum, [x])
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, x.sum(-1, keepdims=True))
        (result,) = run(session, lambda x: ops.cumsum(x, axis=0), [x])
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, np.cumsum(x, 0))

    @pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
    def test_indices_of_every_integer_dtype(self, session: InferenceSession, dtype: str) -> None:
        x, indices = data(3, 4), np.array([[2, 1], [0, 3]], dtype)
        (result,) = run(session, ops.gather_nd, [x, indices])
        np.testing.assert_array_equal(result, x[indices[:, 0], indices[:, 1]])
        (result,) = run(session, lambda x, i: ops.gather(x, i, 1), [x, indices])
        np.testing.assert_array_equal(result, x[:, indices])

    def test_numbers_of_numpy_have_a_dtype(self, session: InferenceSession) -> None:
        (result,) = run(session, lambda: ops.constant(np.float16(2.5)), [])
        assert result.dtype == np.float16
        assert result == 2.5

    def test_moves(self, session: InferenceSession) -> None:
        x, mask = data(2, 3, dtype="bool"), data(2, 3, dtype="bool", seed=4)
        indices = np.array([[0, 1, 2], [2, 1, 0]])
        (padded,) = run(session, lambda x: ops.pad(x, [1, 0, 0, 1], value=0), [x])
        np.testing.assert_array_equal(padded, np.pad(x, [(1, 0), (0, 1)]))
        (added,) = run(session, lambda x, u, i: ops.scatter_add(x, u, i), [x, mask, indices])
        expected = x.copy()
        for row, column in np.ndindex(2, 3):
            expected[row, indices[row, column]] |= mask[row, column]
        np.testing.assert_array_equal(added, expected)

    def test_means_of_integers_are_rounded_towards_0(self, session: InferenceSession) -> None:
        (result,) = run(session, ops.mean, [np.array([[1, 2, 2], [-1, -2, -2]], np.int32)])
        assert result.dtype == np.int32
        assert result.tolist() == [[1], [-1]]


class TestAxes:
    @pytest.mark.parametrize("axis", [2, -3, 2**70, -(2**70)])
    @pytest.mark.parametrize(
        "op",
        [
            ops.sum,
            ops.argmax,
            ops.softmax,
            ops.squeeze,
            ops.cumsum,
            lambda x, axis: ops.gather(x, ops.constant([0], DType.int64, CPU), axis),
            lambda x, axis: ops.concat([x, x], axis),
            lambda x, axis: ops.stack([x, x], axis + 1 if axis > 0 else axis - 1),
            lambda x, axis: ops.split(x, [1, 1], axis),
            lambda x, axis: ops.chunk(x, 2, axis),
            lambda x, axis: ops.repeat_interleave(x, 2, axis),
            lambda x, axis: ops.permute(x, [0, axis]),
            lambda x, axis: ops.transpose(x, 0, axis),
            lambda x, axis: ops.top_k(x, 1, axis),
        ],
    )
    def test_one_error_for_axes_that_are_not_there(self, op: Any, axis: int) -> None:
        with Graph("g", input_types=[tensor("float32", 2, 2)]) as graph:
            x = graph.inputs[0].tensor
            with pytest.raises(perihelion.AxisError, match="axis") as error:
                op(x, axis)
        assert isinstance(error.value, ValueError)
        assert isinstance(error.value, IndexError)

    def test_integers_beyond_64_bits_are_ours(self) -> None:
        with Graph("g", input_types=[tensor("float32", 4)]) as graph:
            x = graph.inputs[0].tensor
            for refused in (
                lambda: ops.repeat_interleave(x, 2**70),
                lambda: ops.pad(x, [2**70, 0]),
                lambda: ops.top_k(x, 2**70),
                lambda: ops.range(0, 2**63, dtype=DType.int64, device=CPU),
                lambda: ops.range(0, 2**90, dtype=DType.float32, device=CPU),
                lambda: ops.random.set_seed(2**63),
                lambda: ops.hann_window(2**70, CPU),
                lambda: Dim(2**63),
            ):
                with pytest.raises(ValueError):
                    refused()
            with pytest.raises(IndexError, match="out of range"):
                x[2**70]
            # As in Python, the ends of a slice may lie anywhere.
            assert x[: 2**70].shape == [4]

    def test_graphs_may_have_many_axes(self, session: InferenceSession) -> None:
        shape = [f"d{i}" for i in range(20)]
        graph = Graph("wide", lambda x: ops.sum(ops.transpose(x, 0, 1) * 2), [tensor("float32", *shape)])
        assert graph.output_types[0].rank == 20
        with pytest.raises(RuntimeError, match="has 20 axes; programs that run have at most 16"):
            session.compile(graph)

    def test_programs_have_up_to_16_axes(self, session: InferenceSession) -> None:
        shape = [2, 1, 3, 1, 2, 1, 2, 1, 2, 3, 1, 2]
        order = [11, 0, 9, 1, 2, 10, 3, 5, 4, 8, 7, 6]

        def build(x: Any) -> Any:
            y = ops.permute(x, order) * 2 + ops.constant(1.0, DType.float32, CPU)
            return [y, ops.sum(y, axis=4), ops.reshape(y, [12, -1]), y[1:, :, ..., -1], ops.concat([x, x], axis=9)]

        graph = Graph("deep", build, [tensor("float32", *shape)])
        x = data(*shape)
        y = x.transpose(order) * np.float32(2) + np.float32(1)
        expected = [y, y.sum(4, keepdims=True), y.reshape(12, -1), y[1:, ..., -1], np.concatenate([x, x], 9)]
        for got, wanted in zip(session.load(graph).execute(x), expected, strict=True):
            np.testing.assert_allclose(got.to_numpy(), wanted, rtol=1e-6)


class TestSpansOfBuffers:
    def test_known_ends(self, session: InferenceSession) -> None:
        buffer = BufferType(DType.float32, [4, 4], CPU)

        def build(x: Any, y: Any) -> None:
            box = tuple((slice(0, int(size)), size) for size in x.shape)
            y[box] = x * x + y[box]

        graph = Graph("g", build, [tensor("float32", 2, 3), buffer])
        x, y = data(2, 3), data(4, 4, seed=1)
        expected = y.copy()
        expected[:2, :3] += x * x
        session.load(graph).execute(x, y)
        np.testing.assert_allclose(y, expected, rtol=1e-6)

    def test_ends_that_are_tensors(self, session: InferenceSession) -> None:
        def build(start: Any, stop: Any, y: Any) -> Any:
            part = y[(slice(start, stop), "count")]
            y[(slice(start, stop), "count")] = -part
            return part

        scalar = tensor("int64")
        graph = Graph("g", build, [scalar, scalar, BufferType(DType.float32, ["n", 2], CPU)])
        assert graph.output_types[0].shape == ["count", 2]
        model = session.load(graph)
        for start, stop in ((1, 3), (0, -1), (2, 2)):
            y = data(5, 2)
            before = y.copy()
            (part,) = model.execute(start, stop, y)
            np.testing.assert_array_equal(part.to_numpy(), before[start:stop])
            before[start:stop] *= -1
            np.testing.assert_array_equal(y, before)

    def test_a_size_that_is_another(self, session: InferenceSession) -> None:
        with Graph("g", input_types=[BufferType(DType.float32, [4], CPU)]) as graph:
            buffer = graph.inputs[0].buffer
            with pytest.raises(ValueError, match="has 2 elements, expected 3"):
                buffer[(slice(0, 2), Dim(3))]
        graph = Graph(
            "g", lambda stop, y: y[(slice(None, stop), Dim(3))], [tensor("int64"), BufferType(DType.float32, [4], CPU)]
        )
        with pytest.raises(ValueError, match="gives a size of 2, expected 3"):
            session.load(graph).execute(2, data(4))

    def test_a_buffer_as_output_gives_its_contents(self, session: InferenceSession) -> None:
        with Graph("g", input_types=[BufferType(DType.float32, [3], CPU)]) as graph:
            buffer = graph.inputs[0].buffer
            buffer[...] = buffer[...] + 1
            graph.output(buffer)
        (result,) = session.load(graph).execute(np.zeros(3, np.float32))
        assert result.to_numpy().tolist() == [1, 1, 1]

    def test_slices_with_tensors_ask_for_a_size(self) -> None:
        with Graph("g", input_types=[tensor("float32", 4), tensor("int64")]) as graph:
            x, end = (value.tensor for value in graph.inputs)
            with pytest.raises(TypeError, match=r"\(slice\(start, stop\), size\)"):
                x[:end]


class TestSharding:
    def test_each_strategy_is_a_function(self) -> None:
        def sizes(strategy: Any, shape: list[int], *arguments: Any) -> list[list[int]]:
            with Graph("g"):
                weight = Weight("w", DType.float32, shape, CPU)
                shards = [strategy(weight, i, 3, *arguments) for i in range(3)]
                return [[int(dim) for dim in shard.shape] for shard in shards]

        assert sizes(row_sharding_strategy, [10, 5]) == [[4, 5], [3, 5], [3, 5]]
        assert sizes(col_sharding_strategy, [5, 7]) == [[5, 3], [5, 2], [5, 2]]
        assert sizes(axiswise_sharding_strategy, [2, 3, 6], 2) == [[2, 3, 2]] * 3
        assert sizes(replicate_sharding_strategy, [2]) == [[2]] * 3
        assert sizes(head_aware_col_sharding_strategy, [4, 14], 7, 2) == [[4, 6], [4, 4], [4, 4]]
        assert sizes(stacked_qkv_sharding_strategy, [42, 14], 7, 2) == [[18, 14], [12, 14], [12, 14]]
        assert sizes(gate_up_sharding_strategy, [12, 2], 0) == [[4, 2]] * 3
        segments = (Segment.head_aware(7, 2), Segment.even(3))
        assert sizes(segmented_sharding_strategy, [17, 2], 0, segments) == [[7, 2], [5, 2], [5, 2]]

    def test_segments_know_their_heads(self) -> None:
        assert Segment.even(512).num_heads is None
        assert (Segment.head_aware(8, 64).num_heads, Segment.head_aware(8, 64).size) == (8, 512)

    def test_reductions_are_a_module(self) -> None:
        x = tensor("int8", "n", 3)
        assert types_of(lambda x: ops.reduction.max(x, axis=0), x) == ["int8 [Dim(1), Dim(3)] cpu:0"]
        assert types_of(lambda x: ops.reduction.min(x), x) == ["int8 [Dim('n'), Dim(1)] cpu:0"]
        assert types_of(ops.elementwise.max, x, x) == ["int8 [Dim('n'), Dim(3)] cpu:0"]


class TestRandom:
    def test_a_seed_may_be_an_input(self, session: InferenceSession) -> None:
        like = tensor("float32", 50)

        def build(seed: Any) -> Any:
            ops.random.set_seed(seed)
            return ops.random.normal(like), ops.random.uniform(like)

        model = session.load(Graph("g", build, [ops.random.SeedType]))
        (a, b), (c, d), (e, f) = (model.execute(seed) for seed in (7, -7, 7))
        np.testing.assert_array_equal(a.to_numpy(), e.to_numpy())
        np.testing.assert_array_equal(b.to_numpy(), f.to_numpy())
        assert (a.to_numpy() != c.to_numpy()).all() and (b.to_numpy() != d.to_numpy()).all()

    def test_a_seed_that_is_an_input_draws_as_a_number(self, session: InferenceSession) -> None:
        def draw(seed: Any) -> Any:
            ops.random.set_seed(seed)
            return ops.random.uniform(tensor("float32", 9))

        (known,) = session.load(Graph("g", lambda: draw(-3))).execute()
        (given,) = session.load(Graph("g", draw, [ops.random.SeedType])).execute(-3)
        np.testing.assert_array_equal(known.to_numpy(), given.to_numpy())

    def test_parameters_may_be_tensors(self, session: InferenceSession) -> None:
        like = tensor("float32", 20000)

        def build(mean: Any, std: Any) -> Any:
            ops.random.set_seed(1)
            return ops.random.normal(like, mean, std), ops.random.uniform(like, (mean, mean + std))

        scalar = tensor("float32")
        normal, uniform = session.load(Graph("g", build, [scalar, scalar])).execute(3.0, 0.5)
        assert abs(normal.to_numpy().mean() - 3) < 0.02 and abs(normal.to_numpy().std() - 0.5) < 0.02
        assert 3 <= uniform.to_numpy().min() < 3.01 and 3.49 < uniform.to_numpy().max() <= 3.5

    def test_every_dtype_draws(self, session: InferenceSession) -> None:
        def build() -> Any:
            ops.random.set_seed(0)
            return (
                ops.random.uniform(tensor("int32", 1000), (-3, 3)),
                ops.random.normal(tensor("int8", 1000), 0, 2),
                ops.random.normal(tensor("float64", 1000), 0.1, 0),
                ops.random.uniform(tensor("float8_e4m3fn", 1000)).cast(DType.float32),
            )

        whole, rounded, exact, small = (out.to_numpy() for out in session.load(Graph("g", build)).execute())
        assert set(whole.tolist()) == set(range(-3, 3))
        assert rounded.dtype == np.int8 and abs(rounded.astype(float).mean()) < 0.3
        assert (exact == 0.1).all()
        assert ((small >= 0) & (small <= 1)).all() and len(set(small.tolist())) > 30

    def test_wrong_seeds_and_ranges(self) -> None:
        with Graph("g", input_types=[tensor("float32"), tensor("int64", 2)]) as graph:
            number, vector = (value.tensor for value in graph.inputs)
            with pytest.raises(TypeError, match="expected an int64"):
                ops.random.set_seed(number)
            with pytest.raises(ValueError, match="expected i64"):
                ops.random.set_seed(vector)
            ops.random.set_seed(-(2**63))
            for range in ((1, 1), (1, 0), (0, float("inf"))):
                with pytest.raises(ValueError, match="no range"):
                    ops.random.uniform(tensor("float32", 2), range)
            with pytest.raises(ValueError, match="expected 0 axes"):
                ops.random.normal(tensor("float32", 2), vector)


class TestRefusals:
    def test_parameters(self) -> None:
        with Graph("g", input_types=[tensor("float32", 2, 2), tensor("float32")]) as graph:
            x, number = (value.tensor for value in graph.inputs)
            w = ops.constant(np.ones(2, np.float32))
            for refused, message in (
                (lambda: ops.layer_norm(x, w, w, 0), "epsilon is 0"),
                (lambda: ops.rms_norm(x, w, -1e-5), "epsilon is -1e-05"),
                (lambda: ops.group_norm(x, w, w, 1, 0.0), "epsilon is 0.0"),
                (lambda: ops.repeat_interleave(x, 0, 1), "repeats is 0"),
                (lambda: ops.tile(x, [1, 0]), "expected at least 1"),
                (lambda: ops.range(5, 0, dtype=DType.int32, device=CPU), "leads away"),
                (lambda: ops.range(0.5, 2.0, -0.5, dtype=DType.float32, device=CPU), "leads away"),
                (lambda: ops.matmul(x, number), "at least 2 axes"),
                (lambda: ops.band_part(number, 0, 0), "axes"),
                (lambda: ops.shard_and_stack([], [CPU]), "at least 1 operand"),
            ):
                with pytest.raises(ValueError, match=message):
                    refused()

    def test_ranges_of_integers_are_exact(self, session: InferenceSession) -> None:
        start = 2**62 + 1

        def build() -> Any:
            return (
                ops.range(start, start + 3, dtype=DType.int64, device=CPU),
                ops.range(3, 3, dtype=DType.int8, device=CPU),
                ops.range(2**63, 2**63 + 2, dtype=DType.uint64, device=CPU),
            )

        values = [out.to_numpy().tolist() for out in session.load(Graph("g", build)).execute()]
        assert values == [[start, start + 1, start + 2], [], [2**63, 2**63 + 1]]
        with Graph("g"):
            assert ops.range(0, 2**63 - 1, dtype=DType.int64, device=CPU).shape == [2**63 - 1]

    def test_bands_of_all_diagonals(self, session: InferenceSession) -> None:
        x = data(3, 3)
        (lower,) = run(session, lambda x: ops.band_part(x, -1, 0), [x])
        np.testing.assert_array_equal(lower, np.tril(x))


class TestPromotion:
    def test_convolutions(self, session: InferenceSession) -> None:
        half, single = tensor("bfloat16", 1, 8, 8, 4), tensor("float32", 3, 3, 4, 5)
        (kind,) = types_of(lambda x, f: ops.conv2d(x, f), half, single)
        assert kind.startswith("float32")
        # An array takes the dtype of the images.
        (kind,) = types_of(lambda x: ops.conv2d(x, np.ones((3, 3, 4, 5), np.float32)), half)
        assert kind.startswith("bfloat16")
        with pytest.raises(ValueError, match="cast some"):
            types_of(lambda x, f: ops.conv2d(x, f), tensor("int32", 1, 8, 8, 4), tensor("float16", 3, 3, 4, 5))
        x, f = data(1, 3, 3, 1, dtype="int32"), data(2, 2, 1, 1, dtype="int32", seed=1)
        (y,) = run(session, ops.conv2d, [x, f])
        expected = [[(x[0, i : i + 2, j : j + 2, 0] * f[..., 0, 0]).sum() for j in range(2)] for i in range(2)]
        assert y.dtype == np.int32 and y[0, ..., 0].tolist() == np.array(expected).tolist()

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_norms_in_f64(self, session: InferenceSession, dynamic: bool) -> None:
        x, w, b = data(3, 4, 2).astype(np.float64), data(2).astype(np.float64), data(2, seed=1)
        (y,) = run(session, lambda x, w, b: ops.layer_norm(x, w, b, 1e-5), [x, w, b], dynamic)
        deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        assert y.dtype == np.float64
        np.testing.assert_allclose(y, (x - x.mean(-1, keepdims=True)) / deviation * w + b, rtol=1e-9)
        (y,) = run(session, lambda x, w: ops.rms_norm(x, w, 1e-5), [x, w], dynamic)
        np.testing.assert_allclose(y, x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w, rtol=1e-9)
        scale = data(4).astype(np.float64)
        (y,) = run(session, lambda x, w: ops.group_norm(x, w, w, 2, 1e-5), [x, scale])
        groups = x.reshape(3, 2, 4)
        groups = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
        np.testing.assert_allclose(y, groups.reshape(3, 4, 2) * scale[:, None] + scale[:, None], rtol=1e-9)

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn", "float6_e3m2fn"])
    def test_small_floats(self, name: str) -> None:
        small = tensor(name, 2, 3)
        for build in (ops.exp, ops.sum, ops.mean, ops.max, ops.softmax, lambda x: x + x, lambda x: x * 2):
            (kind,) = types_of(build, small)
            assert kind.startswith(name)
        assert types_of(lambda x, y: x @ y, small, tensor(name, 3, 2)) == [f"{name} [Dim(2), Dim(2)] cpu:0"]

    @pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
    @pytest.mark.parametrize(
        ("move", "expected"),
        [
            (lambda x: ops.reshape(x, [4, 4]), lambda x: x.reshape(4, 4)),
            (lambda x: ops.transpose(ops.tile(x, [2, 1]), 0, 1), lambda x: np.tile(x, [2, 1]).T),
            (lambda x: x[1:, 4:], lambda x: x[1:, 4:]),
            (lambda x: ops.concat([x, x], 0), lambda x: np.concatenate([x, x])),
            (lambda x: ops.stack([x, x]), lambda x: np.stack([x, x])),
            (lambda x: ops.split(x, [4, 4], 1)[1], lambda x: x[:, 4:]),
            (lambda x: ops.gather(x, np.array([1]), 0), lambda x: x[[1]]),
            (lambda x: ops.broadcast_to(x[0], [3, 8]), lambda x: np.broadcast_to(x[0], [3, 8])),
            (lambda x: ops.pad(x, [1, 0, 0, 4], value=1), lambda x: np.pad(x, [(1, 0), (0, 4)], constant_values=1)),
            (lambda x: ops.repeat_interleave(x, 2, 0), lambda x: x.repeat(2, 0)),
            (lambda x: ops.where(x > 1, x, -x), lambda x: np.where(x > 1, x, -x)),
            (lambda x: ops.scatter(x, x[:1], np.ones((1, 8), np.int64), 0), lambda x: x[[0, 0]]),
            (lambda x: ops.permute(ops.reshape(x, [2, 2, 4]), [1, 0, 2]), lambda x: x.reshape(2, 2, 4).swapaxes(0, 1)),
        ],
    )
    def test_elements_smaller_than_a_byte_move(
        self, session: InferenceSession, name: str, move: Any, expected: Any
    ) -> None:
        # All of these are exact in each of the dtypes.
        x = np.array([[0, 1, -1, 1.5, 2, -2, 3, 4], [4, 3, 2, 1.5, 1, 0, -3, -4]], np.float32)
        (result,) = run(session, lambda x: move(x.cast(DType[name])).cast(DType.float32), [x])
        np.testing.assert_array_equal(result, expected(x))

    def test_elements_smaller_than_a_byte_fill_bytes(self, session: InferenceSession) -> None:
        graph = Graph("g", lambda x: ops.sum(x.cast(DType.float4_e2m1fn)), [tensor("float32", 2, 8)])
        with pytest.raises(RuntimeError, match=r"f4e2m1fn\[2, 1\], whose last axis is no multiple of 2"):
            session.load(graph)
        graph = Graph("g", lambda x: x.cast(DType.float4_e2m1fn).cast(DType.float32), [tensor("float32", "n")])
        model = session.load(graph)
        np.testing.assert_array_equal(model.execute(np.ones(4, np.float32))[0].to_numpy(), np.ones(4))
        with pytest.raises(ValueError, match=r"f4e2m1fn\[3\] does not fill whole bytes with n = 3"):
            model.execute(np.ones(3, np.float32))

    def test_small_floats_run(self, session: InferenceSession) -> None:
        x = np.array([[0.5, -1.5, 2.0], [448, 0.01, 3.0]], np.float32)

        def build(x: Any) -> Any:
            small = x.cast(DType.float8_e4m3fn)
            return ops.sum(small).cast(DType.float32), (small @ small.T).cast(DType.float32)

        total, product = run(session, build, [x])
        assert total.tolist() == [[1.0], [448.0]]
        assert product[0].tolist() == [6.5, 224.0] and np.isnan(product[1, 1])

    def test_vectors_are_rows_and_columns(self, session: InferenceSession) -> None:
        m, v = data(3, 4), data(4)
        for left, right in ((m, v), (v, m.T.copy()), (v, v)):
            (y,) = run(session, ops.matmul, [left, right])
            np.testing.assert_allclose(y, left @ right, rtol=1e-5)


class TestDevices:
    def test_graphs_name_devices_that_are_not_there(self, session: InferenceSession) -> None:
        far = TensorType(DType.float32, ["n", 4], GPU)

        def build(x: Any) -> Any:
            y = ops.where(x > 0, x, x * 2 + 1)[:, 0] + ops.constant(np.ones(1, np.float32)).to(GPU)
            return y, x.to(CPU), ops.pad(x, [0, 0, 1, 1]), x[ops.constant(0, DType.int64, CPU)]

        graph = Graph("g", build, [far])
        assert [str(type.device) for type in graph.output_types] == ["gpu:0", "cpu:0", "gpu:0", "gpu:0"]
        with pytest.raises(RuntimeError, match="the session's devices are: cpu"):
            session.compile(graph)

    def test_constants_weights_and_buffers(self) -> None:
        buffer = BufferType(DType.float32, [4], GPU)

        def build(b: Any) -> Any:
            weight = Weight("w", DType.float32, [4], GPU)
            b[1:3] = 7
            b[...] = b[...] + weight
            ops.random.set_seed(1)
            return (
                ops.constant(1.0, DType.float32, GPU),
                ops.range(0, 4, dtype=DType.int32, device=GPU),
                ops.hann_window(4, GPU),
                ops.random.normal(TensorType(DType.float32, [2], GPU)),
                b[0],
            )

        graph = Graph("g", build, [buffer])
        assert all(type.device == GPU for type in graph.output_types)

    def test_collectives(self) -> None:
        devices = [DeviceRef.GPU(i) for i in range(4)]
        parts = [TensorType(DType.float32, [9, 5], device) for device in devices]
        signals = [BufferType(DType.uint8, [64], device) for device in devices]

        def shapes(op: Any) -> list[list[int]]:
            graph = Graph("g", lambda *values: op(values[:4], values[4:]), [*parts, *signals])
            assert [type.device for type in graph.output_types] == devices
            return [[int(dim) for dim in type.shape] for type in graph.output_types]

        assert shapes(ops.allreduce.sum) == [[9, 5]] * 4
        assert shapes(ops.allgather) == [[36, 5]] * 4
        assert shapes(ops.reducescatter.sum) == [[3, 5], [2, 5], [2, 5], [2, 5]]
        assert shapes(lambda values, signals: ops.distributed_broadcast(values[2], signals)) == [[9, 5]] * 4
        assert shapes(lambda values, signals: ops.distributed_scatter(values[:1], signals)) == [[9, 5]] * 4

    def test_devices_must_agree(self) -> None:
        with Graph("g", input_types=[tensor("float32", 2), TensorType(DType.float32, [2], GPU)]) as graph:
            near, far = graph.inputs
            with pytest.raises(ValueError, match="same device"):
                near.tensor + far.tensor


class TestConversions:
    def test_sizes_are_solved_for(self, session: InferenceSession) -> None:
        graph = Graph("g", lambda x: x.rebind([2 * Dim("k") + 1]), [tensor("float32", "n")])
        model = session.load(graph)
        assert model.execute(data(7))[0].shape == (7,)
        with pytest.raises(ValueError, match=r"`2\*k \+ 1` can never be"):
            model.execute(data(6))

    def test_casts_of_buffers(self) -> None:
        x = np.array([1.5, 2.5], np.float32)
        assert cast_dlpack_to(x, DType.float32, DType.int32, Buffer.from_numpy(x).device).to_numpy().tolist() == [1, 2]
        first, second = cast_tensors_to([Buffer.from_numpy(x), Buffer.from_numpy(x)], "int8")
        assert (first.dtype, second.dtype) == (DType.int8, DType.int8)
        assert cast_tensors_to([], DType.int8) == [] and cast_tensors_to(None, DType.int8) == []
        assert cast_tensors_to({"x": Buffer.from_numpy(x)}, DType.int8)["x"].dtype is DType.int8

    def test_dtypes_by_name(self, session: InferenceSession) -> None:
        for name in ("float32", "f32", np.float32, np.dtype("float32")):
            assert Buffer(name, (2,)).dtype is DType.float32  # type: ignore[arg-type]
            assert TensorType(name, [2], CPU).dtype is DType.float32  # type: ignore[arg-type]
            (kind,) = types_of(lambda x, name=name: ops.cast(x, name), tensor("int8", 2))
            assert kind.startswith("float32")
        assert Buffer.zeros((2,), "bf16").view("u8").shape == (4,)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="float33"):
            Buffer("float33", (2,))  # type: ignore[arg-type]


class Tracked:
    """An array that takes part in a gradient: it is lent once it is detached, as torch's tensors are."""

    requires_grad = True

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("a tensor that requires a gradient is not lent; detach it")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()  # type: ignore[no-any-return]

    def detach(self) -> Any:
        return self._array


class TestBuffers:
    def test_tensors_with_gradients_are_taken(self, session: InferenceSession) -> None:
        x = data(3)
        assert Buffer.from_dlpack(Tracked(x)).to_numpy().tolist() == x.tolist()
        graph = Graph("g", lambda x: x + Weight("w", DType.float32, [3], CPU), [tensor("float32", 3)])
        model = session.load(graph, weights_registry={"w": Tracked(x)})
        np.testing.assert_array_equal(model.execute(Tracked(x))[0].to_numpy(), x + x)

    def test_bf16_of_ml_dtypes_goes_everywhere(self, session: InferenceSession) -> None:
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
        x = np.array([1, -2.5, 3], bfloat16)
        graph = Graph("g", lambda x: x * Weight("w", DType.bfloat16, [3], CPU), [tensor("bfloat16", 3)])
        model = session.load(graph, weights_registry={"w": x})
        for given in (x, Buffer.from_dlpack(x)):
            result = model.execute(given)[0].to_numpy()
            assert (result.dtype, result.tolist()) == (bfloat16, [1, 6.25, 9])
        with_gaps = Buffer.from_dlpack(np.array([[1, 2], [3, 4]], bfloat16))[:, 1]
        assert with_gaps.to_numpy().tolist() == [2, 4]
        with pytest.raises(ValueError, match=r"contiguous"):
            model.execute(np.ones(6, bfloat16)[::2])

    def test_one_element_is_a_number(self) -> None:
        one = Buffer.from_numpy(np.array([2.5], "float32"))
        assert (float(one), int(one), bool(one), f"{one:.2f}") == (2.5, 2, True, "2.50")
        assert not Buffer.scalar(0, DType.int32)
        assert f"{one}" == str(one)
        two = Buffer.zeros((2,), DType.float32)
        for convert in (float, int, bool, lambda x: format(x, ".1f")):
            with pytest.raises(ValueError, match="2 elements|one element"):
                convert(two)

    def test_arrays_with_gaps_are_told_what_to_call(self, session: InferenceSession) -> None:
        model = session.load(Graph("g", ops.abs, [tensor("float32", 2, 2)]))
        with pytest.raises(ValueError, match=r"\.contiguous\(\) makes one"):
            model.execute(Buffer.from_numpy(data(2, 4))[:, :2])

    def test_paths_that_are_not_there(self, session: InferenceSession, tmp_path: Path) -> None:
        for name in ("none.graph", "none.mef"):
            for call in (session.load, session.load_all, session.compile):
                with pytest.raises(FileNotFoundError) as raised:
                    call(tmp_path / name)
                assert isinstance(raised.value, RuntimeError) and raised.value.filename == str(tmp_path / name)

    def test_the_header_for_extensions_comes_along(self) -> None:
        header = Path(perihelion.get_include(), "perihelion_extension.h")
        assert "peri" in header.read_text()


class TestSettings:
    def test_misspelt_settings_are_refused(self, session: InferenceSession) -> None:
        settings: list[Any] = [session.debug, SamplingParams(), PipelineConfig("org/name")]
        for one in settings:
            with pytest.raises(AttributeError, match="temprature"):
                one.temprature = 1

    def test_settings_survive_copies_and_pickles(self) -> None:
        params = SamplingParams(temperature=0.5, stop=["x"])
        config = PipelineConfig("org/name", max_length=7, weights_dtype="float32")
        for one in (params, config):
            assert pickle.loads(pickle.dumps(one)) == one == copy.copy(one)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("op_log_level", "Debug"), ("assert_level", "ALL"), ("ir_output_dir", "/tmp"), ("uninitialized_read_mode", "report")],
    )
    def test_options_are_kept_as_written_and_can_be_unset(self, name: str, value: str) -> None:
        debug: Any = InferenceSession().debug
        before = getattr(debug, name)
        setattr(debug, name, value)
        assert getattr(debug, name) == value != before
        setattr(debug, name, "")
        assert getattr(debug, name) == before

    def test_compiling_can_stop_after_the_passes(self) -> None:
        session = InferenceSession()
        session.debug.pre_jit = True
        with pytest.raises(CompilationStopped):
            session.load(Graph("g", ops.abs, [tensor("float32", 3)]))
        session.debug.pre_jit = False
        session.load(Graph("g", ops.abs, [tensor("float32", 3)]))

    def test_infinities_are_counted(self) -> None:
        session = InferenceSession()
        session.debug.nan_check = True
        model = session.load(Graph("g", lambda x: 1 / x, [tensor("float32", 3)]))
        with pytest.raises(ValueError, match=r"is infinite at \[1\] \(0 NaN, 2 Inf\)"):
            model.execute(np.array([1, 0, 0], "float32"))
        model.execute(np.array([1, 2, np.inf], "float32"))
