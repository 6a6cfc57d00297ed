"""Graphs, and modules of several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from enum import Enum
from os import PathLike
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Any, Union

from perihelion import _perihelion
from perihelion.engine.api import DebugConfig, InferenceSession

from .ops.control import _listed, _to_value
from .type import DeviceRef, Type, _wrap as _wrap_type
from .value import (
    _GRAPHS,
    BufferValue,
    TensorValue,
    TensorValueLike,
    Value,
    _current,
    _wrap,
    _wrap_tensor,
)
from .weight import Weight

__all__ = [
    "DevicePlacementPolicy",
    "Graph",
    "KernelLibrary",
    "Module",
    "default_custom_extensions",
    "default_custom_extensions_scope",
]

_Path = Union[str, PathLike[str]]

_DEFAULT_EXTENSIONS: ContextVar[tuple[Path, ...]] = ContextVar("perihelion.graph.extensions", default=())


class DevicePlacementPolicy(Enum):
    """What compiling does about ops on an accelerator that only the CPU can compute: nothing, a warning in the log, or a
    `ValueError`."""

    Ignore = "ignore"
    Warn = "warn"
    Error = "error"


def default_custom_extensions() -> list[Path]:
    """The libraries of custom ops that new graphs take in this context.

    >>> default_custom_extensions()
    []
    """
    return list(_DEFAULT_EXTENSIONS.get())


@contextlib.contextmanager
def default_custom_extensions_scope(*paths: _Path) -> Iterator[None]:
    """Lets graphs that are made within the context take more libraries of custom ops."""
    token = _DEFAULT_EXTENSIONS.set((*_DEFAULT_EXTENSIONS.get(), *map(Path, paths)))
    try:
        yield
    finally:
        _DEFAULT_EXTENSIONS.reset(token)


class KernelLibrary:
    """Libraries of custom ops: shared libraries, packages, and single Rust files.

    Args:
        paths: the libraries.

    Raises:
        RuntimeError: one cannot be loaded.
    """

    def __init__(self, paths: Iterable[_Path] = ()) -> None:
        self._paths: list[Path] = []
        self._native = _perihelion.KernelLibrary([])
        self.load_paths(paths)

    def library_paths(self) -> list[Path]:
        """The libraries."""
        return list(self._paths)

    def add_path(self, path: _Path) -> None:
        """Loads one more library."""
        self.load_paths([path])

    def load_paths(self, custom_extensions: Iterable[_Path]) -> None:
        """Loads more libraries."""
        paths = [*self._paths, *map(Path, custom_extensions)]
        if len(paths) > len(self._paths):
            self._native = _perihelion.KernelLibrary(paths)
            self._paths = paths

    def __contains__(self, kernel: object) -> bool:
        return kernel in self._native.names()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._native.names()))

    def __repr__(self) -> str:
        return f"KernelLibrary({[str(path) for path in self._paths]})"


class Module:
    """Graphs that are compiled together, each under its own name.

    >>> module = Module()
    >>> graph = Graph("half", input_types=[], module=module)
    >>> module.top_level_graph_names()
    ['half']
    """

    def __init__(self) -> None:
        self._graphs: list[Graph] = []

    def top_level_graph_names(self) -> list[str]:
        """The names of the graphs, in the order they were made."""
        return [graph.name for graph in self._graphs]

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._graphs))


class _Current:
    """The class property `Graph.current`."""

    def __get__(self, graph: Graph | None, owner: type[Graph]) -> Graph:
        return _current()


class Graph:
    """A computation in the making: inputs, ops and outputs.

    Ops are functions of `perihelion.graph.ops`. They go to the current graph: the graph of the innermost `with`
    block or function of a graph, in each thread and asyncio task.

    Args:
        name: of the graph, and of the model it becomes.
        forward: a function that is called with the inputs and gives the outputs, in place of a `with` block.
        input_types: the types of the inputs, which are called `input0`, `input1` and so on.
        path: graph text to start from.
        args: more arguments of `forward`.
        custom_extensions: libraries of custom ops.
        kernel_library: libraries of custom ops that are loaded.
        module: where the graph belongs; one of its own if not given.
        strict_device_placement: what compiling does about ops on a GPU that only the CPU can compute. The CPU computes
            them, unless the policy is `Error`. Graph text may choose it, too.
        kwargs: more arguments of `forward`.

    Raises:
        ValueError: the outputs are values of another graph, or `path` holds no graph text.

    >>> from perihelion.dtype import DType
    >>> from perihelion.graph import TensorType, ops
    >>> with Graph("twice", input_types=[TensorType(DType.float32, ["n"], DeviceRef.CPU())]) as graph:
    ...     x = graph.inputs[0].tensor
    ...     graph.output(x + x)
    >>> print(graph)
    graph twice(%input0: f32[n]) {
      %0 = add(%input0, %input0) : f32[n]
      return %0
    }
    <BLANKLINE>
    """

    debug: DebugConfig = InferenceSession.debug
    current = _Current()
    """The graph that ops go to; LookupError outside of graphs."""

    name: str
    inputs: Sequence[Value]
    module: Module

    def __init__(
        self,
        name: str,
        forward: Callable[..., None | Value | Iterable[Value]] | None = None,
        input_types: Iterable[Type] = (),
        path: Path | None = None,
        *args: Any,
        custom_extensions: Iterable[Path] = [],
        kernel_library: KernelLibrary | None = None,
        module: Module | None = None,
        strict_device_placement: DevicePlacementPolicy = DevicePlacementPolicy.Warn,
        **kwargs: Any,
    ) -> None:
        native = _perihelion.GraphBuilder(name) if path is None else _parse(path)
        for i, type in enumerate(input_types):
            native.input(f"input{i}", type._native)
        if path is None or strict_device_placement is not DevicePlacementPolicy.Warn:
            native.device_placement = strict_device_placement.value
        self._start(native, name, kernel_library or KernelLibrary(), module or Module())
        self._library.load_paths([*default_custom_extensions(), *custom_extensions])
        if forward is not None:
            self._call(forward, args, kwargs)

    def _start(
        self,
        native: _perihelion.GraphBuilder,
        name: str,
        library: KernelLibrary,
        module: Module,
    ) -> None:
        self._native = native
        self.name = name
        self.inputs = tuple(_wrap(value, self) for value in native.inputs)
        self.module = module
        self.strict_device_placement = DevicePlacementPolicy(native.device_placement)
        self._library = library
        self._weights: dict[str, Weight] = {}
        self._begun = perf_counter()
        self._built: list[tuple[float, float]] = []
        module._graphs.append(self)

    def _call(self, forward: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Calls a function with the inputs and makes its results the outputs."""
        with self:
            self.output(*_listed(forward(*self.inputs, *args, **kwargs)))

    @property
    def _graphs(self) -> list[Graph]:
        """The graphs that a session compiles."""
        return [self]

    @property
    def output_types(self) -> list[Type]:
        """The types of the outputs.

        Raises:
            TypeError: the outputs are not set.
        """
        types = self._native.output_types
        if types is None:
            raise TypeError(f"graph {self.name!r} has no output yet")
        return [_wrap_type(type) for type in types]

    @property
    def kernel_libraries_paths(self) -> list[Path]:
        """The libraries of custom ops that the graph uses."""
        return self._library.library_paths()

    def output(self, *outputs: Value | TensorValueLike) -> None:
        """Sets the results, which ends the graph. Of a buffer, the result is a copy of its contents at the end.

        Raises:
            ValueError: an output is a value of another graph.
        """
        with self:
            values = [_to_value("outputs", output) for output in outputs]
            loaded = [value[...] if isinstance(value, BufferValue) else value for value in values]
        self._native.output([value._native for value in loaded])

    def add_weight(self, weight: Weight, force_initial_weight_on_host: bool = True) -> TensorValue:
        """The value of a weight in this graph, on the weight's device.

        Args:
            weight: one of the graph's, or a new one.
            force_initial_weight_on_host: whether the value is given in the memory of the CPU.

        Raises:
            ValueError: another weight of the graph has its name.
        """
        known = self._weights.setdefault(weight.name, weight)
        if known is not weight:
            raise ValueError(f"graph {self.name!r} has another weight of the name {weight.name!r}")
        type = weight.type
        if force_initial_weight_on_host:
            type = type.as_tensor()
            type.device = DeviceRef.CPU()
        value = _wrap_tensor(self._native.weight(weight.name, type._native), self)
        return value if type.device == weight.device else value.to(weight.device)

    def add_subgraph(
        self,
        name: str,
        forward: Callable[..., None | Value | Iterable[Value]] | None = None,
        input_types: Iterable[Type] = (),
        path: Path | None = None,
        custom_extensions: Iterable[Path] = [],
        devices: Iterable[DeviceRef] = [],
    ) -> Graph:
        """A graph for `ops.call`, which is compiled with those that call it.

        Args:
            name: of the graph.
            forward: a function that is called with the inputs and gives the outputs, in place of a `with` block.
            input_types: the types of the inputs.
            path: graph text to start from.
            custom_extensions: libraries of custom ops, in addition to this graph's.
            devices: that the graph uses.
        """
        extensions = [*self.kernel_libraries_paths, *custom_extensions]
        # In a module of its own, since it does not become a model.
        return Graph(name, forward, input_types, path, custom_extensions=extensions, module=Module())

    def copy(self) -> Graph:
        """A graph that goes on from this one. Values of this graph can be used in it."""
        graph = object.__new__(Graph)
        graph._start(self._native.copy(), self.name, self._library, Module())
        graph._weights.update(self._weights)
        return graph

    def __enter__(self) -> Graph:
        if self not in _GRAPHS.get():
            self._begun = perf_counter()
        _GRAPHS.set((*_GRAPHS.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _GRAPHS.set(_GRAPHS.get()[:-1])
        if self not in _GRAPHS.get():
            self._built.append((self._begun, perf_counter() - self._begun))

    def _record_building(self, session: _perihelion.Session) -> None:
        """Marks when the graph was built in the trace of the first session that compiles it."""
        built, self._built = self._built, []
        for begun, seconds in built:
            session.record_range(f"Graph {self.name}", perf_counter() - begun, seconds)

    def __repr__(self) -> str:
        return self._native.text()


def _parse(path: _Path) -> _perihelion.GraphBuilder:
    return _perihelion.GraphBuilder.parse(Path(path).read_text())
