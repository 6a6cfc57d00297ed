#!/usr/bin/env python3
"""Times `peri bench` and llama.cpp, or engines made from it, in alternation, and prints a table for docs/performance.md.

  compare.py MODEL.gguf... [--peri PERI] [--threads N] [--rounds 5] [--prompt 64,512] [--tokens 64] [--batch 8,16]
             [--peer NAME=PYTHON]...

A peer is a Python interpreter that has `llama_cpp` (llama-cpp-python) or `ik_llama_cpp` (ik-llama-cpp-python) installed,
built for this machine; without `--peer`, it is the one that runs this script. Each round starts every engine once, in a
process of its own, so that the machine's drift meets all of them. The table has medians and, in brackets, the least and
the most of the rounds' ratios; a ratio above 1 means that Perihelion is faster.
"""
import argparse
import importlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# As `peri bench` does it: tokens of each sequence before they are decoded together, and steps of that.
BATCH_PROMPT, BATCH_TOKENS = 16, 25


def perihelion(arguments, model):
    """Seconds of loading and tokens per second of `peri bench`, by the names of its figures."""
    command = [arguments.peri, "bench", model, "--json", "-r", "1", "-t", str(arguments.threads)]
    command += ["-p", arguments.prompt, "-n", str(arguments.tokens), "--batch", arguments.batch]
    figures = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    figures = json.loads(figures) if figures.startswith("[") else [json.loads(line) for line in figures.splitlines()]
    return {figure["metric"]: figure["median"] for figure in figures if figure["unit"] == "tok/s"}


def peer(python, arguments, model):
    """The same of a peer, which this script measures as the program of the peer's interpreter."""
    command = [python, __file__, model, "--measure", "--threads", str(arguments.threads)]
    command += ["--prompt", arguments.prompt, "--tokens", str(arguments.tokens), "--batch", arguments.batch]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{python}: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


class LlamaCpp:
    """A model in llama.cpp, by the functions of its C interface."""

    def __init__(self, path, threads, sequences, context):
        self.api = api = llama_module()
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        load = getattr(api, "llama_model_load_from_file", None) or api.llama_load_model_from_file
        self.model = load(path.encode(), params)
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = context, 2048, 512, sequences
        params.n_threads = params.n_threads_batch = threads
        if hasattr(params, "kv_unified"):
            params.kv_unified = True
        create = getattr(api, "llama_init_from_model", None) or api.llama_new_context_with_model
        self.context = create(self.model, params)
        if not self.context:
            raise SystemExit(f"{path} cannot be loaded")
        self.batch = api.llama_batch_init(2048, 0, sequences)
        self.vocabulary = self.vocabulary_size()

    def vocabulary_size(self):
        if hasattr(self.api, "llama_vocab_n_tokens"):
            return self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))
        return self.api.llama_n_vocab(self.model)

    def clear(self):
        if hasattr(self.api, "llama_get_memory"):
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        else:
            self.api.llama_kv_cache_clear(self.context)

    def tokens(self, count):
        return [random.randrange(256, self.vocabulary - 2) for _ in range(count)]

    def run(self, items):
        """Runs tokens, each with its position, its sequence, and whether its logits are wanted."""
        self.batch.n_tokens = len(items)
        for i, (token, position, sequence, logits) in enumerate(items):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, position, logits
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
        if self.api.llama_decode(self.context, self.batch):
            raise SystemExit(f"llama_decode fails for {len(items)} tokens")
        self.api.llama_synchronize(self.context)

    def prefill(self, sequence, count):
        self.run([(token, i, sequence, i == count - 1) for i, token in enumerate(self.tokens(count))])

    def prompt_rate(self, count):
        self.clear()
        return rate(count, lambda: self.prefill(0, count))

    def decode_rate(self, sequences, steps):
        """Tokens per second of sequences that are decoded together after a short prompt each."""
        self.clear()
        for sequence in range(sequences):
            self.prefill(sequence, BATCH_PROMPT)

        def decode():
            for step in range(steps):
                tokens = enumerate(self.tokens(sequences))
                self.run([(token, BATCH_PROMPT + step, sequence, True) for sequence, token in tokens])

        return rate(sequences * steps, decode)


def llama_module():
    for name in ("llama_cpp", "ik_llama_cpp"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"{sys.executable} has neither llama_cpp nor ik_llama_cpp")


def rate(count, work):
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def measure(arguments):
    """Prints what `peer` reads."""
    prompts, batches = numbers(arguments.prompt), numbers(arguments.batch)
    sequences = max(batches)
    context = max(max(prompts), BATCH_PROMPT + arguments.tokens, sequences * (BATCH_PROMPT + BATCH_TOKENS)) + 256
    engine = LlamaCpp(arguments.models[0], arguments.threads, sequences, context)
    engine.prompt_rate(16)
    figures = {f"pp{count}": engine.prompt_rate(count) for count in prompts}
    figures[f"tg{arguments.tokens}"] = engine.decode_rate(1, arguments.tokens)
    figures |= {f"b{count}": engine.decode_rate(count, BATCH_TOKENS) for count in batches}
    print(json.dumps(figures))


def numbers(text):
    return [int(number) for number in text.split(",")]


def compare(arguments):
    """The rows of each model."""
    peers = dict(text.split("=", 1) for text in arguments.peer) or {"llama.cpp": sys.executable}
    print("| model | | Perihelion | " + " | ".join(f"{name} | ratio" for name in peers) + " |")
    print("|---|---|---|" + "---|---|" * len(peers))
    for model in arguments.models:
        ours, theirs = [], {name: [] for name in peers}
        for _ in range(arguments.rounds):
            ours.append(perihelion(arguments, model))
            for name, python in peers.items():
                theirs[name].append(peer(python, arguments, model))
        for metric in theirs[next(iter(peers))][0]:
            here = [figures[metric] for figures in ours]
            cells = [Path(model).stem, metric, shown(statistics.median(here))]
            for rounds in theirs.values():
                there = [figures[metric] for figures in rounds]
                ratios = [a / b for a, b in zip(here, there)]
                spread = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"
                cells += [shown(statistics.median(there)), spread]
            print("| " + " | ".join(cells) + " |", flush=True)


def shown(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--peri", default=str(ROOT / "target/release/peri"))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", default="64,512")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", default="8,16")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    measure(arguments) if arguments.measure else compare(arguments)


main()
