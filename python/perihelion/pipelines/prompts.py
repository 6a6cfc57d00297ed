"""Prompts and conversations as programs write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isfunction, ismethod
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Union

from perihelion import _perihelion

from . import keywords
from .schemas import function_schema
from .tokenizer import token_list

if TYPE_CHECKING:
    from typing_extensions import NotRequired

__all__ = ["ChatOptions", "Message", "Prompt", "Prompts", "TextPrompt", "TokensPrompt", "Tool"]


class TextPrompt(TypedDict):
    """A text."""

    prompt: str


class TokensPrompt(TypedDict):
    """Tokens, and the text that they are of."""

    prompt_token_ids: Sequence[int]
    prompt: NotRequired[str]


Prompt = Union[str, Sequence[int], TextPrompt, TokensPrompt]
"""A text, or its tokens; or a dict with `prompt` or `prompt_token_ids`."""

Prompts = Union[
    list[str], list[list[int]], list[TextPrompt], list[TokensPrompt], list[Prompt], tuple[Prompt, ...]
]
"""Several prompts."""

Message = Mapping[str, Any]
"""A part of a conversation: `{"role": "user", "content": "Hello"}`."""

Tool = Union[Mapping[str, Any], Callable[..., Any]]
"""A function that a model may call: in the shape of the OpenAI API, or a function of Python with annotations."""


class ChatOptions(TypedDict, total=False):
    """Keywords of `LLM.chat`, which explains them."""

    tools: Sequence[Tool] | None
    documents: Sequence[Mapping[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    chat_template_kwargs: Mapping[str, Any] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool
    enable_thinking: bool | None
    reasoning_effort: str | None
    thinking_budget: int | None


class ReadyPrompt(NamedTuple):
    """A prompt as the native module takes it."""

    text: str | None
    tokens: list[int]
    native: list[int] | _perihelion.Turn
    error: Exception | None = None
    """The error of a prompt that was refused."""


_KEYS = ("prompt", "prompt_token_ids")
_EXPECTED = "expected a text, a list of tokens, or a dict with prompt or prompt_token_ids"


def is_one(prompts: Any) -> bool:
    """Whether this is one prompt, and not a list of prompts."""
    if isinstance(prompts, (str, bytes, bytearray, Mapping)):
        return True
    # A list of numbers is the tokens of one prompt.
    return isinstance(prompts, Iterable) and isinstance(next(iter(prompts), None), Integral)


def prompt_list(prompts: Any) -> list[Any]:
    """One prompt or several as a list.

    Raises:
        TypeError: these are no prompts.
    """
    if is_one(prompts):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise TypeError(f"prompts: got {type(prompts).__name__}, {_EXPECTED}; or a list of such")
    return list(prompts)


def parts(prompt: Any) -> tuple[str | None, list[int] | None]:
    """The text and the tokens of a prompt, as far as they are given; at least one of them is.

    Raises:
        TypeError: this is no prompt.
    """
    if isinstance(prompt, str):
        return prompt, None
    if isinstance(prompt, (bytes, bytearray, memoryview)):
        raise TypeError(f"prompt: got {type(prompt).__name__}, expected a text: decode it first")
    if isinstance(prompt, Mapping):
        return _of_dict(prompt)
    if not isinstance(prompt, Iterable):
        raise TypeError(f"prompts: got a list with {type(prompt).__name__}, {_EXPECTED}")
    return None, token_list("prompt", prompt)


def ready(native: _perihelion.Generator, prompt: Any) -> ReadyPrompt:
    """A prompt with its tokens.

    Raises:
        TypeError: this is no prompt.
    """
    text, tokens = parts(prompt)
    if tokens is None:
        tokens = native.encode(text or "", True, True)
    return ReadyPrompt(text, tokens, tokens)


def _of_dict(prompt: Mapping[str, Any]) -> tuple[str | None, list[int] | None]:
    given = {key: value for key, value in prompt.items() if value is not None}
    for key in given:
        if key not in _KEYS:
            raise TypeError(f"prompt: got a dict with {key!r}, expected prompt or prompt_token_ids")
    if not given:
        raise TypeError("prompt: got a dict with neither prompt nor prompt_token_ids")
    text = keywords.text("prompt", given.get("prompt"), optional=True)
    tokens = given.get("prompt_token_ids")
    return text, None if tokens is None else token_list("prompt_token_ids", tokens)


def conversations(messages: Any, *, several: bool = False) -> list[Any]:
    """One conversation or several as a list.

    Raises:
        TypeError: these are no conversations.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: got {type(messages).__name__}, expected a list of messages, which are dicts")
    listed = list(messages)
    if not several and listed and _message(listed[0]) is not None:
        return [messages]
    return [_conversation(one) for one in listed] if several else listed


def _conversation(messages: Any) -> list[Any]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Iterable):
        raise TypeError(f"messages: got a list with {type(messages).__name__}, expected messages, which are dicts")
    listed = [_message(one) for one in messages]
    for one, given in zip(listed, messages):
        if one is None:
            raise TypeError(f"messages: got a list with {type(given).__name__}, expected messages, which are dicts")
    return listed


def _message(message: Any) -> Mapping[str, Any] | None:
    """A message as a dict; `None` if this is not a message."""
    if isinstance(message, Mapping):
        return dict(message)
    # Clients of APIs give messages as objects of pydantic.
    dump: Any = getattr(message, "model_dump", None)
    return None if dump is None else dict(dump(exclude_none=True))


def turn_fields(
    *,
    tools: Any,
    documents: Any,
    add_generation_prompt: Any,
    continue_final_message: Any,
    variables: Any,
    tool_choice: Any = None,
    parallel_tool_calls: Any = True,
    enable_thinking: Any = None,
    reasoning_effort: Any = None,
    thinking_budget: Any = None,
) -> dict[str, Any]:
    """The options of a conversation's answer, as the native module takes them.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: an argument cannot have this value.
    """
    if variables is not None and not isinstance(variables, Mapping):
        raise TypeError(f"chat_template_kwargs: got {type(variables).__name__}, expected a dict or None")
    if not (tool_choice is None or isinstance(tool_choice, (str, Mapping))):
        raise TypeError(f"tool_choice: got {type(tool_choice).__name__}, expected a text, a dict or None")
    return {
        "tools": None if tools is None else [_tool(one) for one in _objects("tools", tools)],
        "documents": None if documents is None else [dict(one) for one in _objects("documents", documents)],
        "add_generation_prompt": keywords.flag("add_generation_prompt", add_generation_prompt),
        "continue_final_message": keywords.flag("continue_final_message", continue_final_message),
        "variables": dict(variables or {}),
        "tool_choice": tool_choice,
        "parallel_tool_calls": keywords.flag("parallel_tool_calls", parallel_tool_calls),
        "enable_thinking": keywords.flag("enable_thinking", enable_thinking, optional=True),
        "reasoning_effort": keywords.text("reasoning_effort", reasoning_effort, optional=True),
        "thinking_budget": keywords.whole("thinking_budget", thinking_budget, 0, optional=True),
    }


def _objects(name: str, given: Any) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"{name}: got {type(given).__name__}, expected a list of dicts or None")
    listed = list(given)
    for one in listed:
        if not (isinstance(one, Mapping) or name == "tools" and (isfunction(one) or ismethod(one))):
            raise TypeError(f"{name}: got a list with {type(one).__name__}, expected dicts")
    return listed


def _tool(tool: Any) -> dict[str, Any]:
    return dict(tool) if isinstance(tool, Mapping) else function_schema(tool)
