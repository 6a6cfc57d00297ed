#!/usr/bin/env python3
"""Times the Python package, the `peri` command and other packages in alternation, and prints medians.

  compare_python.py [--model FILE.gguf] [--rounds 5] [--peri PERI] [--tokens 64]

Run it with a Python that has the package installed, and a `peri` built from the same source. `onnxruntime` with `onnx`,
and `llama_cpp`, are measured if they are installed. Each round runs everything once, since the machine may be shared.
"""
import argparse
import asyncio
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

PROMPTS = [f"{name} went to the" for name in ("The king", "A fox", "My daughter", "The old man")] * 16


def microseconds(call, repetitions=20_000):
    for _ in range(100):
        call()
    start = time.perf_counter()
    for _ in range(repetitions):
        call()
    return (time.perf_counter() - start) / repetitions * 1e6


def calls():
    """The cost of a call of the smallest graph, in microseconds."""
    text = "graph double(%x: f32[1]) { %y = add(%x, %x) return %y }"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "double.graph"
        path.write_text(text)
        model = InferenceSession(num_threads=1).load(path)
    array = np.ones(1, np.float32)
    buffer = Buffer.from_dlpack(array)
    yield "execute(buffer), µs", lambda: microseconds(lambda: model.execute(buffer))
    yield "execute(array), µs", lambda: microseconds(lambda: model.execute(array))
    yield "Buffer.from_dlpack(array), µs", lambda: microseconds(lambda: Buffer.from_dlpack(array))
    yield "buffer.to_numpy(), µs", lambda: microseconds(lambda: buffer.to_numpy())
    try:
        import onnx
        import onnxruntime
    except ImportError:
        return
    info = lambda name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "g", [info("x")], [info("y")])
    onnx_model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), options)
    yield "onnxruntime run(array), µs", lambda: microseconds(lambda: session.run(None, {"x": array}))


def imports():
    """The time that an interpreter takes to start, in milliseconds."""

    def start(code):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - begin) * 1e3

    yield "import numpy, ms", lambda: start("import numpy")
    yield "import numpy, perihelion, ms", lambda: start("import numpy, perihelion")
    yield "the same and engine, driver, ms", lambda: start("import numpy, perihelion.engine, perihelion.driver")


def generation(model, peri, tokens):
    """Tokens per second for all prompts at once."""
    params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)
    llm = LLM(model)

    def rate(run):
        begin = time.perf_counter()
        run()
        return len(PROMPTS) * tokens / (time.perf_counter() - begin)

    def command():
        arguments = [peri, "generate", *([model] if model else []), *PROMPTS, "--temperature", "0", "-n", str(tokens)]
        result = subprocess.run([*arguments, "--ignore-eos"], capture_output=True, text=True, check=True)
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

    yield f"peri generate, {len(PROMPTS)} prompts, tok/s", command
    yield "LLM.generate, tok/s", lambda: rate(lambda: llm.generate(PROMPTS, params))
    yield "LLM.stream, tok/s", lambda: rate(streams)
    yield "LLM.astream, tok/s", lambda: rate(lambda: asyncio.run(tasks()))

    one = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)

    def first():
        begin = time.perf_counter()
        next(llm.stream(PROMPTS[0], one))
        return (time.perf_counter() - begin) * 1e3

    def alone():
        begin = time.perf_counter()
        llm.generate(PROMPTS[0], one)
        return tokens / (time.perf_counter() - begin)

    yield "LLM.stream, first token, ms", first
    yield "LLM.generate, one prompt, tok/s", alone
    try:
        from llama_cpp import Llama
    except ImportError:
        return
    if model:
        llama = Llama(model, n_ctx=512, verbose=False)

        def peer():
            llama.reset()
            begin = time.perf_counter()
            # A bias of -inf stands for `ignore_eos`.
            llama(PROMPTS[0], max_tokens=tokens, temperature=0, logit_bias={llama.token_eos(): float("-inf")})
            return tokens / (time.perf_counter() - begin)

        def peer_first():
            llama.reset()
            begin = time.perf_counter()
            next(iter(llama(PROMPTS[0], max_tokens=tokens, temperature=0, stream=True)))
            return (time.perf_counter() - begin) * 1e3

        yield "llama_cpp, first token, ms", peer_first
        yield "llama_cpp, one prompt, tok/s", peer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file; the built-in model if not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peri", default="target/release/peri")
    parser.add_argument("--tokens", type=int, default=64)
    arguments = parser.parse_args()
    works = [*calls(), *imports(), *generation(arguments.model, arguments.peri, arguments.tokens)]
    values = {name: [] for name, _ in works}
    for _ in range(arguments.rounds):
        for name, work in works:
            values[name].append(work())
    print(f"| what | median of {arguments.rounds} | least to most |\n|---|---:|---|")
    for name, found in values.items():
        print(f"| {name} | {statistics.median(found):.3g} | {min(found):.3g} to {max(found):.3g} |")


main()
