"""Conversations: tool calls, reasoning, and how they go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from conftest import wait_until_empty
from perihelion import LLM, SamplingParams
from perihelion.pipelines import Chunk, RequestOutput, ToolCall

MESSAGES = [{"role": "user", "content": "How is the weather in Oslo?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of some days.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
PARAMS = SamplingParams(temperature=1, seed=3, max_tokens=200)
# The prompt ends inside the reasoning.
THINKING = """{% for message in messages %}{{ message.content }}
{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<think>
{% endif %}"""


@pytest.fixture(scope="module")
def chat() -> Iterator[LLM]:
    with LLM(chat_template="chatml") as llm:
        yield llm


@pytest.fixture(scope="module")
def thinker() -> Iterator[LLM]:
    with LLM(chat_template=THINKING) as llm:
        yield llm


def check_call(call: ToolCall) -> None:
    assert call.name == "weather" and {*call.arguments} == {"city", "days"}
    assert call.arguments["city"] in ("Oslo", "Rome") and 1 <= call.arguments["days"] <= 9


def test_a_call_that_is_required_comes(chat: LLM) -> None:
    output = chat.chat(MESSAGES, PARAMS, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False)[0]
    (call,) = output.tool_calls
    check_call(call)
    assert (output.text, output.finish_reason, output.reasoning) == ("", "tool_calls", None)
    named = {"type": "function", "function": {"name": "weather"}}
    again = chat.chat(MESSAGES, PARAMS, tools=[WEATHER], tool_choice=named, parallel_tool_calls=False)[0]
    assert again.tool_calls == [call]
    message = output.message
    assert message["tool_calls"][0]["id"] == call.id and call.id.startswith("call_")
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == call.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    assert chat.chat([*MESSAGES, message, result], PARAMS)[0].tool_calls == []


def test_streams_give_the_same_calls(chat: LLM) -> None:
    options: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
    whole = chat.chat(MESSAGES, PARAMS, **options)[0]
    assert whole.tool_calls

    async def read() -> list[Chunk]:
        return [chunk async for chunk in chat.astream_chat(MESSAGES, PARAMS, **options)]

    for chunks in (list(chat.stream_chat(MESSAGES, PARAMS, **options)), asyncio.run(read())):
        assert [call for chunk in chunks for call in chunk.tool_calls] == whole.tool_calls
        (call,) = whole.tool_calls
        deltas = [delta for chunk in chunks for delta in chunk.tool_call_deltas]
        assert (deltas[0].id, deltas[0].name, {delta.index for delta in deltas}) == (call.id, call.name, {0})
        assert all((delta.id, delta.name) == (None, None) for delta in deltas[1:])
        assert json.loads("".join(delta.arguments for delta in deltas)) == call.arguments
        assert "".join(chunk.text for chunk in chunks) == whole.text
        assert chunks[-1].finish_reason == whole.finish_reason == "tool_calls"
        assert chunks[-1].usage == whole.usage
        assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
    # The arguments come while they are made.
    chunks = list(chat.stream_chat(MESSAGES, PARAMS, **options))
    assert sum(bool(chunk.tool_call_deltas) for chunk in chunks) > 2
    wait_until_empty(chat)


def test_functions_of_python_are_tools(chat: LLM) -> None:
    def move(direction: Literal["up", "down"], steps: int = 1) -> None:
        """Moves the robot."""

    output = chat.chat(MESSAGES, PARAMS, tools=[move], tool_choice="required", parallel_tool_calls=False)[0]
    (call,) = output.tool_calls
    assert call.name == "move" and call.arguments["direction"] in ("up", "down")


def test_tools_that_nothing_reads_are_a_warning(chat: LLM) -> None:
    with pytest.warns(UserWarning, match="no effect with this model: tools"):
        output = chat.chat(MESSAGES, PARAMS, tools=[WEATHER])[0]
    assert output.tool_calls == [] and output.finish_reason in ("stop", "length")


def test_reasoning_is_apart_from_the_text_and_has_a_budget(thinker: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=40)
    output = thinker.chat(MESSAGES, params, thinking_budget=6)[0]
    assert output.reasoning and output.text and "think>" not in output.reasoning + output.text
    assert len(thinker.tokenizer.encode(output.reasoning, add_special_tokens=False)) <= 6
    chunks = list(thinker.stream_chat(MESSAGES, params, thinking_budget=6))
    assert "".join(chunk.reasoning for chunk in chunks) == output.reasoning
    assert "".join(chunk.text for chunk in chunks) == output.text
    none = thinker.chat(MESSAGES, params, thinking_budget=0)[0]
    assert none.reasoning is None and none.text
    # It goes on until the limit without a budget.
    endless = thinker.chat(MESSAGES, params)[0]
    assert endless.text == "" and endless.reasoning and endless.finish_reason == "length"
    assert output.message["reasoning_content"] == output.reasoning


def test_the_form_is_that_of_the_text(thinker: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=60, choice=["yes", "no"])
    output = thinker.chat(MESSAGES, params, thinking_budget=5)[0]
    assert output.reasoning and output.text in ("yes", "no")


def test_several_conversations_and_asyncio(chat: LLM) -> None:
    others = [MESSAGES, [{"role": "user", "content": "Hello"}]]
    expected = [output.text for output in chat.chat(others, PARAMS)]

    async def answer() -> tuple[RequestOutput, list[RequestOutput]]:
        return await chat.achat(MESSAGES, PARAMS), await chat.achat(others, PARAMS)

    one, both = asyncio.run(answer())
    assert one.text == expected[0] and [output.text for output in both] == expected


class Dumped:
    """A message as clients of APIs have it."""

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        assert exclude_none
        return dict(MESSAGES[0])


def test_messages_are_dicts_or_objects_that_become_dicts(chat: LLM) -> None:
    assert chat.chat([Dumped()], PARAMS)[0].text == chat.chat(MESSAGES, PARAMS)[0].text  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"tools": WEATHER}, TypeError, "tools: got dict, expected a list of dicts"),
        ({"tools": ["weather"]}, TypeError, "tools: got a list with str"),
        ({"tools": [{"type": "function", "function": {}}]}, ValueError, r"tools\[0\].function.name"),
        ({"tools": [WEATHER], "tool_choice": {"function": {"name": "time"}}}, ValueError, 'no tool is named "time"'),
        ({"tool_choice": "required"}, ValueError, "tool_choice: no tools are given"),
        ({"tool_choice": 5}, TypeError, "tool_choice: got int"),
        ({"thinking_budget": -1}, ValueError, "thinking_budget is -1: give a whole number, at least 0"),
        ({"reasoning_effort": "huge"}, ValueError, "reasoning_effort is `huge`: give none, minimal"),
        ({"enable_thinking": 1}, TypeError, "enable_thinking: got int, expected True or False"),
        ({"chat_template_kwargs": [1]}, TypeError, "chat_template_kwargs: got list"),
        ({"documents": "text"}, TypeError, "documents: got str"),
    ],
)
def test_arguments_that_cannot_be(
    chat: LLM, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        chat.chat(MESSAGES, PARAMS, **options)


@pytest.mark.parametrize("messages", ["Hello", {"role": "user", "content": "Hello"}, 5, [["Hello"]], [5]])
def test_messages_that_cannot_be(chat: LLM, messages: Any) -> None:
    with pytest.raises(TypeError, match="messages: got "):
        chat.chat(messages)
