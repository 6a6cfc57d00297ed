"""The `openai` package."""

import asyncio

import openai
import pytest

PROMPT = [{"role": "user", "content": "Once upon a time"}]


@pytest.fixture
def client(base_url):
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)


def chat(client, **options):
    return client.chat.completions.create(model="storyteller", messages=PROMPT, **{"max_tokens": 20, "seed": 1} | options)


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
