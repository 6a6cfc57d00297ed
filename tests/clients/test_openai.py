"""The `openai` package."""

import asyncio

import json

import openai
import pytest

PROMPT = [{"role": "user", "content": "Once upon a time"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Köln"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}]
# The built-in model knows no tools: it calls one because it must.
MUST = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200}


@pytest.fixture
def client(base_url):
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)


def chat(client, **options):
    defaults = {"messages": PROMPT, "max_tokens": 20, "seed": 1}
    return client.chat.completions.create(model="storyteller", **defaults | options)


def test_models_are_listed_and_shown(client):
    ids = [model.id for model in client.models.list()]
    assert "storyteller" in ids
    assert client.models.retrieve("storyteller").object == "model"


def test_chat(client):
    answer = chat(client)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 20


def test_a_chat_stream_gives_the_text_of_the_answer(client):
    whole = chat(client, n=2, temperature=0.9)
    texts, usage = ["", ""], None
    for chunk in chat(client, n=2, temperature=0.9, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_the_stream_helper_collects_the_answer(client):
    options = {"max_tokens": 100, "seed": 1, "stop": "."}
    with client.chat.completions.stream(model="storyteller", messages=PROMPT, **options) as stream:
        events = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in events and "content.done" in events
    assert final.choices[0].message.content == chat(client, **options).choices[0].message.content


def test_the_same_seed_gives_the_same_answer(client):
    one, two, other = (chat(client, seed=seed, temperature=1.0).choices[0].message.content for seed in (5, 5, 6))
    assert one == two != other


def test_log_probabilities(client):
    entries = chat(client, logprobs=True, top_logprobs=3, max_tokens=4).choices[0].logprobs.content
    assert len(entries) == 4
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 3 for entry in entries)
    text = b"".join(bytes(entry.bytes) for entry in entries).decode()
    assert text == chat(client, max_tokens=4).choices[0].message.content


def test_stop_strings_and_bias(client):
    stopped = chat(client, stop=[" a"], max_tokens=100).choices[0]
    assert stopped.finish_reason == "stop" and " a" not in stopped.message.content
    free = chat(client, logit_bias={}).choices[0].message.content
    assert chat(client, logit_bias={"300": 100}).choices[0].message.content != free


def test_completions_with_several_prompts_and_echo(client):
    answer = client.completions.create(model="storyteller", prompt=["Once", "There was"], max_tokens=5, echo=True, logprobs=1, seed=1)
    assert [choice.text.startswith(prompt) for choice, prompt in zip(answer.choices, ["Once", "There was"])] == [True, True]
    assert answer.choices[0].logprobs.token_logprobs[0] is None
    streamed = client.completions.create(model="storyteller", prompt="Once", max_tokens=5, seed=1, stream=True)
    assert "Once" + "".join(chunk.choices[0].text for chunk in streamed) == answer.choices[0].text


def test_embeddings(client, encoder):
    answer = client.embeddings.create(model=encoder, input=["a cat", "a kitten", "a car"])
    cat, kitten, car = (row.embedding for row in answer.data)
    cosine = lambda a, b: sum(x * y for x, y in zip(a, b))
    assert len(cat) == 384 and cosine(cat, kitten) > cosine(cat, car)


def test_errors_have_status_code_and_parameter(client):
    with pytest.raises(openai.BadRequestError) as wrong:
        chat(client, temperature=-1)
    assert wrong.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-4o", messages=PROMPT)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="storyteller", messages=[{"role": "user", "content": "word " * 9999}])
    assert long.value.code == "context_length_exceeded"


def test_many_at_once_get_what_each_gets_alone(client, base_url):
    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none") as client:
            return await asyncio.gather(*(chat(client, seed=seed, temperature=1.0) for seed in range(16)))

    together = [answer.choices[0].message.content for answer in asyncio.run(all_of_them())]
    alone = [chat(client, seed=seed, temperature=1.0).choices[0].message.content for seed in range(16)]
    assert together == alone


def test_a_stream_can_be_left(client):
    stream = chat(client, stream=True, max_tokens=400)
    next(iter(stream))
    stream.close()
    assert chat(client, max_tokens=1).usage.completion_tokens == 1


def test_a_required_tool_is_called(client):
    choice = chat(client, **MUST).choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.id.startswith("call_") and call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Köln")
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    assert chat(client, messages=[*PROMPT, choice.message, result]).choices[0].message.content


def test_streamed_calls_are_those_of_the_answer(client):
    whole = chat(client, **MUST).choices[0].message.tool_calls[0].function
    name, arguments, ids = "", "", []
    for chunk in chat(client, stream=True, **MUST):
        for call in chunk.choices[0].delta.tool_calls or []:
            assert call.index == 0
            ids += [call.id] if call.id else []
            name += call.function.name or ""
            arguments += call.function.arguments
    assert (name, arguments, len(ids)) == (whole.name, whole.arguments, 1)


def test_the_stream_helper_parses_calls(client):
    with client.chat.completions.stream(model="storyteller", messages=PROMPT, seed=1, **MUST) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    assert final.choices[0].message.tool_calls[0].function.parsed_arguments["city"] in ("Rome", "Köln")


def test_responses_call_and_go_on(client):
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    options = {"model": "storyteller", "tools": tools, "tool_choice": "required", "max_output_tokens": 200}
    response = client.responses.create(input="Weather?", parallel_tool_calls=False, **options)
    (call,) = response.output
    assert call.type == "function_call" and json.loads(call.arguments)["city"] in ("Rome", "Köln")
    result = [{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    options |= {"tool_choice": "none", "max_output_tokens": 10}
    assert client.responses.create(input=result, previous_response_id=response.id, **options).output_text


def test_streamed_responses_have_the_items_of_the_end(client):
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": True}]
    options = {"model": "storyteller", "input": "Weather?", "tools": tools, "tool_choice": "required"}
    with client.responses.stream(max_output_tokens=200, parallel_tool_calls=False, **options) as stream:
        arguments = "".join(event.delta for event in stream if event.type == "response.function_call_arguments.delta")
        final = stream.get_final_response()
    assert arguments == final.output[0].arguments
