"""Requests that a model answers: whole answers of several, and answers as they are made."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

from perihelion import _perihelion

from . import keywords
from ._model import _Model
from .params import Chunk, RequestOutput, SamplingParams, _chunk, _output
from .prompts import Prompt, ReadyPrompt, prompt_list, ready
_Writer = _Model[_perihelion.Generator]


class _Batch:
    """Requests that run together, and what came of them."""

    def __init__(
        self,
        native: _perihelion.Generator,
        prompts: Sequence[ReadyPrompt],
        params: list[SamplingParams],
        on_error: str = "raise",
    ) -> None:
        if on_error not in ("raise", "return"):
            raise ValueError(f"on_error: got {on_error!r}, expected 'raise' or 'return'")
        self.prompts, self.params = prompts, params
        self.seeds = [_seed(one) for one in params]
        self._returns_errors = on_error == "return"
        given = [prompt.native for prompt in prompts]
        self.answers, self.size = native.batch(given, params, self.seeds, self._returns_errors)
        self.done = 0
        self._answers: list[dict[int, Any]] = [{} for _ in prompts]
        self._errors: dict[int, Exception] = {}

    def take(self, item: Any) -> None:
        prompt, sample, answer = item
        if not isinstance(answer, Exception):
            self._answers[prompt][sample] = answer
        elif self._returns_errors:
            self._errors[prompt] = self.prompts[prompt].error or answer
        else:
            raise answer
        self.done += 1

    def outputs(self) -> list[Any]:
        """The answers to each prompt, or its exception."""
        return [self._errors.get(index) or self._output(index) for index in range(len(self.prompts))]

    def _output(self, index: int) -> RequestOutput:
        prompt, answers = self.prompts[index], self._answers[index]
        ordered = [answers[sample] for sample in sorted(answers)]
        return _output(prompt.text, prompt.tokens, ordered, self.params[index], self.seeds[index])


class _Request:
    """One request, and the model that answers it."""

    def __init__(self, llm: _Writer, prompt: ReadyPrompt, params: SamplingParams | None) -> None:
        # A model that nobody else holds lives as long as its answers.
        self._llm = llm
        self._params = _stream_params(params, 1)[0]
        seed = _seed(self._params)
        self._answers = llm._native.stream(prompt.native, self._params, seed)
        self._id = (0, seed, prompt.tokens)

    def close(self) -> None:
        """Cancels the request."""
        self._answers.close()


class _Stream(_Request):
    """An answer as it is made."""

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return _chunk(self._answers.next(), self._params, self._id)


class _AsyncStream(_Request):
    """An answer as it is made, for asyncio."""

    def __init__(self, llm: _Writer, prompt: ReadyPrompt, params: SamplingParams | None) -> None:
        # Programs without asyncio need not import it.
        from perihelion.aio import _running

        super().__init__(llm, prompt, params)
        self._running = _running

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        return _chunk(await self._running().next(self._answers), self._params, self._id)

    async def aclose(self) -> None:
        """Cancels the request."""
        self.close()


class _Requests:
    """Requests that run together, and the model that answers them."""

    def __init__(
        self,
        llm: _Writer,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> None:
        self._llm = llm
        given = [ready(llm._native, one) for one in prompt_list(prompts)]
        self._params = _stream_params(params, len(given))
        seeds = [_seed(one) for one in self._params]
        self._answers = llm._native.stream_batch([one.native for one in given], self._params, seeds)
        self._ids = [(0, seed, one.tokens) for seed, one in zip(seeds, given)]

    def _chunk(self, item: Any) -> tuple[int, Chunk]:
        index, chunk = item
        return index, _chunk(chunk, self._params[index], self._ids[index])

    def close(self) -> None:
        """Cancels the requests."""
        self._answers.close()


class _BatchStream(_Requests):
    """Answers as they are made."""

    def __iter__(self) -> Iterator[tuple[int, Chunk]]:
        return self

    def __next__(self) -> tuple[int, Chunk]:
        return self._chunk(self._answers.next())


class _AsyncBatchStream(_Requests):
    """Answers as they are made, for asyncio."""

    def __aiter__(self) -> AsyncIterator[tuple[int, Chunk]]:
        return self

    async def __anext__(self) -> tuple[int, Chunk]:
        from perihelion.aio import _running

        return self._chunk(await _running().next(self._answers))

    async def aclose(self) -> None:
        """Cancels the requests."""
        self.close()


def _params(params: Any, count: int) -> list[SamplingParams]:
    """The parameters of so many prompts."""
    if params is None or isinstance(params, SamplingParams):
        listed = [params or SamplingParams()] * count
    elif isinstance(params, Iterable):
        listed = list(params)
    else:
        raise TypeError(f"sampling_params: got {type(params).__name__}, expected SamplingParams")
    for one in listed:
        if not isinstance(one, SamplingParams):
            raise TypeError(f"sampling_params: got {type(one).__name__}, expected SamplingParams")
        for process in one.logits_processors or ():
            if not callable(process):
                raise TypeError(f"logits_processors: got a list with {type(process).__name__}, expected functions")
    if len(listed) != count:
        raise ValueError(f"sampling_params: got {len(listed)} for {count} prompts")
    return listed


def _stream_params(params: Any, count: int) -> list[SamplingParams]:
    listed = _params(params, count)
    for one in listed:
        if one.n != 1:
            raise ValueError(f"n is {one.n}: a stream has one answer")
    return listed


def _seed(params: SamplingParams) -> int:
    """The seed of a request; a random one, short enough to retype, if none is given."""
    if params.seed is None:
        return int.from_bytes(os.urandom(4), "little")
    seed: int = keywords.whole("seed", params.seed, 0, (1 << 64) - 1, optional=True)
    return seed
