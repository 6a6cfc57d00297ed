"""Models with threads, signals, forks and the end of the interpreter."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import threading
import time

import pytest

from conftest import python, shared, wait_until_empty
from perihelion import LLM, Embedder, SamplingParams

ENDLESS = SamplingParams(temperature=0, ignore_eos=True)
DRAWN = SamplingParams(temperature=0.8, max_tokens=20, seed=7)


def test_the_gil_is_free_while_a_model_writes(llm: LLM) -> None:
    ticks: list[float] = []
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.001):
            ticks.append(time.perf_counter())

    thread = threading.Thread(target=run)
    thread.start()
    start = time.perf_counter()
    try:
        llm.generate(["The fox"] * 16, SamplingParams(temperature=0, ignore_eos=True, max_tokens=250))
    finally:
        end = time.perf_counter()
        stop.set()
        thread.join()
    moments = [start, *(tick for tick in ticks if start < tick < end), end]
    # If the call held the GIL, there would be no tick within it.
    assert max(after - before for before, after in itertools.pairwise(moments)) < (end - start) / 3


@pytest.mark.parametrize("call", ["generate", "stream", "score", "embed"])
def test_signals_interrupt_calls(call: str) -> None:
    many = ["Once upon a time"] * 2000
    llm: LLM | Embedder
    if call == "embed":
        llm = Embedder(shared("minilm-l6-v2"), num_threads=1)
        work = lambda: llm.embed(many)  # noqa: E731
    else:
        llm = LLM(num_threads=1)
        works = {
            "generate": lambda: llm.generate(many, ENDLESS),
            "stream": lambda: [list(llm.stream("The fox", ENDLESS)) for _ in many],
            "score": lambda: llm.score("Once upon a time " * 20_000),
        }
        work = works[call]

    def interrupt() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    with llm:
        for _ in range(3):
            sent: list[float] = []
            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                work()
            late = time.monotonic() - sent[0]
            thread.join()
            assert late < 60
        if isinstance(llm, LLM):
            assert len(llm.generate("The fox", DRAWN)[0].token_ids) == 20
            wait_until_empty(llm)


def test_the_interpreter_ends_quietly_with_everything_alive() -> None:
    for _ in range(5):
        result = python("""
            import asyncio, threading
            from perihelion import LLM, SamplingParams
            endless = SamplingParams(ignore_eos=True, temperature=0)
            llm = LLM()
            stream = llm.stream("Once", endless)
            next(stream)
            def loop():
                while True:
                    llm.generate("The fox", endless)
            def run():
                async def main():
                    while True:
                        async for chunk in llm.astream("A king", endless):
                            pass
                asyncio.run(main())
            for work in (loop, loop, run):
                threading.Thread(target=work, daemon=True).start()
            while llm.status()["running"] < 2:
                pass
            raise SystemExit(3)
            """)
        assert (result.returncode, result.stdout, result.stderr) == (3, "", "")


def test_an_uncaught_interrupt_ends_the_program_as_ever() -> None:
    result = python("""
        import signal, threading
        from perihelion import LLM, SamplingParams
        llm = LLM()
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        llm.generate(["Once"] * 2000, SamplingParams(ignore_eos=True, temperature=0))
        """)
    assert result.returncode == -signal.SIGINT and result.stderr.rstrip().endswith("KeyboardInterrupt")
    # No traceback shows more than two frames of ours.
    assert result.stderr.count("perihelion/") <= 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_cannot_use_the_models_of_its_parent() -> None:
    result = python("""
        import asyncio, os, time
        from perihelion import LLM, SamplingParams
        short = SamplingParams(max_tokens=3, temperature=0)
        llm = LLM()
        stream = llm.stream("Once", SamplingParams(ignore_eos=True, temperature=0))
        text = llm.generate("The fox", short)[0].text
        asyncio.run(llm.agenerate("The fox", short))
        child = os.fork()
        if child == 0:
            calls = [lambda: llm.generate("x", short), lambda: next(stream), llm.status, llm.close, stream.close,
                lambda: asyncio.run(llm.agenerate("x", short)), lambda: llm.tokenizer.encode("x")]
            for call in calls:
                start = time.monotonic()
                try:
                    call()
                    print("it worked", flush=True)
                except RuntimeError as error:
                    good = "spawn" in str(error) and "forkserver" in str(error) and time.monotonic() - start < 0.1
                    print("refused" if good else error, flush=True)
            own = LLM()
            print(own.generate("The fox", short)[0].text == text, flush=True)
            print(asyncio.run(own.agenerate("The fox", short)).text == text, flush=True)
            del stream, llm, own
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(llm.generate("The fox", short)[0].text == text)
        """)
    assert (result.stdout.split(), result.stderr) == (["refused"] * 7 + ["True"] * 3, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_cannot_use_the_sessions_of_its_parent() -> None:
    result = python("""
        import os, time
        import numpy as np
        from perihelion.driver import CPU
        from perihelion.dtype import DType
        from perihelion.engine import InferenceSession
        from perihelion.graph import DeviceRef, Graph, TensorType
        graph = Graph("square", lambda x: x @ x, [TensorType(DType.float32, [300, 300], DeviceRef.CPU())])
        x, cpu = np.ones((300, 300), np.float32), CPU()
        session = InferenceSession([cpu])
        compiled = session.compile(graph)
        model = session.init(compiled)
        debug = session.debug
        (expected,) = model.execute(x)
        child = os.fork()
        if child == 0:
            calls = [lambda: session.compile(graph), lambda: session.init(compiled), lambda: session.load(graph),
                lambda: compiled.export_mef("never.mef"), lambda: model.execute(x), lambda: model(x),
                lambda: model.reload({}), lambda: session.devices, lambda: debug.nan_check]
            for call in calls:
                start = time.monotonic()
                try:
                    call()
                    print("it worked", flush=True)
                except RuntimeError as error:
                    good = "spawn" in str(error) and "forkserver" in str(error) and time.monotonic() - start < 0.1
                    print("refused" if good else error, flush=True)
            for own in (InferenceSession(), InferenceSession([cpu]), InferenceSession([CPU()])):
                (y,) = own.load(graph).execute(x)
                print((y.to_numpy() == expected.to_numpy()).all(), flush=True)
            del session, compiled, model, debug, own, y
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        print((model.execute(x)[0].to_numpy() == expected.to_numpy()).all())
        """)
    assert (result.stdout.split(), result.stderr) == (["refused"] * 9 + ["True"] * 4, "")


def answer(prompt: str) -> str:
    return LLM().generate(prompt, DRAWN)[0].text


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_have_models_of_their_own(llm: LLM, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"the system has no {method}")
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.map(answer, ["The fox"]) == [llm.generate("The fox", DRAWN)[0].text]


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the system has no smaps_rollup")
def test_closing_frees_the_memory() -> None:
    # In a process of its own: others' models leave memory that the allocator uses again.
    path = shared("storyteller/gguf/storyteller-BF16.gguf")
    code = f"""
        import statistics
        from perihelion import LLM, SamplingParams

        def resident():
            "Bytes of memory that are this process's own."
            with open("/proc/self/smaps_rollup") as lines:
                own = [line for line in lines if line.startswith(("Private_Dirty", "Private_Clean"))]
            return 1024 * sum(int(line.split()[1]) for line in own)

        def load():
            llm = LLM({str(path)!r}, weights_dtype="f32")
            llm.generate(["The fox"] * 4, SamplingParams(temperature=0, max_tokens=20))
            return llm

        load().close()
        start, sizes, helds = resident(), [], []
        for closes in (True, False) * 5:
            before = resident()
            llm = load()
            helds.append(resident() - before)
            if closes:
                llm.close()
            del llm
            sizes.append(resident() - before)
        # The allocator may keep what a thread freed last, for the next model, so that not every close shows it.
        assert statistics.median(helds) > 20 << 20 and statistics.median(sizes) < 2 << 20, (helds, sizes)
        assert resident() - start < 2 * max(helds), sizes
    """
    result = python(code)
    assert result.returncode == 0, result.stderr


def test_threads_that_embed_get_their_own() -> None:
    with Embedder(shared("minilm-l6-v2")) as embedder:
        expected = embedder.embed(["a", "b", "c"])
        wrong = []

        def run() -> None:
            for _ in range(5):
                if not (embedder.embed(["a", "b", "c"]) == expected).all():
                    wrong.append(1)

        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
