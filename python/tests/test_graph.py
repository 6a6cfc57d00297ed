"""Graphs: building, contexts, weights, modules, and what sessions do with them."""

from __future__ import annotations

import asyncio
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import CPU, Array, data, run, tensor

import perihelion
from perihelion.driver import Buffer
from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import (
    BufferType,
    BufferValue,
    DeviceRef,
    Graph,
    KernelLibrary,
    Module,
    ShardingStrategy,
    TensorType,
    TensorValue,
    Type,
    Value,
    Weight,
    default_custom_extensions,
    default_custom_extensions_scope,
    ops,
)

EXTENSIONS = Path(__file__).parents[2] / "examples" / "extensions"
LEAKY_RELU = EXTENSIONS / "leaky_relu.rs"
STATISTICS = EXTENSIONS / "statistics" / "src" / "lib.rs"


def twice(name: str = "twice") -> Graph:
    return Graph(name, lambda x: x + x, [tensor("float32", "n")])


class TestBuilding:
    def test_a_context_builds_a_graph(self, session: InferenceSession) -> None:
        with Graph("sum", input_types=[tensor("float32", "n"), tensor("float32", "n")]) as graph:
            x, y = graph.inputs
            assert isinstance(x, TensorValue) and isinstance(y, TensorValue)
            graph.output(x + y, x - y)
        assert graph.output_types == [tensor("float32", "n")] * 2
        model = session.load(graph)
        assert model.name == "sum"
        assert [spec.name for spec in model.input_metadata] == ["input0", "input1"]
        a, b = data(5), data(5, seed=1)
        total, difference = model(input1=b, input0=a)
        np.testing.assert_array_equal(total.to_numpy(), a + b)
        np.testing.assert_array_equal(difference.to_numpy(), a - b)

    def test_a_function_builds_a_graph(self, session: InferenceSession) -> None:
        def scaled(x: TensorValue, factor: float, *, shift: int) -> Any:
            return x * factor + shift

        graph = Graph("scaled", scaled, [tensor("float32", 3)], None, 2.5, shift=1)
        (y,) = session.load(graph).execute(np.ones(3, np.float32))
        np.testing.assert_array_equal(y.to_numpy(), np.full(3, 3.5, np.float32))

    def test_a_function_gives_none_one_or_several(self) -> None:
        def nothing(x: BufferValue) -> None:
            x[...] = 1

        types: list[Type] = [BufferType(DType.float32, [3], CPU)]
        assert Graph("none", nothing, types).output_types == []
        assert len(Graph("one", lambda x: x, [tensor("float32", 3)]).output_types) == 1
        assert len(Graph("more", lambda x: (y for y in (x, x)), [tensor("float32", 3)]).output_types) == 2

    def test_output_types_before_the_output_are_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="no output yet"):
            Graph("g").output_types

    def test_a_graph_without_output_does_not_compile(self, session: InferenceSession) -> None:
        with pytest.raises(ValueError, match="graph `g`: its output is not set"):
            session.compile(Graph("g", input_types=[tensor("float32", 3)]))

    def test_text_is_read_back(self, session: InferenceSession, tmp_path: Path) -> None:
        weight = np.eye(3, dtype=np.float32)

        def layer(x: TensorValue) -> TensorValue:
            return ops.silu(x @ Weight("w", DType.float32, [3, 3], CPU)) + np.arange(3, dtype=np.float32)

        graph = Graph("layer", layer, [tensor("float32", "rows", 3)])
        path = tmp_path / "layer.graph"
        path.write_text(str(graph))
        x = data(4, 3)
        outputs = [
            session.load(model, weights_registry={"w": weight}).execute(x)[0].to_numpy()
            for model in (graph, path, Graph("again", path=path))
        ]
        assert str(Graph("again", path=path)) == str(graph)
        np.testing.assert_array_equal(outputs[0], outputs[1])
        np.testing.assert_array_equal(outputs[0], outputs[2])

    def test_a_copy_goes_on_alone(self) -> None:
        graph = Graph("g", input_types=[tensor("float32", "n")])
        copy = graph.copy()
        with copy:
            copy.output(ops.abs(graph.inputs[0]))
        assert "abs" in str(copy) and "abs" not in str(graph)

    def test_values_know_their_types(self) -> None:
        with Graph("g", input_types=[tensor("int8", "n", 4), BufferType(DType.uint8, [2], CPU)]) as graph:
            x, b = graph.inputs
            assert (x.dtype, x.rank, x.device) == (DType.int8, 2, CPU)
            assert x.shape == ["n", 4] and x.type == tensor("int8", "n", 4)
            assert repr(x) == "TensorValue(dtype=int8, shape=[Dim('n'), Dim(4)], device=cpu:0)"
            assert isinstance(b, BufferValue) and b.type == BufferType(DType.uint8, [2], CPU)
            assert x.tensor is x and b.buffer is b
            with pytest.raises(TypeError):
                x.buffer
            with pytest.raises(TypeError):
                iter(x)  # type: ignore[call-overload]
            with pytest.raises(TypeError):
                3 in x  # type: ignore[operator]

    def test_an_object_stands_for_a_tensor(self, session: InferenceSession) -> None:
        class Parameter:
            def __tensorvalue__(self) -> TensorValue:
                return ops.constant(np.float32(3), DType.float32, CPU)

        (y,) = run(session, lambda x: x * Parameter(), [data(3)])
        np.testing.assert_array_equal(y, data(3) * 3)

    def test_dims_are_tensors_too(self, session: InferenceSession) -> None:
        (y,) = run(session, lambda x: ops.cast(x, DType.int64) + x.shape[0], [data(3)], dynamic=True)
        np.testing.assert_array_equal(y, data(3).astype(np.int64) + 3)


class TestErrors:
    def test_ops_outside_of_a_graph_are_a_lookup_error(self) -> None:
        graph = twice()
        with pytest.raises(LookupError):
            Graph.current
        with pytest.raises(LookupError):
            ops.abs(graph.inputs[0])

    def test_a_foreign_value_names_both_graphs(self) -> None:
        other = twice("other")
        with Graph("mine", input_types=[tensor("float32", "n")]) as graph:
            with pytest.raises(ValueError, match="`other`; this graph is `mine`"):
                graph.inputs[0] + other.inputs[0]  # type: ignore[operator]
            with pytest.raises(ValueError, match="output 0 is .* `other`; this graph is `mine`"):
                graph.output(other.inputs[0])

    def test_messages_have_both_facts_and_no_place_of_ours(self) -> None:
        with Graph("g", input_types=[tensor("float32", "n", 3), tensor("float32", 4, 5)]) as graph:
            x, y = (value.tensor for value in graph.inputs)
            with pytest.raises(ValueError) as raised:
                x @ y
            assert str(raised.value) == "matmul: inner axes differ: a f32[n, 3], b f32[4, 5]"
            with pytest.raises(ValueError, match="has no axis 2$"):
                ops.softmax(x, 2)
            with pytest.raises(IndexError, match="has no axis 2$"):
                ops.concat([x, x], 2)

    def test_tracebacks_show_two_frames_of_ours_at_most(self) -> None:
        with Graph("g", input_types=[tensor("float32", "n", 3), tensor("float32", 4, 5)]) as graph:
            x, y = (value.tensor for value in graph.inputs)
            for wrong in (
                lambda: x @ y,
                lambda: ops.add(x, y),
                lambda: -x.reshape([4]),
                lambda: x.max(2),
                lambda: ops.softmax(x, 2),
                lambda: x[0, 0, 0],
                lambda: ops.gather(x, y, 0),
                lambda: TensorType("no dtype", [3], CPU),  # type: ignore[arg-type]
                lambda: Weight("w", "no dtype", [3], CPU),  # type: ignore[arg-type]
                lambda: x.type.cast("no dtype"),  # type: ignore[arg-type]
                lambda: x.reshape([-1])[0].T,
                lambda: ops.conv2d(x, y, input_layout="no layout"),  # type: ignore[arg-type]
                lambda: Buffer.from_numpy(np.zeros(3, complex)),
            ):
                with pytest.raises(ValueError) as raised:
                    wrong()
                ours = [str(entry.path) for entry in raised.traceback if "/perihelion/" in str(entry.path)]
                assert 1 <= len(ours) <= 2, ours

    def test_kinds_of_objects_are_type_errors(self) -> None:
        with Graph("g", input_types=[tensor("float32", "n")]) as graph:
            x = graph.inputs[0].tensor
            for wrong in (
                lambda: ops.abs(1.5),
                lambda: ops.add(1, 2),
                lambda: x + "a",
                lambda: x == "a",
                lambda: ops.buffer_load(x),
                lambda: x[1.5],
                lambda: TensorType(DType.float32, [-1], CPU),
            ):
                with pytest.raises(TypeError):
                    wrong()

    def test_devices_must_agree(self) -> None:
        gpu = TensorType(DType.float32, [3], DeviceRef.GPU())
        with Graph("g", input_types=[tensor("float32", 3), gpu]) as graph:
            with pytest.raises(ValueError, match="same device.*f32\\[3\\], .*f32\\[3\\] @gpu:0"):
                ops.add(*graph.inputs)

    def test_an_error_in_a_graph_leaves_the_context(self) -> None:
        with pytest.raises(ZeroDivisionError), Graph("g"):
            1 // 0
        with pytest.raises(LookupError):
            Graph.current

    def test_tracebacks_show_two_frames_of_ours(self) -> None:
        package = str(Path(perihelion.__file__).parent)
        with Graph("g", input_types=[tensor("float32", 3, 4)]) as graph:
            x = graph.inputs[0].tensor
            for wrong in (
                lambda: ops.add(x, "y"),  # type: ignore[arg-type]
                lambda: x + "y",  # type: ignore[operator]
                lambda: ops.conv2d(x, object()),  # type: ignore[arg-type]
                lambda: ops.scatter(x, x, object()),  # type: ignore[arg-type]
                lambda: x.reshape([object()]),  # type: ignore[list-item]
                lambda: TensorType(DType.float32, [object()], CPU),  # type: ignore[list-item]
            ):
                with pytest.raises(TypeError) as raised:
                    wrong()
                assert sum(str(entry.path).startswith(package) for entry in raised.traceback) == 2
            with pytest.raises(KeyError) as missing:
                ops.while_loop([x], lambda x: {}["condition"], lambda x: [x])
            assert missing.traceback[-1].name == "<lambda>"

    def test_source_tracebacks_name_the_line_of_python(self) -> None:
        session = InferenceSession()
        session.debug.source_tracebacks = True
        graph = Graph("g", lambda x: ops.gather(x, np.array([7]), 0), [tensor("float32", 3)])
        line = TestErrors.test_source_tracebacks_name_the_line_of_python.__code__.co_firstlineno + 3
        with pytest.raises(ValueError, match=f"test_graph.py:{line}\\)"):
            session.load(graph).execute(np.zeros(3, np.float32))

    def test_negative_counts_are_value_errors(self) -> None:
        with Graph("g", input_types=[tensor("float32", 3, 4), tensor("float32", "n")]) as graph:
            x, symbolic = (value.tensor for value in graph.inputs)
            for wrong in (
                lambda: ops.top_k(x, -1),
                lambda: ops.chunk(x, -1),
                lambda: ops.split(x, [-1, 4]),
                lambda: ops.repeat_interleave(x, -1),
                lambda: ops.band_part(x, -2),
                lambda: ops.pad(x, [0, -1, 0, 0]),
                lambda: ops.pad(x, [0, 0]),
                lambda: ops.pad(x, [0, 0, 0, 0], "wrap"),
                lambda: ops.avg_pool2d(x, (-1, 1)),
                lambda: ops.gelu(x, "exact"),
                lambda: ops.resize_nearest(x, [1, 1], 4),
                lambda: ops.min(x, x, axis=0),
                lambda: x[::0],
                lambda: symbolic[::-1],
                lambda: ops.split(symbolic, ["n", 1]),
                lambda: x.reshape([-1, -1]),
            ):
                with pytest.raises(ValueError):
                    wrong()


class TestCustomOps:
    def test_an_op_of_a_library_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERIHELION_CACHE_DIR", str(tmp_path))
        if shutil.which("rustc") is None:
            pytest.skip("needs rustc")

        def build(x: TensorValue) -> list[Value]:
            return ops.custom("leaky_relu", CPU, [x], [x.type], {"slope": 0.5})

        types = [tensor("float32", "n")]
        library = KernelLibrary([LEAKY_RELU])
        assert list(library) == ["leaky_relu"] and "leaky_relu" in library and "other" not in library
        graphs = [
            Graph("g", build, types, custom_extensions=[LEAKY_RELU]),
            Graph("g", build, types, kernel_library=library),
        ]
        with default_custom_extensions_scope(LEAKY_RELU):
            assert default_custom_extensions() == [LEAKY_RELU]
            graphs.append(Graph("g", build, types))
        assert default_custom_extensions() == []
        for graph in graphs:
            assert graph.kernel_libraries_paths == [LEAKY_RELU]
            (y,) = InferenceSession().load(graph).execute(np.array([-1, 2], np.float32))
            np.testing.assert_array_equal(y.to_numpy(), [-0.5, 2])

    def test_an_op_of_a_library_changes_a_buffer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PERIHELION_CACHE_DIR", str(tmp_path))
        if shutil.which("rustc") is None:
            pytest.skip("needs rustc")
        types: list[Type] = [BufferType(DType.float32, ["n"], CPU), tensor("float32", "n")]
        with Graph("g", input_types=types, custom_extensions=[STATISTICS]) as graph:
            mean, x = graph.inputs
            before = mean.buffer[...]
            assert ops.inplace_custom("moving_mean", CPU, [mean, x], parameters={"rate": 0.5}) == []
            graph.output(before, mean.buffer[...])
        model = InferenceSession().load(graph)
        state = Buffer.zeros((2,), DType.float32)
        for old, new in (([0, 0], [2, 4]), ([2, 4], [3, 6])):
            y, z = model.execute(state, np.array([4, 8], np.float32))
            assert [y.to_numpy().tolist(), z.to_numpy().tolist(), state.to_numpy().tolist()] == [old, new, new]

    def test_wrong_ops(self) -> None:
        types: list[Type] = [tensor("float32", "n"), BufferType(DType.int8, [1], CPU)]
        with Graph("g", input_types=types) as graph:
            x, buffer = graph.inputs
            with pytest.raises(ValueError, match="nothing"):
                ops.custom("nothing", CPU, [x], [x.type])
            with pytest.raises(TypeError, match="use inplace_custom"):
                ops.custom("nothing", CPU, [buffer], [])
            with pytest.raises(TypeError, match="use custom"):
                ops.inplace_custom("nothing", CPU, [x])
            with pytest.raises(TypeError, match="parameter"):
                ops.custom("nothing", CPU, [x], [], {"a": object()})  # type: ignore[dict-item]


class TestContexts:
    def test_graphs_nest(self) -> None:
        with Graph("outer") as outer:
            with Graph("inner") as inner:
                assert Graph.current is inner
                with outer:
                    assert Graph.current is outer
            assert Graph.current is outer

    def test_threads_have_graphs_of_their_own(self, session: InferenceSession) -> None:
        def build(index: int) -> Array:
            with pytest.raises(LookupError):
                Graph.current
            graph = Graph(
                f"g{index}", lambda x: [x := x + index for _ in range(20)][-1], [tensor("float32", 2)]
            )
            return session.load(graph).execute(np.zeros(2, np.float32))[0].to_numpy()

        with Graph("outer"), ThreadPoolExecutor(8) as pool:
            for index, y in enumerate(pool.map(build, range(32))):
                np.testing.assert_array_equal(y, np.full(2, 20 * index, np.float32))

    def test_tasks_have_graphs_of_their_own(self) -> None:
        async def build(name: str) -> None:
            with Graph(name) as graph:
                for _ in range(5):
                    await asyncio.sleep(0)
                    assert Graph.current is graph

        async def several() -> None:
            await asyncio.gather(*(build(f"g{i}") for i in range(5)))

        asyncio.run(several())

    def test_threads_build_one_graph(self) -> None:
        graph = Graph("g", input_types=[tensor("float32", "n")])
        results: list[TensorValue] = []

        def build() -> None:
            with graph:
                for _ in range(50):
                    results.append(ops.abs(graph.inputs[0]))

        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        graph.output(*results)
        assert str(graph).count("abs(") == 200


class TestWeights:
    def test_a_weight_joins_where_it_is_used(self, session: InferenceSession) -> None:
        weight = Weight("w", DType.float32, [3], CPU)
        assert weight.shape == [3] and repr(weight).startswith("Weight(name='w'")
        w, x = data(3, seed=1), data(3)
        (y,) = run(session, lambda x: x * weight + weight, [x], weights={"w": w})
        np.testing.assert_array_equal(y, x * w + w)
        assert str(Graph("g", lambda x: x * weight + weight, [tensor("float32", 3)])).count("weight") == 1

    def test_a_weight_outside_of_a_graph_is_a_value_error(self) -> None:
        with pytest.raises(ValueError, match="weight 'w' is used outside of a graph"):
            TensorValue(Weight("w", DType.float32, [3], CPU))

    def test_another_weight_of_a_name_is_a_value_error(self) -> None:
        with Graph("g"):
            ops.abs(Weight("w", DType.float32, [3], CPU))
            with pytest.raises(ValueError, match="another weight of the name 'w'"):
                ops.abs(Weight("w", DType.float32, [3], CPU))

    def test_a_weight_on_an_accelerator_is_transferred(self) -> None:
        with Graph("g") as graph:
            assert ops.abs(Weight("w", DType.float32, [3], DeviceRef.GPU())).device == DeviceRef.GPU()
        assert 'transfer_to(%0) {device = "gpu:0"}' in str(graph)

    def test_shards_are_parts_of_the_weight(self, session: InferenceSession) -> None:
        weight = Weight("w", DType.float32, [5, 2], CPU, sharding_strategy=ShardingStrategy.rowwise(2))
        values = data(5, 2)

        def build() -> list[TensorValue]:
            assert weight.sharding_strategy is not None
            return [
                *(ops.abs(shard) for shard in weight.shard([CPU, CPU])),
                weight.sharding_strategy(weight, 1),
            ]

        first, second, again = run(session, build, [], weights={"w": values})
        np.testing.assert_array_equal(first, np.abs(values[:3]))
        np.testing.assert_array_equal(second, np.abs(values[3:]))
        np.testing.assert_array_equal(again, values[3:])

    def test_a_missing_weight_is_a_value_error(self, session: InferenceSession) -> None:
        graph = Graph("g", lambda: ops.abs(Weight("w", DType.float32, [3], CPU)))
        with pytest.raises(ValueError, match="w"):
            session.load(graph)


class TestModules:
    def test_graphs_of_a_module_compile_together(self, session: InferenceSession) -> None:
        module = Module()
        Graph("one", lambda x: x + 1, [tensor("float32", "n")], module=module)
        Graph("two", lambda x: x * 2, [tensor("float32", "n")], module=module)
        assert module.top_level_graph_names() == ["one", "two"]
        models = session.load_all(module)
        assert list(models) == ["one", "two"]
        np.testing.assert_array_equal(models["two"].execute(data(3))[0].to_numpy(), data(3) * 2)
        with pytest.raises(ValueError, match="2 were compiled; use `init_all`"):
            session.init(session.compile(module))
        with pytest.raises(ValueError, match="2 graphs were given; use `load_all`"):
            session.load(module)  # type: ignore[arg-type]

    def test_a_failing_compile_is_a_runtime_error_with_its_cause(self, session: InferenceSession) -> None:
        module = Module()
        for _ in range(2):
            Graph("same", lambda x: x + 1, [tensor("float32", "n")], module=module)
        with pytest.raises(RuntimeError, match="two models have the name `same`") as raised:
            session.compile(module)
        assert isinstance(raised.value.__cause__, RuntimeError)

    def test_text_of_a_module_is_read_back(self, session: InferenceSession, tmp_path: Path) -> None:
        module = Module()
        for name in ("one", "two"):
            Graph(name, lambda x: x + 1, [tensor("float32", "n")], module=module)
        path = tmp_path / "module.graph"
        path.write_text(str(module))
        assert list(session.load_all(path)) == ["one", "two"]

    def test_a_subgraph_serves_many_layers(self, session: InferenceSession) -> None:
        with Graph("g", input_types=[tensor("float32", "n", 2)]) as graph:
            layer = graph.add_subgraph(
                "layer", lambda x: x @ Weight("w", DType.float32, [2, 2], CPU), [tensor("float32", "rows", 2)]
            )
            x: Value = graph.inputs[0]
            for i in range(3):
                [x] = ops.call(layer, x, prefix=f"layers.{i}.")
            graph.output(x)
        weights = {f"layers.{i}.w": data(2, 2, seed=i) for i in range(3)}
        (y,) = session.load(graph, weights_registry=weights).execute(data(5, 2))
        expected = data(5, 2)
        for weight in weights.values():
            expected = expected @ weight
        np.testing.assert_allclose(y.to_numpy(), expected, rtol=1e-5)
        assert graph.module.top_level_graph_names() == ["g"]

    def test_a_call_checks_its_arguments(self) -> None:
        with Graph("g", input_types=[tensor("float32", "n", 2)]) as graph:
            layer = graph.add_subgraph("layer", lambda x: x, [tensor("float32", "rows", 2)])
            with pytest.raises(ValueError, match="call"):
                ops.call(layer, *graph.inputs, *graph.inputs)


class TestBuffers:
    def test_buffers_are_loaded_and_stored(self, session: InferenceSession) -> None:
        def step(state: BufferValue, x: TensorValue) -> TensorValue:
            before = state[...]
            state[1:3] = x
            state[0] = 9
            ops.buffer_store_slice(state, ops.negate(x), [slice(3, 5)])
            return before + state[...]

        types: list[Type] = [BufferType(DType.float32, [5], CPU), tensor("float32", 2)]
        model = session.load(Graph("step", step, types))
        state = Buffer.from_numpy(np.arange(5, dtype=np.float32))
        (total,) = model.execute(state, np.array([7, 8], np.float32))
        np.testing.assert_array_equal(state.to_numpy(), [9, 7, 8, -7, -8])
        np.testing.assert_array_equal(total.to_numpy(), [9, 8, 10, -4, -4])

    def test_graphs_create_buffers(self, session: InferenceSession) -> None:
        def count(x: TensorValue, times: TensorValue) -> list[TensorValue]:
            total = ops.buffer_create(BufferType(DType.float32, x.shape, CPU))
            other = ops.buffer_create(BufferType(DType.float32, x.shape, CPU))
            total[...] = x

            def body(i: TensorValue) -> list[TensorValue]:
                fresh = ops.buffer_create(total.type)
                total[...] = total[...] + x + fresh[...]
                fresh[...] = 100
                return [i + 1]

            ops.while_loop([ops.constant(0, DType.int64, CPU)], lambda i: i < times, body)
            then = ops.buffer_load(total)
            total[0] = -1
            return [then, total[...], other[...]]

        model = session.load(Graph("count", count, [tensor("float32", "n"), tensor("int64")]))
        x = np.array([1, 2, 3], np.float32)
        for times in (2, 0, 5):
            then, after, other = (y.to_numpy() for y in model.execute(x, times))
            np.testing.assert_array_equal(then, x * (1 + times))
            np.testing.assert_array_equal(after, [-1, *then[1:]])
            np.testing.assert_array_equal(other, [0, 0, 0])

    def test_created_buffers_have_the_type_of_a_buffer(self) -> None:
        with Graph("g"):
            made = ops.buffer_create(BufferType(DType.int8, [2, 3], CPU))
            assert isinstance(made, BufferValue)
            assert made.type == BufferType(DType.int8, [2, 3], CPU)
            assert ops.buffer_create(BufferType(DType.int8, [2], DeviceRef.GPU())).device == DeviceRef.GPU()
            with pytest.raises(ValueError, match="expected a buffer"):
                ops.buffer_create(tensor("int8", 2))  # type: ignore[arg-type]

    def test_a_slice_is_loaded(self, session: InferenceSession) -> None:
        graph = Graph("g", lambda b: b[1:, 0], [BufferType(DType.int32, [3, 2], CPU)])
        (y,) = session.load(graph).execute(np.arange(6, dtype=np.int32).reshape(3, 2))
        np.testing.assert_array_equal(y.to_numpy(), [2, 4])


class TestControl:
    def test_branches_use_values_around_them(self, session: InferenceSession) -> None:
        weight = Weight("w", DType.float32, [3], CPU)

        def build(flag: TensorValue, x: TensorValue) -> list[Value]:
            outer = x * weight

            def nested() -> Any:
                [inner] = ops.cond(flag, [x.type], lambda: outer + weight, lambda: outer)
                return inner

            return ops.cond(flag, [x.type], nested, lambda: outer * 10 + weight)

        graph = Graph("g", build, [tensor("bool"), tensor("float32", 3)])
        assert str(graph).count('"w"') >= 1
        w, x = data(3, seed=1), data(3)
        model = session.load(graph, weights_registry={"w": w})
        np.testing.assert_allclose(model.execute(True, x)[0].to_numpy(), x * w + w, rtol=1e-6)
        np.testing.assert_allclose(model.execute(False, x)[0].to_numpy(), x * w * 10 + w, rtol=1e-6)

    def test_branches_write_buffers(self, session: InferenceSession) -> None:
        def build(flag: TensorValue, state: BufferValue) -> None:
            def add() -> None:
                state[...] = state[...] + 1

            ops.cond(flag, [], add, lambda: None)

        types: list[Type] = [tensor("bool"), BufferType(DType.float32, [2], CPU)]
        model = session.load(Graph("g", build, types))
        state = Buffer.zeros([2], DType.float32)
        for flag in (True, False, True):
            model.execute(flag, state)
        np.testing.assert_array_equal(state.to_numpy(), [2, 2])

    def test_loops_carry_values(self, session: InferenceSession) -> None:
        def build(count: TensorValue, x: TensorValue) -> list[Value]:
            zero = ops.constant(0, DType.int64, CPU)
            return ops.while_loop([zero, x], lambda i, y: i < count, lambda i, y: [i + 1, y * 2 + x])

        graph = Graph("g", build, [tensor("int64"), tensor("float32", "n")])
        count, y = session.load(graph).execute(3, np.ones(2, np.float32))
        assert count.item() == 3
        np.testing.assert_array_equal(y.to_numpy(), [15, 15])

    def test_wrong_branches_and_loops(self) -> None:
        with Graph(
            "g", input_types=[tensor("bool"), tensor("float32", 3), BufferType(DType.float32, [2], CPU)]
        ) as graph:
            flag, x, buffer = graph.inputs
            with pytest.raises(TypeError, match="else_fn gives"):
                ops.cond(flag, [x.type], lambda: x, lambda: ops.sum(x))
            with pytest.raises(ValueError, match="one bool on the CPU"):
                ops.cond(x, [], lambda: None, lambda: None)
            with pytest.raises(ValueError, match="initial_values is empty"):
                ops.while_loop([], lambda: flag, lambda: None)
            with pytest.raises(NotImplementedError):
                ops.while_loop([buffer], lambda b: flag, lambda b: b)
            with pytest.raises(TypeError, match="body gives"):
                ops.while_loop(x, lambda y: flag, lambda y: ops.sum(y))

    def test_a_failing_branch_leaves_the_graph_as_it_was(self, session: InferenceSession) -> None:
        with Graph("g", input_types=[tensor("bool"), tensor("float32", 3)]) as graph:
            flag, x = graph.inputs
            before = str(graph)

            def fail() -> None:
                ops.cond(flag, [], lambda: 1 // 0, lambda: None)

            with pytest.raises(ZeroDivisionError):
                ops.cond(flag, [], lambda: ops.print(ops.abs(x)), fail)
            assert str(graph) == before
            graph.output(x)
        session.load(graph)

    def test_values_of_an_ended_branch_are_foreign(self) -> None:
        with Graph("g", input_types=[tensor("bool"), tensor("float32", 3)]) as graph:
            flag, x = graph.inputs
            kept: list[TensorValue] = []
            ops.cond(flag, [x.type], lambda: kept.append(ops.abs(x)) or x, lambda: x)
            with pytest.raises(ValueError, match="another graph"):
                ops.abs(kept[0])
