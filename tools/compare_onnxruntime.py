#!/usr/bin/env python3
"""Times Perihelion and ONNX Runtime by turns, and prints the best of each and their ratio.

  compare_onnxruntime.py [--threads 4] [--rounds 3] [--only TEXT] [--encoder ENCODER.onnx]

Needs onnx, onnxruntime and numpy. The machine may be shared: each round runs the one, then the other, and the
shortest time of all rounds counts. `--encoder` takes a model of the shape that the bench `encoder` builds, with one
input `ids: int64[batch, 128]`.
"""
import argparse
import re
import subprocess
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

SECONDS = 1.5  # of measuring, each time


def graph(nodes, inputs, output, constants=()):
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in constants]
    body = helper.make_graph(nodes, "g", [info(*i) for i in inputs], [info("y", output)], constants)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model.SerializeToString()


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def problems():
    """The name, the bench, its filter, what else its line holds, the ONNX model and its inputs."""
    for problem in matrices():
        yield problem[0], "ops", *problem[1:]
    for name, line, model, inputs in images():
        yield name, "images", line, re.escape(line), model, inputs


def matrices():
    for n in (1024, 2048):
        shape, node = [n, n], helper.make_node("MatMul", ["x", "w"], ["y"])
        line, inputs = rf"matmul.*\[{n}, {n}\] \[{n}, {n}\]", {"x": random(n, n), "w": random(n, n)}
        yield f"matmul {n}", "matmul[f32]", line, graph([node], [("x", shape), ("w", shape)], shape), inputs
        constant = graph([node], [("x", shape)], shape, [("w", inputs["w"])])
        yield f"matmul {n}, right side constant", "matmul[f32]", f"packed {line}", constant, {"x": inputs["x"]}
    shape, x = [4096, 4096], {"x": random(4096, 4096)}
    node = helper.make_node("Softmax", ["x"], ["y"], axis=-1)
    yield "softmax 4096 x 4096", "softmax[f32]", r"\[4096, 4096\] axis Int\(1\)", graph([node], [("x", shape)], shape), x
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1, epsilon=1e-5)
    weights = [("s", np.ones(4096, np.float32)), ("b", np.zeros(4096, np.float32))]
    yield "layer_norm 4096 x 4096", "layer_norm", "layer_norm", graph([node], [("x", shape)], shape, weights), x
    n = 64 << 20
    x = {"x": random(n)}
    for name, form in (("gelu", "none"), ("gelu_tanh", "tanh")):
        nodes = [
            helper.make_node("Mul", ["x", "a"], ["p"]),
            helper.make_node("Add", ["p", "b"], ["q"]),
            helper.make_node("Gelu", ["q"], ["r"], approximate=form),
            helper.make_node("Add", ["r", "c"], ["y"]),
        ]
        model = graph(nodes, [("x", [n])], [n], [(k, random(1)) for k in "abc"])
        yield f"{name}(x·a + b) + c, 64 M", f"elementwise[mul, add, {name}, add]", "elementwise", model, x


def images():
    """The names, the lines of the bench, the models and their inputs. ONNX has channels first alone."""
    for name, x, w, groups, stride, padding in (
        ("depthwise at 112", [1, 32, 112, 112], [32, 1, 3, 3], 32, 1, 1),
        ("depthwise by 2", [1, 96, 112, 112], [96, 1, 3, 3], 96, 2, 1),
        ("depthwise at 14", [1, 384, 14, 14], [384, 1, 3, 3], 384, 1, 1),
        ("stem 7x7", [1, 3, 224, 224], [64, 3, 7, 7], 1, 2, 3),
        ("stem 3x3", [1, 3, 224, 224], [32, 3, 3, 3], 1, 2, 1),
    ):
        node = helper.make_node("Conv", ["x", "w"], ["y"], group=groups, strides=[stride] * 2, pads=[padding] * 4)
        size = (x[2] + 2 * padding - w[2]) // stride + 1
        model = graph([node], [("x", x)], [x[0], w[0], size, size], [("w", random(*w))])
        for layout in ("nchw", "nhwc"):
            yield f"conv {name} {layout}", f"conv {name} {layout}", model, {"x": random(*x)}
    x = [8, 64, 112, 112]
    for kind, op, more in (("Max", "MaxPool", {}), ("Average", "AveragePool", {"count_include_pad": 1})):
        node = helper.make_node(op, ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, **more)
        model = graph([node], [("x", x)], [8, 64, 56, 56])
        for layout in ("ChannelsFirst", "ChannelsLast"):
            yield f"pool {kind} {layout}", f"pool 3x3 by 2 {layout} {kind}", model, {"x": random(*x)}
    x, scales = [4, 3, 512, 512], np.array([1, 1, 2, 2], np.float32)
    for mode in ("nearest", "linear"):
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
        model = graph([node], [("x", x)], [4, 3, 1024, 1024], [("s", scales)])
        yield f"resize {mode} by 2", f"resize {mode} by 2", model, {"x": random(*x)}


def onnxruntime(model, inputs, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    session.run_with_iobinding(binding)
    best, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        session.run_with_iobinding(binding)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def bench(package, name, *arguments):
    command = ["cargo", "bench", "-q", "-p", package, "--bench", name, "--", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def perihelion(name, kernel, line, threads):
    """The first line is that of the fastest instruction set."""
    found = next(text for text in bench("perihelion-cpu", name, kernel, threads) if re.search(line, text))
    return float(re.search(r"([\d.]+) ms", found)[1])


def report(name, ours, theirs):
    ours, theirs = min(ours), min(theirs)
    print(f"{name:32} {ours:9.3f} ms  {theirs:9.3f} ms  {theirs / ours:5.2f}x", flush=True)


def encoder(path, threads, rounds):
    ours, theirs = {1: [], 32: []}, {1: [], 32: []}
    for _ in range(rounds):
        lines = bench("perihelion", "encoder", threads)
        for batch in ours:
            line = next(text for text in lines if f"{batch:>2} x 128 tokens" in text)
            ours[batch].append(float(re.search(r"([\d.]+) ms", line)[1]))
            ids = np.random.default_rng(0).integers(0, 30522, (batch, 128))
            theirs[batch].append(onnxruntime(path, {"ids": ids}, threads))
    for batch in ours:
        report(f"encoder {batch} x 128", ours[batch], theirs[batch])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--threads", type=int, default=4)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", default="", help="part of the name of what is timed")
    arguments.add_argument("--encoder", default="", help="the encoder as an ONNX file")
    given = arguments.parse_args()
    print(f"{'':32} {'Perihelion':>12}  {'ONNX Runtime':>12}  ratio")
    for name, program, kernel, line, model, inputs in problems():
        if given.only in name:
            pairs = [
                (perihelion(program, kernel, line, given.threads), onnxruntime(model, inputs, given.threads))
                for _ in range(given.rounds)
            ]
            report(name, *zip(*pairs))
    if given.encoder and given.only in "encoder":
        encoder(given.encoder, given.threads, given.rounds)


main()
