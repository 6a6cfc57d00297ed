"""Requests as programs for other libraries write them: prompts, keywords, schemas, processors of logits, streams."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Optional, TypedDict

import numpy as np
import pytest
from numpy.typing import NDArray

from conftest import wait_until_empty
from perihelion import LLM, Embedder, PipelineConfig, Reranker, SamplingParams
from perihelion.engine import InferenceSession
from perihelion.pipelines import ConfigFields, quantize
from perihelion.pipelines.keywords import LOADING, SAMPLING
from perihelion.pipelines.schemas import close_objects, function_schema, schema_of

GREEDY = SamplingParams(temperature=0, max_tokens=8)


def test_prompts_are_dicts_too(llm: LLM) -> None:
    tokens = llm.tokenizer.encode("The fox")
    expected = llm.generate("The fox", GREEDY)[0]
    for prompts in ({"prompt": "The fox"}, [{"prompt": "The fox", "multi_modal_data": None}]):
        output = llm.generate(prompts, GREEDY)[0]  # type: ignore[arg-type]
        assert (output.prompt, output.text, output.prompt_token_ids) == ("The fox", expected.text, tokens)
    output = llm.generate({"prompt_token_ids": tokens}, GREEDY)[0]
    assert (output.prompt, output.text) == (None, expected.text)
    both = llm.generate([{"prompt_token_ids": tokens, "prompt": "A fox"}, "The fox"], GREEDY)
    assert [one.prompt for one in both] == ["A fox", "The fox"] and both[0].text == both[1].text
    assert "".join(chunk.text for chunk in llm.stream({"prompt": "The fox"}, GREEDY)) == expected.text
    assert llm.score({"prompt": "The fox"}) == llm.score("The fox")


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        (b"The fox", TypeError, "prompt: got bytes, expected a text: decode it first"),
        ([b"The fox"], TypeError, "prompt: got bytes, expected a text: decode it first"),
        ({"text": "The fox"}, TypeError, "prompt: got a dict with 'text', expected prompt or prompt_token_ids"),
        ({"prompt": None}, TypeError, "prompt: got a dict with neither prompt nor prompt_token_ids"),
        ({"prompt": b"fox"}, TypeError, "prompt: got bytes, expected a text or None: decode it first"),
        ({"prompt_token_ids": "fox"}, TypeError, "prompt_token_ids: got str, expected a list of tokens"),
        ([[1, "a"]], TypeError, "prompt: got a list with str, expected tokens, which are whole numbers"),
        ([[1, 2.5]], TypeError, "prompt: got a list with float, expected tokens"),
        ([[1, -1]], ValueError, "prompt: token -1 is beyond any model's vocabulary"),
        ([1, 1 << 40], ValueError, "prompt: token 1099511627776 is beyond any model's vocabulary"),
        (["The fox", 5], TypeError, "prompts: got a list with int, expected a text, a list of tokens, or a dict"),
        (None, TypeError, "prompts: got NoneType, expected a text, a list of tokens, or a dict"),
    ],
)
def test_prompts_that_cannot_be(llm: LLM, prompt: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        llm.generate(prompt, GREEDY)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("name", LOADING)
def test_keywords_of_other_libraries_are_hinted_at(name: str) -> None:
    for owner in (LLM, Embedder, Reranker):
        with pytest.raises(TypeError) as raised:
            owner("nowhere", **{name: 1})  # type: ignore[arg-type]
        assert str(raised.value).endswith(LOADING[name])


def test_hints_name_what_there_is() -> None:
    known = {*ConfigFields.__annotations__, "num_threads", "chat_template"}
    named = [hint.split()[3] for hint in LOADING.values() if hint.startswith("it is called")]
    assert len(named) > 10 and {*named} <= known
    fields = {field.name for field in dataclasses.fields(SamplingParams)}
    assert {hint.split()[3] for hint in SAMPLING.values() if hint.startswith("it is called")} <= fields
    with LLM(device_specs="cpu") as llm:  # type: ignore[arg-type]
        assert llm.config.device_specs == ["cpu"]
    with pytest.raises(TypeError, match="max_lenght.*did you mean max_length"):
        LLM(max_lenght=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="repeat_penalty.*it is called repetition_penalty here"):
        SamplingParams(repeat_penalty=1.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="temprature.*did you mean temperature"):
        SamplingParams(temprature=1)  # type: ignore[call-arg]


def test_editors_know_the_fields() -> None:
    fields = {field.name for field in dataclasses.fields(PipelineConfig) if not field.name.startswith("_")}
    assert {*ConfigFields.__annotations__} == fields - {"huggingface_repo_id"}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda llm: llm.generate("a", SamplingParams(seed=-1)), ValueError, "seed is -1: give a whole number, from 0"),
        (lambda llm: llm.generate("a", SamplingParams(seed=1 << 64)), ValueError, "seed is 18446744073709551616"),
        (lambda llm: llm.generate("a", SamplingParams(seed="7")), TypeError, "seed: got str, expected a whole number"),
        (lambda llm: llm.generate("a", {"temperature": 1}), TypeError, "sampling_params: got str, expected"),
        (lambda llm: llm.generate("a", 5), TypeError, "sampling_params: got int, expected SamplingParams"),
        (lambda llm: LLM(num_threads=-1), ValueError, "num_threads is -1: give a whole number, from 0 to"),
        (lambda llm: LLM(num_threads="2"), TypeError, "num_threads: got str, expected a whole number"),
        (lambda llm: LLM(weight_path=5), TypeError, "weight_path: got int, expected a path or a list of paths"),
        (lambda llm: InferenceSession(num_threads="2"), TypeError, "num_threads"),
        (lambda llm: InferenceSession().set_debug_print_options("FULL", -1), ValueError, "precision: got -1"),
        (lambda llm: llm.chat([{"role": "user", "content": b"a"}]), TypeError, "messages: Object of type bytes"),
        (lambda llm: LLM(chat_template=5), TypeError, "chat_template: got int, expected a text or None"),
        (lambda llm: LLM(5), TypeError, "model: got int, expected a name, a path or a PipelineConfig"),
        (lambda llm: LLM(session=5), TypeError, "session: got int, expected an InferenceSession or None"),
        (lambda llm: llm.tokenizer.encode(5), TypeError, "text: got int, expected a text"),
        (lambda llm: llm.tokenizer.encode(b"a"), TypeError, "text: got bytes, expected a text: decode it first"),
        (lambda llm: llm.tokenizer.decode("a"), TypeError, "token_ids: got str, expected a list of tokens"),
        (lambda llm: llm.tokenizer.decode(5), TypeError, "token_ids: got int, expected a list of tokens"),
        (lambda llm: llm.tokenizer.decode([-1]), ValueError, "token_ids: token -1 is beyond"),
        (lambda llm: llm.generate("a", SamplingParams(logits_processors=[5])), TypeError, "logits_processors: got"),
        (lambda llm: llm.generate("a", SamplingParams(stop_token_ids="a")), TypeError, "stop_token_ids: got str"),
    ],
)
def test_messages_are_ours(llm: LLM, call: Callable[[LLM], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        call(llm)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize("path", ["/no/such/model.gguf", "./no-such-folder", "~/no-such-model.gguf", Path("/no/such")])
def test_paths_that_do_not_exist(path: Any) -> None:
    for field in ("model", "weight_path"):
        # A path of weights without a suffix may be one of a repository on a hub.
        if field != "weight_path" or not str(path).startswith("./"):
            with pytest.raises(FileNotFoundError):
                LLM(**{field: path})


class Person:
    """Has a schema, as classes of pydantic do."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        age = {"type": "integer", "minimum": 0, "maximum": 99}
        return {"type": "object", "properties": {"age": age}, "required": ["age"], "additionalProperties": False}


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Pet(TypedDict):
    color: Color
    legs: Literal[2, 4]


@dataclasses.dataclass
class Owner:
    pets: list[Pet]
    friend: Optional[Owner] = None


def test_classes_are_schemas(llm: LLM) -> None:
    params = SamplingParams(temperature=0, json_schema=Person, max_tokens=60, disable_any_whitespace=True)
    text = llm.generate("A person: ", params)[0].text
    assert 0 <= json.loads(text)["age"] <= 99 and " " not in text
    assert llm.generate("A person: ", SamplingParams(temperature=0, json_schema=list[Literal["a"]]))
    pet = llm.generate("A pet: ", SamplingParams(temperature=0, json_schema=Pet, max_tokens=60))[0].text
    assert json.loads(pet)["color"] in ("red", "blue")
    with pytest.raises(TypeError, match="json_schema: <class 'complex'> has no schema"):
        llm.generate("A person: ", SamplingParams(json_schema=complex))


def test_schemas_of_types() -> None:
    owner = schema_of(Owner)
    assert owner["$ref"] == "#/$defs/Owner" and owner["$defs"]["Owner"]["required"] == ["pets"]
    pet = {
        "type": "object",
        "properties": {"color": {"enum": ["red", "blue"]}, "legs": {"enum": [2, 4]}},
        "required": ["color", "legs"],
        "additionalProperties": False,
    }
    assert owner["$defs"]["Pet"] == pet and schema_of(Pet) == pet
    assert schema_of(dict[str, int]) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert schema_of(tuple[int, str])["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert schema_of(Optional[float]) == {"anyOf": [{"type": "number"}, {"type": "null"}]}

    def function(city: str, days: int = 3, *, unit: Color = Color.RED) -> str:
        """The weather."""
        return city

    tool = function_schema(function)["function"]
    assert tool["name"] == "function" and tool["description"] == "The weather."
    assert tool["parameters"]["required"] == ["city"] and {*tool["parameters"]["properties"]} == {"city", "days", "unit"}
    with pytest.raises(TypeError, match="takes .*rest.*, but calls name all arguments"):
        function_schema(lambda *rest: None)


def test_pydantic_is_not_imported_but_understood(llm: LLM) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Point", x=(Literal[1, 2], ...), y=(Literal[3], ...))
    for form in (model, pydantic.TypeAdapter(list[model])):
        params = SamplingParams(temperature=0, json_schema=form, disable_additional_properties=True, max_tokens=80)
        text = llm.generate("A point: ", params)[0].text
        assert pydantic.TypeAdapter(form if form is model else list[model]).validate_json(text) is not None


def test_objects_can_be_closed() -> None:
    inner = {"type": "object", "properties": {"b": {}}}
    schema = {"properties": {"a": {"items": inner}}, "$defs": {"c": inner}}
    closed = close_objects(schema)
    assert closed["additionalProperties"] is False and closed["$defs"]["c"]["additionalProperties"] is False
    assert closed["properties"]["a"]["items"]["additionalProperties"] is False
    # Elsewhere the schema says it, or several schemas describe one object.
    for kept in ({"properties": {}, "additionalProperties": {}}, {"properties": {}, "allOf": [inner]}, {"type": "object"}):
        assert close_objects(kept) == kept


def test_json_ends(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    closed = SamplingParams(
        temperature=2, n=8, seed=1, json_schema=schema, disable_any_whitespace=True, disable_additional_properties=True
    )
    texts = {one.text for one in llm.generate("Once", closed)[0].outputs}
    assert texts == {'{"a":true}', '{"a":false}'}
    closed.json_schema = json.dumps(schema)
    assert {one.text for one in llm.generate("Once", closed)[0].outputs} == texts


def test_processors_change_logits(llm: LLM) -> None:
    seen: list[list[int]] = []

    def count(generated: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        seen.append(generated)
        others = np.full_like(logits, -np.inf)
        others[100 + len(generated)] = 1
        return others

    def forbid(generated: list[int], logits: NDArray[np.float32]) -> None:
        assert logits.shape == (4096,) and logits.dtype == np.float32
        logits[plain.token_ids[0]] = -np.inf

    params = SamplingParams(temperature=0, max_tokens=3, logprobs=1)
    plain = llm.generate("The fox", params)[0]
    counted = llm.generate("The fox", dataclasses.replace(params, logits_processors=[count]))[0]
    assert counted.token_ids == [100, 101, 102] and seen == [[], [100], [100, 101]]
    assert counted.logprobs and plain.logprobs and counted.logprobs[0][plain.token_ids[0]] == plain.logprobs[0][plain.token_ids[0]]
    both = dataclasses.replace(params, logits_processors=[forbid])
    mixed = llm.generate(["The fox"] * 2, [both, params])
    assert mixed[0].token_ids[0] != plain.token_ids[0] and mixed[1].outputs == plain.outputs
    assert [chunk.token_ids for chunk in llm.stream("The fox", both)][0] == mixed[0].token_ids[:1]


def test_an_exception_of_a_processor_is_that_of_its_request(llm: LLM) -> None:
    def fail(generated: list[int], logits: NDArray[np.float32]) -> None:
        if len(generated) == 1:
            raise KeyError("mine")

    def shape(generated: list[int], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return logits[:5]

    for process, error in ((fail, KeyError), (shape, ValueError)):
        params = SamplingParams(temperature=0, max_tokens=4, logits_processors=[process])
        with pytest.raises(error):
            llm.generate("The fox", params)
        first, second = llm.generate(["The fox"] * 2, [params, GREEDY], on_error="return")
        assert isinstance(first, error) and not isinstance(second, Exception)
    wait_until_empty(llm)


def test_logits_are_arrays(llm: LLM) -> None:
    (logits,) = llm.logits("The fox")
    tokens = llm.tokenizer.encode("The fox")
    assert logits.shape == (len(tokens), 4096) and logits.dtype == np.float32
    assert int(logits[-1].argmax()) == llm.generate("The fox", GREEDY)[0].token_ids[0]
    wide = logits.astype(np.float64)
    logprobs = wide - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True)) - wide.max(1, keepdims=True)
    expected = llm.score("The fox")[0].logprobs[1:]
    assert np.allclose([logprobs[at, token] for at, token in enumerate(tokens[1:])], expected, atol=1e-6)
    assert np.isclose(llm.perplexity("The fox")[0], np.exp(-np.mean(expected)))  # type: ignore[arg-type]
    assert np.isnan(llm.perplexity([[5]])[0])


def test_hidden_states_are_arrays() -> None:
    with Embedder(pooling="mean") as embedder:
        (states,) = embedder.hidden_states("The fox")
        assert states.shape[1] == embedder.dimensions == 256
        vectors = embedder.embed("The fox", normalize=False)
        assert np.array_equal(embedder.embed([{"prompt": "The fox"}], normalize=False), vectors)
        assert np.allclose(states.mean(0), vectors[0], atol=1e-5)
        assert np.array_equal(embedder.embed("The fox", normalize=False, pooling="last")[0], states[-1])
        for options in ({"pooling": "sum"}, {"pooling": "sum", "normalize": True}):
            with pytest.raises(ValueError, match="pooling is sum: choose one of mean, cls"):
                embedder.embed("a", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name a model"):
        Embedder()


def test_asyncio_takes_several_prompts(llm: LLM) -> None:
    prompts = ["Once upon a time", "The fox"]
    expected = [output.text for output in llm.generate(prompts, GREEDY)]

    async def answer() -> None:
        assert [output.text for output in await llm.agenerate(prompts, GREEDY)] == expected
        assert (await llm.agenerate("The fox", GREEDY)).text == expected[1]
        assert (await llm.agenerate({"prompt": "The fox"}, GREEDY)).text == expected[1]
        assert await llm.agenerate([], GREEDY) == []
        texts = ["", ""]
        async for index, chunk in llm.astream_batch(prompts, GREEDY):
            texts[index] += chunk.text
        assert texts == expected

    asyncio.run(answer())


def test_streams_of_several_prompts(llm: LLM) -> None:
    prompts = ["Once upon a time", "The fox", "Once upon a time"]
    outputs = llm.generate(prompts, GREEDY)
    chunks = list(llm.stream_batch(prompts, GREEDY))
    for index, output in enumerate(outputs):
        own = [chunk for at, chunk in chunks if at == index]
        assert "".join(chunk.text for chunk in own) == output.text
        assert [token for chunk in own for token in chunk.token_ids] == output.token_ids
        assert own[-1].finish_reason == output.finish_reason and own[-1].usage is not None
        assert own[-1].usage.generated_tokens == output.usage.generated_tokens
    order = [index for index, _ in chunks]
    assert order != sorted(order)
    stream = llm.stream_batch(["The fox"] * 3, SamplingParams(ignore_eos=True))
    next(stream)
    del stream
    wait_until_empty(llm)
    with pytest.raises(ValueError, match="a stream has one answer"):
        llm.stream_batch(["a"], SamplingParams(n=2))
    with pytest.raises(ValueError, match="prompt 2 of 2: the prompt is empty"):
        llm.stream_batch(["a", []])


class Bar:
    made: list[Bar] = []

    def __init__(self, total: int) -> None:
        self.total, self.done, self.closed = total, 0, False
        Bar.made.append(self)

    def update(self, more: int) -> None:
        self.done += more

    def close(self) -> None:
        self.closed = True


def test_progress_can_be_any_bar(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b", "c"], GREEDY, use_tqdm=Bar)
    (bar,) = Bar.made
    assert (bar.total, bar.done, bar.closed) == (3, 3, True)
    llm.generate(["a", "b"], GREEDY, use_tqdm=True)
    assert capfd.readouterr().err.replace("\r", "\n").splitlines()[-1].endswith(" 2/2")


def test_loading_tells_how_far_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, int, int]] = []
    with LLM(progress=lambda *event: told.append(event)) as llm:
        assert llm.generate("The fox", GREEDY)
    assert told and told[-1][0] == "load" and told[-1][1] == told[-1][2] > 0
    with LLM(progress=True):
        assert "load (MiB)" in capfd.readouterr().err

    def fail(phase: str, done: int, total: int) -> None:
        raise KeyError(phase)

    with pytest.raises(KeyError, match="load"):
        LLM(progress=fail)


def test_models_are_quantized_into_files(tmp_path: Path, llm: LLM) -> None:
    file, told = tmp_path / "model.gguf", []
    written = quantize(None, file, "q8_0", progress=lambda *event: told.append(event))
    assert written.path == file and file.stat().st_size > written.bytes > 0 and 8 <= written.bits_per_weight < 9
    assert sum(written.dtypes.values()) > 10 and told[-1][0] == "quantize"
    with LLM(file) as smaller:
        assert abs(smaller.perplexity("Once upon a time")[0] / llm.perplexity("Once upon a time")[0] - 1) < 0.1
    with pytest.raises(ValueError, match="to is q9: give one of"):
        quantize(None, file, "q9")
    with pytest.raises(FileNotFoundError):
        quantize(tmp_path / "none.gguf", file)


def test_tokens_and_words_can_be_excluded(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=12)
    plain = llm.generate("Once upon a time", params)[0]
    word = plain.text.split()[1]
    without = llm.generate("Once upon a time", dataclasses.replace(params, bad_words=[word]))[0]
    assert word not in without.text.split() and without.text != plain.text
    tokens = llm.tokenizer.encode(" fox cat", add_special_tokens=False)
    only = llm.generate("The", dataclasses.replace(params, allowed_token_ids=tokens))[0]
    assert {*only.token_ids} <= {*tokens} and len(only.token_ids) == 12
    for wrong, message in (
        ({"allowed_token_ids": [1 << 20]}, "allowed_token_ids is 1048576: give tokens below 4096"),
        ({"allowed_token_ids": []}, "allowed_token_ids is empty: give at least one token"),
        ({"bad_words": [""]}, "no word without tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            llm.generate("The", SamplingParams(**wrong))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bad_words: got str, expected a list of texts, or None"):
        llm.generate("The", SamplingParams(bad_words="fox"))


def test_parameters_are_cloned() -> None:
    def process(generated: list[int], logits: NDArray[np.float32]) -> None: ...

    params = SamplingParams(stop=["a"], logits_processors=[process])
    copied = params.clone()
    assert copied == params and copied.stop is not params.stop
    assert copied.logits_processors == [process]


def test_tokenizers_are_callable(llm: LLM) -> None:
    tokenizer = llm.tokenizer
    encoding = tokenizer("The fox über 狐", return_offsets_mapping=True)
    text = "The fox über 狐"
    assert encoding["input_ids"] == encoding.input_ids == tokenizer.encode(text)
    assert encoding.attention_mask == [1] * len(encoding.input_ids)
    assert encoding.offset_mapping[0] == (0, 0)
    for (begin, end), token in list(zip(encoding.offset_mapping, encoding.input_ids))[1:]:
        assert 0 <= begin <= end <= len(text)
        if tokenizer.decode([token]).isascii():
            assert tokenizer.decode([token]) == text[begin:end]
    batch = tokenizer(["The fox", "A raven"], add_special_tokens=False)
    assert batch.input_ids == [tokenizer.encode(one, add_special_tokens=False) for one in ("The fox", "A raven")]
    assert tokenizer.batch_decode(batch.input_ids) == ["The fox", "A raven"]
    names = tokenizer.convert_ids_to_tokens(batch.input_ids[0])
    assert tokenizer.convert_tokens_to_ids([name or "" for name in names]) == batch.input_ids[0]
    assert tokenizer.convert_ids_to_tokens(0) == "<|bos|>" and tokenizer.convert_tokens_to_ids("<|bos|>") == 0
    assert tokenizer.convert_ids_to_tokens(1 << 20) is None
    with pytest.raises(AttributeError, match="the encoding has no 'offset_mapping', only input_ids, attention_mask"):
        batch.offset_mapping
    with pytest.raises(TypeError, match=r"text\[1\]: got int, expected a text"):
        tokenizer(["a", 5])  # type: ignore[list-item]
