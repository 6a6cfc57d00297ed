#!/usr/bin/env python3
"""Times the Python package, the `peri` command and other packages in alternation, and prints the table of docs/performance.md.

  compare_python.py [--model FILE.gguf] [--rounds 5] [--peri PERI] [--tokens 64]

Run it with a Python that has the package installed, and a `peri` built from the same source. ONNX Runtime (`onnxruntime`
and `onnx`), llama.cpp (`llama-cpp-python`) and mistral.rs (`mistralrs`) are measured if they are installed; the latter two
run the same file on as many threads. Each round runs everything once, since the machine may be shared; the table has
medians. The least and the most of each figure go to standard error.
"""
import argparse
import asyncio
import functools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from perihelion import LLM, SamplingParams
from perihelion.driver import Buffer
from perihelion.engine import InferenceSession

ROOT = Path(__file__).parents[1]
PROMPTS = [f"{name} went to the" for name in ("The king", "A fox", "My daughter", "The old man")] * 16


class Row:
    """A line of the table: what is measured, in which unit, and the same with other packages, by their names."""

    def __init__(self, what, unit, *works, peers=None):
        self.what, self.unit, self.works = what, unit, works
        self.values = [[] for _ in works]
        self.peers = {name: (work, []) for name, work in (peers or {}).items() if work}

    def run(self):
        for work, values in [*zip(self.works, self.values), *self.peers.values()]:
            values.append(work())

    def __str__(self):
        here = ", ".join(self.shown(values) for values in self.values)
        rivals = ", ".join(f"{name}: {self.shown(values)}" for name, (_, values) in self.peers.items())
        return f"| {self.what} | {here} | {rivals} |"

    def shown(self, values):
        median = statistics.median(values)
        return f"{median:,.0f} {self.unit}" if median >= 100 else f"{median:.3g} {self.unit}"

    def spread(self):
        every = [*self.values, *(values for _, values in self.peers.values())]
        return f"{self.what}: " + "; ".join(f"{min(values):.3g} to {max(values):.3g} {self.unit}" for values in every)


def installed(*names):
    """The modules, or `None` and a message if one is not installed."""
    try:
        return [__import__(name) for name in names]
    except ImportError as error:
        print(f"{error.name} is not installed: it is not compared", file=sys.stderr)
        return None


def microseconds(call, repetitions=20_000):
    for _ in range(100):
        call()
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions * 1e6


def calls():
    """The cost of a call of the smallest graph."""
    text = "graph double(%x: f32[1]) { %y = add(%x, %x) return %y }"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "double.graph"
        path.write_text(text)
        model = InferenceSession(num_threads=1).load(path)
    array = np.ones(1, np.float32)
    buffer = Buffer.from_dlpack(array)
    timed = lambda call: lambda: microseconds(call)
    yield Row("`model.execute` of the smallest graph, with a buffer", "µs", timed(lambda: model.execute(buffer)))
    peer = onnxruntime_call(array)
    peers = {"ONNX Runtime's `run`": peer and timed(peer)}
    yield Row("the same with a NumPy array", "µs", timed(lambda: model.execute(array)), peers=peers)
    yield Row(
        "`Buffer.from_dlpack(array)`, `buffer.to_numpy()`",
        "µs",
        timed(lambda: Buffer.from_dlpack(array)),
        timed(lambda: buffer.to_numpy()),
    )


def onnxruntime_call(array):
    """The same graph in ONNX Runtime."""
    modules = installed("onnx", "onnxruntime")
    if not modules:
        return None
    onnx, onnxruntime = modules
    info = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "g", [info("x")], [info("y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda: session.run(None, {"x": array})


def imports():
    """How long an interpreter takes that has NumPy already."""
    code = "import numpy, time; begin = time.perf_counter(); import perihelion; print(time.perf_counter() - begin)"

    def package():
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(result.stdout) * 1e3

    yield Row("`import perihelion`, after NumPy", "ms", package)


def generation(model, peri, tokens):
    """Tokens per second for all prompts at once, and for one alone."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    # `peri generate`, and llama.cpp after a reset, cache no prompts either.
    llm = LLM(model, enable_prefix_caching=False)

    def rate(run, prompts=PROMPTS):
        begin = time.perf_counter()
        run()
        return len(prompts) * tokens / (time.perf_counter() - begin)

    def command():
        arguments = [peri, "generate", model, *PROMPTS, "--temperature", "0", "-n", str(tokens), "--ignore-eos"]
        result = subprocess.run(arguments, capture_output=True, text=True, check=True)
        (numbers,) = re.findall(r"prompt (\d+) tokens, ([\d.]+) tok/s .* decode (\d+) tokens, ([\d.]+)", result.stderr)
        prompt, prompt_rate, decoded, decode_rate = map(float, numbers)
        return decoded / (prompt / prompt_rate + decoded / decode_rate)

    def streams():
        open_streams = [llm.stream(prompt, params) for prompt in PROMPTS]
        while open_streams:
            open_streams = [stream for stream in open_streams if next(stream, None) is not None]

    async def tasks():
        async def read(prompt):
            async for _ in llm.astream(prompt, params):
                pass

        await asyncio.gather(*map(read, PROMPTS))

    def first():
        begin = time.perf_counter()
        next(llm.stream(PROMPTS[0], params))
        return (time.perf_counter() - begin) * 1e3

    count = len(PROMPTS)
    generate = lambda: rate(lambda: llm.generate(PROMPTS, params))
    yield Row("`LLM.generate`", "tok/s", generate, peers={"`peri generate`": command})
    yield Row(f"`LLM.stream`, {count} at once", "tok/s", lambda: rate(streams))
    yield Row(f"`LLM.astream`, {count} tasks", "tok/s", lambda: rate(lambda: asyncio.run(tasks())))
    alone = lambda: rate(lambda: llm.generate(PROMPTS[0], params), PROMPTS[:1])
    calls = {"llama-cpp-python": llama_cpp_calls(model, tokens), "mistralrs": mistralrs_calls(model, tokens)}
    rates, firsts = ({name: pair[i] for name, pair in calls.items()} for i in range(2))
    yield Row("`LLM.generate`, one prompt", "tok/s", alone, peers=rates)
    yield Row("`LLM.stream`, the first token", "ms", lambda: several(first), peers=firsts)


def llama_cpp_calls(model, tokens):
    """Tokens per second for one prompt, and milliseconds to its first token, with llama.cpp."""
    modules = installed("llama_cpp")
    if not modules:
        return None, None
    cores = len(os.sched_getaffinity(0))
    llama = modules[0].Llama(model, n_ctx=512, n_threads=cores, n_threads_batch=cores, verbose=False)
    # A bias of -inf stands for `ignore_eos`.
    bias = {llama.token_eos(): float("-inf")}
    call = functools.partial(llama, PROMPTS[0], max_tokens=tokens, temperature=0, logit_bias=bias)

    def rate():
        llama.reset()
        begin = time.perf_counter()
        made = call()["usage"]["completion_tokens"]
        assert made == tokens, f"llama.cpp made {made} of {tokens} tokens"
        return tokens / (time.perf_counter() - begin)

    def first():
        llama.reset()
        begin = time.perf_counter()
        next(iter(call(stream=True)))
        return (time.perf_counter() - begin) * 1e3

    return rate, lambda: several(first)


def mistralrs_calls(model, tokens):
    """The same with mistral.rs, which ends answers at the end of the text. The first token is an answer of one token."""
    modules = installed("mistralrs")
    if not modules:
        return None, None
    (mistralrs,) = modules
    path = Path(model)
    which = mistralrs.Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
    runner = mistralrs.Runner(which=which, prefix_cache_n=0)

    def made(limit):
        request = mistralrs.CompletionRequest(model="default", prompt=PROMPTS[0], max_tokens=limit, temperature=0)
        return runner.send_completion_request(request).usage.completion_tokens

    def rate():
        begin = time.perf_counter()
        count = made(tokens)
        return count / (time.perf_counter() - begin)

    def first():
        begin = time.perf_counter()
        made(1)
        return (time.perf_counter() - begin) * 1e3

    return rate, lambda: several(first)


def several(measure):
    """The median of some calls: the first finds cold caches, and threads of another package that have not gone to sleep."""

    def rested():
        time.sleep(0.01)  # The answer before is cancelled meanwhile.
        return measure()

    return statistics.median(rested() for _ in range(9))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(ROOT / "crates/storyteller/model.gguf"), help="the built-in model's file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peri", default=str(ROOT / "target/release/peri"))
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    rows = [*calls(), *imports(), *generation(arguments.model, arguments.peri, arguments.tokens)]
    for _ in range(arguments.rounds):
        for row in rows:
            row.run()
    print("| measure | here | rival |\n|---|---:|---:|")
    for row in rows:
        print(row)
    for row in rows:
        print(row.spread(), file=sys.stderr)


main()
