"""Settings of sessions: each changes what models compute, check, log or measure."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import Save, floats, python
from perihelion.driver import load_max_buffer
from perihelion.dtype import DType
from perihelion.engine import AssertLevel, InferenceSession, SplitKReductionPrecision
from perihelion.graph import DeviceRef, Graph, TensorType

GATHER = "graph g(%x: f32[4], %i: i64[1]) { %y = gather(%x, %i) {axis = 0} return %y }"
NEGATIVE_ROOT = "graph g(%x: f32[1]) { %n = neg(%x) %y = sqrt(%n) return %y }"


def test_operands_are_rounded_to_eight_bits(save: Save) -> None:
    session = InferenceSession()
    path = save("graph g(%x: f32[1, 2], %y: f32[2, 2]) { %z = matmul(%x, %y) return %z }")
    operands = floats(448, 17).reshape(1, 2), np.eye(2, dtype=np.float32)
    for mode, expected in [("on", [[448, 16]]), ("off", [[448, 17]])]:
        session.enable_per_tensor_fp8_quantize(mode)
        np.testing.assert_allclose(session.load(path).execute(*operands)[0].to_numpy(), expected, rtol=1e-6)


def test_assert_levels_decide_about_indices_and_outputs(save: Save, caplog: pytest.LogCaptureFixture) -> None:
    session = InferenceSession()
    path, roots = save(GATHER), save(NEGATIVE_ROOT)
    for level in AssertLevel:
        session.set_mojo_assert_level(level)
        model = session.load(path)
        if level in (AssertLevel.NONE, AssertLevel.WARN):
            assert model.execute(floats(1, 2, 3, 4), np.array([7]))[0].item() == 4
            assert ("clamped" in caplog.text) == (level is AssertLevel.WARN)
            caplog.clear()
        else:
            with pytest.raises(ValueError, match="7"):
                model.execute(floats(1, 2, 3, 4), np.array([7]))
    with pytest.raises((ValueError, RuntimeError), match="NaN"):
        session.load(roots).execute(floats(1))


def test_log_levels_choose_what_models_log(save: Save) -> None:
    code = f"""
        import numpy as np
        from perihelion.engine import InferenceSession, LogLevel
        session = InferenceSession()
        for level in ("CRITICAL", LogLevel.DEBUG):
            session.set_mojo_log_level(level)
            session.load({str(save(NEGATIVE_ROOT))!r}).execute(np.ones(1, "float32"))
        """
    assert python(code).stderr.count("DEBUG perihelion::kernel: call") == 1


@pytest.mark.parametrize("handled", [True, False])
def test_events_go_to_logging_or_else_to_warnings(save: Save, handled: bool) -> None:
    code = f"""
        import logging
        import numpy as np
        from perihelion.engine import InferenceSession
        if {handled}:
            logging.basicConfig(format="%(levelname)s %(name)s %(message)s", level=logging.INFO)
        session = InferenceSession()
        session.set_mojo_assert_level("warn")
        session.set_mojo_log_level("DEBUG")
        model = session.load({str(save(GATHER))!r})
        model.execute(np.ones(4, "float32"), np.array([7]))
        logging.getLogger("perihelion.kernel").setLevel(logging.DEBUG)
        model.execute(np.ones(4, "float32"), np.array([1]))
        """
    lines = python(code).stderr.splitlines()
    if handled:
        assert [line.split()[:2] for line in lines] == [
            ["INFO", "perihelion.kernel"],
            ["WARNING", "perihelion.check"],
            ["DEBUG", "perihelion.kernel"],
        ]
    else:
        assert sum("UserWarning: indices out of range were clamped" in line for line in lines) == 1
        assert sum("DEBUG perihelion::kernel: call" in line for line in lines) == 2


@pytest.mark.parametrize(
    "kernel, name", [("use_fi_topk_kernel", "bounded_top_k[f32]."), ("use_old_top_k_kernel", "top_k[f32].sort")]
)
def test_top_k_kernels_give_the_same(save: Save, kernel: str, name: str) -> None:
    path = save("graph g(%x: f32[n]) { %y, %i = top_k(%x) {k = 3, axis = 0} return %y, %i }")
    session = InferenceSession()
    for mode in ("on", "off"):
        getattr(session, kernel)(mode)
        model = session.load(path)
        assert model.kernel_summaries[0].startswith(name) == (mode == "on")
        for zeros in (0, 1000):
            values, indices = model.execute(floats(1, 5, 2, 5, *[0] * zeros, 3))
            assert (values.to_numpy().tolist(), indices.to_numpy().tolist()) == ([5, 5, 3], [1, 3, 4 + zeros])


@pytest.mark.parametrize("kernel", ["use_fi_topk_kernel", "use_old_top_k_kernel", "enable_per_tensor_fp8_quantize"])
def test_four_words_turn_settings_off_and_all_others_on(kernel: str) -> None:
    session = InferenceSession()
    for word, is_on in [("yes", True), ("FALSE", False), ("", True), ("off", False), ("1", True), ("No", False)]:
        getattr(session, kernel)(word)
        assert (session._native.settings() != "") == is_on, word
    getattr(session, kernel)("on")
    getattr(session, kernel)("0")
    assert session._native.settings() == ""


def test_partial_sums_of_512_terms_are_rounded_if_asked() -> None:
    session = InferenceSession()
    types = [TensorType(DType.float16, shape, DeviceRef.CPU()) for shape in ((1, 1536), (1536, 1))]
    graph = Graph("g", lambda x, y: x @ y, types)
    x, y = np.ones((1, 1536), np.float16), np.zeros((1536, 1), np.float16)
    y[::512], y[300::512] = 2048, 1
    # 6147 is rounded once, or 2049 three times.
    for precision, expected in [(SplitKReductionPrecision.ACCUM, 6148), (SplitKReductionPrecision.OUTPUT, 6144)]:
        session.set_split_k_reduction_precision(precision)
        assert session.load(graph).execute(x, y)[0].item() == expected


def test_checkpoints_keep_dtype_shape_and_elements(save: Save, tmp_path: Path) -> None:
    session = InferenceSession()
    session.set_debug_print_options("BINARY_MAX_CHECKPOINT", output_directory=tmp_path)
    model = session.load(save('graph g(%x: i64[2, n]) { print(%x) {label = "t"} return %x }'))
    values = np.arange(6).reshape(2, 3)
    model.execute(values)
    read = load_max_buffer(tmp_path / "t.max").to_numpy()
    assert read.dtype == values.dtype and np.array_equal(read, values)


PROFILED = """
    import numpy as np
    from perihelion.engine import InferenceSession
    session = InferenceSession()
    if {mode!r}:
        session.gpu_profiling({mode!r})
    model = session.load({path!r})
    model.execute(np.array([-4], "float32"))
    """


@pytest.mark.parametrize(
    ("mode", "variable", "kinds"),
    [
        (None, "", set()),
        ("off", "on", set()),
        ("on", "", {"call", "op"}),
        (None, "on", {"call", "op"}),
        ("detailed", "", {"call", "phase", "op", "kernel", "python"}),
        (None, "detailed", {"call", "phase", "op", "kernel", "python"}),
    ],
)
def test_profiling_writes_a_trace(save: Save, tmp_path: Path, mode: str | None, variable: str, kinds: set[str]) -> None:
    trace = tmp_path / "trace.json"
    variables = {"PERIHELION_TRACE_FILE": str(trace)}
    if variable:
        variables["PERIHELION_ENABLE_PROFILING"] = variable
    result = python(PROFILED.format(mode=mode, path=str(save(NEGATIVE_ROOT))), **variables)
    assert (result.returncode, result.stderr) == (0, "")
    events = json.loads(trace.read_text()) if trace.exists() else []
    assert {event["cat"] for event in events if event["ph"] == "X"} == kinds


def test_profiling_is_also_asked_for_under_the_other_name(save: Save, tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.json", str(save(NEGATIVE_ROOT))
    variables = {"PERIHELION_TRACE_FILE": str(trace), "MODULAR_ENABLE_PROFILING": "1"}
    result = python(PROFILED.format(mode=None, path=path), PERIHELION_ENABLE_PROFILING="off", **variables)
    assert (result.returncode, result.stderr, trace.exists()) == (0, "", False)
    result = python(PROFILED.format(mode=None, path=path), **variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert {event["cat"] for event in json.loads(trace.read_text()) if event["ph"] == "X"} == {"call", "op"}


MARKED = """
    import numpy as np
    from perihelion import LLM, SamplingParams
    from perihelion.dtype import DType
    from perihelion.engine import InferenceSession
    from perihelion.graph import DeviceRef, Graph, TensorType, ops
    session = InferenceSession()
    session.gpu_profiling("detailed")
    graph = Graph("root", ops.sqrt, [TensorType(DType.float32, [1], DeviceRef.CPU())])
    session.load(graph).execute(np.array([4], "float32"))
    session.load_all({path!r})
    LLM(session=session).generate("Once", SamplingParams(temperature=0, max_tokens=2))
    """


def test_detailed_profiles_mark_what_python_does(save: Save, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    path = str(save(NEGATIVE_ROOT))
    result = python(MARKED.format(path=path), PERIHELION_TRACE_FILE=str(trace))
    assert (result.returncode, result.stderr) == (0, "")
    events = [event for event in json.loads(trace.read_text()) if event.get("cat") == "python"]
    assert [event["name"] for event in events] == [
        "Graph root",
        "InferenceSession.compile",
        "InferenceSession.init",
        "InferenceSession.load",
        "Model.execute",
        "InferenceSession.load_all",
        "LLM.generate",
    ]
    [built, compiled, *_] = events
    assert built["ts"] + built["dur"] <= compiled["ts"] and all(event["dur"] > 0 for event in events)


RANGES = """
    #include <stdio.h>
    #include <stdlib.h>
    static int line(const char* word, const char* name) {
        FILE* file = fopen(getenv("PERIHELION_TEST_RANGES"), "a");
        fprintf(file, "%s %s\\n", word, name);
        return fclose(file);
    }
    int nvtxRangePushA(const char* name) { return line("push", name); }
    int nvtxRangePop(void) { return line("pop", ""); }
    """


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler on Linux")
def test_steps_of_profiled_calls_are_nvtx_ranges(save: Save, tmp_path: Path) -> None:
    (tmp_path / "nvtx.c").write_text(RANGES)
    library, ranges = tmp_path / "libnvtx3interop.so.1", tmp_path / "ranges.txt"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvtx.c"], check=True)
    variables = {
        "LD_LIBRARY_PATH": str(tmp_path),
        "PERIHELION_TEST_RANGES": str(ranges),
        "PERIHELION_TRACE_FILE": str(tmp_path / "trace.json"),
    }
    result = python(PROFILED.format(mode="on", path=str(save(NEGATIVE_ROOT))), **variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert ranges.read_text().count("push") == ranges.read_text().count("pop") >= 1
