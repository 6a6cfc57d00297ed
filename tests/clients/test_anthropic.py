"""The `anthropic` package, and LangChain on top of it."""

import asyncio
import json

import anthropic
import pytest
from langchain_anthropic import ChatAnthropic

PROMPT = [{"role": "user", "content": "Once upon a time"}]


@pytest.fixture
def client(server):
    return anthropic.Anthropic(base_url=server, api_key="none", max_retries=0)


def message(client, seed=1, temperature=None, **options):
    # Fields that the package does not know.
    extra = {"seed": seed} | ({} if temperature is None else {"temperature": temperature})
    options = {"model": "storyteller", "messages": PROMPT, "max_tokens": 20} | options
    return client.messages.create(**options, extra_body=extra)


TOOL = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Köln"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
# The built-in model knows no tools: it calls one because it must.
MUST = {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "max_tokens": 200}


def text(answer):
    return "".join(block.text for block in answer.content)


def test_messages(client):
    answer = message(client)
    assert answer.role == "assistant" and answer.stop_reason == "max_tokens"
    assert text(answer) and answer.usage.output_tokens == 20


def test_a_stream_gives_the_text_of_the_answer(client):
    events = list(message(client, stream=True))
    kinds = [event.type for event in events]
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    streamed = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert streamed == text(message(client))


def test_the_stream_helper_collects_the_message(client):
    with client.messages.stream(model="storyteller", messages=PROMPT, max_tokens=20, extra_body={"seed": 1}) as stream:
        streamed = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert streamed == text(final) == text(message(client))
    assert final.usage.output_tokens == 20


def test_stop_sequences_are_named(client):
    answer = message(client, stop_sequences=[" a", " the"], max_tokens=200)
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence in (" a", " the")
    assert answer.stop_sequence not in text(answer)


def test_tokens_are_counted(client):
    count = client.messages.count_tokens(model="storyteller", messages=PROMPT).input_tokens
    usage = message(client).usage
    assert count == usage.input_tokens + usage.cache_read_input_tokens


def test_an_answer_is_continued(client):
    whole = text(message(client, temperature=0))
    begun = [*PROMPT, {"role": "assistant", "content": whole[: len(whole) // 2]}]
    assert text(message(client, messages=begun, temperature=0))


def test_system_prompts_and_blocks(client):
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Once upon"}, {"type": "text", "text": "a time"}]}]
    assert text(message(client, messages=blocks, system="Tell a story."))
    assert text(message(client, system=[{"type": "text", "text": "Tell a story."}]))


def test_cached_tokens_are_counted(client):
    long = [{"role": "user", "content": "There once was a king who had three daughters. " * 20}]
    first = message(client, messages=long, max_tokens=1)
    second = message(client, messages=long, max_tokens=1)
    assert second.usage.cache_read_input_tokens > 100
    assert text(first) == text(second)


def test_errors_have_the_shape_of_the_api(client):
    with pytest.raises(anthropic.NotFoundError) as unknown:
        message(client, model="claude")
    assert unknown.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError):
        message(client, temperature=-1)
    with pytest.raises(anthropic.BadRequestError):
        message(client, messages=[{"role": "user", "content": "word " * 9999}])


def test_many_at_once_get_what_each_gets_alone(client, server):
    options = lambda seed: {"seed": seed, "temperature": 1.0}

    async def all_of_them():
        async with anthropic.AsyncAnthropic(base_url=server, api_key="none") as client:
            return await asyncio.gather(*(message(client, **options(seed)) for seed in range(8)))

    together = [text(answer) for answer in asyncio.run(all_of_them())]
    assert together == [text(message(client, **options(seed))) for seed in range(8)]


def test_langchain_invokes_and_streams(server):
    model = ChatAnthropic(model="storyteller", base_url=server, api_key="none", max_tokens=12, temperature=0)
    whole = model.invoke("Once upon a time")
    assert whole.usage_metadata["output_tokens"] == 12
    assert "".join(chunk.text for chunk in model.stream("Once upon a time")) == whole.content


def test_a_required_tool_is_called(client):
    answer = message(client, **MUST)
    (block,) = answer.content
    assert answer.stop_reason == "tool_use" and block.type == "tool_use"
    assert block.input["city"] in ("Rome", "Köln")
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "rain"}
    turns = [*PROMPT, {"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    assert text(message(client, messages=turns))


def test_streamed_calls_are_those_of_the_answer(client):
    whole = message(client, **MUST).content[0]
    with client.messages.stream(model="storyteller", messages=PROMPT, extra_body={"seed": 1}, **MUST) as stream:
        partial = "".join(event.partial_json for event in stream if event.type == "input_json")
        (block,) = stream.get_final_message().content
    assert (block.name, block.input) == (whole.name, whole.input)
    assert partial


AGE = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("field", ["output_config", "output_format"])
def test_answers_follow_a_schema(client, field):
    format = {"type": "json_schema", "schema": AGE}
    extra = {"output_config": {"format": format}} if field == "output_config" else {"output_format": format}
    answer = client.messages.create(model="storyteller", messages=PROMPT, max_tokens=50, extra_body=extra)
    assert answer.stop_reason == "end_turn" and 0 <= json.loads(text(answer))["age"] <= 99
