"""Models that write."""

from __future__ import annotations

import atexit
import dataclasses
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Union, overload

import numpy as np
from numpy.typing import NDArray

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.driver.buffer import _wrap
from perihelion.engine import InferenceSession
from perihelion.engine.api import _range

from . import keywords
from .config import _RENAMED, KVCacheStrategy, PipelineConfig, PipelineEngine, _warn
from .keywords import ConfigFields
from .params import Chunk, Metrics, RequestOutput, SamplingParams, TokenScores, _chunk, _metrics, _output
from .prompts import (
    ChatOptions,
    Message,
    Prompt,
    Prompts,
    ReadyPrompt,
    Tool,
    conversations,
    is_one,
    prompt_list,
    ready,
    turn_fields,
)
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["LLM", "Message", "Prompt", "Prompts", "Tokenizer", "Tool"]

Progress = Union[bool, Callable[..., Any]]
"""Whether a bar is shown, or what makes one, such as `tqdm.tqdm`."""

LoadProgress = Union[bool, Callable[[str, int, int], object]]
"""Whether a bar is shown, or what is called with a phase, what is done of it, and all that there is to do."""

_Native = TypeVar("_Native", _perihelion.Generator, _perihelion.Embedder, _perihelion.Classifier)
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

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._config.short_name if self._config.huggingface_repo_id else "storyteller"

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
        progress: `True` shows on standard error how far downloads and loading are; a callable gets the phase ("fetch" or
            "load"), the bytes that are done, and all bytes, from another thread.
        fields: fields of `PipelineConfig`. Without a `PipelineConfig`, their defaults are for many requests at once:
            a paged cache with prefix caching, batches of 16, and the longest texts that model and memory allow.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OutOfMemory: the model does not fit.

    Warns:
        ConfigWarning: a field has no effect, or a length is lowered.

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
        progress: LoadProgress = False,
        **fields: Unpack[ConfigFields],
    ) -> None:
        config = _config("LLM", model, {**_USUAL, "enable_prefix_caching": _shares_prefixes(fields)}, fields)
        template = keywords.text("chat_template", chat_template, optional=True)
        with _Loading(progress) as told:
            self._native = _perihelion.Generator(
                config._native, _threads(num_threads), template, _native_session(session), told
            )
        self._config = config._decided(self._native.config())
        _warn(self._native.warnings())

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
        progress: Progress = False,
        on_error: Literal["raise"] = "raise",
        use_tqdm: Progress = False,
    ) -> list[RequestOutput]: ...
    @overload
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: Progress = False,
        on_error: Literal["return"],
        use_tqdm: Progress = False,
    ) -> list[RequestOutput | Exception]: ...
    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: Progress = False,
        on_error: Literal["raise", "return"] = "raise",
        use_tqdm: Progress = False,
    ) -> list[RequestOutput] | list[RequestOutput | Exception]:
        """Continues prompts, all of them together. The results have the order of the prompts.

        Args:
            prompts: texts, lists of tokens, or dicts with `prompt` or `prompt_token_ids`; one of them, or several.
            sampling_params: for all prompts, or one for each.
            progress: `True` shows a bar on standard error; a callable such as `tqdm.tqdm` makes the bar.
            on_error: with "return", the result of a prompt that fails is the exception, and the others are answered.
            use_tqdm: the same as `progress`, under vLLM's name.

        Raises:
            ValueError: an invalid prompt or parameter, before anything is computed.
            PromptTooLong: a prompt leaves no room for an answer.
            TypeError: a prompt is neither text nor tokens.
        """
        listed = prompt_list(prompts)
        params = _params(sampling_params, len(listed))
        return self._generate([ready(self._native, one) for one in listed], params, progress or use_tqdm, on_error)

    @overload
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: Progress = False,
        on_error: Literal["raise"] = "raise",
        use_tqdm: Progress = False,
        **options: Unpack[ChatOptions],
    ) -> list[RequestOutput]: ...
    @overload
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: Progress = False,
        on_error: Literal["return"],
        use_tqdm: Progress = False,
        **options: Unpack[ChatOptions],
    ) -> list[RequestOutput | Exception]: ...
    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        progress: Progress = False,
        on_error: Literal["raise", "return"] = "raise",
        use_tqdm: Progress = False,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
    ) -> list[RequestOutput] | list[RequestOutput | Exception]:
        """Answers a conversation, or several together. `reasoning` and `tool_calls` of an answer are not in its text;
        `message` of an answer continues the conversation.

        Args:
            messages: a conversation, or several.
            sampling_params: for all conversations, or one for each. A form such as `json_schema` is that of the text, not
                of the reasoning and the calls.
            tools: functions that the answer may call: in the shape of the OpenAI API, or functions of Python with
                annotations, which are described and not called.
            documents: for templates that know them.
            add_generation_prompt: whether the prompt ends where the assistant is to speak.
            continue_final_message: whether the last message is continued.
            chat_template_kwargs: more variables of the chat template.
            progress: as for `generate`.
            on_error: with "return", the result of a conversation that fails is the exception, and the others are answered.
            use_tqdm: the same as `progress`.
            tool_choice: "auto", "none", "required", or `{"type": "function", "function": {"name": ...}}`.
            parallel_tool_calls: whether an answer may have several calls.
            enable_thinking: whether models reason that can be asked to; `None` is as their templates say.
            reasoning_effort: how much: "none", "minimal", "low", "medium", "high", "xhigh" or "max".
            thinking_budget: the most tokens of the reasoning, which is then ended.

        Raises:
            ValueError: as for `generate`; the chat template refuses a conversation, or there is none; a tool or the choice
                of one is invalid.
        """
        fields = turn_fields(
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=chat_template_kwargs,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            enable_thinking=enable_thinking,
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
        )
        listed = conversations(messages)
        params = _params(sampling_params, len(listed))
        turns = [self._turn(one, fields, own, on_error) for one, own in zip(listed, params)]
        return self._generate(turns, params, progress or use_tqdm, on_error)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> Iterator[Chunk]:
        """The answer to a prompt as it is made. Dropping the iterator cancels the request; if it is not read, the
        request is paused.

        Raises:
            ValueError: as for `generate`.
        """
        return _Stream(self, ready(self._native, prompt), sampling_params)

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
    ) -> Iterator[Chunk]:
        """As `stream`, of a conversation. The arguments are those of `chat`."""
        fields = turn_fields(
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=chat_template_kwargs,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            enable_thinking=enable_thinking,
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
        )
        return _Stream(self, self._turn(messages, fields, sampling_params), sampling_params)

    def stream_batch(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> Iterator[tuple[int, Chunk]]:
        """The answers to several prompts, made together: each chunk comes with the index of its prompt.

        Raises:
            ValueError: as for `generate`.
        """
        return _BatchStream(self, prompts, sampling_params)

    def astream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AsyncIterator[Chunk]:
        """As `stream`, for asyncio. Cancelling the task cancels the request."""
        return _AsyncStream(self, ready(self._native, prompt), sampling_params)

    def astream_batch(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> AsyncIterator[tuple[int, Chunk]]:
        """As `stream_batch`, for asyncio. Cancelling the task cancels the requests."""
        return _AsyncBatchStream(self, prompts, sampling_params)

    @overload
    async def agenerate(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> RequestOutput: ...
    @overload
    async def agenerate(
        self, prompt: Prompts, sampling_params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[RequestOutput]: ...
    async def agenerate(
        self,
        prompt: Prompt | Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """As `generate`, for asyncio: one prompt has one result, a list of prompts a list. Cancelling the task cancels the
        requests."""
        listed = prompt_list(prompt)
        params = _params(sampling_params, len(listed))
        outputs = await self._agenerate([ready(self._native, one) for one in listed], params)
        return outputs[0] if is_one(prompt) else outputs

    @overload
    async def achat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        **options: Unpack[ChatOptions],
    ) -> RequestOutput: ...
    @overload
    async def achat(
        self,
        messages: Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        **options: Unpack[ChatOptions],
    ) -> list[RequestOutput]: ...
    async def achat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
    ) -> RequestOutput | list[RequestOutput]:
        """As `chat`, for asyncio: one conversation has one result, a list of conversations a list."""
        fields = turn_fields(
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=chat_template_kwargs,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            enable_thinking=enable_thinking,
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
        )
        listed = conversations(messages)
        params = _params(sampling_params, len(listed))
        turns = [self._turn(one, fields, own) for one, own in zip(listed, params)]
        outputs = await self._agenerate(turns, params)
        return outputs[0] if len(listed) == 1 and listed[0] is messages else outputs

    def astream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tool_choice: str | Mapping[str, Any] | None = None,
        parallel_tool_calls: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str | None = None,
        thinking_budget: int | None = None,
    ) -> AsyncIterator[Chunk]:
        """As `astream`, of a conversation. The arguments are those of `chat`."""
        fields = turn_fields(
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=chat_template_kwargs,
            tool_choice=tool_choice,
            parallel_tool_calls=parallel_tool_calls,
            enable_thinking=enable_thinking,
            reasoning_effort=reasoning_effort,
            thinking_budget=thinking_budget,
        )
        return _AsyncStream(self, self._turn(messages, fields, sampling_params), sampling_params)

    def score(self, texts: Prompt | Sequence[Prompt]) -> list[TokenScores]:
        """How likely the model finds each token of texts, given those before it."""
        scores = []
        for text in prompt_list(texts):
            one = ready(self._native, text)
            logprobs: list[float | None] = [None, *self._native.score(one.tokens)]
            scores.append(TokenScores(one.text, one.tokens, logprobs[: len(one.tokens)]))
        return scores

    def perplexity(self, texts: Prompt | Sequence[Prompt]) -> list[float]:
        """How surprised the model is by texts: e to the power of the mean of their tokens' negative log-probabilities. Texts
        of less than two tokens have NaN.

        >>> llm = LLM()
        >>> good, odd = llm.perplexity(["Once upon a time there was a king", "king a was there time a upon Once"])
        >>> good < odd
        True
        """

        def of(scores: TokenScores) -> float:
            known = [logprob for logprob in scores.logprobs if logprob is not None]
            return math.exp(-sum(known) / len(known)) if known else math.nan

        return [of(scores) for scores in self.score(texts)]

    def logits(self, texts: Prompt | Sequence[Prompt]) -> list[NDArray[np.float32]]:
        """The logits after each token of texts, float32 [tokens, vocabulary]: row `i` predicts token `i + 1`.

        They take four bytes for each token and entry of the vocabulary. Texts that are longer than `max_length` are read in
        windows that overlap by half.
        """
        return [
            _wrap(self._native.logits(ready(self._native, text).tokens)).to_numpy() for text in prompt_list(texts)
        ]

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tokenize: bool = False,
        tools: Sequence[Tool] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str | list[int]:
        """The prompt of a conversation, as text or tokens. Further keywords are variables of the template.

        Raises:
            ValueError: the chat template refuses the conversation, or there is none.
        """
        fields = turn_fields(
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            variables=kwargs,
        )
        flags = (fields["add_generation_prompt"], fields["continue_final_message"])
        given = conversations([messages], several=True)[0]
        json = (dumps(given), dumps(fields["tools"]), dumps(fields["documents"]))
        prompt = self._native.render(*json, *flags, dumps(fields["variables"]))
        return self._native.encode(prompt, False, True) if tokenize else prompt

    def status(self) -> dict[str, int]:
        """Requests that run, wait and are paused; pages of the cache, and those that are free."""
        return self._native.status()

    def metrics(self) -> Metrics:
        """Requests, tokens and steps since the model was loaded."""
        return _metrics(self._native.metrics())

    def __repr__(self) -> str:
        return f"LLM({self.model!r}, max_length={self.config.max_length})"

    def _turn(
        self, messages: Any, fields: Mapping[str, Any], params: SamplingParams | None, on_error: str = "raise"
    ) -> ReadyPrompt:
        """A conversation as the model reads it. One that is refused has no tokens, and the error of that."""
        listed = conversations([messages], several=True)[0]
        try:
            given = dumps({"messages": listed, **fields})
        except TypeError as error:
            raise TypeError(f"messages: {error}") from None
        try:
            turn = self._native.read_turn(given, _params(params, 1)[0])
        except ValueError as error:
            if on_error != "return":
                raise
            return ReadyPrompt(None, [], [], error)
        return ReadyPrompt(turn.prompt, turn.tokens, turn)

    def _generate(
        self, prompts: Sequence[ReadyPrompt], params: list[SamplingParams], progress: Progress, on_error: str
    ) -> list[Any]:
        with _range(self._native, "LLM.generate"):
            batch = _Batch(self._native, prompts, params, on_error)
            bar = _Progress(progress, batch.size)
            try:
                while batch.done < batch.size:
                    batch.take(batch.answers.next())
                    bar.show(batch.done)
            finally:
                batch.answers.close()
                bar.end()
            return batch.outputs()

    async def _agenerate(self, prompts: Sequence[ReadyPrompt], params: list[SamplingParams]) -> list[RequestOutput]:
        from perihelion.aio import _running

        batch = _Batch(self._native, prompts, params)
        loop = _running()
        while batch.done < batch.size:
            batch.take(await loop.next(batch.answers))
        return batch.outputs()


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

    def __init__(self, llm: LLM, prompt: ReadyPrompt, params: SamplingParams | None) -> None:
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

    def __init__(self, llm: LLM, prompt: ReadyPrompt, params: SamplingParams | None) -> None:
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
        llm: LLM,
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


class _Bar:
    """A line on standard error that says how much is done."""

    def __init__(self, total: int, name: str = "") -> None:
        self._total, self._done, self._name = total, 0, name

    def update(self, more: int) -> None:
        self._done += more
        filled = 30 * self._done // max(self._total, 1)
        bar = "█" * filled + "░" * (30 - filled)
        sys.stderr.write(f"\r{self._name}{bar} {self._done}/{self._total}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


class _Progress:
    """A bar of the answers that are whole, if one is wanted."""

    def __init__(self, wanted: Progress, size: int) -> None:
        self._bar = wanted(total=size) if callable(wanted) else _Bar(size) if wanted else None
        self._shown = 0

    def show(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._shown)
            self._shown = done

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Loading:
    """A bar for each phase of loading, if they are wanted; else the program's callable."""

    def __init__(self, wanted: LoadProgress) -> None:
        self._told = wanted if callable(wanted) else self._show if wanted else None
        self._bars: dict[str, tuple[_Bar, int]] = {}

    def __enter__(self) -> Callable[[str, int, int], object] | None:
        return self._told

    def __exit__(self, *args: object) -> None:
        if self._bars:
            sys.stderr.write("\n")

    def _show(self, phase: str, done: int, total: int) -> None:
        mega = 1 << 20
        bar, shown = self._bars.get(phase) or (_Bar(total // mega, f"{phase} (MiB) "), 0)
        bar.update(done // mega - shown)
        self._bars[phase] = (bar, done // mega)


def _shares_prefixes(fields: Mapping[str, Any]) -> bool:
    """Whether requests share pages of the cache, unless a program says so itself."""
    is_paged = fields.get("cache_strategy", KVCacheStrategy.paged) == KVCacheStrategy.paged
    return bool(is_paged and fields.get("engine") != PipelineEngine.HUGGINGFACE)


def _config(
    owner: str, model: str | Path | PipelineConfig | None, usual: Mapping[str, Any], fields: Mapping[str, Any]
) -> PipelineConfig:
    """The configuration of a model that is given by name, or as a configuration, with some fields changed."""
    keywords.refuse_unknown(owner, fields, _FIELDS, keywords.LOADING)
    if isinstance(model, PipelineConfig):
        return dataclasses.replace(model, **fields)
    if model is not None and not isinstance(model, (str, os.PathLike)):
        expected = "a name, a path or a PipelineConfig"
        raise TypeError(f"model: got {type(model).__name__}, expected {expected}")
    return PipelineConfig("" if model is None else os.fspath(model), **{**usual, **fields})


# The first argument is not a keyword as well.
_FIELDS = {field.name for field in dataclasses.fields(PipelineConfig)} | _RENAMED.keys()
_FIELDS -= {"huggingface_repo_id", "model", "model_path"}


def _threads(num_threads: Any) -> int:
    """The number of threads as the native module takes it."""
    return keywords.whole("num_threads", num_threads, 0, 1 << 16, optional=True) or 0


def _native_session(session: Any) -> _perihelion.Session | None:
    if session is None or isinstance(session, InferenceSession):
        return None if session is None else session._native
    raise TypeError(f"session: got {type(session).__name__}, expected an InferenceSession or None")


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


shorten_methods(LLM)
