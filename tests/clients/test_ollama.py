"""The client of Ollama."""

import asyncio
import json

import pytest
from ollama import AsyncClient, Client, ResponseError

MODEL = "storyteller"
PROMPT = "Once upon a time"
OPTIONS = {"num_predict": 12, "temperature": 0}
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["age"],
    "additionalProperties": False,
}


@pytest.fixture
def client(server):
    return Client(host=server)


def ask(text):
    return [{"role": "user", "content": text}]


def test_generate_and_its_stream_are_the_same(client):
    whole = client.generate(MODEL, PROMPT, options=OPTIONS)
    parts = list(client.generate(MODEL, PROMPT, options=OPTIONS, stream=True))
    assert whole.response and "".join(part.response for part in parts) == whole.response
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert whole.done_reason == parts[-1].done_reason == "length"
    assert whole.eval_count == parts[-1].eval_count == 12


def test_chat_and_its_stream_are_the_same(client):
    whole = client.chat(MODEL, ask(PROMPT), options=OPTIONS)
    parts = list(client.chat(MODEL, ask(PROMPT), options=OPTIONS, stream=True))
    assert whole.message.role == "assistant" and whole.message.content
    assert "".join(part.message.content for part in parts) == whole.message.content


def test_a_conversation_goes_on(client):
    messages = [{"role": "system", "content": "Tell stories."}, *ask(PROMPT)]
    answer = client.chat(MODEL, messages, options=OPTIONS)
    messages += [answer.message, *ask("What then?")]
    more = client.chat(MODEL, messages, options=OPTIONS)
    assert more.message.content and more.prompt_eval_count > answer.prompt_eval_count


def test_seeds_decide_what_is_drawn(client):
    drawn = lambda seed: client.generate(MODEL, PROMPT, options={"num_predict": 30, "temperature": 1, "seed": seed}).response
    assert drawn(1) == drawn(1) != drawn(2)


def test_durations_add_up(client):
    answer = client.generate(MODEL, PROMPT, options=OPTIONS)
    assert answer.total_duration >= answer.load_duration + answer.prompt_eval_duration + answer.eval_duration > 0


def test_tasks_ask_at_once(server):
    async def main():
        client = AsyncClient(host=server)
        answers = await asyncio.gather(*[client.generate(MODEL, PROMPT, options=OPTIONS) for _ in range(8)])
        text = ""
        async for part in await client.chat(MODEL, ask(PROMPT), options=OPTIONS, stream=True):
            text += part.message.content
        return {answer.response for answer in answers}, text

    texts, chat = asyncio.run(main())
    assert len(texts) == 1 and chat


def test_answers_have_the_form_of_a_schema(client):
    answer = client.chat(MODEL, ask("How old is the king?"), format=SCHEMA, options={"num_predict": 64, "temperature": 0})
    assert 0 <= json.loads(answer.message.content)["age"] <= 99


def test_functions_are_called(client):
    def weather(city: str) -> str:
        """The weather in a city.

        Args:
            city: its name
        """
        return f"sunny in {city}"

    answer = client.chat(MODEL, ask("What is the weather in Rome?"), tools=[weather], options={"num_predict": 60})
    for call in answer.message.tool_calls or []:
        assert call.function.name == "weather" and isinstance(call.function.arguments, dict)
    assert answer.message.content or answer.message.tool_calls


def test_texts_are_embedded(client, encoder):
    both = client.embed(encoder, ["a cat", "a dog"])
    assert [len(vector) for vector in both.embeddings] == [384, 384] and both.prompt_eval_count > 0
    assert client.embed(encoder, "a cat").embeddings[0] == pytest.approx(both.embeddings[0], abs=1e-5)
    assert len(client.embeddings(encoder, "a cat").embedding) == 384


def test_models_are_listed_and_shown(client):
    assert MODEL in [model.model for model in client.list().models]
    shown = client.show(MODEL)
    assert shown.details.family and "completion" in shown.capabilities
    client.generate(MODEL, PROMPT, options={"num_predict": 1})
    assert MODEL in [model.model for model in client.ps().models]


def test_presets_are_made_copied_and_deleted(client):
    steps = list(client.create("bard", from_=MODEL, system="Tell stories.", parameters={"num_predict": 7}, stream=True))
    assert steps[-1].status == "success"
    assert client.copy("bard", "bard-copy").status == "success"
    assert client.generate("bard-copy", PROMPT).eval_count == 7
    assert client.show("bard").details.parent_model == MODEL
    for name in ["bard", "bard-copy"]:
        assert client.delete(name).status == "success"
    assert "bard" not in [model.model for model in client.list().models]
    with pytest.raises(ResponseError, match="was started with storyteller"):
        client.delete(MODEL)


def test_errors_are_those_of_the_client(client):
    with pytest.raises(ResponseError, match="there is no model") as missing:
        client.generate("nothing", PROMPT)
    assert missing.value.status_code == 404
    with pytest.raises(ResponseError, match="options.top_p is 7") as wrong:
        client.generate(MODEL, PROMPT, options={"top_p": 7})
    assert wrong.value.status_code == 400
