"""Random numbers. A graph draws the same each time it is built and run."""

from __future__ import annotations

from ..type import TensorType
from ..value import TensorValue, _current, _wrap_tensor

__all__ = ["gaussian", "normal", "set_seed", "uniform"]


def set_seed(seed: int = 0) -> None:
    """Sets the seed of the next random op of the current graph; each op advances it by one."""
    _current()._native.set_seed(seed)


def normal(like: TensorType, mean: float = 0, std: float = 1) -> TensorValue:
    """Normally distributed numbers.

    Args:
        like: dtype, shape and device of the result.
        mean: of the distribution.
        std: its standard deviation.

    Raises:
        RuntimeError: no seed was set.
    """
    graph = _current()
    return _wrap_tensor(graph._native.random("normal", like._native, mean, std), graph).to(like.device)


gaussian = normal


def uniform(like: TensorType, range: tuple[float, float] = (0, 1)) -> TensorValue:
    """Evenly distributed numbers.

    Args:
        like: dtype, shape and device of the result.
        range: from the first up to the second.

    Raises:
        RuntimeError: no seed was set.
    """
    graph = _current()
    return _wrap_tensor(graph._native.random("uniform", like._native, *range), graph).to(like.device)
