"""Models that write."""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from json import dumps
from numbers import Integral
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Union, overload

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.engine import InferenceSession
from perihelion.engine.api import _range

from .config import KVCacheStrategy, PipelineConfig
from .params import Chunk, Metrics, RequestOutput, SamplingParams, TokenScores, _chunk, _metrics, _output

__all__ = ["LLM", "Message", "Prompt", "Tokenizer"]

Prompt = Union[str, Sequence[int]]
"""A text, or its tokens."""

Message = Mapping[str, Any]
"""A part of a conversation: `{"role": "user", "content": "Hello"}`."""

_Native = TypeVar("_Native", _perihelion.Generator, _perihelion.Embedder, _perihelion.Reranker)
_Self = TypeVar("_Self")

# Threads of ours do not attach to an interpreter that ends.
atexit.register(_perihelion.stop_attaching)

# For models that are given by name: short pages on demand, and many requests at once.
_USUAL: dict[str, Any] = {
    "max_length": None,
    "max_cache_batch_size": 16,
    "cache_strategy": KVCacheStrategy.paged,
    "kv_cache_page_size": 64,
}


class _Model(Generic[_Native]):
    """A model with a thread of its own, until it is closed."""

    _native: _Native
    _config: PipelineConfig

    @property
    def config(self) -> PipelineConfig:
        """The configuration with every field decided."""
        return self._config

    def close(self) -> None:
        """Cancels all requests and frees the memory."""
        self._native.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not sys.is_finalizing():
            native.release()

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled: make one in each process")


class LLM(_Model[_perihelion.Generator]):
    """A model that writes, from many threads and tasks at once. Each request gets what it would get alone.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`; `None` is a small model that is built in.
        num_threads: how many threads compute; `None` is one for each core.
        chat_template: the name of a built-in template, a file with one, or a template; `None` is the model's own.
        session: where the model runs; `None` makes a session for it.
        fields: fields of `PipelineConfig`. Without a `PipelineConfig`, their defaults are for many requests at once:
            a paged cache with prefix caching, batches of 16, and the longest texts that model and memory allow.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OutOfMemory: the model does not fit.

    >>> llm = LLM()
    >>> llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=5))[0].text
    ' there was a king who'
    """

    def __init__(
        self,
        model: str | Path | PipelineConfig | None = None,
        *,
        num_threads: int | None = None,
        chat_template: str | None = None,
        session: InferenceSession | None = None,
        **fields: Any,
    ) -> None:
        config = _config(model, {**_USUAL, "enable_prefix_caching": _is_paged(fields)}, fields)
        native_session = None if session is None else session._native
        self._native = _perihelion.Generator(config._native, num_threads or 0, chat_template, native_session)
        self._config = config._decided(self._native.config())

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._config.short_name if self._config.huggingface_repo_id else "storyteller"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return Tokenizer(self._native)

    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
    ) -> list[RequestOutput]: ...
    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = False,
        on_error: Literal["return"],
    ) -> list[RequestOutput | Exception]: ...
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = False,
        on_error: Literal["raise", "return"] = "raise",
    ) -> list[RequestOutput] | list[RequestOutput | Exception]:
        """Continues prompts, all of them together. The results have the order of the prompts.

        With `on_error="return"`, the result of a prompt that fails is the exception, and the others are answered.

        Raises:
            ValueError: an invalid prompt or parameter, before anything is computed.
            PromptTooLong: a prompt leaves no room for an answer.
        """
        with _range(self._native, "LLM.generate"):
            batch = _Batch(self._native, _prompts(prompts), sampling_params, on_error)
            bar = _Progress(progress, batch.size)
            try:
                while batch.done < batch.size:
                    batch.take(batch.answers.next())
                    bar.show(batch.done)
            finally:
                batch.answers.close()
                bar.end()
            return batch.outputs()

    @overload
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        progress: bool = False,
        on_error: Literal["raise"] = "raise",
    ) -> list[RequestOutput]: ...
    @overload
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        progress: bool = False,
        on_error: Literal["return"],
    ) -> list[RequestOutput | Exception]: ...
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        progress: bool = False,
        on_error: Literal["raise", "return"] = "raise",
    ) -> list[RequestOutput] | list[RequestOutput | Exception]:
        """Answers a conversation, or several together. `tools` and `documents` are for templates that know them; with
        `continue_final_message`, the last message is continued.

        With `on_error="return"`, the result of a conversation that fails is the exception, and the others are answered.

        Raises:
            ValueError: as for `generate`, and if the chat template refuses a conversation or there is none.
        """
        given = (tools, documents, add_generation_prompt, continue_final_message, chat_template_kwargs)
        prompts: list[Prompt] = []
        for one in _conversations(messages):
            try:
                prompts.append(self._chat(one, *given))
            except ValueError as error:
                if on_error != "return":
                    raise
                prompts.append(_Unrendered(error))
        return self.generate(prompts, sampling_params, progress=progress, on_error=on_error)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Chunk]:
        """The answer to a prompt as it is made. Dropping the iterator cancels the request; if it is not read, the
        request is paused.

        Raises:
            ValueError: as for `generate`.
        """
        return _Stream(self, prompt, sampling_params)

    def astream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AsyncIterator[Chunk]:
        """As `stream`, for asyncio. Cancelling the task cancels the request."""
        return _AsyncStream(self, prompt, sampling_params)

    async def agenerate(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> RequestOutput:
        """As `generate`, of one prompt, for asyncio. Cancelling the task cancels the request."""
        from perihelion.aio import _running

        batch = _Batch(self._native, [prompt], sampling_params)
        loop = _running()
        while batch.done < batch.size:
            batch.take(await loop.next(batch.answers))
        output: RequestOutput = batch.outputs()[0]
        return output

    async def achat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> RequestOutput:
        """As `chat`, of one conversation, for asyncio."""
        given = (tools, documents, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return await self.agenerate(self._chat(messages, *given), sampling_params)

    def astream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncIterator[Chunk]:
        """As `astream`, of a conversation."""
        given = (tools, documents, add_generation_prompt, continue_final_message, chat_template_kwargs)
        return self.astream(self._chat(messages, *given), sampling_params)

    def score(self, texts: Prompt | Sequence[Prompt]) -> list[TokenScores]:
        """How likely the model finds each token of texts, given those before it."""
        scores = []
        for text in _prompts(texts):
            tokens = _tokens(self._native, text)
            logprobs: list[float | None] = [None, *self._native.score(tokens)]
            scores.append(TokenScores(text if isinstance(text, str) else None, tokens, logprobs[: len(tokens)]))
        return scores

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tokenize: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str | list[int]:
        """The prompt of a conversation, as text or tokens. Further keywords are variables of the template.

        Raises:
            ValueError: the chat template refuses the conversation, or there is none.
        """
        prompt = self._chat(messages, tools, documents, add_generation_prompt, continue_final_message, kwargs)
        return self._native.encode(prompt, False, True) if tokenize else str(prompt)

    def status(self) -> dict[str, int]:
        """Requests that run, wait and are paused; pages of the cache, and those that are free."""
        return self._native.status()

    def metrics(self) -> Metrics:
        """Requests, tokens and steps since the model was loaded."""
        return _metrics(self._native.metrics())

    def __repr__(self) -> str:
        return f"LLM({self.model!r}, max_length={self.config.max_length})"

    def _chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        add_generation_prompt: bool,
        continue_final_message: bool,
        variables: Mapping[str, Any] | None,
    ) -> _Rendered:
        json = (dumps(list(messages)), dumps(tools), dumps(documents))
        flags = (add_generation_prompt, continue_final_message)
        return _Rendered(self._native.render(*json, *flags, dumps(dict(variables or {}))))


class Tokenizer:
    """The tokenizer of a model."""

    __slots__ = ("_native",)

    def __init__(self, native: _perihelion.Generator) -> None:
        self._native = native

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text, by default with those that the model wants around it."""
        return self._native.encode(text, add_special_tokens, True)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of tokens."""
        return self._native.decode(token_ids, skip_special_tokens)

    @property
    def vocab_size(self) -> int:
        """One more than the highest token."""
        return self._native.vocabulary()[0]

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self._native.vocabulary()[1]

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text, if there is one."""
        return self._native.vocabulary()[2]

    @property
    def eos_token_ids(self) -> list[int]:
        """All tokens that end an answer."""
        return self._native.vocabulary()[3]

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size})"


class _Rendered(str):
    """A prompt that a chat template made: it has its special tokens already."""


class _Unrendered(list[int]):
    """A conversation without a prompt: it has no tokens, so it is refused, with the error of rendering it."""

    def __init__(self, error: ValueError) -> None:
        self.error = error


class _Batch:
    """Requests that run together, and what came of them."""

    def __init__(
        self,
        native: _perihelion.Generator,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        on_error: str = "raise",
    ) -> None:
        if on_error not in ("raise", "return"):
            raise ValueError(f"on_error: got {on_error!r}, expected 'raise' or 'return'")
        if params is None or isinstance(params, SamplingParams):
            self.params = [params or SamplingParams()] * len(prompts)
        else:
            self.params = list(params)
        for one in self.params:
            if not isinstance(one, SamplingParams):
                raise TypeError(f"sampling_params: got {type(one).__name__}, expected SamplingParams")
        if len(self.params) != len(prompts):
            raise ValueError(f"sampling_params: got {len(self.params)} for {len(prompts)} prompts")
        self.prompts = prompts
        self.tokens = [_tokens(native, prompt) for prompt in prompts]
        self.seeds = [_seed(one) for one in self.params]
        self._returns_errors = on_error == "return"
        self.answers, self.size = native.batch(self.tokens, self.params, self.seeds, self._returns_errors)
        self.done = 0
        self._answers: list[dict[int, Any]] = [{} for _ in prompts]
        self._errors: dict[int, Exception] = {}

    def take(self, item: Any) -> None:
        prompt, sample, answer = item
        if not isinstance(answer, Exception):
            self._answers[prompt][sample] = answer
        elif self._returns_errors:
            given = self.prompts[prompt]
            self._errors[prompt] = given.error if isinstance(given, _Unrendered) else answer
        else:
            raise answer
        self.done += 1

    def outputs(self) -> list[Any]:
        """The answers to each prompt, or its exception."""
        return [self._errors.get(index) or self._output(index) for index in range(len(self.prompts))]

    def _output(self, index: int) -> RequestOutput:
        prompt, answers = self.prompts[index], self._answers[index]
        text = prompt if isinstance(prompt, str) else None
        ordered = [answers[sample] for sample in sorted(answers)]
        return _output(text, self.tokens[index], ordered, self.params[index], self.seeds[index])


class _Request:
    """One request, and the model that answers it."""

    def __init__(self, llm: LLM, prompt: Prompt, params: SamplingParams | None) -> None:
        self._llm = llm
        self._params = params or SamplingParams()
        if self._params.n != 1:
            raise ValueError(f"n is {self._params.n}: a stream has one answer")
        if not isinstance(prompt, Iterable):
            raise TypeError(f"prompt: got {type(prompt).__name__}, expected a text or a list of tokens")
        native = llm._native
        self._answers = native.stream(_tokens(native, prompt), self._params, _seed(self._params))

    def close(self) -> None:
        """Cancels the request."""
        self._answers.close()


class _Stream(_Request):
    """An answer as it is made."""

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        return _chunk(self._answers.next(), self._params)


class _AsyncStream(_Request):
    """An answer as it is made, for asyncio."""

    def __init__(self, llm: LLM, prompt: Prompt, params: SamplingParams | None) -> None:
        # Programs without asyncio need not import it.
        from perihelion.aio import _running

        super().__init__(llm, prompt, params)
        self._running = _running

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        return _chunk(await self._running().next(self._answers), self._params)

    async def aclose(self) -> None:
        """Cancels the request."""
        self.close()


class _Progress:
    """A line on standard error that says how many of the answers are whole."""

    def __init__(self, wanted: bool, size: int) -> None:
        self._wanted, self._size = wanted, size

    def show(self, done: int) -> None:
        if self._wanted:
            filled = 30 * done // self._size
            bar = "█" * filled + "░" * (30 - filled)
            sys.stderr.write(f"\r{bar} {done}/{self._size}")
            sys.stderr.flush()

    def end(self) -> None:
        if self._wanted:
            sys.stderr.write("\n")


def _is_paged(fields: Mapping[str, Any]) -> bool:
    return bool(fields.get("cache_strategy", KVCacheStrategy.paged) == KVCacheStrategy.paged)


def _config(
    model: str | Path | PipelineConfig | None, usual: Mapping[str, Any], fields: Mapping[str, Any]
) -> PipelineConfig:
    """The configuration of a model that is given by name, or as a configuration, with some fields changed."""
    if isinstance(model, PipelineConfig):
        return dataclasses.replace(model, **fields)
    return PipelineConfig("" if model is None else os.fspath(model), **{**usual, **fields})


def _prompts(prompts: Any) -> list[Prompt]:
    """One prompt or several as a list."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise TypeError(f"got {type(prompts).__name__}, expected a text, a list of tokens, or a list of such")
    several: list[Any] = list(prompts)
    if several and isinstance(several[0], Integral):
        return [several]
    for one in several:
        if not isinstance(one, Iterable):
            raise TypeError(f"prompts: got a list with {type(one).__name__}, expected texts or lists of tokens")
    return several


def _conversations(messages: Any) -> list[Any]:
    """One conversation or several as a list."""
    conversations = [messages] if messages and isinstance(messages[0], Mapping) else list(messages)
    for one in conversations:
        if not isinstance(one, Iterable):
            raise TypeError(f"messages: got a list with {type(one).__name__}, expected messages")
    return conversations


def _tokens(native: _perihelion.Generator, prompt: Any) -> list[int]:
    if isinstance(prompt, str):
        return native.encode(prompt, not isinstance(prompt, _Rendered), True)
    return list(prompt)


def _seed(params: SamplingParams) -> int:
    """The seed of a request; a random one, short enough to retype, if none is given."""
    return int.from_bytes(os.urandom(4), "little") if params.seed is None else params.seed


shorten_methods(LLM)
