"""Times graphs with the benches of Perihelion and, as ONNX models, with other engines."""
import dataclasses
import json
import re
from math import prod

import machine

# Names in tables, and the modules that `graph_peers.py` imports.
PEERS = {"ONNX Runtime": "onnxruntime", "OpenVINO": "openvino"}
# Shape of the input, shape of the filter, groups, stride, padding.
CONVOLUTIONS = {
    "depthwise at 112": ([1, 32, 112, 112], [32, 1, 3, 3], 32, 1, 1),
    "depthwise by 2": ([1, 96, 112, 112], [96, 1, 3, 3], 96, 2, 1),
    "depthwise at 14": ([1, 384, 14, 14], [384, 1, 3, 3], 384, 1, 1),
    "stem 7x7": ([1, 3, 224, 224], [64, 3, 7, 7], 1, 2, 3),
    "stem 3x3": ([1, 3, 224, 224], [32, 3, 3, 3], 1, 2, 1),
}
# The encoder: layers, tokens, hidden size, heads, size of the inner layers, vocabulary.
LAYERS, TOKENS, HIDDEN, HEADS, INNER, VOCABULARY = 6, 128, 384, 12, 1536, 30522
ENCODER_OPERATIONS = LAYERS * (2 * TOKENS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER) + 4 * TOKENS * TOKENS * HIDDEN)
# The convolutions and the last layers of ResNet-18 and of MobileNet v1.
RESNET_OPERATIONS, MOBILENET_OPERATIONS = round(3.63e9), round(1.14e9)


@dataclasses.dataclass
class Problem:
    """A row."""

    name: str
    # The key of the model in `onnx_models.py`. Rows that differ in layout have the same, since ONNX has one layout.
    model: str
    # The bench, with the arguments that select the row, and the start of its line.
    bench: tuple
    arguments: str
    line: str
    # The least that it takes: operations, or bytes read and written.
    operations: int = 0
    bytes: int = 0

    def work(self):
        return {"unit": "ms", "operations": self.operations, "bytes": self.bytes, "arithmetic": "f32"}


OPS, IMAGES = ("perihelion-cpu", "ops"), ("perihelion-cpu", "images")
VISION, ENCODER = ("perihelion-cpu", "vision"), ("perihelion", "encoder")


def ops():
    yield from matrices()
    yield from images()


def networks():
    for key, name, operations in (
        ("resnet18", "ResNet-18", RESNET_OPERATIONS),
        ("mobilenet", "MobileNet v1", MOBILENET_OPERATIONS),
    ):
        for layout, suffix in (("ChannelsFirst", "channels first"), ("ChannelsLast", "channels last")):
            line = rf"{key} {layout} "
            yield Problem(f"{name}, {suffix}", key, VISION, key, line, operations)
    for batch in (1, 8, 32):
        line = rf"encoder of \d+ layers, +{batch} x {TOKENS} tokens"
        name = f"encoder {batch} × {TOKENS}"
        yield Problem(name, f"encoder {batch}", ENCODER, "forward", line, batch * ENCODER_OPERATIONS)


def matrices():
    for n in (1024, 2048):
        for key, start in (("given", "matmul"), ("constant", "packed matmul")):
            line = rf"{start}\[f32.* \[{n}, {n}\] \[{n}, {n}\]"
            yield Problem(f"matmul {n}³, right side {key}", f"matmul {key} {n}", OPS, "matmul[f32", line, 2 * n**3)
    matrix = 2 * 4 * 4096 * 4096
    line = r"softmax\[f32.* \[4096, 4096\] axis Int\(1\)"
    yield Problem("softmax 4096 × 4096", "softmax", OPS, "softmax[f32", line, bytes=matrix)
    yield Problem("layer_norm 4096 × 4096", "layer_norm", OPS, "layer_norm", "layer_norm", bytes=matrix)
    for key, name in (("gelu", "exact gelu"), ("gelu_tanh", "gelu by tanh")):
        kernel = f"elementwise[mul, add, {key}, add"
        name = f"{name} of x·a + b, + c, 64 M"
        yield Problem(name, key, OPS, kernel, re.escape(kernel), bytes=2 * 4 * (64 << 20))


def images():
    for name, (x, filters, _, stride, padding) in CONVOLUTIONS.items():
        size = (x[2] + 2 * padding - filters[2]) // stride + 1
        operations = 2 * prod(filters) * size * size
        for layout, suffix in (("nchw", "channels first"), ("nhwc", "channels last")):
            bench = f"conv {name} {layout}"
            yield Problem(f"conv {name}, {suffix}", f"conv {name}", IMAGES, bench, f"{bench} ", operations)
    for kind in ("Max", "Average"):
        for layout, suffix in (("ChannelsFirst", "channels first"), ("ChannelsLast", "channels last")):
            bench, moved = f"pool 3x3 by 2 {layout} {kind}", 4 * 8 * 64 * (112 * 112 + 56 * 56)
            name = f"{kind.lower()} pool 3 × 3 by 2, {suffix}"
            yield Problem(name, f"pool {kind}", IMAGES, bench, bench, bytes=moved)
    for mode in ("nearest", "linear"):
        name, moved = f"resize {mode} by 2", 4 * 4 * 3 * (512 * 512 + 1024 * 1024)
        yield Problem(name, name, IMAGES, name, name, bytes=moved)


def groups(options):
    """Names of groups with their rows. In each round, every engine measures a group in one process."""
    every = {"op": ops(), "network": networks()}
    chosen = {name: [problem for problem in group if options.only in problem.name] for name, group in every.items()}
    return [(name, group) for name, group in chosen.items() if group]


def measure(group, options):
    """One round."""
    name, chosen = group
    figures = {f"Perihelion {of}": perihelion(chosen, options.threads, of) for of in options.sets}
    models, versions = list(dict.fromkeys(problem.model for problem in chosen)), {}
    for peer, answer in machine.peers("graph_peers.py", PEERS, options.python, options.threads, json.dumps(models)):
        figures[peer] = {problem.name: answer["figures"][problem.model] for problem in chosen}
        versions[peer] = answer["version"]
    rows = {problem.name: problem.work() for problem in chosen}
    return {"group": name, "versions": versions, "rows": rows, "figures": figures}


def perihelion(chosen, threads, instruction_set):
    """Milliseconds of each row: the shortest of the bench's runs."""
    figures = {}
    for bench in dict.fromkeys(problem.bench for problem in chosen):
        rows = [problem for problem in chosen if problem.bench == bench]
        arguments = dict.fromkeys(problem.arguments for problem in rows)
        lines = machine.bench(*bench, *arguments, threads, instruction_set=instruction_set)
        figures |= {problem.name: milliseconds(lines, problem.line) for problem in rows}
    return figures


def milliseconds(lines, start):
    """
    >>> milliseconds(["softmax[f32,avx2]   3.640 ms   36.9 GB/s  [4096, 4096] axis Int(1)"], r"softmax.* axis Int\\(1\\)")
    3.64
    >>> milliseconds(["encoder of 6 layers,  1 x 128 tokens:    8.810 ms, 325.0 GFLOP/s"], "encoder of")
    8.81
    """
    found = next((line for line in lines if re.match(start, line)), None)
    if found is None:
        raise SystemExit(f"a bench prints no line like {start}:\n" + "\n".join(lines))
    return float(re.search(r"([\d.]+) ms", found)[1])
