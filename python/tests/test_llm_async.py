"""Models that write, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref

import pytest

from conftest import shared
from perihelion import LLM, Embedder, SamplingParams, aio

DRAWN = SamplingParams(temperature=0.8, top_k=40, max_tokens=30, seed=7)
ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
PROMPTS = ["Once upon a time", "The fox", "A king had three sons", "In the morning"]


async def read(llm: LLM, prompt: str, params: SamplingParams = DRAWN) -> str:
    return "".join([chunk.text async for chunk in llm.astream(prompt, params)])


async def empty(llm: LLM) -> None:
    """Waits until nothing runs."""
    for _ in range(500):
        status = llm.status()
        if status["running"] == status["waiting"] == status["paused"] == 0:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(llm.status())


def test_tasks_get_what_threads_get(llm: LLM) -> None:
    expected = [out.text for out in llm.generate(PROMPTS, DRAWN)]

    async def main() -> None:
        assert await asyncio.gather(*[read(llm, prompt) for prompt in PROMPTS]) == expected
        outputs = await asyncio.gather(*[llm.agenerate(prompt, DRAWN) for prompt in PROMPTS * 8])
        assert [out.text for out in outputs] == expected * 8
        several = await llm.agenerate("The fox", SamplingParams(n=2, temperature=0.8, top_k=40, max_tokens=30, seed=7))
        assert several.text == expected[1] and len(several.outputs) == 2

    asyncio.run(main())
    # Another loop, in another thread.
    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()


def test_conversations_are_answered(llm: LLM) -> None:
    messages = [{"role": "user", "content": "A king"}]
    expected = llm.chat(messages, DRAWN)[0]

    async def main() -> None:
        out = await llm.achat(messages, DRAWN)
        assert (out.prompt, out.text) == (expected.prompt, expected.text)
        assert "".join([chunk.text async for chunk in llm.astream_chat(messages, DRAWN)]) == expected.text

    asyncio.run(main())


def test_cancelling_a_task_cancels_the_request(llm: LLM) -> None:
    async def main() -> None:
        for work in (read(llm, "The fox", ENDLESS), llm.agenerate("The fox", ENDLESS)):
            task = asyncio.ensure_future(work)
            while not llm.status()["running"]:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await empty(llm)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(llm.agenerate("The fox", ENDLESS), 0.01)
        async for _ in llm.astream("The fox", ENDLESS):
            break
        await empty(llm)
        async with contextlib.aclosing(llm.astream("The fox", ENDLESS)) as stream:  # type: ignore[type-var]
            await anext(stream)
        with pytest.raises(ValueError, match="closed"):
            await anext(stream)
        await empty(llm)

    asyncio.run(main())


def test_a_step_wakes_the_loop_once(llm: LLM) -> None:
    wakes = 0

    async def main() -> int:
        nonlocal wakes
        loop = asyncio.get_running_loop()
        usual = loop.call_soon_threadsafe

        def counted(*args: object, **options: object) -> object:
            nonlocal wakes
            wakes += 1
            return usual(*args, **options)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign, assignment]
        params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=200)
        streams = [read(llm, prompt, params) for prompt in PROMPTS * 4]
        await asyncio.gather(*streams)
        return len(streams) * 200

    tokens = asyncio.run(main())
    # 16 streams, each with a token per step.
    assert wakes < tokens / 8, wakes


def test_a_stream_that_is_not_read_is_paused(llm: LLM) -> None:
    async def main() -> None:
        stream = llm.astream("Once upon a time", ENDLESS)
        first = await anext(stream)
        while not llm.status()["paused"]:
            await asyncio.sleep(0.01)
        assert (await llm.agenerate("The fox", DRAWN)).text
        text = first.text + "".join([chunk.text async for chunk in stream])
        assert text == llm.generate("Once upon a time", ENDLESS)[0].text

    asyncio.run(main())


def test_a_task_that_reads_slowly_gets_several_tokens_at_once(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True, logprobs=1)

    async def main() -> None:
        stream = llm.astream("Once upon a time", params)
        chunks = [await anext(stream)]
        await empty(llm)
        chunks += [chunk async for chunk in stream]
        whole = llm.generate("Once upon a time", params)[0]
        assert len(chunks) <= 3
        assert "".join(chunk.text for chunk in chunks) == whole.text
        assert sum((chunk.token_ids for chunk in chunks), []) == whole.token_ids
        assert sum((chunk.logprobs or [] for chunk in chunks), []) == whole.logprobs
        assert [chunk.finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
        assert chunks[-1].finish_reason == "length" and chunks[-1].usage == whole.usage
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(main())


def test_a_stream_goes_on_in_another_loop(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    stream = llm.astream("The fox", params)

    async def some() -> str:
        # A chunk has all the text that has come, so there may be no second one.
        return (await anext(stream)).text

    async def rest() -> str:
        return "".join([chunk.text async for chunk in stream])

    text = asyncio.run(some()) + asyncio.run(rest())
    assert text == llm.generate("The fox", params)[0].text


def test_loops_are_not_kept(llm: LLM) -> None:
    async def main() -> weakref.ref[object]:
        await llm.agenerate("x", SamplingParams(max_tokens=1))
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(main())
    gc.collect()
    assert loop() is None and not aio._loops


def test_errors_are_raised_where_the_answer_is_awaited(llm: LLM) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="temperature is -1"):
            await llm.agenerate("x", SamplingParams(temperature=-1))
        other = LLM()
        stream = other.astream("Once upon a time", ENDLESS)
        await anext(stream)
        other.close()
        with pytest.raises(RuntimeError, match="it was shut down"):
            while True:
                await anext(stream)

    asyncio.run(main())


def test_texts_are_embedded_for_tasks() -> None:
    with Embedder(shared("minilm-l6-v2")) as embedder:
        texts = [f"text {index}" for index in range(20)]

        async def main() -> None:
            vectors = await asyncio.gather(*[embedder.aembed(text) for text in texts])
            whole = embedder.embed(texts)
            assert all((one[0] == row).all() for one, row in zip(vectors, whole))
            task = asyncio.ensure_future(embedder.aembed(texts * 100))
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
