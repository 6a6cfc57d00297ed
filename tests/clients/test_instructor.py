"""Instructor, which makes objects of answers."""

import asyncio
from enum import Enum
from typing import Literal

import instructor
import pytest
from instructor import Mode
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, ConfigDict, Field

MODEL = "storyteller"
OPTIONS = {"model": MODEL, "max_tokens": 200, "seed": 1, "temperature": 0.0, "max_retries": 0}


class Closed(BaseModel):
    # The built-in model would add fields for ever.
    model_config = ConfigDict(extra="forbid")


class Person(Closed):
    """A person of a story."""

    name: Literal["Anna", "Ben"]
    age: int = Field(ge=0, le=99)


class Mood(str, Enum):
    happy = "happy"
    sad = "sad"


class Story(Closed):
    mood: Mood
    hero: Person


def ask(text):
    return [{"role": "user", "content": text}]


@pytest.fixture(params=[Mode.JSON_SCHEMA, Mode.TOOLS, Mode.TOOLS_STRICT], ids=lambda mode: mode.name)
def client(request, base_url):
    return instructor.from_openai(OpenAI(base_url=base_url, api_key="none"), mode=request.param)


@pytest.fixture
def of_schema(base_url):
    return instructor.from_openai(OpenAI(base_url=base_url, api_key="none"), mode=Mode.JSON_SCHEMA)


def test_answers_are_objects(client):
    person = client.chat.completions.create(response_model=Person, messages=ask("Who is it?"), **OPTIONS)
    assert isinstance(person, Person) and person.name in ("Anna", "Ben")


def test_objects_nest(client):
    story = client.chat.completions.create(response_model=Story, messages=ask("Tell me a story."), **OPTIONS)
    assert isinstance(story, Story) and isinstance(story.hero, Person)


def test_answers_come_with_their_completion(of_schema):
    person, completion = of_schema.chat.completions.create_with_completion(
        response_model=Person, messages=ask("Who is it?"), **OPTIONS
    )
    assert Person.model_validate_json(completion.choices[0].message.content).model_dump() == person.model_dump()
    assert completion.usage.completion_tokens > 0


def test_parts_of_objects_come_as_they_are_made(of_schema):
    parts = list(of_schema.chat.completions.create_partial(response_model=Person, messages=ask("Who is it?"), **OPTIONS))
    assert len(parts) > 1
    whole = of_schema.chat.completions.create(response_model=Person, messages=ask("Who is it?"), **OPTIONS)
    assert parts[-1].model_dump() == whole.model_dump()


def test_tasks_ask_at_once(base_url):
    async def main():
        client = instructor.from_openai(AsyncOpenAI(base_url=base_url, api_key="none"), mode=Mode.JSON_SCHEMA)
        create = client.chat.completions.create
        return await asyncio.gather(
            *[create(response_model=Person, messages=ask("Who is it?"), **OPTIONS) for _ in range(4)]
        )

    people = asyncio.run(main())
    assert len(people) == 4 and len({person.name for person in people}) == 1
