"""Graphs, buffers and language models on a GPU: results are the CPU's."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import STORYTELLER, floats, python
from graphs import Array, data
from perihelion import LLM, OutOfMemory, SamplingParams, driver
from perihelion.driver import CPU, Accelerator, Buffer, Device, DeviceSpec
from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import BufferType, DevicePlacementPolicy, DeviceRef, Graph, TensorType, Weight, ops
from perihelion.pipelines import PipelineConfig

GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
PROMPTS = ["Once upon a time", "The fox", "A king had three sons", "In the morning"]


@pytest.fixture(scope="module")
def gpu() -> Accelerator:
    """The first GPU. Without one, tests are skipped, unless the environment chooses a kind of GPU: then they fail."""
    if driver.accelerator_count() == 0 and "PERIHELION_ACCELERATOR" not in os.environ:
        pytest.skip("there is no GPU")
    return Accelerator()


@pytest.fixture(scope="module")
def gpu_session(gpu: Accelerator) -> InferenceSession:
    return InferenceSession(devices=[gpu])


def run(session: InferenceSession, device: Device, build: Callable[..., Any], *arrays: Array) -> list[Buffer]:
    """The outputs of a function of values, whose inputs are on a device."""
    types = [TensorType(DType.from_numpy(array.dtype), array.shape, device) for array in arrays]
    model = session.load(Graph("g", build, types))
    return model.execute(*(Buffer.from_numpy(array).to(device) for array in arrays))


def on_gpu(**fields: Any) -> PipelineConfig:
    return PipelineConfig(STORYTELLER, device_specs=[DeviceSpec.accelerator()], **fields)


def test_a_gpu_is_described(gpu: Accelerator) -> None:
    assert (gpu.id, gpu.label, gpu.is_host, gpu.is_compatible) == (0, "gpu", False, True)
    assert (str(gpu), repr(gpu)) == ("gpu:0", "Device(type=gpu,id=0)")
    assert gpu.api in ("vulkan", "metal", "dx12")
    assert gpu.model_name and gpu.max_single_alloc_size > 0
    assert isinstance(gpu.architecture_name, str)
    if gpu.stats:
        assert gpu.stats["total_memory"] >= gpu.stats["free_memory"] > 0
    assert gpu == Accelerator(0) == Accelerator(-1) and gpu != CPU()
    assert gpu.can_access(Accelerator()) and not gpu.can_access(CPU())
    gpu.synchronize()
    gpu.default_stream.synchronize()
    assert pickle.loads(pickle.dumps(gpu)) == gpu


def test_gpus_are_found_and_loaded(gpu: Accelerator) -> None:
    count = driver.accelerator_count()
    assert driver.accelerator_api() == gpu.api
    assert driver.scan_available_devices() == [DeviceSpec.accelerator(i) for i in range(count)]
    assert driver.devices_exist([DeviceSpec.accelerator(), DeviceSpec.cpu()])
    assert not driver.devices_exist([DeviceSpec.accelerator(count)])
    assert driver.load_devices([DeviceSpec.cpu(), DeviceSpec.accelerator()]) == [CPU(), gpu]
    assert DeviceRef.GPU(0).to_device() == gpu and DeviceRef.from_device(gpu) == DeviceRef.GPU(0)
    assert InferenceSession(devices=[gpu]).devices == [gpu, CPU()]
    assert on_gpu().device == gpu


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (3, 7), (1, 4099)], ids=str)
def test_buffers_go_to_the_gpu_and_back(gpu: Accelerator, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(data(*shape, dtype=dtype))
    there = Buffer.from_numpy(array).to(gpu)
    assert (there.device, there.is_host, there._native.device_id) == (gpu, False, 0)
    assert (there.shape, there.dtype) == (shape, DType[dtype])
    here = there.to(CPU())
    assert here.is_host and here._native.device_id == -1
    for back in (here.to_numpy(), there.to_numpy(), np.asarray(there), there.copy(CPU()).to_numpy()):
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_buffers_of_the_gpu_are_changed_and_copied(gpu: Accelerator) -> None:
    there = Buffer(DType.int8, [5], gpu)
    assert there.to_numpy().tolist() == [0] * 5 and there.to(gpu) is there
    assert repr(there) == "Buffer(shape=(5,), dtype=int8, device=gpu:0)"
    there.inplace_copy_from(Buffer.from_numpy(np.arange(5, dtype=np.int8)))
    copy = there.copy()
    there[1] = -7
    assert there[1].item() == -7 and there[1:4].to_numpy().tolist() == [-7, 2, 3]
    assert copy.device == gpu and copy.to_numpy().tolist() == [0, 1, 2, 3, 4]
    copy.inplace_copy_from(there)
    assert copy.to_numpy().tolist() == [0, -7, 2, 3, 4]
    near, far = there.to([CPU(), gpu])
    assert near.is_host and far is there
    there.stream.synchronize()
    assert pickle.loads(pickle.dumps(there)).to_numpy().tolist() == [0, -7, 2, 3, 4]
    with pytest.raises(BufferError, match="copy it with `to` first"):
        np.from_dlpack(there)


@pytest.mark.parametrize(
    ("build", "arrays"),
    [
        (lambda x: ops.sqrt(ops.abs(x)) * 2 + x, [data(7, 33)]),
        (lambda x: ops.silu(x) - x, [data(3, 5, dtype="float16")]),
        (lambda x: x + x * 3, [data(5, dtype="int8")]),
        (lambda x: x // 4, [data(6, 5, dtype="int32")]),
        (lambda x: (ops.softmax(x), ops.sum(x, axis=0)), [data(3, 5, 130)]),
        (ops.matmul, [data(5, 70), data(70, 9)]),
        (lambda x, y: ops.concat([ops.transpose(x, 0, 1), y[1:]], axis=1), [data(4, 6), data(7, 3)]),
        (lambda x, y: ops.gather(x, y, 0), [data(9, 3), np.array([8, 0, 3], "int64")]),
    ],
    ids=["functions", "halves", "bytes", "quotients", "rows", "products", "moves", "gather"],
)
def test_results_are_those_of_the_cpu(
    session: InferenceSession,
    gpu: Accelerator,
    gpu_session: InferenceSession,
    build: Callable[..., Any],
    arrays: list[Array],
) -> None:
    expected, got = run(session, CPU(), build, *arrays), run(gpu_session, gpu, build, *arrays)
    assert [output.device for output in got] == [gpu] * len(expected)
    for ours, theirs in zip(got, expected):
        tolerance = 4e-3 if ours.dtype is DType.float16 else 1e-4
        np.testing.assert_allclose(ours.to_numpy(), theirs.to_numpy(), rtol=tolerance, atol=tolerance)


def test_a_model_says_where_it_runs(gpu: Accelerator, gpu_session: InferenceSession) -> None:
    model = gpu_session.load(Graph("g", ops.exp, [TensorType(DType.float32, ["n"], DeviceRef.GPU(0))]))
    assert model.devices == [gpu, CPU()]
    assert model.input_devices == model.output_devices == [gpu]
    assert any(".webgpu" in summary for summary in model.kernel_summaries)
    for size in (1, 5, 300):
        x = data(size)
        (y,) = model.execute(Buffer.from_numpy(x).to(gpu))
        np.testing.assert_allclose(y.to_numpy(), np.exp(x), rtol=1e-5)


def test_values_are_transferred(gpu: Accelerator, gpu_session: InferenceSession) -> None:
    def build(near: Any, far: Any) -> Any:
        total = ops.transfer_to(near, gpu) + far
        return total, total.to(CPU()) * 2

    types = [TensorType(DType.float32, ["n"], device) for device in (DeviceRef.CPU(), DeviceRef.GPU(0))]
    graph = Graph("g", build, types)
    assert [type.device for type in graph.output_types] == [DeviceRef.GPU(0), DeviceRef.CPU()]
    model = gpu_session.load(graph)
    x, y = floats(1, 2, 3, 4, 5), floats(10, 20, 30, 40, 50)
    far, near = model.execute(x, Buffer.from_numpy(y).to(gpu))
    assert (far.device, near.device) == (gpu, CPU())
    assert far.to_numpy().tolist() == (x + y).tolist() and near.to_numpy().tolist() == (2 * (x + y)).tolist()
    with pytest.raises(ValueError, match="input 1 'input1' is on cpu, expected gpu:0"):
        model.execute(x, y)
    with pytest.raises(ValueError, match="input 0 'input0' is on gpu:0, expected cpu"):
        model.execute(Buffer.from_numpy(x).to(gpu), Buffer.from_numpy(y).to(gpu))


@pytest.mark.parametrize("policy", DevicePlacementPolicy)
def test_a_graph_says_what_is_done_about_ops_that_only_the_cpu_computes(
    policy: DevicePlacementPolicy, gpu_session: InferenceSession, caplog: pytest.LogCaptureFixture
) -> None:
    types = [TensorType(DType.float32, [3], DeviceRef.GPU(0))]
    graph = Graph("g", ops.sin, types, strict_device_placement=policy)
    assert graph.copy().strict_device_placement is policy
    message = "gpu:0 has no kernel for it"
    if policy is DevicePlacementPolicy.Error:
        with pytest.raises(ValueError, match=f"sin is on gpu:0, but {message}"):
            gpu_session.compile(graph)
        return
    gpu_session.compile(graph)
    assert (f"the host computes sin: {message}" in caplog.text) == (policy is DevicePlacementPolicy.Warn)


def test_graphs_write_buffers_of_the_gpu(gpu: Accelerator, gpu_session: InferenceSession) -> None:
    def build(state: Any, x: Any) -> Any:
        state[...] = state[...] + x
        return state[...] * 2

    model = gpu_session.load(Graph("g", build, [kind(DType.float32, [5], gpu) for kind in (BufferType, TensorType)]))
    state, x = Buffer(DType.float32, [5], gpu), floats(1, -2, 3, 0.5, 7)
    for count in (1, 2, 3):
        (doubled,) = model.execute(state, Buffer.from_numpy(x).to(gpu))
        assert state.to_numpy().tolist() == (count * x).tolist()
        assert doubled.to_numpy().tolist() == (2 * count * x).tolist()


def test_weights_are_loaded_onto_the_gpu(gpu: Accelerator, gpu_session: InferenceSession) -> None:
    weight = Weight("w", DType.float32, [9, 64], DeviceRef.GPU(0))
    graph = Graph("g", lambda x: x @ weight.T, [TensorType(DType.float32, ["rows", 64], gpu)])
    w, x = data(9, 64), data(3, 64)
    model = gpu_session.load(graph, weights_registry={"w": w})
    for factor in (1, -2):
        (y,) = model.execute(Buffer.from_numpy(x).to(gpu))
        np.testing.assert_allclose(y.to_numpy(), x @ w.T * factor, rtol=1e-4, atol=1e-4)
        model.reload({"w": -2 * w})


def test_captured_calls_are_replayed(gpu: Accelerator, gpu_session: InferenceSession) -> None:
    model = gpu_session.load(Graph("g", lambda x: x * x, [TensorType(DType.float32, [3], gpu)]))
    x = Buffer.from_numpy(floats(1, 2, 3)).to(gpu)
    (y,) = model.capture(1, x)
    assert y.to_numpy().tolist() == [1, 4, 9]
    x.inplace_copy_from(Buffer.from_numpy(floats(4, 5, 6)))
    model.replay(1, x)
    assert y.device == gpu and y.to_numpy().tolist() == [16, 25, 36]


PROFILED = """
    from perihelion.driver import Accelerator, Buffer
    from perihelion.dtype import DType
    from perihelion.engine import InferenceSession
    from perihelion.graph import Graph, TensorType, ops
    gpu = Accelerator()
    session = InferenceSession(devices=[gpu])
    session.gpu_profiling("detailed")
    model = session.load(Graph("g", ops.exp, [TensorType(DType.float32, [4], gpu)]))
    model.execute(Buffer(DType.float32, [4], gpu))
    """


def test_profiles_name_the_kernels_of_the_gpu(gpu: Accelerator, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    result = python(PROFILED, PERIHELION_TRACE_FILE=str(trace))
    assert result.returncode == 0, result.stderr
    events = [event for event in json.loads(trace.read_text()) if event["ph"] == "X"]
    assert {event["cat"] for event in events} == {"call", "phase", "op", "kernel", "python"}
    kernels = [event["name"] for event in events if event["cat"] == "kernel"]
    assert "exp[f32].webgpu" in kernels


def test_the_built_in_model_writes_the_text_of_the_cpu(gpu: Accelerator) -> None:
    with LLM(PipelineConfig(STORYTELLER)) as here, LLM(on_gpu()) as there:
        assert there.config.device == gpu
        for prompt in PROMPTS:
            (expected,), (got,) = here.generate(prompt, GREEDY), there.generate(prompt, GREEDY)
            assert len(got.token_ids) == 16
            assert (got.text, got.token_ids) == (expected.text, expected.token_ids)


def test_prompts_at_once_are_answered_as_on_the_cpu(gpu: Accelerator) -> None:
    with LLM(STORYTELLER) as here, LLM(STORYTELLER, device_specs=[DeviceSpec.accelerator()]) as there:
        expected, got = (llm.generate(PROMPTS, GREEDY) for llm in (here, there))
        assert [out.text for out in got] == [out.text for out in expected]


def test_memory_of_the_gpu_is_used_up_to_a_fraction(gpu: Accelerator) -> None:
    if not gpu.stats:
        with pytest.warns(UserWarning, match="does not say how much memory is free"):
            on_gpu().validate()
        return
    with pytest.raises(OutOfMemory, match="raise gpu_memory_utilization"):
        on_gpu(gpu_memory_utilization=1e-10).validate()
    few = (32 << 20) / gpu.stats["free_memory"]
    sequences = [
        on_gpu(max_cache_batch_size=None, gpu_memory_utilization=part).resolve().max_cache_batch_size
        for part in (few, 0.9)
    ]
    assert 1 <= sequences[0] < sequences[1]
