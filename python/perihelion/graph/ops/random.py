"""Random numbers. A graph draws the same each time it is built and run."""

from __future__ import annotations

from perihelion.dtype import DType

from ..type import DeviceRef, TensorType
from ..value import HasTensorValue, TensorValue, TensorValueLike, _current, _operand, _wrap_tensor

__all__ = ["SeedType", "gaussian", "normal", "set_seed", "uniform"]

SeedType = TensorType(DType.int64, [], DeviceRef.CPU())
"""The type of an input that is a seed."""


def set_seed(seed: TensorValueLike | int = 0) -> None:
    """Sets the seed of the next random op of the current graph; each op advances it by one.

    Args:
        seed: an integer, or a tensor of `SeedType`, with which each run of a model draws other numbers.

    Raises:
        ValueError: an integer has more than 64 bits, or a tensor has axes.
        TypeError: a tensor is not int64.
    """
    graph = _current()
    if isinstance(seed, (TensorValue, HasTensorValue)):
        tensor = TensorValue(seed)
        if tensor.dtype is not DType.int64:
            raise TypeError(f"seed: got {tensor!r}, expected an int64")
        graph._native.set_seed_of(tensor._native)
        return
    number = int(seed)  # type: ignore[arg-type]
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"seed: got {number}, expected an integer of 64 bits")
    graph._native.set_seed(number)


def normal(like: TensorType, mean: TensorValueLike = 0, std: TensorValueLike = 1) -> TensorValue:
    """Normally distributed numbers; those of integer dtypes are rounded.

    Args:
        like: dtype, shape and device of the result.
        mean: of the distribution: a number, or a tensor without axes.
        std: its standard deviation, likewise.

    Raises:
        RuntimeError: no seed was set.
    """
    return _random("normal", like, mean, std)


gaussian = normal


def uniform(like: TensorType, range: tuple[TensorValueLike, TensorValueLike] = (0, 1)) -> TensorValue:
    """Evenly distributed numbers; those of integer dtypes are rounded down.

    Args:
        like: dtype, shape and device of the result.
        range: from the first up to the second: numbers, or tensors without axes.

    Raises:
        RuntimeError: no seed was set.
        ValueError: the numbers do not ascend.
    """
    return _random("uniform", like, *range)


def _random(distribution: str, like: TensorType, first: TensorValueLike, second: TensorValueLike) -> TensorValue:
    parameters = _operand("parameter", first), _operand("parameter", second)
    graph = _current()
    return _wrap_tensor(graph._native.random(distribution, like._native, *parameters), graph).to(like.device)
