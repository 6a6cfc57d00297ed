"""Models that write."""

from __future__ import annotations

import atexit
import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.driver.buffer import _wrap
from perihelion.engine import InferenceSession
from perihelion.engine.api import _range

from . import keywords
from ._model import _config, _Model, _native_session, _threads
from ._progress import LoadProgress, Progress, _Loading, _Progress
from ._requests import _AsyncBatchStream, _AsyncStream, _Batch, _BatchStream, _params, _Stream
from .config import PipelineConfig, _warn
from .keywords import ConfigFields
from .params import Chunk, Metrics, RequestOutput, SamplingParams, TokenScores, _metrics
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

# Threads of ours do not attach to an interpreter that ends.
atexit.register(_perihelion.stop_attaching)


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
        config = _config("LLM", model, "batch", fields)
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


shorten_methods(LLM)
