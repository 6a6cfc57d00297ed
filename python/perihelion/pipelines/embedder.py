"""Models that embed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.driver.buffer import _wrap
from perihelion.engine import InferenceSession

from . import keywords
from ._model import _config, _Model, _native_session, _threads
from ._progress import LoadProgress, _Loading
from .config import PipelineConfig, _warn
from .keywords import ConfigFields
from .prompts import Prompt, parts, prompt_list

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Embedder"]


class Embedder(_Model[_perihelion.Embedder]):
    """A model that turns texts into vectors, from many threads and tasks at once.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`; `None` is a small model that is built in,
            if `pooling` is given.
        num_threads: how many threads compute; `None` is one for each core.
        pooling: how the hidden states of tokens become one vector: "mean", "cls", "last", "max", "mean_sqrt_len" or
            "weighted_mean"; `None` is as the model's files say. Decoders whose files do not say it need one.
        session: where the model runs; `None` makes a session for it.
        progress: as for `LLM`.
        fields: fields of `PipelineConfig`. Without a `PipelineConfig`, their defaults are for large batches.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OutOfMemory: the model does not fit.

    Warns:
        ConfigWarning: a field has no effect, or a length is lowered.

    >>> Embedder(pooling="mean").embed(["The fox", "The raven"]).shape
    (2, 256)
    """

    def __init__(
        self,
        model: str | Path | PipelineConfig | None = None,
        *,
        num_threads: int | None = None,
        pooling: str | None = None,
        session: InferenceSession | None = None,
        progress: LoadProgress = False,
        **fields: Unpack[ConfigFields],
    ) -> None:
        config = _config("Embedder", model, "encode", fields)
        pooling = keywords.text("pooling", pooling, optional=True)
        with _Loading(progress) as told:
            self._native = _perihelion.Embedder(
                config._native, _threads(num_threads), pooling, _native_session(session), told
            )
        self._config = config._decided(self._native.config())
        _warn(self._native.warnings())

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
        pooling: str | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> NDArray[np.float32]:
        """The vectors of texts, one row each.

        Args:
            texts: what becomes vectors.
            dimensions: the first so many dimensions alone, for models that were trained for that.
            normalize: whether vectors have the length 1; `None` is as the model's files say.
            pooling: how hidden states become one vector, if not as the embedder was made.
            prompt: the name of a prompt of the model's files, or a text that is put before each of the texts.
            truncate: whether texts that are too long are cut, instead of refused.

        Raises:
            PromptTooLong: a text is too long.
            ValueError: a text has no tokens, or a parameter does not fit the model.
        """
        answers = self._answers(texts, dimensions, normalize, pooling, prompt, truncate)
        return _wrap(answers.next()).to_numpy()

    async def aembed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        normalize: bool | None = None,
        pooling: str | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> NDArray[np.float32]:
        """As `embed`, for asyncio. Cancelling the task cancels what was not computed yet."""
        from perihelion.aio import _running

        answers = self._answers(texts, dimensions, normalize, pooling, prompt, truncate)
        return _wrap(await _running().next(answers)).to_numpy()

    def hidden_states(
        self, texts: Prompt | Sequence[Prompt], *, prompt: str | None = None, truncate: bool = False
    ) -> list[NDArray[np.float32]]:
        """The hidden state of each token of texts, before pooling: an array float32 [tokens, width] for each text. Texts
        are computed one after the other.

        Args:
            texts: whose tokens become vectors.
            prompt: as for `embed`.
            truncate: as for `embed`.

        Raises:
            PromptTooLong: a text is too long.
        """
        given = (keywords.text("prompt", prompt, optional=True), keywords.flag("truncate", truncate))
        return [_wrap(self._native.hidden_states(text, *given)[1]).to_numpy() for text in _texts(texts)]

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

    def _answers(
        self, texts: Any, dimensions: Any, normalize: Any, pooling: Any, prompt: Any, truncate: Any
    ) -> _perihelion.Answers:
        return self._native.embed(
            _texts(texts),
            (
                keywords.whole("dimensions", dimensions, 0, optional=True),
                keywords.flag("normalize", normalize, optional=True),
                keywords.text("pooling", pooling, optional=True),
            ),
            keywords.text("prompt", prompt, optional=True),
            keywords.flag("truncate", truncate),
        )

    def __repr__(self) -> str:
        return f"Embedder({self.model!r}, dimensions={self.dimensions})"


def _texts(texts: Any) -> list[Any]:
    """One text or several as a list; each is a text or tokens."""
    given = [parts(one) for one in prompt_list(texts)]
    return [text if tokens is None else tokens for text, tokens in given]


shorten_methods(Embedder)
