"""Quantizing models into files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perihelion import _perihelion
from perihelion._tracebacks import shorten

from . import keywords
from ._model import _config, _threads
from ._progress import LoadProgress, _Loading
from .config import PipelineConfig
from .keywords import ConfigFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Quantized", "quantize"]


@dataclass(frozen=True)
class Quantized:
    """A file of quantized weights."""

    path: Path
    weights: int
    """How many there are."""
    bytes: int
    """The size of the tensors."""
    dtypes: dict[str, int]
    """How many tensors there are of each dtype."""

    @property
    def bits_per_weight(self) -> float:
        """The bits that a weight takes, on average."""
        return self.bytes * 8 / max(self.weights, 1)


def quantize(
    model: str | Path | PipelineConfig | None,
    path: str | Path,
    to: str = "q4_k_m",
    *,
    pure: bool = False,
    importance: str | None = None,
    num_threads: int | None = None,
    progress: LoadProgress = False,
    **fields: Unpack[ConfigFields],
) -> Quantized:
    """Writes a model as a GGUF file with fewer bits, as `peri quantize` does.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`; `None` is a small model that is built in.
        path: the file to write. It appears whole or not at all.
        to: the format, or mix of formats, such as "q4_k_m", "q8_0" or "bf16".
        pure: whether all matrices get the same format.
        importance: a text that the model reads first, so that errors are smallest where its inputs are largest.
        num_threads: how many threads compute while it reads; `None` is one for each core.
        progress: as for `LLM`; the phases are "fetch", "importance" and "quantize".
        fields: fields of `PipelineConfig`.

    Raises:
        FileNotFoundError: there is no such model.
        ValueError: there is no such format, or the model cannot be written in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     quantize(None, f"{folder}/model.gguf", "q8_0").bits_per_weight < 9
    True
    """
    native = _config("quantize", model, "library", fields)._native
    options = (
        keywords.text("to", to),
        keywords.flag("pure", pure),
        keywords.text("importance", importance, optional=True),
    )
    with _Loading(progress) as told:
        written = _perihelion.quantize(native, os.fspath(path), options, _threads(num_threads), told)
    return Quantized(Path(path), **written)


shorten(globals(), ["quantize"])
