"""Sessions, compiled models and models."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Load, Save, floats
from perihelion import _perihelion, InternalError
from perihelion.driver import CPU, Buffer
from perihelion.dtype import DType
from perihelion.engine import (
    AssertLevel,
    CompiledModel,
    InferenceSession,
    LogLevel,
    Model,
    PrintStyle,
    SplitKReductionPrecision,
    TensorSpec,
    compile_for,
)

TWICE = "graph twice(%x: f32[n]) { %y = add(%x, %x) return %y }"
SUM = "graph sum(%x: f32[n, 2], %s: f32[]) { %y = add(%x, %s) return %y }"
SCALED = 'graph scaled(%x: f32[n]) { %w = weight "w" : f32[1] %y = mul(%x, %w) return %y }'
TWO = TWICE + " graph same(%x: f32[3]) { return %x }"
STORE = "graph g(%x: f32[2], %b: mut f32[2]) { store(%b, %x) return %x }"
EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"


def test_sessions_always_have_the_cpu() -> None:
    assert InferenceSession().devices == [CPU()]
    assert InferenceSession(iter([CPU(), CPU(1)])).devices == [CPU()]
    assert repr(InferenceSession([CPU()], 2)) == "InferenceSession(devices=[Device(type=cpu,id=0)], num_threads=2)"
    assert "num_threads" not in repr(InferenceSession(num_threads=0))
    with pytest.raises(TypeError):
        InferenceSession(None)
    with pytest.raises(TypeError):
        InferenceSession(device=CPU())
    with pytest.raises(TypeError, match="devices: got str, expected Device"):
        InferenceSession(["cpu"])
    with pytest.raises(ValueError, match="num_threads: got -1"):
        InferenceSession(num_threads=-1)
    with pytest.raises(AttributeError):
        InferenceSession().devices = []


def test_graph_text_is_compiled_and_executed(session: InferenceSession, save: Save) -> None:
    compiled = session.compile(save(TWICE))
    assert repr(compiled) == "CompiledModel()"
    assert not hasattr(compiled, "execute")
    models = [session.init(compiled), session.init(compiled)]
    for model in models:
        outputs = model.execute(floats(1, 2))
        assert [type(output) for output in outputs] == [Buffer]
        np.testing.assert_array_equal(outputs[0].to_numpy(), [2, 4])


def test_models_describe_themselves(load: Load) -> None:
    model = load(SUM)
    assert model.name == "sum"
    assert model.devices == [CPU()]
    assert (model.input_devices, model.output_devices) == ([CPU(), CPU()], [CPU()])
    specs = [TensorSpec([None, 2], DType.float32, "x"), TensorSpec([], DType.float32, "s")]
    assert model.input_metadata == specs
    assert model.output_metadata == [TensorSpec([None, 2], DType.float32, "output0")]
    assert repr(model) == f"Model(inputs={specs})"
    assert repr(specs[0]) == "TensorSpec(shape=[None, 2], dtype=float32, name=x)"
    assert [str(spec) for spec in specs] == ["-1x2xfloat32", "float32"]
    assert str(TensorSpec(None, DType.int8, "x")) == "None x int8"
    assert len(model.kernel_summaries) == 1 and model.kernel_summaries[0].startswith("add[f32]")
    assert list(model.signature.parameters) == ["x", "s"]
    kinds = {parameter.kind for parameter in model.signature.parameters.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    for kind in (Model, CompiledModel):
        with pytest.raises(TypeError, match="InferenceSession"):
            kind()


def test_inputs_are_arrays_buffers_and_numbers(load: Load) -> None:
    model = load(SUM)
    array = np.ones((2, 2), "float32")
    buffer = Buffer.from_numpy(array)
    scalars = [1, 1.0, True, np.float64(1), np.int8(1), np.float32(1), np.bool_(True), floats(1).reshape(())]
    for scalar in scalars:
        for x in (array, buffer):
            np.testing.assert_array_equal(model.execute(x, scalar)[0].to_numpy(), np.full((2, 2), 2))
    rows = buffer[1:]
    assert model.execute(rows, 1)[0].shape == (1, 2)
    np.testing.assert_array_equal(array, 1)


def test_arrays_are_not_copied_on_their_way(load: Load) -> None:
    written = np.zeros(2, "float32")
    load(STORE).execute(floats(3, 4), written)
    np.testing.assert_array_equal(written, [3, 4])


def test_read_only_arrays_are_read(load: Load) -> None:
    array = floats(1, 2)
    array.flags.writeable = False
    np.testing.assert_array_equal(load(TWICE).execute(array)[0].to_numpy(), [2, 4])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "Number of inputs (0) does not match expected number (1) for model"),
        ([floats(1), 2], "Number of inputs (2) does not match expected number (1) for model"),
        (
            [np.zeros(6, "float32")],
            "Input at position 0: Buffer of type [(6), f32] does not match expected type [(5), f32]",
        ),
        (
            [np.zeros((5, 1), "float32")],
            "Input at position 0: Buffer of type [(5, 1), f32] does not match expected type [(5), f32]",
        ),
        (
            [np.zeros(5, "int32")],
            "Input at position 0: Buffer of type [(5), si32] does not match expected type [(5), f32]",
        ),
        (
            [np.zeros(5, "bool")],
            "Input at position 0: Buffer of type [(5), i1] does not match expected type [(5), f32]",
        ),
        ([1.5], "Input at position 0: Buffer of type [(), f32] does not match expected type [(5), f32]"),
        ([np.zeros(10, "float32")[::2]], "Input at position 0: DLPack: strides [2] of shape [5]"),
        ([Buffer.zeros((10,), DType.float32)[::2]], "got strides [2], expected a row-major buffer; .contiguous() makes one"),
        (["text"], "Input at position 0: got str, expected a Buffer, an array with __dlpack__, or a number"),
        ([[1.0] * 5], "Input at position 0: got list"),
        ([None], "Input at position 0: got NoneType"),
    ],
)
def test_wrong_inputs_are_named(load: Load, arguments: list[Any], message: str) -> None:
    model = load("graph g(%x: f32[5]) { return %x }")
    with pytest.raises(ValueError) as error:
        model.execute(*arguments)
    assert message in str(error.value)


def test_a_dim_of_two_sizes_is_named(load: Load) -> None:
    model = load("graph g(%x: f32[n], %y: f32[n]) { %z = add(%x, %y) return %z }")
    with pytest.raises(ValueError, match="n"):
        model.execute(floats(1), floats(1, 2))


def test_numbers_that_do_not_fit_are_refused(load: Load) -> None:
    model = load("graph g(%x: i8[]) { return %x }")
    assert model.execute(-3)[0].item() == -3
    for wrong in (128, 0.5, 2**70):
        with pytest.raises(ValueError, match="Input at position 0"):
            model.execute(wrong)


def test_models_are_called_by_name(load: Load) -> None:
    model = load(SUM)
    x = np.ones((1, 2), "float32")
    for outputs in (model(x, 1), model(x, s=1), model(s=1, x=x)):
        np.testing.assert_array_equal(outputs[0].to_numpy(), [[2, 2]])
    for wrong in (lambda: model(x), lambda: model(x, 1, 2), lambda: model(x, x=x), lambda: model(x, y=1)):
        with pytest.raises(TypeError):
            wrong()
    unnamed = load('graph g(%"a b": f32[]) { return %"a b" }')
    assert unnamed(input0=3.0)[0].item() == 3.0


def test_a_value_returned_twice_is_two_buffers(load: Load) -> None:
    first, second = load("graph g(%x: f32[2]) { %y = add(%x, %x) return %y, %y }").execute(floats(1, 2))
    assert first is not second
    np.testing.assert_array_equal(first.to_numpy(), second.to_numpy())


def test_indices_out_of_range_fail_the_call(load: Load) -> None:
    model = load("graph g(%x: f32[4], %i: i64[n]) { %y = gather(%x, %i) {axis = 0} return %y }")
    assert model.execute(floats(1, 2, 3, 4), np.array([3]))[0].item() == 4
    with pytest.raises(ValueError, match="7"):
        model.execute(floats(1, 2, 3, 4), np.array([7]))


@pytest.mark.parametrize("model", [3, None, b"x.graph", object()])
def test_other_objects_cannot_be_compiled(session: InferenceSession, model: Any) -> None:
    for call in (session.compile, session.load, session.load_all):
        with pytest.raises(RuntimeError, match="expected a Graph, a Module or the path of a model"):
            call(model)


def test_bad_paths_and_graphs_are_runtime_errors(session: InferenceSession, save: Save, tmp_path: Path) -> None:
    damaged = tmp_path / "x.mef"
    damaged.write_bytes(b"x" * 100)
    other = tmp_path / "x.onnx"
    other.touch()
    cases = {
        tmp_path / "none.graph": "none.graph",
        str(tmp_path / "none.mef"): "none.mef",
        damaged: "x.mef",
        other: "expected a file of graph text",
        save("graph g(%x: f32[n]) { return %y }"): "line 1",
        save("graph g(%x: f32[2], %y: f32[3]) { %z = add(%x, %y) return %z }"): "add",
    }
    for path, message in cases.items():
        for call in (session.compile, session.load):
            with pytest.raises(RuntimeError, match=message):
                call(path)


def test_artifacts_hold_compiled_models(session: InferenceSession, save: Save, tmp_path: Path) -> None:
    path = tmp_path / "model.mef"
    session.compile(save(SCALED)).export_mef(path)
    for weights in ({"w": floats(3)}, {"w": Buffer.from_numpy(floats(3))}):
        model = session.load(str(path), weights_registry=weights)
        np.testing.assert_array_equal(model.execute(floats(1, 2))[0].to_numpy(), [3, 6])
    with pytest.raises(FileNotFoundError):
        session.compile(path).export_mef(tmp_path / "none" / "model.mef")


def test_targets_that_are_not_attached(session: InferenceSession, save: Save, tmp_path: Path) -> None:
    path, graph = tmp_path / "model.mef", save(SCALED)
    here = session.compile(graph).target
    baseline, foreign = "x86_64 portable", "aarch64 neon"
    if here.startswith("aarch64"):
        baseline, foreign = "aarch64 portable", "x86_64 avx2"
    compile_for(session, graph, baseline).export_mef(path)
    assert session.compile(path).target == here
    model = session.load(path, weights_registry={"w": floats(3)})
    np.testing.assert_array_equal(model.execute(floats(1, 2))[0].to_numpy(), [3, 6])
    compiled = compile_for(session, graph, foreign)
    assert compiled.target == foreign
    compiled.export_mef(path)
    facts = re.escape(f"compiled for cpu ({foreign}), but this session has cpu ({here})")
    with pytest.raises(RuntimeError, match=facts):
        session.load(path, weights_registry={"w": floats(3)})
    with pytest.raises(RuntimeError, match=facts):
        session.init(compiled, weights_registry={"w": floats(3)})
    assert compile_for(session, path, foreign).target == foreign
    for unknown in ("gpu sm_90", "neon"):
        with pytest.raises(ValueError, match=f"the target is `{unknown}`, expected "):
            compile_for(session, graph, unknown)
    with pytest.raises(TypeError, match="target"):
        compile_for(session, graph, 1)  # type: ignore[arg-type]


def test_files_of_several_models(session: InferenceSession, save: Save) -> None:
    path = save(TWO)
    models = session.load_all(path)
    assert {name: model.name for name, model in models.items()} == {"same": "same", "twice": "twice"}
    assert sorted(session.init_all(session.compile(path))) == ["same", "twice"]
    with pytest.raises(ValueError, match="2 were compiled; use `load_all`"):
        session.load(path)
    with pytest.raises(ValueError, match="2 were compiled; use `init_all`"):
        session.init(session.compile(path))
    assert list(session.load_all(save(TWICE))) == ["twice"]


def test_each_call_takes_weights(session: InferenceSession, save: Save) -> None:
    path = save('graph scaled(%x: f32[1]) { %w = weight "w" : f32[1] %y = mul(%x, %w) return %y }')
    compiled = session.compile(path)
    for factor in (3, 5):
        weights = {"w": floats(factor)}
        for model in (
            session.init(compiled, weights_registry=weights),
            session.init_all(compiled, weights_registry=weights)["scaled"],
            session.load(path, weights_registry=weights),
            session.load_all(path, weights_registry=weights)["scaled"],
        ):
            assert model.execute(floats(2))[0].item() == 2 * factor


class Reader(Mapping[str, Any]):
    """A mapping other than dict, which records the keys that were read."""

    def __init__(self, **values: Any) -> None:
        self.values_by_name = values
        self.read: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.read.append(name)
        return self.values_by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self.values_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)


def test_weights_are_read_by_name_from_any_mapping(load: Load, session: InferenceSession, save: Save) -> None:
    weights = Reader(w=floats(3), unused=floats(1))
    model = session.load(save(SCALED), weights_registry=weights)
    np.testing.assert_array_equal(model.execute(floats(1, 2))[0].to_numpy(), [3, 6])
    assert "w" in weights.read


def test_models_keep_their_weights(load: Load) -> None:
    for read_only in (False, True):
        weight = floats(3)
        weight.flags.writeable = not read_only
        model = load(SCALED, w=weight)
        del weight
        garbage = [floats(9) for _ in range(100)]
        assert model.execute(floats(2))[0].item() == 6
        del garbage


def test_weights_are_shared(load: Load) -> None:
    weight = floats(3)
    model = load(SCALED, w=weight)
    weight[0] = 4
    assert model.execute(floats(2))[0].item() == 8


@pytest.mark.parametrize(
    "weights, kind, message",
    [
        ({}, ValueError, "no weight `w` in the registry"),
        ({"w": floats(1, 2)}, ValueError, "`w`"),
        ({"w": np.zeros(1)}, ValueError, "`w`"),
        ({"w": floats(1), "v": floats(1, 2, 3)[::2]}, ValueError, "`v`"),
        ({"w": Buffer.zeros((4,), DType.float32)[::4][:1].view(DType.float32), "v": Buffer.zeros((4,), DType.int8)[::2]}, ValueError, "`v`"),
        ({"w": [1.0]}, AttributeError, "__dlpack_device__"),
    ],
)
def test_wrong_weights_are_named(load: Load, weights: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(SCALED, **weights)


def test_exceptions_of_a_mapping_pass_through(session: InferenceSession, save: Save) -> None:
    class Broken(Reader):
        def __getitem__(self, name: str) -> Any:
            raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match="w"):
        session.load(save(SCALED), weights_registry=Broken(w=1))
    with pytest.raises(TypeError):
        session.load(save(SCALED), weights_registry=[("w", 1)])


def test_weights_are_reloaded(load: Load) -> None:
    model = load(SCALED, w=floats(3))
    model.reload({"w": floats(5)})
    assert model.execute(floats(2))[0].item() == 10
    with pytest.raises(ValueError, match="no weight `w`"):
        model.reload({})
    assert model.execute(floats(2))[0].item() == 10


def test_calls_are_captured_and_replayed(load: Load) -> None:
    model = load(TWICE)
    x = Buffer.from_numpy(floats(1, 2))
    (y,) = model.capture(7, x)
    x[0] = 10
    model.replay([7], x)
    np.testing.assert_array_equal(y.to_numpy(), [20, 4])
    model.debug_verify_replay(7, x)
    with pytest.raises(ValueError, match="another buffer"):
        model.replay(7, x.copy())
    model.release_captured_graph(7)
    with pytest.raises(ValueError, match="nothing was captured"):
        model.replay(7, x)
    with pytest.raises(ValueError):
        model.capture(1)
    for wrong in (True, "1", [1.5], [False]):
        with pytest.raises(TypeError, match="expected integers"):
            model.capture(wrong, x)
    for outside in (-1, 2**64, []):
        with pytest.raises(ValueError):
            model.capture(outside, x)
    with pytest.raises(TypeError, match="expected Buffer"):
        model.capture(1, floats(1))


def test_enums_have_the_values_of_the_reference() -> None:
    assert [(s.name, s.value) for s in PrintStyle] == [
        ("COMPACT", 0), ("FULL", 1), ("BINARY", 2), ("NONE", 3), ("BINARY_MAX_CHECKPOINT", 4),
    ]  # fmt: skip
    assert [level.value for level in AssertLevel] == ["none", "warn", "safe", "all"]
    assert AssertLevel.ALL == "all"
    levels = ["notset", "trace", "debug", "info", "warning", "error", "critical"]
    assert [level.value for level in LogLevel] == levels
    assert [(int(p), p.name) for p in SplitKReductionPrecision] == [(1, "ACCUM"), (2, "OUTPUT")]


def test_settings_reach_the_next_compile() -> None:
    session = InferenceSession()
    settings = session._native.settings
    assert settings() == ""
    session.set_split_k_reduction_precision("OUTPUT")
    session.set_mojo_log_level(LogLevel.ERROR)
    session.set_mojo_assert_level(AssertLevel.WARN)
    session.gpu_profiling("on")
    session.use_old_top_k_kernel("yes")
    session.use_fi_topk_kernel("on")
    session.enable_per_tensor_fp8_quantize("1")
    for part in ("OUTPUT", "ERROR", "WARN", "profiling = on", "old_top_k", "fi_top_k", "per_tensor_fp8_quantize"):
        assert part in settings()
    session.set_split_k_reduction_precision(SplitKReductionPrecision.ACCUM)
    session.set_mojo_log_level("NOTSET")
    session.set_mojo_assert_level(AssertLevel.SAFE)
    session.gpu_profiling("off")
    for switch in (session.use_old_top_k_kernel, session.use_fi_topk_kernel, session.enable_per_tensor_fp8_quantize):
        switch("Off")
    assert settings() == ""
    for wrong in ("info", 3, None):
        with pytest.raises(TypeError, match="NOTSET, TRACE"):
            session.set_mojo_log_level(wrong)
    with pytest.raises(TypeError, match="ACCUM, OUTPUT"):
        session.set_split_k_reduction_precision("F32")
    with pytest.raises(ValueError, match="loud"):
        session.gpu_profiling("loud")


def test_print_options(save: Save, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    session = InferenceSession()
    model = session.load(save('graph g(%x: f32[n]) { print(%x) {label = "t"} return %x }'))
    session.set_debug_print_options()
    model.execute(floats(0.5, 1))
    assert capfd.readouterr().out == "t = tensor([[0.5000, 1.0000]], dtype=f32, shape=[2])\n"
    session.set_debug_print_options("FULL", 2)
    model.execute(floats(0.5, 1))
    assert capfd.readouterr().out == "t = tensor<2xf32> [5.00e-01, 1.00e+00]\n"
    session.set_debug_print_options(PrintStyle.BINARY, output_directory=str(tmp_path / "out"))
    model.execute(floats(0.5, 1))
    np.testing.assert_array_equal(Buffer.mmap(tmp_path / "out" / "t", DType.float32, 2).to_numpy(), [0.5, 1])
    session.set_debug_print_options(PrintStyle.NONE, precision="six")
    model.execute(floats(0.5, 1))
    assert capfd.readouterr().out == ""
    for style, precision, directory in [("full", 6, None), (3, 6, None), ("FULL", "six", None), ("BINARY", 6, 7)]:
        with pytest.raises(TypeError):
            session.set_debug_print_options(style, precision, directory)
    for directory in (None, ""):
        with pytest.raises(ValueError, match="directory"):
            session.set_debug_print_options("BINARY", output_directory=directory)


def test_debug_settings_are_layered() -> None:
    process, session = InferenceSession.debug, InferenceSession()
    flags = ["nan_check", "uninitialized_read_check", "device_sync_mode", "stack_trace_on_error", "stack_trace_on_crash", "source_tracebacks"]  # fmt: skip
    try:
        for name in [*flags, "sensible_mode"]:
            assert getattr(process, name) is False
            with pytest.raises(TypeError, match=f"{name}: got int, expected bool"):
                setattr(process, name, 1)
        for name in ("op_log_level", "assert_level", "ir_output_dir"):
            assert getattr(process, name) == ""
            with pytest.raises(TypeError, match=f"{name}: got NoneType, expected str"):
                setattr(process, name, None)
        assert process.print_style is PrintStyle.NONE
        process.nan_check = True
        process.assert_level = "ALL"
        assert session.debug.nan_check and session.debug.assert_level == "ALL"
        assert process.assert_level == "ALL"
        session.debug.nan_check = False
        session.debug.print_style = PrintStyle.FULL
        assert process.nan_check and not session.debug.nan_check
        assert process.print_style is PrintStyle.NONE
        session.debug.reset()
        assert session.debug.nan_check and session.debug.print_style is PrintStyle.NONE
        process.reset()
        process.sensible_mode = True
        assert session.debug.device_sync_mode and process.sensible_mode and process.assert_level == "all"
        with pytest.raises(ValueError, match="one of NONE, WARN"):
            process.assert_level = "some"
    finally:
        process.reset()
    assert not session.debug.device_sync_mode and not process.sensible_mode


def test_nan_checks_fail_the_call(save: Save) -> None:
    session = InferenceSession()
    session.debug.nan_check = True
    model = session.load(save("graph g(%x: f32[1]) { %y = log(%x) return %y }"))
    with pytest.raises((ValueError, RuntimeError), match="NaN"):
        model.execute(floats(-1))


def test_custom_extensions_are_compiled_and_run(save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERIHELION_CACHE_DIR", str(tmp_path))
    source = EXTENSIONS / "leaky_relu.rs"
    path = save("graph g(%x: f32[n]) { %y = custom(%x) {op = leaky_relu, results = [f32[n]], slope = 0.5} return %y }")
    for session, options in [
        (InferenceSession(custom_extensions=str(source)), {}),
        (InferenceSession(), {"custom_extensions": [source]}),
    ]:
        for model in (
            session.load(path, **options),
            session.load_all(path, **options)["g"],
            session.init(session.compile(path, **options)),
        ):
            np.testing.assert_array_equal(model.execute(floats(-2, 2))[0].to_numpy(), [-1, 2])
    with pytest.raises(RuntimeError, match="leaky_relu"):
        InferenceSession().load(path)
    with pytest.raises(RuntimeError, match="none.so"):
        InferenceSession(custom_extensions=tmp_path / "none.so")


def test_packages_and_libraries_of_mojo_are_told_apart(tmp_path: Path) -> None:
    libraries = {"z80-cpm": {"file": "ops.so", "blake3": ""}}
    manifest = {"name": "ops", "version": "1", "abi": 1, "ops": [], "libraries": libraries}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(RuntimeError, match="holds no library for .*, only for: z80-cpm"):
        InferenceSession(custom_extensions=tmp_path)
    for name in ("ops.mojopkg", "ops.mojoc", "ops.mojo"):
        (tmp_path / name).touch()
        with pytest.raises(RuntimeError, match=f"{name}: Mojo is not read"):
            InferenceSession(custom_extensions=tmp_path / name)


def test_a_buffer_in_use_is_not_written(load: Load) -> None:
    weight = Buffer.from_numpy(floats(3))
    model = load(SCALED, w=weight)
    store = load("graph g(%b: mut f32[1]) { %x = constant [7] : f32[1] store(%b, %x) return %x }")
    for write in (lambda: store.execute(weight), lambda: weight.__setitem__(0, 7)):
        with pytest.raises(RuntimeError, match="being read by another call"):
            write()
    assert model.execute(floats(2))[0].item() == 6
    del model
    store.execute(weight)
    assert weight.item() == 7
    frozen = floats(1)
    frozen.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-?only"):
        store.execute(Buffer.from_dlpack(frozen, copy=False))


def test_panics_are_internal_errors(capfd: pytest.CaptureFixture[str]) -> None:
    panic = getattr(_perihelion, "_panic", None)
    if panic is None:
        pytest.skip("the native module is built without the feature `panics`")
    with pytest.raises(InternalError, match=r"the stack is \[\] \(at .*running.rs:\d+.*please report"):
        panic("the stack is []")
    assert issubclass(InternalError, RuntimeError)
    assert capfd.readouterr().err == ""


def test_eight_threads_get_their_own_results(load: Load) -> None:
    model = load("graph g(%x: f32[n, 64], %s: f32[]) { %y = mul(%x, %s) %z = softmax(%y) {axis = 1} return %y, %z }")
    wrong: list[object] = []

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for step in range(200):
            x = rng.random((1 + step % 7, 64), "float32")
            y, z = model.execute(x, seed + 1)
            if not np.array_equal(y.to_numpy(), x * np.float32(seed + 1)) or z.shape != x.shape:
                wrong.append((seed, step))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
