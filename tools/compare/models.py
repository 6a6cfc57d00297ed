"""Times language models with `peri bench` and with other engines, which read the same file."""
import json
import time
from math import prod
from pathlib import Path

import machine

# Names in tables, and the modules that `model_peers.py` imports.
PEERS = {"llama.cpp": "llama_cpp", "ik_llama.cpp": "ik_llama_cpp", "OpenVINO": "openvino_genai"}
TEXT = "Once upon a time, a king and a fox went to the old town"
FIRST_TOKEN = "start to first token"


def groups(options):
    return options.models


def measure(model, options):
    """One round of a model."""
    task = {"threads": options.threads, "prompts": options.prompt, "tokens": options.tokens, "text": TEXT}
    task["batches"] = options.batch
    figures = {f"Perihelion {name}": perihelion(model, options, name) for name in options.sets}
    versions = {}
    for name, answer in machine.peers("model_peers.py", PEERS, options.python, model, json.dumps(task)):
        figures[name], versions[name] = answer["figures"], answer["version"]
    rows = work(json.loads(machine.output([options.peri, "inspect", model, "--json"])), options)
    group = Path(model).stem if options.reproducible == "any" else f"{Path(model).stem}, {options.reproducible}"
    return {"group": group, "versions": versions, "rows": rows, "figures": figures}


def perihelion(model, options, instruction_set):
    """Tokens a second, and seconds to the first token."""
    command = [options.peri, "bench", model, "--json", "-r", "1", "-n", str(options.tokens), *settings(options)]
    command += ["-p", ",".join(map(str, options.prompt)), "--batch", ",".join(map(str, options.batch))]
    lines = machine.output(command, instruction_set).splitlines()
    figures = {figure["metric"]: figure["median"] for figure in map(json.loads, lines) if figure["unit"] == "tok/s"}
    return figures | {FIRST_TOKEN: first_token(model, options, instruction_set)}


def first_token(model, options, instruction_set):
    """Seconds from the start of `peri generate` to its end after one token."""
    command = [options.peri, "generate", "-m", model, "-p", TEXT, "-n", "1", *settings(options)]
    start = time.perf_counter()
    machine.output(command, instruction_set)
    return time.perf_counter() - start


def settings(options):
    """Arguments of every command of ours."""
    return ["-t", str(options.threads), "--reproducible", options.reproducible]


def work(model, options):
    """For each row its unit and, if all weights are matrices or vectors, the least that linear layers read and compute.

    >>> class Options: prompt, tokens, batch, reproducible = [2], 4, [8], "any"
    >>> tensors = [{"name": "token_embd.weight", "type": "q8_0", "shape": [10, 4], "bytes": 50}]
    >>> tensors += [{"name": "up.weight", "type": "q8_0", "shape": [8, 4], "bytes": 40}]
    >>> rows = work({"tensors": tensors}, Options)
    >>> rows["pp2"]
    {'unit': 'tok/s', 'tokens': 2, 'bytes': 90, 'operations': 208, 'arithmetic': 'int8'}
    >>> rows["b8"]["operations"]
    1152
    """
    tensors = model["tensors"]
    matrices = [tensor for tensor in tensors if len(tensor["shape"]) == 2]
    embedding = [tensor for tensor in matrices if "embd" in tensor["name"] or "embed" in tensor["name"]]
    head = [tensor for tensor in matrices if tensor["name"] in ("output.weight", "lm_head.weight")] or embedding
    layers = [tensor for tensor in matrices if tensor not in embedding and tensor not in head]
    products = lambda of: 2 * sum(prod(tensor["shape"]) for tensor in of)
    # Rows of an embedding that is not the head are looked up.
    read = sum(tensor["bytes"] for tensor in tensors if tensor not in embedding or tensor in head)
    quantized = all(tensor["type"].startswith(("q", "iq")) for tensor in layers)

    def row(tokens, logits):
        if any(len(tensor["shape"]) > 2 for tensor in tensors):
            return {"unit": "tok/s"}
        operations = tokens * products(layers) + logits * products(head)
        arithmetic = "int8" if quantized else "bf16" if options.reproducible == "machine" else "f32"
        return {"unit": "tok/s", "tokens": tokens, "bytes": read, "operations": operations, "arithmetic": arithmetic}

    rows = {f"pp{count}": row(count, 1) for count in options.prompt}
    rows[f"tg{options.tokens}"] = row(1, 1)
    rows |= {f"b{count}": row(count, count) for count in options.batch}
    return rows | {FIRST_TOKEN: {"unit": "s"}}
