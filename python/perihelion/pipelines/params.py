"""Parameters of requests, and their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Chunk",
    "CompletionOutput",
    "Histogram",
    "Logprob",
    "Metrics",
    "Ranked",
    "RequestOutput",
    "SamplingParams",
    "Timings",
    "TokenScores",
    "Usage",
]


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
    json_schema: Mapping[str, Any] | str | None = None
    """Answers are JSON of this schema, an object or its text. An answer has at most one form: this, `regex`, `grammar`
    or `choice`."""
    regex: str | None = None
    """Answers match this regular expression from start to end."""
    grammar: str | None = None
    """Answers follow this grammar, in GBNF or Lark."""
    choice: Sequence[str] | None = None
    """Answers are one of these texts."""


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
class CompletionOutput:
    """One answer to a prompt."""

    index: int
    text: str = field(repr=True)
    token_ids: list[int] = field(repr=False)
    logprobs: list[dict[int, Logprob]] | None = field(repr=False)
    cumulative_logprob: float | None = field(repr=False)
    finish_reason: str
    """ "stop" or "length"."""
    stop_reason: str | int | None
    """The stop string or stop token that ended it; `None` for the model's own end of text."""


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


@dataclass(frozen=True)
class TokenScores:
    """How likely a model finds each token of a text."""

    text: str | None
    """`None` if tokens were given."""
    token_ids: list[int]
    logprobs: list[float | None]
    """Natural logarithms; the first token has none."""


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


def _completion(index: int, answer: Any, params: SamplingParams) -> CompletionOutput:
    text, tokens, scores, _, reason, _, _ = answer
    finish_reason, stop_reason = _finish(reason, params)
    logprobs = _logprobs(scores, params.logprobs)
    total = None if logprobs is None else sum(chosen[1] for chosen, _ in scores)
    return CompletionOutput(index, text, tokens, logprobs, total, finish_reason, stop_reason)


def _output(prompt: str | None, tokens: list[int], answers: list[Any], params: SamplingParams, seed: int) -> RequestOutput:
    """The answers to a prompt, as the native module gives them."""
    scores = answers[0][3]
    prompt_logprobs = [None if score is None else _places(score) for score in scores] if scores else None
    usages = [answer[5] for answer in answers]
    usage = Usage(usages[0][0], usages[0][1], sum(generated for _, _, generated in usages))
    times = [answer[6] for answer in answers]
    timings = Timings(_of(min, [t[0] for t in times]), _of(min, [t[1] for t in times]), _of(max, [t[2] for t in times]))
    outputs = [_completion(index, answer, params) for index, answer in enumerate(answers)]
    return RequestOutput(prompt, tokens, prompt_logprobs, outputs, usage, timings, seed)


def _of(choose: Any, times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return choose(known) if known else None


def _chunk(chunk: Any, params: SamplingParams) -> Chunk:
    text, tokens, scores, reason, usage = chunk
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
    )
    return made
