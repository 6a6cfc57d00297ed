"""Models that embed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.driver.buffer import _wrap
from perihelion.engine import InferenceSession

from .config import KVCacheStrategy, PipelineConfig, _warn
from .llm import Prompt, _config, _Model, _prompts

__all__ = ["Embedder"]

# For models that are given by name: large batches of texts.
_USUAL: dict[str, Any] = {
    "max_length": None,
    "max_cache_batch_size": 256,
    "max_batch_tokens": 4096,
    "cache_strategy": KVCacheStrategy.paged,
    "kv_cache_page_size": 64,
}


class Embedder(_Model[_perihelion.Embedder]):
    """A model that turns texts into vectors, from many threads and tasks at once.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`.
        num_threads: how many threads compute; `None` is one for each core.
        session: where the model runs; `None` makes a session for it.
        fields: fields of `PipelineConfig`. Without a `PipelineConfig`, their defaults are for large batches.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OutOfMemory: the model does not fit.

    Warns:
        ConfigWarning: a field has no effect, or a length is lowered.
    """

    def __init__(
        self,
        model: str | Path | PipelineConfig | None = None,
        *,
        num_threads: int | None = None,
        session: InferenceSession | None = None,
        **fields: Any,
    ) -> None:
        config = _config(model, _USUAL, fields)
        native_session = None if session is None else session._native
        self._native = _perihelion.Embedder(config._native, num_threads or 0, native_session)
        self._config = config._decided(self._native.config())
        _warn(self._native.warnings())

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._config.short_name

    @property
    def dimensions(self) -> int:
        """The length of the vectors."""
        return self._native.dimensions

    @property
    def max_length(self) -> int:
        """The most tokens of a text, those around it included."""
        return self._native.max_length

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> NDArray[np.float32]:
        """The vectors of texts, one row each.

        Args:
            texts: what becomes vectors.
            dimensions: the first so many dimensions alone, for models that were trained for that.
            normalize: whether vectors have the length 1; `None` is as the model's files say.
            prompt: the name of a prompt of the model's files, or a text that is put before each of the texts.
            truncate: whether texts that are too long are cut, instead of refused.

        Raises:
            PromptTooLong: a text is too long.
            ValueError: a text has no tokens, or a parameter does not fit the model.
        """
        answers = self._native.embed(_prompts(texts), dimensions, normalize, prompt, truncate)
        return _wrap(answers.next()).to_numpy()

    async def aembed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> NDArray[np.float32]:
        """As `embed`, for asyncio. Cancelling the task cancels what was not computed yet."""
        from perihelion.aio import _running

        answers = self._native.embed(_prompts(texts), dimensions, normalize, prompt, truncate)
        return _wrap(await _running().next(answers)).to_numpy()

    @staticmethod
    def similarity(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
        """The cosine of the angle between each row of `a` and each row of `b`."""

        def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
            rows = np.atleast_2d(np.asarray(rows, np.float32))
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
            units: NDArray[np.float32] = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
            return units

        cosines: NDArray[np.float32] = unit(a) @ unit(b).T
        return cosines

    def status(self) -> dict[str, int]:
        """Texts that wait, and batches, texts and tokens that were computed."""
        return self._native.status()

    def __repr__(self) -> str:
        return f"Embedder({self.model!r}, dimensions={self.dimensions})"


shorten_methods(Embedder)
