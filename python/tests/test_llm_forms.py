"""Answers of a given form: JSON of a schema, a regular expression, a grammar, a choice."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from conftest import wait_until_empty
from perihelion import LLM, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "likes": {"type": "array", "items": {"enum": ["gold", "bread"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
GBNF = 'root ::= "The " animal " sleeps."\nanimal ::= "fox" | "cat"'
LARK = 'start: "The " animal " sleeps."\nanimal: "fox" | "cat"'


def answers(llm: LLM, count: int = 4, **form: Any) -> list[str]:
    params = SamplingParams(n=count, temperature=2, seed=5, max_tokens=200, **form)
    outputs = llm.generate("Once upon a time", params)[0].outputs
    assert all(one.finish_reason == "stop" for one in outputs)
    return [one.text for one in outputs]


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA)], ids=["object", "text"])
def test_answers_are_json_of_the_schema(llm: LLM, schema: Any) -> None:
    people = [json.loads(text) for text in answers(llm, 8, json_schema=schema)]
    assert len({person["name"] for person in people}) > 1
    for person in people:
        assert list(person) == ["name", "age", "likes"] and len(person["name"]) <= 12
        assert isinstance(person["age"], int) and 0 <= person["age"] <= 150
        assert 1 <= len(person["likes"]) <= 3 and {*person["likes"]} <= {"gold", "bread"}


def test_answers_match_the_expression(llm: LLM) -> None:
    dates = answers(llm, regex=r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d")
    assert all(re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-[0-3]\d", date) for date in dates) and len({*dates}) > 1


@pytest.mark.parametrize("grammar", [GBNF, LARK], ids=["gbnf", "lark"])
def test_answers_follow_the_grammar(llm: LLM, grammar: str) -> None:
    assert {*answers(llm, 12, grammar=grammar)} == {"The fox sleeps.", "The cat sleeps."}


def test_answers_are_of_the_choice(llm: LLM) -> None:
    assert {*answers(llm, 12, choice=["yes", "no"])} == {"yes", "no"}
    assert "".join(chunk.text for chunk in llm.stream("Once", SamplingParams(choice=("moon",)))) == "moon"


@pytest.mark.parametrize(
    ("form", "error", "message"),
    [
        ({"json_schema": "{"}, ValueError, "json_schema: not JSON: "),
        ({"json_schema": {"items": {"$dynamicRef": "#a"}}}, ValueError, "json_schema at /items, keyword `$dynamicRef`: not supported"),
        ({"json_schema": {"minimum": float("nan")}}, ValueError, "json_schema: not JSON: "),
        ({"json_schema": {"type": object()}}, TypeError, "json_schema: Object of type object is not JSON serializable"),
        ({"regex": "("}, ValueError, "regex: "),
        ({"regex": b"a"}, TypeError, "regex: got bytes, expected a text or None"),
        ({"grammar": 'root ::= "a'}, ValueError, "grammar: "),
        ({"grammar": "start: missing"}, ValueError, "grammar: "),
        ({"choice": []}, ValueError, "choice: "),
        ({"choice": "yes"}, TypeError, "choice: got str, expected a list of texts, or None"),
        ({"regex": "a", "choice": ["a"]}, ValueError, "regex and choice are both given: an answer has one form"),
    ],
)
def test_invalid_forms_raise_before_a_token(
    form: dict[str, Any], error: type[Exception], message: str
) -> None:
    with LLM() as llm:
        for call in (llm.generate, llm.stream):
            with pytest.raises(error) as raised:
                call("Once", SamplingParams(**form))
            assert str(raised.value).startswith(message)
        assert (llm.metrics().started, llm.status()["waiting"]) == (0, 0)


def test_one_form_of_several_may_fail(llm: LLM) -> None:
    params = [SamplingParams(choice=["moon"]), SamplingParams(regex="(")]
    moon, wrong = llm.generate(["Once", "The fox"], params, on_error="return")
    assert not isinstance(moon, Exception) and moon.text == "moon"
    assert isinstance(wrong, ValueError) and str(wrong).startswith("prompt 2 of 2: regex: ")


def test_a_form_is_compiled_once(llm: LLM) -> None:
    many = {"enum": [f"{number:05}" for number in range(20_000)]}
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        assert json.loads(llm.generate("Once", SamplingParams(json_schema=many))[0].text) in many["enum"]
        seconds.append(time.perf_counter() - start)
    wait_until_empty(llm)
    assert seconds[1] < seconds[0], seconds
