"""Measures one engine with ONNX models, as the program of an interpreter that has the engine: MODULE THREADS KEYS.

Prints the engine's version, and for each model the shortest of its runs in milliseconds.
"""
import json
import sys
import time
from importlib.metadata import version

import onnx_models

SECONDS, RUNS = 0.5, 5  # of measuring, at least


def onnxruntime(model, inputs, threads):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_cpu_input(name, value)
    (output,) = session.get_outputs()
    binding.bind_output(output.name, "cpu")
    session.run_with_iobinding(binding)
    # Later runs write to the memory that the first one allocated.
    binding.bind_ortvalue_output(output.name, binding.get_outputs()[0])
    return lambda: session.run_with_iobinding(binding)


def openvino(model, inputs, threads):
    import openvino as ov

    core = ov.Core()
    # The others compute in f32 too.
    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"}
    settings["INFERENCE_PRECISION_HINT"] = "f32"
    request = core.compile_model(core.read_model(model), "CPU", settings).create_infer_request()
    for name, value in inputs.items():
        request.set_tensor(name, ov.Tensor(value))
    return request.infer


def shortest(run):
    run()
    times, begun = [], time.perf_counter()
    while len(times) < RUNS or time.perf_counter() - begun < SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def main():
    module, threads, keys = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    load = {"onnxruntime": onnxruntime, "openvino": openvino}[module]
    figures = {key: shortest(load(*onnx_models.build(key), threads)) for key in keys}
    print(json.dumps({"version": version(module), "figures": figures}))


main()
