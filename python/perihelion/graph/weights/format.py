"""The formats of weight files."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from os import PathLike
from pathlib import Path

__all__ = ["WeightsFormat", "weights_format"]


class WeightsFormat(str, Enum):
    """A format of weight files."""

    gguf = "gguf"
    safetensors = "safetensors"
    pytorch = "pytorch"

    def __repr__(self) -> str:
        return self.value

    def __str__(self) -> str:
        return self.value


_SUFFIXES = {
    ".gguf": WeightsFormat.gguf,
    ".safetensors": WeightsFormat.safetensors,
    ".bin": WeightsFormat.pytorch,
    ".pt": WeightsFormat.pytorch,
    ".pth": WeightsFormat.pytorch,
}


def weights_format(paths: Sequence[str | PathLike[str]]) -> WeightsFormat:
    """The format that the names of files promise.

    Raises:
        ValueError: `paths` is empty, or the formats differ or are unknown.

    >>> weights_format(["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"])
    safetensors
    """
    formats = {_SUFFIXES.get(Path(path).suffix.lower()) for path in paths}
    match list(formats):
        case [WeightsFormat() as format]:
            return format
    names = ", ".join(str(path) for path in paths)
    raise ValueError(
        f"paths: got {names or 'no files'}, expected files of one format: {', '.join(_SUFFIXES)}"
    )
