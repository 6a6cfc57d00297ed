"""Parameters of requests, and their answers."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2s
from typing import Any, Literal, Optional

import numpy as np
from numpy.typing import NDArray

from perihelion import _perihelion
from perihelion.driver.buffer import _wrap

from . import keywords
from .schemas import close_objects, schema_of

__all__ = [
    "Chunk",
    "Classification",
    "CompletionOutput",
    "Histogram",
    "Logprob",
    "LogitsProcessor",
    "Metrics",
    "Ranked",
    "RequestOutput",
    "SamplingParams",
    "Timings",
    "TokenScores",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
]

LogitsProcessor = Callable[[list[int], NDArray[np.float32]], Optional[NDArray[np.float32]]]
"""Gets the tokens of the answer so far and the logits of the next one, and changes them in place or returns others. The
model waits for it on a thread of its own, so it must not ask the same model."""


@dataclass(slots=True)
class SamplingParams:
    """How tokens are chosen, and when an answer ends.

    The default of fields that are `None` comes from the model's files; if they have none, the likeliest token is taken.
    Requests check all fields.

    >>> SamplingParams(temperature=0.7, max_tokens=40).top_p is None
    True
    """

    n: int = 1
    """Answers to each prompt."""
    temperature: float | None = None
    """Lower is safer; 0 takes the likeliest token."""
    top_p: float | None = None
    """Draw from the likeliest tokens that together have this probability."""
    top_k: int | None = None
    """Draw from this many of the likeliest tokens; 0 draws from all."""
    min_p: float | None = None
    """Draw from tokens with at least this share of the likeliest one's probability."""
    repetition_penalty: float | None = None
    """Above 1, tokens of the prompt and the answer become less likely."""
    frequency_penalty: float | None = None
    """Subtracted from a token's logit for each time it is in the answer."""
    presence_penalty: float | None = None
    """Subtracted from the logits of tokens in the answer."""
    seed: int | None = None
    """The same seed gives the same answer. `None` draws one; `RequestOutput.seed` has it."""
    max_tokens: int | None = None
    """The most tokens of an answer; `None` is `max_new_tokens` of the configuration."""
    min_tokens: int = 0
    """The fewest tokens of an answer."""
    stop: str | Sequence[str] | None = None
    """Texts that end an answer; they are not part of it."""
    stop_token_ids: Sequence[int] | None = None
    """Tokens that end an answer."""
    ignore_eos: bool = False
    """Go on after the model's end-of-text token."""
    logprobs: int | None = None
    """Report the log-probability of each token and of this many of the likeliest tokens."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt. The model must be loaded with `enable_echo=True`."""
    logit_bias: Mapping[int, float] | None = None
    """Added to the logits of these tokens."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    cache_salt: str | None = None
    """With prefix caching, only requests of the same salt share pages."""
    json_schema: Any = None
    """Answers are JSON of this schema: an object or its text, a class of pydantic, a dataclass, a `TypedDict`, or another
    type. An answer has at most one form: this, `regex`, `grammar` or `choice`."""
    regex: str | None = None
    """Answers match this regular expression from start to end."""
    grammar: str | None = None
    """Answers follow this grammar, in GBNF or Lark."""
    choice: Sequence[str] | None = None
    """Answers are one of these texts."""
    disable_any_whitespace: bool = False
    """JSON of `json_schema` has no white space between its parts, so that models cannot go on with it."""
    disable_additional_properties: bool = False
    """Objects of `json_schema` have no further properties, wherever the schema does not say whether they may."""
    allowed_token_ids: Sequence[int] | None = None
    """The only tokens of answers. If a form leaves one continuation, that comes in any case."""
    bad_words: Sequence[str] | None = None
    """Texts that answers do not have, as the tokens that spell them."""
    logits_processors: Sequence[LogitsProcessor] | None = None
    """Called for each token, in this order. All requests wait for them, so that answers take longer. With
    `raw_logprobs`, `logprobs` are those before them."""
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"] = "raw_logprobs"
    """Which probabilities `logprobs` reports: the model's own, or those that the token was drawn by, after penalties,
    biases, masks, temperature and filters. Tokens that a filter left out are not among the latter."""

    def clone(self) -> SamplingParams:
        """A copy that can be changed, with its lists. Logits processors are the same objects.

        >>> params = SamplingParams(stop=["."])
        >>> params.clone() == params and params.clone().stop is not params.stop
        True
        """
        return copy.deepcopy(self, {id(one): one for one in self.logits_processors or ()})

    def _schema(self) -> Any:
        """The schema of answers."""
        if self.json_schema is None:
            return None
        schema = schema_of(self.json_schema)
        if self.disable_additional_properties or self.disable_any_whitespace:
            schema = json.loads(schema) if isinstance(schema, str) else schema
        if self.disable_additional_properties:
            schema = close_objects(schema)
        if self.disable_any_whitespace and isinstance(schema, Mapping):
            schema = {**schema, "x-guidance": {"whitespace_flexible": False}}
        return schema

    def _process_logits(self, generated: list[int], buffer: _perihelion.Buffer) -> None:
        logits: NDArray[np.float32] = _wrap(buffer).to_numpy()
        for process in self.logits_processors or ():
            changed = process(generated, logits)
            if changed is not None and changed is not logits:
                logits[...] = changed


def _hinting(init: Callable[..., None]) -> Callable[..., None]:
    """Says what keywords of other libraries are called."""
    known = {one.name for one in fields(SamplingParams)}

    @functools.wraps(init)
    def wrapper(self: SamplingParams, *args: Any, **kwargs: Any) -> None:
        keywords.refuse_unknown("SamplingParams", kwargs, known, keywords.SAMPLING)
        init(self, *args, **kwargs)

    return wrapper


setattr(SamplingParams, "__init__", _hinting(SamplingParams.__init__))


@dataclass(frozen=True)
class Logprob:
    """The log-probability of a token at its place."""

    logprob: float
    rank: int | None
    """1 for the likeliest token; `None` if it is not among the reported ones."""
    decoded_token: str


@dataclass(frozen=True)
class Usage:
    """Tokens that a request took."""

    prompt_tokens: int
    cached_tokens: int
    """The prompt tokens that the cache held already."""
    generated_tokens: int


@dataclass(frozen=True)
class Timings:
    """Seconds since a request was handed in."""

    queue: float | None
    """Until it first ran."""
    first_token: float | None
    total: float | None


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool, whose result the model waits for."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolCallDelta:
    """What is new of a call that is being made."""

    index: int
    """Which call of the answer."""
    id: str | None
    """The id, at the beginning of the call."""
    name: str | None
    """The function, at the beginning of the call."""
    arguments: str
    """More of the arguments' JSON."""


@dataclass(frozen=True)
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str = field(repr=True)
    """Without reasoning and calls, if it answers a conversation."""
    token_ids: list[int] = field(repr=False)
    logprobs: list[dict[int, Logprob]] | None = field(repr=False)
    cumulative_logprob: float | None = field(repr=False)
    finish_reason: str
    """ "stop", "length", or "tool_calls" if the model waits for the results of calls."""
    stop_reason: str | int | None
    """The stop string or stop token that ended it; `None` for the model's own end of text."""
    reasoning: str | None = None
    """The reasoning before the answer to a conversation."""
    tool_calls: list[ToolCall] = field(default_factory=list)

    @property
    def message(self) -> dict[str, Any]:
        """The answer as a message, with which a conversation goes on."""
        calls = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
            for call in self.tool_calls
        ]
        return {
            "role": "assistant",
            "content": self.text,
            **({"reasoning_content": self.reasoning} if self.reasoning else {}),
            **({"tool_calls": calls} if calls else {}),
        }


@dataclass(frozen=True)
class RequestOutput:
    """The answers to a prompt."""

    prompt: str | None
    """`None` if the prompt was tokens."""
    prompt_token_ids: list[int] = field(repr=False)
    prompt_logprobs: list[dict[int, Logprob] | None] | None = field(repr=False)
    outputs: list[CompletionOutput]
    usage: Usage
    timings: Timings = field(repr=False)
    seed: int

    @property
    def text(self) -> str:
        """The text of the first answer."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> list[int]:
        """The tokens of the first answer."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> str:
        """Why the first answer ended."""
        return self.outputs[0].finish_reason

    @property
    def logprobs(self) -> list[dict[int, Logprob]] | None:
        """The log-probabilities of the first answer, if they were asked for."""
        return self.outputs[0].logprobs

    @property
    def reasoning(self) -> str | None:
        """The reasoning of the first answer."""
        return self.outputs[0].reasoning

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of the first answer."""
        return self.outputs[0].tool_calls

    @property
    def message(self) -> dict[str, Any]:
        """The first answer as a message, with which a conversation goes on."""
        return self.outputs[0].message


@dataclass(frozen=True)
class Chunk:
    """A part of an answer: a token, or several if a task reads more slowly than the model writes."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None
    """Why the answer ended, in the last chunk."""
    stop_reason: str | int | None
    usage: Usage | None
    """What the request took, in the last chunk."""
    reasoning: str = ""
    """The new reasoning of an answer to a conversation."""
    tool_calls: list[ToolCall] = field(default_factory=list)
    """Calls that became whole."""
    tool_call_deltas: list[ToolCallDelta] = field(default_factory=list)
    """What is new of calls. A call that turns out to be none is text once more, and never among `tool_calls`."""


@dataclass(frozen=True)
class TokenScores:
    """How likely a model finds each token of a text."""

    text: str | None
    """`None` if tokens were given."""
    token_ids: list[int]
    logprobs: list[float | None]
    """Natural logarithms; the first token has none."""


@dataclass(frozen=True)
class Classification:
    """The scores of a text."""

    label: str
    """The label with the highest score; of equal ones, the first."""
    score: float
    scores: dict[str, float]
    """The score of each label."""


@dataclass(frozen=True)
class Ranked:
    """A document, and how well it answers a query."""

    index: int
    """Which of the documents it is."""
    score: float
    document: str


@dataclass(frozen=True)
class Histogram:
    """The values of a measure."""

    count: int
    sum: int
    at_most: dict[int, int]
    """Bounds, and how many values are not above them. Bounds are powers of two."""


@dataclass(frozen=True)
class Metrics:
    """Counts since a model was loaded, as they were between two steps."""

    started: int
    """Requests that started."""
    finished: dict[str, int]
    """Requests that ended: "stop", "length", "cancelled" and "failed"."""
    prompt_tokens: int
    cached_tokens: int
    """The prompt tokens that the cache held already."""
    generated_tokens: int
    queued_tokens: int
    """Tokens that waiting requests have to run first."""
    preemptions: int
    """How often a request gave its pages of the cache to others."""
    failed_steps: int
    step_tokens: Histogram
    """Tokens of each step."""
    step_prefill_tokens: Histogram
    """Tokens of prompts in each step."""
    step_microseconds: Histogram


def _metrics(counts: dict[str, Any]) -> Metrics:
    histograms = ["step_tokens", "step_prefill_tokens", "step_microseconds"]
    made = {name: Histogram(count, sum, dict(at_most)) for name in histograms for count, sum, at_most in [counts[name]]}
    return Metrics(**{**counts, **made})


def _logprobs(scores: list[Any], wanted: int | None) -> list[dict[int, Logprob]] | None:
    """The scores of an answer's tokens, if they were asked for."""
    return None if wanted is None else [_places(score) for score in scores]


def _places(score: Any) -> dict[int, Logprob]:
    chosen, top = score
    places = {token: Logprob(logprob, rank, text) for rank, (token, logprob, text) in enumerate(top, 1)}
    token, logprob, text = chosen
    return {token: places.get(token) or Logprob(logprob, None, text), **places}


def _finish(reason: Any, params: SamplingParams) -> tuple[str, str | int | None]:
    """The reason of an end, and the stop string or stop token."""
    name, index, token = reason
    if index is not None:
        return name, params.stop if isinstance(params.stop, str) else list(params.stop or ())[index]
    return name, token


def _calls(calls: list[Any], request: Any) -> list[ToolCall]:
    """Calls with ids, which follow from the request if the model gave none."""

    return [
        ToolCall(_call_id(index, own, request), name, json.loads(arguments)) for index, own, name, arguments in calls
    ]


def _deltas(deltas: list[Any], request: Any) -> list[ToolCallDelta]:
    """What is new of calls; their ids are those that they have once they are whole."""
    return [
        ToolCallDelta(index, None if name is None else _call_id(index, own, request), name, arguments)
        for index, own, name, arguments in deltas
    ]


def _call_id(index: int, own: str | None, request: Any) -> str:
    return own or f"call_{blake2s(repr((request, index)).encode(), digest_size=12).hexdigest()}"


def _completion(index: int, answer: Any, params: SamplingParams, request: Any) -> CompletionOutput:
    text, tokens, scores, _, reason, _, _, reasoning, calls = answer
    finish_reason, stop_reason = _finish(reason, params)
    logprobs = _logprobs(scores, params.logprobs)
    total = None if logprobs is None else sum(chosen[1] for chosen, _ in scores)
    tool_calls = _calls(calls, (index, *request)) if calls else []
    return CompletionOutput(
        index, text, tokens, logprobs, total, finish_reason, stop_reason, reasoning or None, tool_calls
    )


def _output(prompt: str | None, tokens: list[int], answers: list[Any], params: SamplingParams, seed: int) -> RequestOutput:
    """The answers to a prompt, as the native module gives them."""
    scores = answers[0][3]
    prompt_logprobs = [None if score is None else _places(score) for score in scores] if scores else None
    usages = [answer[5] for answer in answers]
    usage = Usage(usages[0][0], usages[0][1], sum(generated for _, _, generated in usages))
    times = [answer[6] for answer in answers]
    timings = Timings(_of(min, [t[0] for t in times]), _of(min, [t[1] for t in times]), _of(max, [t[2] for t in times]))
    outputs = [_completion(index, answer, params, (seed, tokens)) for index, answer in enumerate(answers)]
    return RequestOutput(prompt, tokens, prompt_logprobs, outputs, usage, timings, seed)


def _of(choose: Any, times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return choose(known) if known else None


def _chunk(chunk: Any, params: SamplingParams, request: Any) -> Chunk:
    text, tokens, scores, reason, usage, (reasoning, calls, deltas) = chunk
    finish_reason, stop_reason = (None, None) if reason is None else _finish(reason, params)
    logprobs = _logprobs(scores, params.logprobs)
    usage = None if usage is None else Usage(*usage)
    # The constructor of a frozen class sets field by field, which takes twice as long: there is a chunk for each token.
    made = object.__new__(Chunk)
    made.__dict__.update(
        text=text,
        token_ids=tokens,
        logprobs=logprobs,
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        usage=usage,
        reasoning=reasoning,
        tool_calls=_calls(calls, request) if calls else [],
        tool_call_deltas=_deltas(deltas, request) if deltas else [],
    )
    return made
