#!/usr/bin/env python3
"""Compares next-token distributions of peri and llama.cpp with reference logits.

    compare_llama_cpp_logits.py STORIES260K PERI

STORIES260K is the folder of that model in the shared test data, PERI the program. Needs numpy and xllamacpp from PyPI.
Prints, for f32, f16 and bf16 weights, the Kullback-Leibler divergence from the reference in nats over all positions of
the reference prompts.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import xllamacpp

folder, peri = Path(sys.argv[1]), sys.argv[2]


def tensors(path):
    """Reads tensors of f32 and u32 from a safetensors file."""
    file = Path(path).read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    header = json.loads(file[8 : 8 + length])
    header.pop("__metadata__", None)
    types = {"F32": "<f4", "U32": "<u4"}
    return {
        name: np.frombuffer(file, types[entry["dtype"]], np.prod(entry["shape"], dtype=int), 8 + length + entry["data_offsets"][0])
        .reshape(entry["shape"])
        for name, entry in header.items()
        if entry["dtype"] in types
    }


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.logaddexp.reduce(logits)


def divergence(reference, other):
    reference, other = log_softmax(reference), log_softmax(other)
    return float((np.exp(reference) * (reference - other)).sum())


def of_peri(model, case):
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "logits.safetensors"
        command = [peri, "eval", model, "-q", "--json", "-p", case["prompt"], "--logits-out", out]
        subprocess.run(command, check=True, capture_output=True)
        saved = tensors(out)
    assert list(saved["tokens"]) == case["prompt_ids"]
    return saved["logits"]


def server_of(model):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 512, 1, -1
    parameters.cpuparams.n_threads = 2
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(parameters)


def of_llama_cpp(server, case, vocabulary):
    for length in range(1, len(case["prompt_ids"]) + 1):
        request = {"prompt": case["prompt_ids"][:length], "n_predict": 1, "n_probs": vocabulary, "temperature": 1.0}
        answer = server.handle_completions(request | {"post_sampling_probs": False, "cache_prompt": False})
        answer = json.loads(answer) if isinstance(answer, (str, bytes)) else answer
        chosen = (answer.get("completion_probabilities") or answer["choices"][0]["logprobs"]["content"])[0]
        logits = np.full(vocabulary, -60.0)
        for token in chosen["top_logprobs"]:
            logits[token["id"]] = token["logprob"]
        yield logits


def main():
    cases = json.loads((folder / "reference/greedy.json").read_text())["cases"]
    reference = tensors(folder / "reference/logits.safetensors")
    for weights in ["F32", "F16", "BF16"]:
        model = folder / f"gguf/stories260K-{weights}.gguf"
        server = server_of(model)
        rows = {"peri": [], "llama.cpp": []}
        for index, case in enumerate(cases):
            expected = reference[f"logits_{index}"]
            others = {"peri": of_peri(model, case), "llama.cpp": of_llama_cpp(server, case, expected.shape[1])}
            for name, logits in others.items():
                rows[name] += [divergence(row, other) for row, other in zip(expected, logits, strict=True)]
        for name, values in rows.items():
            print(f"{weights:5} {name:10} {len(values)} positions, mean {np.mean(values):.3g}, median {np.median(values):.3g}")


main()
