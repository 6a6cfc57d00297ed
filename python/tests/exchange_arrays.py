"""Exchanges arrays with NumPy, and with PyTorch if it is there, at random, and drops either side first.

    python exchange_arrays.py [COUNT]

Each array holds one number that no other has, so an array over freed memory is found when it is compared. Run it under a
debug allocator (`PYTHONMALLOC=debug MALLOC_PERTURB_=165`) or `valgrind`.
"""

from __future__ import annotations

import gc
import random
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from perihelion.driver import Buffer
from perihelion.dtype import DType

try:
    import torch
except ImportError:
    torch = None

Maker = Callable[[int, float], Any]
Step = Callable[[Any], Any]

MAKERS: list[Maker] = [
    lambda n, value: np.full(n, value),
    lambda n, value: np.full((2, n), value)[1],
    lambda n, value: fill(Buffer(DType.float64, (n,)), value),
    lambda n, value: Buffer.from_numpy(np.full(2 * n, value)[::2]),
]
# From anything that has DLPack to another owner of the same memory, or of a copy.
STEPS: list[Step] = [
    Buffer.from_dlpack,
    np.from_dlpack,
    np.asarray,
    lambda array: memoryview(array if isinstance(array, Buffer) else np.asarray(array)),
    lambda array: Buffer.from_dlpack(array, copy=True),
    lambda array: Buffer.from_dlpack(array)[:],
    lambda array: Buffer.from_dlpack(array).view(DType.float64),
    lambda array: array.__dlpack__(),
    lambda array: array.__dlpack__(max_version=(1, 0)),
]
if torch is not None:
    MAKERS.append(lambda n, value: torch.full((n,), value, dtype=torch.float64))
    STEPS.append(torch.from_dlpack)


def fill(buffer: Buffer, value: float) -> Buffer:
    buffer.to_numpy()[:] = value
    return buffer


def exchange(count: int, seed: int) -> int:
    """Makes `count` exchanges and returns how many arrays of NumPy they left alive."""
    draw = random.Random(seed)
    alive: list[tuple[Any, float]] = []
    made: list[weakref.ref[Any]] = []
    for value in map(float, range(count)):
        if not alive or draw.random() < 0.3:
            alive.append((draw.choice(MAKERS)(draw.choice([1, 7, 1000, 40_000]), value), value))
            if isinstance(alive[-1][0], np.ndarray):
                made.append(weakref.ref(alive[-1][0]))
        array, value = draw.choice(alive)
        if hasattr(array, "__dlpack__"):
            alive.append((draw.choice(STEPS)(array), value))
        elif isinstance(array, memoryview):
            alive.append((np.asarray(array), value))
        while len(alive) > 50:
            alive.pop(draw.randrange(len(alive)))
        array, value = draw.choice(alive)
        if isinstance(array, Buffer):
            array = array.to_numpy()
        # A capsule that was not taken has no elements to read.
        if hasattr(array, "__getitem__"):
            assert array[0] == value and array[len(array) - 1] == value, (value, array)
    array = None
    alive.clear()
    gc.collect()
    return sum(array() is not None for array in made)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    left = exchange(count, seed=1)
    print(f"{count} exchanges{'' if torch is None else ', with PyTorch'}: {left} arrays left")
    sys.exit(left > 0)
