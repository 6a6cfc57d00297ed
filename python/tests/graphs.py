"""Runs functions of graph values on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import DeviceRef, Graph, TensorType

Array = npt.NDArray[Any]
CPU = DeviceRef.CPU()


def tensor(dtype: str, *shape: int | str) -> TensorType:
    """A type: `tensor("float32", "n", 3)`."""
    return TensorType(DType[dtype], shape, CPU)


def types(arrays: Sequence[Array], dynamic: bool) -> list[TensorType]:
    """The types of arrays; if dynamic, sizes but 1 are symbols, the same for the same size."""

    def name(size: int) -> int | str:
        return f"d{size}" if dynamic and size != 1 else size

    return [tensor(array.dtype.name, *map(name, array.shape)) for array in arrays]


def run(
    session: InferenceSession,
    build: Callable[..., Any],
    arrays: Sequence[Array],
    dynamic: bool = False,
    weights: Mapping[str, Any] | None = None,
) -> list[Array]:
    """The outputs of a function of values for arrays."""
    graph = Graph("g", build, types(arrays, dynamic))
    outputs = session.load(graph, weights_registry=weights).execute(*arrays)
    return [output.to_numpy() for output in outputs]


def data(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Random numbers: floats around 0, small integers, or truth values."""
    generator = np.random.default_rng([seed, *shape])
    if dtype == "bool":
        return generator.random(shape) < 0.5
    if dtype.startswith("float"):
        return generator.normal(size=shape).astype(dtype)
    low = 0 if dtype.startswith("u") else -9
    return generator.integers(low, 10, shape).astype(dtype)
