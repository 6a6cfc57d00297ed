"""Models that write: results, requests that cannot be, conversations."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, shared, wait_until_empty
from perihelion import LLM, PromptTooLong, SamplingParams
from perihelion.engine import InferenceSession
from perihelion.pipelines import PipelineConfig, RequestOutput

DRAWN = SamplingParams(temperature=0.8, top_k=40, max_tokens=30, seed=7)
PROMPTS = ["Once upon a time", "The fox", "A king had three sons", "In the morning"]


def test_answers_are_those_of_the_command(llm: LLM) -> None:
    command = ROOT / "target" / "debug" / "peri"
    if not command.exists():
        pytest.skip("cargo build makes target/debug/peri")
    flags = ["--temperature", "0.8", "--top-k", "40", "-n", "30", "--seed", "7", "--samples", "2", "--logprobs", "2"]
    prompts = [part for prompt in PROMPTS for part in ("-p", prompt)]
    environment = {**os.environ, "PERIHELION_CACHE_DIR": "off"}
    done = subprocess.run(
        [command, "generate", "--json", "--quiet", *flags, *prompts], capture_output=True, check=True, env=environment
    )
    expected = [json.loads(line) for line in done.stdout.splitlines()]
    params = SamplingParams(n=2, temperature=0.8, top_k=40, max_tokens=30, seed=7, logprobs=2)
    outputs = [(out, answer) for out in llm.generate(PROMPTS, params) for answer in out.outputs]
    assert len(outputs) == len(expected)
    for (out, answer), one in zip(outputs, expected):
        assert (out.prompt, answer.text, answer.token_ids) == (one["prompt"], one["text"], one["tokens"])
        assert (answer.finish_reason, answer.stop_reason) == (one["finish_reason"], one["stop_reason"])
        assert answer.logprobs is not None
        for token, places, score in zip(answer.token_ids, answer.logprobs, one["logprobs"]):
            assert places[token].logprob == np.float32(score["logprob"])
            top = {best["token"]: np.float32(best["logprob"]) for best in score["top"]}
            assert {key: place.logprob for key, place in places.items() if place.rank} == top


def test_greedy_answers_are_those_of_the_reference() -> None:
    folder = shared("stories260k")
    expected = json.loads((folder / "reference" / "greedy.json").read_text())
    with LLM(folder / "hf", max_cache_batch_size=1) as one, LLM(str(folder / "hf"), num_threads=1) as many:
        assert one.config.max_cache_batch_size == 1 and one.model == "hf"
        for llm in (one, many):
            for case in expected["cases"]:
                out = llm.generate([case["prompt_ids"]], SamplingParams(temperature=0, max_tokens=8))[0]
                assert out.token_ids == case["greedy_ids"][:8] and out.prompt is None


def test_outputs_say_it_all(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=12, logprobs=3, stop=["king", "wife"])
    out = llm.generate("Once upon a time there was a", params)[0]
    assert isinstance(out, RequestOutput) and out.prompt == "Once upon a time there was a"
    assert out.prompt_token_ids == llm.tokenizer.encode(out.prompt)
    assert out.text == out.outputs[0].text and out.token_ids == out.outputs[0].token_ids
    assert out.finish_reason == "stop" and out.outputs[0].stop_reason in ("king", "wife")
    assert "king" not in out.text and len(out.token_ids) == out.usage.generated_tokens
    assert out.usage.prompt_tokens == len(out.prompt_token_ids)
    assert 0 <= out.timings.queue <= out.timings.first_token <= out.timings.total  # type: ignore[operator]
    assert out.logprobs is not None and len(out.logprobs) == len(out.token_ids)
    for token, places in zip(out.token_ids, out.logprobs):
        assert places[token].rank == 1 and len(places) == 3
        assert places[token].decoded_token == llm.tokenizer.decode([token])
    total = sum(places[token].logprob for token, places in zip(out.token_ids, out.logprobs))
    assert out.outputs[0].cumulative_logprob == total
    plain = llm.generate(out.prompt, SamplingParams(max_tokens=2, temperature=0))[0]
    assert plain.logprobs is None and plain.outputs[0].cumulative_logprob is None and plain.finish_reason == "length"
    stopped = llm.generate(out.prompt, SamplingParams(temperature=0, stop_token_ids=[plain.token_ids[1]]))[0]
    assert stopped.token_ids == plain.token_ids[:1] and stopped.outputs[0].stop_reason == plain.token_ids[1]


def test_logprobs_are_the_models_or_those_of_the_draw(llm: LLM) -> None:
    params = SamplingParams(temperature=0.7, top_k=3, seed=2, max_tokens=12, logprobs=5, logprobs_mode="processed_logprobs")
    drawn = llm.generate("The fox", params)[0]
    raw = params.clone()
    raw.logprobs_mode = "raw_logprobs"
    of_model = llm.generate("The fox", raw)[0]
    assert of_model.token_ids == drawn.token_ids and drawn.logprobs is not None and of_model.logprobs is not None
    for places, others in zip(drawn.logprobs, of_model.logprobs):
        assert len(places) == 3 and sum(np.exp(place.logprob) for place in places.values()) == pytest.approx(1, abs=1e-5)
        assert len(others) == 5 and sum(np.exp(place.logprob) for place in others.values()) < 1
    with pytest.raises(ValueError, match='logprobs_mode is "raw": give "raw_logprobs" or "processed_logprobs"'):
        llm.generate("The fox", SamplingParams(logprobs_mode="raw"))  # type: ignore[arg-type]


def test_seeds_repeat_answers(llm: LLM) -> None:
    drawn = llm.generate(PROMPTS, SamplingParams(temperature=1.2, max_tokens=20))
    assert len({out.seed for out in drawn}) == len(drawn)
    params = [SamplingParams(temperature=1.2, max_tokens=20, seed=out.seed) for out in drawn]
    assert [out.text for out in llm.generate(PROMPTS, params)] == [out.text for out in drawn]
    # In another order, and alone.
    assert [out.text for out in llm.generate(PROMPTS[::-1], params[::-1])] == [out.text for out in drawn[::-1]]
    assert llm.generate(PROMPTS[0], params[0])[0].outputs == drawn[0].outputs


def test_prompts_are_texts_or_tokens(llm: LLM) -> None:
    tokens = llm.tokenizer.encode("The fox")
    for prompts in ("The fox", ["The fox"], tokens, [tokens], tuple(tokens), np.array(tokens), [np.array(tokens)]):
        assert [out.text for out in llm.generate(prompts, DRAWN)] == [llm.generate("The fox", DRAWN)[0].text]
    assert llm.generate([], DRAWN) == []
    mixed = llm.generate(["The fox", tokens], DRAWN)
    assert mixed[0].text == mixed[1].text and (mixed[0].prompt, mixed[1].prompt) == ("The fox", None)


def test_streams_give_the_same(llm: LLM) -> None:
    whole = llm.generate("The fox", SamplingParams(temperature=0, max_tokens=30, logprobs=1))[0]
    chunks = list(llm.stream("The fox", SamplingParams(temperature=0, max_tokens=30, logprobs=1)))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [token for chunk in chunks for token in chunk.token_ids] == whole.token_ids
    assert [place for chunk in chunks for place in chunk.logprobs or []] == whole.logprobs
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    last = chunks[-1].usage
    assert last is not None and last.generated_tokens == 30
    stream = llm.stream("The fox", SamplingParams(max_tokens=1))
    assert len(list(stream)) == 2 and list(stream) == []
    stream = llm.stream("The fox")
    next(stream)
    del stream
    with pytest.raises(ValueError, match="a stream has one answer"):
        llm.stream("The fox", SamplingParams(n=2))
    wait_until_empty(llm)


def test_a_stream_that_is_not_read_is_paused(llm: LLM) -> None:
    stream = llm.stream("Once upon a time", SamplingParams(temperature=0, ignore_eos=True))
    for _ in range(500):
        if llm.status()["paused"]:
            break
        threading.Event().wait(0.01)
    assert llm.status()["paused"] == 1
    assert llm.generate("The fox", DRAWN)[0].text
    text = "".join(chunk.text for chunk in stream)
    assert text == llm.generate("Once upon a time", SamplingParams(temperature=0, ignore_eos=True))[0].text


def test_threads_share_batches_and_get_their_own(llm: LLM) -> None:
    expected = {prompt: llm.generate(prompt, DRAWN)[0].text for prompt in PROMPTS}
    wrong, most = [], 0

    def run(index: int) -> None:
        for turn in range(4):
            prompt = PROMPTS[(index + turn) % len(PROMPTS)]
            if llm.generate(prompt, DRAWN)[0].text != expected[prompt]:
                wrong.append(prompt)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        most = max(most, llm.status()["running"])
    assert not wrong and most > 1


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (["Once", [1, 99_999]], "prompt 2 of 2: token 99999 is beyond the model's vocabulary"),
        ([[]], "the prompt is empty"),
        (["Once", "word " * 1000], "prompt 2 of 2: the prompt has .* tokens, but the model's context is 512"),
    ],
)
def test_bad_prompts_are_refused_before_any_work(llm: LLM, prompts: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        llm.generate(prompts)  # type: ignore[arg-type]
    wait_until_empty(llm)


def test_long_prompts_say_how_long(llm: LLM) -> None:
    for call in (llm.generate, llm.stream, llm.agenerate):
        with pytest.raises(PromptTooLong) as raised:
            result = call("word " * 1000)
            if call == llm.agenerate:
                result.send(None)  # type: ignore[union-attr]
        assert (raised.value.tokens, raised.value.limit) == (len(llm.tokenizer.encode("word " * 1000)), 512)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"temperature": -1, "top_p": 7}, ValueError, "temperature is -1.*top_p is 7"),
        ({"max_tokens": -1}, ValueError, "max_tokens is -1: give a whole number"),
        ({"temperature": "hot"}, TypeError, "temperature: got str, expected a number or None"),
        ({"stop": 5}, TypeError, "stop: got int, expected a text"),
        ({"stop": ["a", ""]}, ValueError, "give strings that are not empty"),
        ({"n": 0}, ValueError, "n is 0: give 1 to 128"),
        ({"n": 1.5}, TypeError, "n: got float"),
        ({"logit_bias": {99_999: 1.0}}, ValueError, "give a token below 4096"),
    ],
)
def test_parameters_that_cannot_be(llm: LLM, params: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        llm.generate("Once", SamplingParams(**params))  # type: ignore[arg-type]
    if "temperature is" in message:
        assert [field for field, _, _ in raised.value.problems] == ["temperature", "top_p"]  # type: ignore[attr-defined]


def test_tracebacks_show_two_frames_of_ours_at_most(llm: LLM) -> None:
    wrong = SamplingParams(top_p=2)
    messages = [{"role": "user", "content": "Hello"}]
    closed = LLM()
    closed.close()
    with LLM(chat_template="chatml") as chat:
        calls: list[Callable[[], object]] = [
            lambda: llm.generate("Once", wrong),
            lambda: llm.stream("Once", wrong),
            lambda: asyncio.run(llm.agenerate("Once", wrong)),
            lambda: chat.chat(messages, wrong),
            lambda: chat.chat(messages, on_error="return", sampling_params=[]),
            lambda: chat.astream_chat(messages, wrong),
            lambda: asyncio.run(chat.achat(messages, wrong)),
            lambda: llm.generate(["\ud800"]),
            lambda: closed.generate("Once"),
            lambda: LLM(max_lenght=5),
        ]
        for call in calls:
            with pytest.raises((ValueError, RuntimeError, TypeError)) as raised:
                call()
            ours = [str(entry.path) for entry in raised.traceback if "/perihelion/" in str(entry.path)]
            assert 1 <= len(ours) <= 2, ours


def test_other_things_that_cannot_be(llm: LLM) -> None:
    with pytest.raises(TypeError, match="got int, expected a text"):
        llm.generate(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 1 for 2 prompts"):
        llm.generate(["a", "b"], [DRAWN])
    with pytest.raises(TypeError, match="max_lenght"):
        LLM(max_lenght=5)
    with pytest.raises(FileNotFoundError):
        LLM("nowhere.gguf")
    with pytest.raises(TypeError, match="pickled"):
        __import__("pickle").dumps(llm)


def test_a_prompt_that_fails_is_an_exception_among_the_results(llm: LLM) -> None:
    params = SamplingParams(temperature=0.8, max_tokens=5, seed=3, n=2)
    expected = llm.generate(["Once", "The fox"], params)
    prompts = ["Once", "word " * 1000, "The fox", [1, 99_999]]
    first, long, last, unknown = llm.generate(prompts, params, on_error="return")
    assert isinstance(first, RequestOutput) and isinstance(last, RequestOutput)
    texts = [[completion.text for completion in out.outputs] for out in (first, last)]
    assert texts == [[completion.text for completion in out.outputs] for out in expected]
    assert isinstance(long, PromptTooLong) and long.limit == 512 and str(long).startswith("prompt 2 of 4: ")
    assert isinstance(unknown, ValueError) and str(unknown).startswith("prompt 4 of 4: token 99999")
    wrong = llm.generate(["Once", "The fox"], [params, SamplingParams(top_p=2)], on_error="return")[1]
    assert isinstance(wrong, ValueError) and "top_p" in str(wrong)
    with pytest.raises(PromptTooLong, match="prompt 2 of 4"):
        llm.generate(prompts, params)
    with pytest.raises(ValueError, match="on_error: got 'ignore', expected 'raise' or 'return'"):
        llm.generate("Once", on_error="ignore")  # type: ignore[call-overload]


def test_a_conversation_that_fails_is_an_exception_among_the_results() -> None:
    template = "{% if 'secret' in messages[0].content %}{{ raise_exception('no secrets') }}{% endif %}{{ messages[0].content }}"
    good = [{"role": "user", "content": "Hello"}]
    bad = [{"role": "user", "content": "a secret"}]
    long = [{"role": "user", "content": "word " * 1000}]
    params = SamplingParams(temperature=0.8, max_tokens=5, seed=3, n=2)
    with LLM(chat_template=template) as llm:
        first, refused, cut, last = llm.chat([good, bad, long, good], params, on_error="return")
        assert isinstance(first, RequestOutput) and isinstance(last, RequestOutput)
        assert first.outputs == last.outputs == llm.chat(good, params)[0].outputs
        assert type(refused) is ValueError and "refuses this conversation: messages[0]: no secrets" in str(refused)
        assert isinstance(cut, PromptTooLong) and str(cut).startswith("prompt 3 of 4: ")
        with pytest.raises(ValueError, match="refuses this conversation: .*no secrets"):
            llm.chat([good, bad], params)
        with pytest.raises(ValueError, match="on_error: got 'ignore', expected 'raise' or 'return'"):
            llm.chat(good, on_error="ignore")  # type: ignore[call-overload]


def test_metrics_count_requests_tokens_and_steps() -> None:
    with LLM() as llm:
        before = llm.metrics()
        assert (before.started, before.generated_tokens, before.step_tokens.count) == (0, 0, 0)
        params = SamplingParams(temperature=0, max_tokens=7, ignore_eos=True)
        outputs = llm.generate(["Once", "The fox"], params)
        stream = llm.stream("Once", SamplingParams(ignore_eos=True))
        next(stream)
        del stream
        wait_until_empty(llm)
        after = llm.metrics()
        assert after.started == 3 and after.finished == {"stop": 0, "length": 2, "cancelled": 1, "failed": 0}
        assert after.prompt_tokens == sum(out.usage.prompt_tokens for out in [*outputs, outputs[0]])
        assert after.generated_tokens >= 15 and after.failed_steps == after.preemptions == after.queued_tokens == 0
        steps = after.step_tokens
        assert steps.sum >= after.prompt_tokens - after.cached_tokens + 12
        assert steps.count == after.step_microseconds.count == list(steps.at_most.values())[-1] > 7
        assert list(steps.at_most) == sorted(steps.at_most) and after.step_microseconds.sum > 0


def test_scores_are_log_probabilities() -> None:
    with LLM(enable_echo=True) as llm:
        scores, tokens = llm.score(["Once upon a time there was", [0, 5, 6]])
        assert scores.text == "Once upon a time there was" and tokens.text is None
        assert scores.token_ids == llm.tokenizer.encode(scores.text) and tokens.token_ids == [0, 5, 6]
        out = llm.generate(scores.text, SamplingParams(max_tokens=1, prompt_logprobs=0))[0]
        assert out.prompt_logprobs is not None and out.prompt_logprobs[0] is None and scores.logprobs[0] is None
        for token, places, score in zip(scores.token_ids[1:], out.prompt_logprobs[1:], scores.logprobs[1:]):
            assert places is not None and score is not None
            assert math.isclose(places[token].logprob, score, abs_tol=1e-5)
        long = llm.score("Once upon a time " * 300)[0]
        assert len(long.logprobs) == len(long.token_ids) > 512 and all(score is not None for score in long.logprobs[1:])
        assert llm.score([[0]])[0].logprobs == [None]
    params = SamplingParams(max_tokens=1, prompt_logprobs=0)
    for answer in (lambda: llm.generate("Once", params), lambda: list(llm.stream("Once", params))):
        with LLM() as llm, pytest.warns(UserWarning, match="enable_echo") as warnings:
            answer()
        assert [warning.filename for warning in warnings] == [__file__]
    with LLM(chat_template="chatml") as llm, pytest.warns(UserWarning, match="enable_echo") as warnings:
        llm.chat([{"role": "user", "content": "Hello"}], params)
    assert [warning.filename for warning in warnings] == [__file__]


def test_conversations_are_rendered() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    with LLM(chat_template="chatml") as llm:
        text = llm.apply_chat_template(messages)
        assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
        assert llm.apply_chat_template(messages, tokenize=True) == llm.tokenizer.encode(text, add_special_tokens=False)
        assert llm.apply_chat_template(messages, add_generation_prompt=False) == text[: text.index("<|im_start|>a")]
        begun = [*messages, {"role": "assistant", "content": "Once upon"}]
        continued = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nOnce upon"
        assert llm.chat(begun, DRAWN, continue_final_message=True)[0].prompt == continued
        out = llm.chat(messages, DRAWN)[0]
        assert out.prompt == text and out.text
        both = llm.chat([messages, messages], DRAWN)
        assert [one.text for one in both] == [out.text] * 2
    with LLM(chat_template="{{ messages[0].content }}{{ mood }}") as llm:
        assert llm.apply_chat_template(messages, mood="!") == "Hello!"
        assert llm.chat(messages, DRAWN, chat_template_kwargs={"mood": "?"})[0].prompt == "Hello?"
    with LLM(chat_template="{{ raise_exception('never') }}") as llm:
        with pytest.raises(ValueError, match="refuses this conversation: never"):
            llm.chat(messages, DRAWN)
    folder = shared("stories260k/hf")
    with LLM(folder) as llm, pytest.raises(ValueError, match="no chat template"):
        llm.chat(messages)
    with pytest.raises(FileNotFoundError):
        LLM(chat_template="no-such-template")


def test_tokenizers_go_both_ways(llm: LLM) -> None:
    tokenizer = llm.tokenizer
    tokens = tokenizer.encode("The fox")
    assert tokens[0] == tokenizer.bos_token_id == 0 and tokenizer.encode("The fox", add_special_tokens=False) == tokens[1:]
    assert tokenizer.decode(tokens, skip_special_tokens=True) == "The fox"
    assert tokenizer.decode(tokens) == "<|bos|>The fox"
    assert (tokenizer.vocab_size, len(tokenizer), tokenizer.eos_token_id, tokenizer.eos_token_ids) == (4096, 4096, 1, [1])


def test_special_tokens_can_be_shown(llm: LLM) -> None:
    bias = {1: 100.0}
    params = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True, logit_bias=bias, skip_special_tokens=False)
    assert llm.generate("The fox", params)[0].text == "<|endofstory|>" * 2
    params.skip_special_tokens = True
    assert llm.generate("The fox", params)[0].text == ""


def test_progress_is_a_line_on_standard_error(llm: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    llm.generate(PROMPTS, DRAWN, progress=True)
    assert capfd.readouterr().err.replace("\r", "\n").splitlines()[-1].endswith(" 4/4")
    llm.generate(PROMPTS, DRAWN)
    assert capfd.readouterr().err == ""


def test_models_run_as_configured(session: InferenceSession) -> None:
    path = ROOT / "crates" / "storyteller" / "model.gguf"
    config = PipelineConfig(path, max_length=64, cache_strategy="naive", max_cache_batch_size=2)
    expected = [out.text for out in LLM().generate(PROMPTS, DRAWN)]
    with LLM(config, session=session) as llm:
        assert (llm.config.max_length, llm.config.cache_strategy, llm.model) == (64, "naive", "model.gguf")
        assert [out.text for out in llm.generate(PROMPTS, DRAWN)] == expected
        assert repr(llm) == "LLM('model.gguf', max_length=64)"
    with LLM(config, max_length=32) as llm:
        assert llm.config.max_length == 32 and config.max_length == 64
    assert repr(LLM()) == "LLM('storyteller', max_length=512)"


def test_a_closed_model_answers_no_more() -> None:
    llm = LLM()
    stream = llm.stream("Once upon a time", SamplingParams(ignore_eos=True, temperature=0))
    llm.close()
    llm.close()
    with pytest.raises(RuntimeError, match="it was shut down"):
        list(stream)
    for call in (lambda: llm.generate("x"), llm.status, lambda: llm.tokenizer.encode("x"), lambda: llm.score("x")):
        with pytest.raises(RuntimeError, match="the LLM is closed"):
            call()


class Renamed:
    """Gives tensors of a file other names."""

    seen: list[str] = []

    @staticmethod
    def convert(name: str) -> str | None:
        Renamed.seen.append(name)
        return name.removeprefix("my.") if name.startswith("my.") else None


def test_tensors_can_have_other_names() -> None:
    folder = shared("stories260k/hf")
    config = PipelineConfig(folder, _weights_converter=Renamed)
    with LLM(config) as llm, LLM(folder) as plain:
        assert Renamed.seen
        assert llm.generate("Once", DRAWN)[0].text == plain.generate("Once", DRAWN)[0].text


def test_gguf_and_quantized_models_load(tmp_path: Path) -> None:
    file = shared("stories260k/gguf/stories260K-Q8_0.gguf")
    saved = tmp_path / "model.mef"
    with LLM(file, cache_dtype="bf16", save_to_serialized_model_path=str(saved)) as llm:
        assert llm.config.quantization_encoding == "q8_0" and llm.config.cache_dtype == "bf16"
        text = llm.generate("Once", DRAWN)[0].text
    with LLM(file, cache_dtype="bf16", serialized_model_path=saved) as llm:
        assert llm.generate("Once", DRAWN)[0].text == text
