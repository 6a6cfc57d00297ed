"""Dims, shapes and types: arithmetic and comparisons, against Python's integers."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest
from graphs import CPU
from hypothesis import given, settings
from hypothesis import strategies as st

from perihelion.dtype import DType
from perihelion.graph import (
    AlgebraicDim,
    BufferType,
    DeviceKind,
    DeviceRef,
    Dim,
    QuantizationEncoding,
    Segment,
    Shape,
    ShardingStrategy,
    StaticDim,
    SymbolicDim,
    TensorType,
    Weight,
)

ANY = settings(deadline=None)
NAMES = {"a": 7, "b": 3, "c": 11}


# Pairs of a dim and its number if symbols have the numbers of `NAMES`.
_leaves = st.integers(0, 20).map(lambda number: (Dim(number), number)) | st.sampled_from(
    [(Dim(name), number) for name, number in NAMES.items()]
)


def _extend(pairs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    functions = st.sampled_from([operator.add, operator.sub, operator.mul])
    both = st.tuples(functions, pairs, pairs).map(lambda t: (t[0](t[1][0], t[2][0]), t[0](t[1][1], t[2][1])))
    quotients = st.tuples(pairs, st.integers(1, 5)).map(lambda t: (t[0][0] // t[1], t[0][1] // t[1]))
    return both | quotients


pairs = st.recursive(_leaves, _extend, max_leaves=6)


def number(dim: Dim) -> int:
    """The number that Python computes from the text of a dim."""
    value = eval(str(dim), {"__builtins__": {}}, dict(NAMES))
    assert isinstance(value, int)
    return value


class TestDims:
    @ANY
    @given(pairs)
    def test_arithmetic_is_that_of_integers(self, pair: tuple[Dim, int]) -> None:
        dim, expected = pair
        assert number(dim) == expected

    @ANY
    @given(pairs, pairs, pairs)
    def test_expressions_are_equal_by_value(self, p: Any, q: Any, r: Any) -> None:
        a, b, c = p[0], q[0], r[0]
        assert a + b == b + a and hash(a + b) == hash(b + a)
        assert a * (b + c) == a * b + a * c
        assert (a - b) + b == a
        assert -(-a) == a

    @ANY
    @given(pairs, st.integers(1, 9))
    def test_quotients_are_rounded_down(self, pair: tuple[Dim, int], divisor: int) -> None:
        dim, expected = pair
        assert number(dim // divisor) == expected // divisor
        assert dim * divisor // divisor == dim
        assert dim * "a" // "a" == dim

    @ANY
    @given(st.integers(-(2**62), 2**62), st.integers(-(2**30), 2**30))
    def test_numbers_are_pythons(self, a: int, b: int) -> None:
        assert Dim(a) + b == a + b and b - Dim(a) == b - a
        if b:
            assert Dim(a) // b == a // b
        assert int(Dim(a)) == a and hash(Dim(a)) == hash(a)
        assert (Dim(a) < b) == (a < b)

    @pytest.mark.parametrize("function", [operator.add, operator.sub, operator.mul, operator.floordiv])
    def test_ints_and_strs_stand_for_dims(self, function: Any) -> None:
        for x, y in ((Dim("n"), 2), (Dim("n"), "m"), (Dim(6), "m"), (Dim(6), np.int64(2))):
            assert function(x, y) == function(x, Dim(y)) and function(y, x) == function(Dim(y), x)

    def test_kinds(self) -> None:
        assert type(Dim(3)) is StaticDim and Dim(3).dim == 3  # type: ignore[attr-defined]
        assert type(Dim("n")) is SymbolicDim and Dim("n").name == "n"  # type: ignore[attr-defined]
        assert type(Dim("n") + 1) is AlgebraicDim
        assert type(Dim("n") - "n") is StaticDim
        assert Dim(np.int32(3)) == 3 and Dim(Dim("n")) == "n"
        assert [repr(d) for d in (Dim(4), Dim("n"), 2 * Dim("n") + 1)] == [
            "Dim(4)",
            "Dim('n')",
            "Dim(2*n + 1)",
        ]
        assert list((Dim("n") * "m" + "n").parameters) == ["m", "n"]
        assert Dim("n") != 3 and Dim("n") != "m" and Dim(3) != "n" and Dim(3) != None  # noqa: E711

    def test_wrong_values(self) -> None:
        for value in ("a b", "", "1n", 2**63):
            with pytest.raises(ValueError):
                Dim(value)
        for wrong in (1.5, None, [1], True):
            with pytest.raises(TypeError):
                Dim(wrong)  # type: ignore[arg-type]
        for dim in (Dim(3), Dim("n")):
            with pytest.raises(ZeroDivisionError):
                dim // 0
            with pytest.raises(TypeError):
                dim + 1.5  # type: ignore[operator]
            with pytest.raises(TypeError):
                [1, 2, 3, 4][dim]  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            int(Dim("n"))

    def test_copies(self) -> None:
        for dim in (Dim(3), Dim("n"), Dim("n") * 2 + 1, Dim("n") // 3):
            assert pickle.loads(pickle.dumps(dim)) == dim == copy.deepcopy(dim)
            assert type(pickle.loads(pickle.dumps(dim))) is type(dim)


class TestShapes:
    def test_shapes(self) -> None:
        shape = Shape(["n", 4, Dim("m") + 1])
        assert shape == ["n", 4, Dim("m") + 1] and shape.rank == 3
        assert shape.static_dims == [4] and list(shape.parameters) == ["n", "m"]
        assert Shape.is_static([1, 2]) and not Shape.is_static(shape)
        assert Shape() == [] and Shape(shape) == shape


class TestTypes:
    def test_types(self) -> None:
        type = TensorType(DType.float32, ["n", 4], CPU)
        assert type == TensorType(DType.float32, ("n", 4), DeviceRef("cpu")) and hash(type) == hash(
            type.as_tensor()
        )
        assert type != type.as_buffer() and type.as_buffer() == BufferType(DType.float32, ["n", 4], CPU)
        assert type.cast(DType.int8) == TensorType(DType.int8, ["n", 4], CPU)
        assert type.rank == 2 and list(type.parameters) == ["n"]
        assert TensorType(DType.int8, [2, 3], CPU).num_elements() == 6
        with pytest.raises(RuntimeError):
            type.num_elements()
        with pytest.raises(TypeError):
            TensorType(DType.int8, [-1], CPU)
        with pytest.raises(TypeError):
            TensorType(DType.int8, [1])  # type: ignore[call-arg]
        assert pickle.loads(pickle.dumps(type)) == type

    def test_devices(self) -> None:
        assert str(DeviceRef.CPU()) == "cpu:0" and str(DeviceRef.GPU(2)) == "gpu:2"
        assert DeviceRef("gpu", -1) == DeviceRef.GPU(0) and DeviceRef(DeviceKind.CPU).is_cpu()
        assert DeviceRef.from_device(CPU.to_device()) == CPU and hash(CPU) == hash(DeviceRef("cpu"))
        with pytest.raises(ValueError):
            DeviceRef("tpu")


class TestQuantization:
    def test_blocks(self) -> None:
        blocks = {e: (e.elements_per_block, e.block_size) for e in QuantizationEncoding if e.is_gguf}
        q = QuantizationEncoding
        assert blocks == {q.Q4_0: (32, 18), q.Q4_K: (256, 144), q.Q5_K: (256, 176), q.Q6_K: (256, 210)}
        with pytest.raises(ValueError):
            q.GPTQ.block_parameters

    def test_weights_know_their_elements(self) -> None:
        weight = Weight("w", DType.uint8, [4, 36], CPU, QuantizationEncoding.Q4_0)
        assert weight.original_dtype_and_shape == (DType.float32, [4, 64])
        plain = Weight("w", DType.bfloat16, [4, 3], CPU)
        assert plain.original_dtype_and_shape == (DType.bfloat16, [4, 3])


class TestSharding:
    @pytest.mark.parametrize(
        "strategy, shape, shapes, flag, axis",
        [
            (ShardingStrategy.rowwise(3), [10, 4], [[4, 4], [3, 4], [3, 4]], "is_rowwise", 0),
            (ShardingStrategy.columnwise(2), [2, 5], [[2, 3], [2, 2]], "is_colwise", 1),
            (ShardingStrategy.axiswise(2, 2), [1, 1, 4], [[1, 1, 2]] * 2, "is_axiswise", 2),
            (ShardingStrategy.replicate(2), [3], [[3], [3]], "is_replicate", None),
            (ShardingStrategy.stacked_qkv(2, 4, 2), [24, 3], [[12, 3]] * 2, "is_stacked_qkv", 0),
            (
                ShardingStrategy.head_aware_columnwise(2, 3, 4),
                [5, 12],
                [[5, 8], [5, 4]],
                "is_head_aware_colwise",
                1,
            ),
            (ShardingStrategy.gate_up(2, axis=0), [6, 1], [[4, 1], [2, 1]], "is_gate_up", 0),
            (
                ShardingStrategy.segmented(2, [Segment.head_aware(3, 2), Segment.even(3)]),
                [9],
                [[6], [3]],
                "is_segmented",
                0,
            ),
        ],
        ids=lambda value: repr(value) if isinstance(value, ShardingStrategy) else "",
    )
    def test_shards(
        self,
        strategy: ShardingStrategy,
        shape: list[int],
        shapes: list[list[int]],
        flag: str,
        axis: int | None,
    ) -> None:
        weight = Weight("w", DType.float32, shape, CPU, sharding_strategy=strategy)
        shards = weight.shard([CPU] * len(shapes))
        assert [shard.shape for shard in shards] == shapes
        assert [shard.shard_idx for shard in shards] == list(range(len(shapes)))
        flags = [name for name in dir(ShardingStrategy) if name.startswith("is_") and getattr(strategy, name)]
        assert flags == [flag] and strategy.sharded_axis == axis

    def test_wrong_strategies(self) -> None:
        weight = Weight("w", DType.float32, [5], CPU)
        with pytest.raises(ValueError, match="no sharding_strategy"):
            weight.shard([CPU])
        weight.sharding_strategy = ShardingStrategy.columnwise(2)
        with pytest.raises(ValueError, match="has no axis 1"):
            weight.shard([CPU, CPU])
        weight.sharding_strategy = ShardingStrategy.tensor_parallel(2)
        with pytest.raises(ValueError, match="for modules"):
            weight.shard([CPU, CPU])
