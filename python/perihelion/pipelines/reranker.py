"""Models that rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods

from . import keywords
from .classifier import _Scorer
from .params import Ranked

__all__ = ["Reranker"]


class Reranker(_Scorer):
    """A model that ranks documents by how well they answer a query (a cross-encoder), from many threads and tasks at
    once.

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

    _ranks = True

    @property
    def max_length(self) -> int:
        """The most tokens of a query and a document together, those around them included."""
        return self._native.max_length

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> list[Ranked]:
        """Documents by how well they answer a query, best first. Of equal scores, the earlier document comes first.

        Args:
            query: what documents should answer.
            documents: what is ranked.
            top_n: how many of the best are returned; `None` is all.
            prompt: an instruction for the model, or the name of one in its files; `None` is what the files say.
            truncate: whether a query and a document that are too long together are cut, instead of refused.

        Raises:
            PromptTooLong: the query and a document are too long together.
            ValueError: the model has several labels, or takes no instruction.
        """
        documents = keywords.texts("documents", documents)
        return _ranked(self._answers(query, documents, top_n, prompt, truncate).next(), documents)

    async def arank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        prompt: str | None = None,
        truncate: bool = False,
    ) -> list[Ranked]:
        """As `rank`, for asyncio. Cancelling the task cancels what was not computed yet."""
        from perihelion.aio import _running

        documents = keywords.texts("documents", documents)
        answers = self._answers(query, documents, top_n, prompt, truncate)
        return _ranked(await _running().next(answers), documents)

    def status(self) -> dict[str, int]:
        """Documents that wait, and batches, documents and tokens that were computed."""
        return self._native.status()

    def _answers(
        self, query: Any, documents: list[str], top_n: Any, prompt: Any, truncate: Any
    ) -> _perihelion.Answers:
        return self._native.rank(
            keywords.text("query", query),
            documents,
            keywords.whole("top_n", top_n, 0, optional=True),
            keywords.text("prompt", prompt, optional=True),
            keywords.flag("truncate", truncate),
        )

    def __repr__(self) -> str:
        return f"Reranker({self.model!r})"


def _ranked(ranking: list[tuple[int, float]], documents: Sequence[str]) -> list[Ranked]:
    return [Ranked(index, score, documents[index]) for index, score in ranking]


shorten_methods(Reranker)
