"""Models that classify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Union

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
from .params import Classification

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Classifier", "TextOrPair"]

TextOrPair = Union[str, tuple[str, str]]
"""A text, or two that belong together, such as a premise and a hypothesis."""


class _Scorer(_Model[_perihelion.Classifier]):
    """A model that scores texts, or pairs of them."""

    _ranks: ClassVar[bool]

    def __init__(
        self,
        model: str | Path | PipelineConfig | None = None,
        *,
        num_threads: int | None = None,
        session: InferenceSession | None = None,
        progress: LoadProgress = False,
        **fields: Unpack[ConfigFields],
    ) -> None:
        config = _config(type(self).__name__, model, "encode", fields)
        with _Loading(progress) as told:
            self._native = _perihelion.Classifier(
                config._native, _threads(num_threads), _native_session(session), told, self._ranks
            )
        self._config = config._decided(self._native.config())
        _warn(self._native.warnings())


class Classifier(_Scorer):
    """A model that scores texts for each of its labels, from many threads and tasks at once.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`.
        num_threads: how many threads compute; `None` is one for each core.
        session: where the model runs; `None` makes a session for it.
        progress: as for `LLM`.
        fields: fields of `PipelineConfig`. Without a `PipelineConfig`, their defaults are for large batches.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OutOfMemory: the model does not fit.
        ValueError: the model makes no scores.
    """

    _ranks = False

    @property
    def labels(self) -> list[str]:
        """The names of the labels, in the order of the scores."""
        return self._native.labels

    @property
    def max_length(self) -> int:
        """The most tokens of a text or a pair, those around it included."""
        return self._native.max_length

    def classify(
        self,
        texts: TextOrPair | Sequence[TextOrPair],
        *,
        activation: str | None = None,
        truncate: bool = False,
    ) -> list[Classification]:
        """The scores of texts for each label.

        Args:
            texts: texts, or pairs of texts as tuples; one or several.
            activation: how scores come from the model: "softmax", "sigmoid" or "identity"; `None` is as its files say.
            truncate: whether texts that are too long are cut, instead of refused.

        Raises:
            PromptTooLong: a text is too long.
            ValueError: there is no such activation.
        """
        return self._classified(self._answers(texts, activation, truncate).next())

    async def aclassify(
        self,
        texts: TextOrPair | Sequence[TextOrPair],
        *,
        activation: str | None = None,
        truncate: bool = False,
    ) -> list[Classification]:
        """As `classify`, for asyncio. Cancelling the task cancels what was not computed yet."""
        from perihelion.aio import _running

        return self._classified(await _running().next(self._answers(texts, activation, truncate)))

    def status(self) -> dict[str, int]:
        """Texts that wait, and batches, texts and tokens that were computed."""
        return self._native.status()

    def _answers(self, texts: Any, activation: Any, truncate: Any) -> _perihelion.Answers:
        listed = [texts] if isinstance(texts, (str, tuple)) else texts
        if isinstance(listed, (bytes, dict)) or not hasattr(listed, "__iter__"):
            raise TypeError(f"texts: got {type(texts).__name__}, expected a text, a pair of texts, or a list of such")
        return self._native.classify(
            [_text(one) for one in listed],
            keywords.text("activation", activation, optional=True),
            keywords.flag("truncate", truncate),
        )

    def _classified(self, scores: _perihelion.Buffer) -> list[Classification]:
        labels, rows = self.labels, _wrap(scores).to_numpy()
        return [_classification(labels, row) for row in rows]

    def __repr__(self) -> str:
        return f"Classifier({self.model!r}, labels={self.labels})"


def _text(text: Any) -> TextOrPair:
    """A text or a pair."""
    if isinstance(text, (tuple, list)) and len(text) == 2:
        first, second = keywords.texts("texts", text)
        return first, second
    one: str = keywords.text("texts", text)
    return one


def _classification(labels: list[str], row: NDArray[np.float32]) -> Classification:
    scores = dict(zip(labels, row.tolist()))
    best = max(scores, key=lambda label: scores[label])
    return Classification(best, scores[best], scores)


shorten_methods(Classifier)
