"""Sessions, compiled models and models."""

from __future__ import annotations

import errno
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, IntEnum
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

import numpy as np

from perihelion import _perihelion
from perihelion._perihelion import CompilationStopped
from perihelion._tracebacks import shorten_methods
from perihelion.driver import Buffer, Device, DLPackArray
from perihelion.driver.buffer import _wrap as _wrap_buffer
from perihelion.driver.driver import _wrap as _wrap_device
from perihelion.dtype import DType

if TYPE_CHECKING:
    from perihelion.graph import Graph, Module

__all__ = [
    "AssertLevel",
    "CompilationStopped",
    "CompiledModel",
    "CustomExtensionsType",
    "DebugConfig",
    "GPUProfilingMode",
    "InferenceSession",
    "InputType",
    "LogLevel",
    "Model",
    "PrintStyle",
    "SplitKReductionPrecision",
    "TensorSpec",
    "compile_for",
]

InputType = Union[DLPackArray, Buffer, int, float, bool, np.generic]
"""An input of a model: an array, or a number for an input without axes."""

CustomExtensionsType = Union[Sequence[Union[str, Path]], str, Path]
"""Libraries of custom ops: shared libraries, packages, and single Rust files."""

GPUProfilingMode = Literal["off", "on", "detailed"]
"""How much of each call is measured."""

_E = TypeVar("_E", bound=Enum)


class PrintStyle(Enum):
    """How the values that graphs print are shown."""

    COMPACT = 0
    FULL = 1
    BINARY = 2
    NONE = 3
    BINARY_MAX_CHECKPOINT = 4


class AssertLevel(str, Enum):
    """Which checks stay in compiled models."""

    NONE = "none"
    WARN = "warn"
    SAFE = "safe"
    ALL = "all"


class LogLevel(str, Enum):
    """The least severe events that compiled models log."""

    NOTSET = "notset"
    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


class SplitKReductionPrecision(IntEnum):
    """In which precision the partial sums of long matrix products are added up."""

    ACCUM = 1
    OUTPUT = 2


class _Flag:
    """A debug option that is on or off."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: DebugConfig, owner: type | None = None) -> bool:
        return config._native.flag(self.name)

    def __set__(self, config: DebugConfig, on: bool) -> None:
        config._native.set_flag(self.name, _expect(self.name, on, bool))


class _Text:
    """A debug option that is a name or a path, as it was written; the empty one unsets it."""

    def __init__(self, doc: str) -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: DebugConfig, owner: type | None = None) -> str:
        return config._native.text(self.name) or ""

    def __set__(self, config: DebugConfig, value: str) -> None:
        config._native.set_text(self.name, _expect(self.name, value, str))


class DebugConfig:
    """Checks, logs and files while models compile and run.

    `InferenceSession.debug` holds the options of the process. Each session has its own options; those that it does not
    set come from the process, and then from the environment variable `PERIHELION_DEBUG`. Checks apply to models that
    are compiled afterwards.

    >>> InferenceSession.debug.nan_check
    False
    """

    __slots__ = ("_native", "_sensible")

    nan_check = _Flag("Whether the step that makes the first NaN, or an infinity of numbers, fails its call.")
    uninitialized_read_check = _Flag("Whether reads of unwritten memory are detected.")
    device_sync_mode = _Flag("Whether each step waits for its device.")
    stack_trace_on_error = _Flag("Whether errors of calls carry the stack of the caller.")
    stack_trace_on_crash = _Flag("Whether a crash during a call prints the stack of its thread.")
    source_tracebacks = _Flag("Whether messages name the place where an op was built.")
    pre_jit = _Flag("Whether compiling stops with `CompilationStopped` once all passes have run.")
    uninitialized_read_mode = _Text("What an uninitialized read does: abort or report.")
    op_log_level = _Text("The level at which each op that runs is logged.")
    assert_level = _Text("Which checks stay in compiled models: none, warn, safe or all.")
    ir_output_dir = _Text("The directory where compiling writes the graph after each pass.")

    def __init__(self) -> None:
        self._attach(_perihelion.DebugConfig())

    def _attach(self, native: _perihelion.DebugConfig) -> None:
        self._native = native
        self._sensible = False

    @property
    def print_style(self) -> PrintStyle:
        """How the values that graphs print are shown; `NONE` if it is not set."""
        return PrintStyle[self._native.text("print_style") or "NONE"]

    @print_style.setter
    def print_style(self, style: PrintStyle) -> None:
        self._native.set_text("print_style", _expect("print_style", style, PrintStyle).name)

    @property
    def sensible_mode(self) -> bool:
        """Whether the checks that help most to find a mistake were turned on together."""
        return self._sensible

    @sensible_mode.setter
    def sensible_mode(self, on: bool) -> None:
        self._sensible = _expect("sensible_mode", on, bool)
        if on:
            self._native.turn_on_sensible_mode()

    def reset(self) -> None:
        """Unsets everything that was set here."""
        self._native.reset()
        self._sensible = False


@dataclass(frozen=True, repr=False)
class TensorSpec:
    """The name, dtype and shape of an input or output of a model.

    >>> TensorSpec([1, None], DType.float32, "input0")
    TensorSpec(shape=[1, None], dtype=float32, name=input0)
    >>> str(TensorSpec([1, None], DType.float32, "input0"))
    '1x-1xfloat32'
    """

    shape: list[int | None] | None
    """The sizes of the axes; `None` for a size that varies, or for all of them if even their number does."""
    dtype: DType
    name: str

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype!r}, name={self.name})"

    def __str__(self) -> str:
        if self.shape is None:
            return f"None x {self.dtype!r}"
        sizes = ["-1" if size is None else str(size) for size in self.shape]
        return "x".join([*sizes, repr(self.dtype)])


class CompiledModel:
    """The result of `InferenceSession.compile`, which needs weights before it can be executed.

    It can be initialized many times, into models that are independent of each other.
    """

    __slots__ = ("_native",)
    _native: _perihelion.CompiledModel

    @property
    def target(self) -> str:
        """The kind of machine that it was compiled for, such as `x86_64 avx2`."""
        return self._native.target

    def __init__(self) -> None:
        raise TypeError("make a compiled model with InferenceSession.compile")

    def export_mef(self, path: str | Path) -> None:
        """Writes the compiled model to a file, which sessions load instead of compiling again.

        Raises:
            OSError: the file cannot be written.
        """
        self._native.export_mef(path)

    def __repr__(self) -> str:
        return "CompiledModel()"


class Model:
    """A compiled graph with its weights. Many threads may execute it at once."""

    __slots__ = ("__weakref__", "_native", "_signature")
    _native: _perihelion.Model
    _signature: inspect.Signature | None

    def __init__(self) -> None:
        raise TypeError("make a model with InferenceSession.load or InferenceSession.init")

    @property
    def name(self) -> str:
        """The name of the graph it was compiled from."""
        return self._native.name

    @property
    def devices(self) -> list[Device]:
        """The devices it runs on."""
        return [_wrap_device(device) for device in self._native.devices]

    @property
    def input_devices(self) -> list[Device]:
        """Where each input must be."""
        return [_wrap_device(device) for device in self._native.input_devices]

    @property
    def output_devices(self) -> list[Device]:
        """Where each output is."""
        return [_wrap_device(device) for device in self._native.output_devices]

    @property
    def input_metadata(self) -> list[TensorSpec]:
        """The inputs of `execute`, in order."""
        return [TensorSpec(shape, DType(code), name) for name, code, shape in self._native.input_metadata]

    @property
    def output_metadata(self) -> list[TensorSpec]:
        """The outputs of `execute`, in order."""
        return [TensorSpec(shape, DType(code), name) for name, code, shape in self._native.output_metadata]

    @property
    def kernel_summaries(self) -> list[str]:
        """The kernels it runs on, each with the number of its steps."""
        return self._native.kernel_summaries

    @property
    def signature(self) -> inspect.Signature:
        """The signature of the model as a function: a parameter for each input."""
        if self._signature is None:
            names = [name for name, _, _ in self._native.input_metadata]
            names = [name if name.isidentifier() else f"input{i}" for i, name in enumerate(names)]
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            self._signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        return self._signature

    def execute(self, *args: InputType) -> list[Buffer]:
        """Computes the outputs.

        Args:
            args: one for each input: a `Buffer`, an array of another library, which is not copied, or a number for an
                input without axes. An input on a GPU takes a `Buffer` there.

        Raises:
            ValueError: an input is not what the model expects, or the data (an index, say) makes no sense.
            RuntimeError: another call is writing an input.
        """
        return [_wrap_buffer(output) for output in self._native.execute(args)]

    def __call__(self, *args: InputType, **kwargs: InputType) -> list[Buffer]:
        """Computes the outputs of inputs given by position or by name; see `execute` and `signature`.

        Raises:
            TypeError: inputs are missing, given twice or unknown; and as `execute`.
        """
        if kwargs or len(args) != len(self._native.input_metadata):
            args = self.signature.bind(*args, **kwargs).args
        return self.execute(*args)

    def capture(self, graph_keys: int | Sequence[int], *inputs: Buffer) -> list[Buffer]:
        """Executes, and keeps inputs and outputs under keys. Each `replay` fills the outputs anew.

        Args:
            graph_keys: one key or several, each from 0 to 2**64 - 1.
            inputs: one for each input of the model.
        """
        outputs = self._native.capture(_keys(graph_keys), [_native(buffer) for buffer in inputs])
        return [_wrap_buffer(output) for output in outputs]

    def replay(self, graph_keys: int | Sequence[int], *inputs: Buffer) -> None:
        """Executes on captured buffers, whose contents may have changed, and fills the outputs of the capture."""
        self._native.replay(_keys(graph_keys), [_native(buffer) for buffer in inputs])

    def debug_verify_replay(self, graph_keys: int | Sequence[int], *inputs: Buffer) -> None:
        """Replays, executes on copies, and compares all outputs and all buffers that are written.

        Raises:
            ValueError: they differ.
        """
        self._native.debug_verify_replay(_keys(graph_keys), [_native(buffer) for buffer in inputs])

    def release_captured_graph(self, graph_keys: int | Sequence[int]) -> None:
        """Forgets what was captured under keys."""
        self._native.release_captured_graph(_keys(graph_keys))

    def reload(self, weights_registry: Mapping[str, Any]) -> None:
        """Binds other weights of the same names and types. Calls that run keep those they started with.

        Raises:
            ValueError: a weight is missing, or is not what the model expects.
        """
        self._native.reload(weights_registry)

    def __repr__(self) -> str:
        return f"Model(inputs={self.input_metadata})"


class InferenceSession:
    """Compiles graphs for its devices, and makes models of them. It can be used from many threads.

    Args:
        devices: the preferred first. Doubled ones count once, and the CPU comes last if it is not among them.
        num_threads: how many threads the CPU computes with; `None` lets it choose.
        custom_extensions: libraries of custom ops that all graphs are compiled with.

    Raises:
        RuntimeError: a library cannot be loaded.
    """

    debug: DebugConfig = DebugConfig()

    def __init__(
        self,
        devices: Iterable[Device] = (),
        num_threads: int | None = None,
        *,
        custom_extensions: CustomExtensionsType | None = None,
    ) -> None:
        natives = []
        for device in devices:
            natives.append(_expect("devices", device, Device)._native)
        threads = 0 if num_threads is None else num_threads
        _expect("num_threads", threads, int)
        if threads < 0:
            raise ValueError(f"num_threads: got {threads}, expected at least 0")
        self._native = _perihelion.Session(natives, threads, _paths(custom_extensions))
        self._num_threads = num_threads
        self.debug = DebugConfig.__new__(DebugConfig)
        self.debug._attach(self._native.debug)

    @property
    def devices(self) -> list[Device]:
        """The devices of the session, the CPU among them."""
        return [_wrap_device(device) for device in self._native.devices]

    def compile(
        self,
        model: str | Path | Module | Graph,
        *,
        custom_extensions: CustomExtensionsType | None = None,
    ) -> CompiledModel:
        """Compiles a model without weights.

        Args:
            model: a graph, several in a module, or the path of graph text (`.graph`) or of compiled models (`.mef`).
            custom_extensions: libraries of custom ops, in addition to the session's.

        Raises:
            RuntimeError: the path is no model (also a FileNotFoundError if nothing is there), or compiling fails.
            ValueError: the output of a graph is not set, or a graph whose policy is `Error` puts an op on a GPU that only
                the CPU can compute.
        """
        with _range(self._native, "InferenceSession.compile"):
            return self._compile(model, custom_extensions, None)

    def _compile(
        self,
        model: str | Path | Module | Graph,
        custom_extensions: CustomExtensionsType | None,
        target: str | None,
    ) -> CompiledModel:
        extensions = _paths(custom_extensions)
        graphs = _graphs(model)
        compiled = object.__new__(CompiledModel)
        if graphs is None:
            compiled._native = self._native.compile(_model_path(model), extensions, target)
            return compiled
        extensions += [path for graph in graphs for path in graph.kernel_libraries_paths]
        for graph in graphs:
            graph._record_building(self._native)
        try:
            natives = [graph._native for graph in graphs]
            compiled._native = self._native.compile_graphs(natives, extensions, target)
        except CompilationStopped:
            raise
        except RuntimeError as error:
            names = ", ".join(graph.name for graph in graphs)
            raise RuntimeError(f"compiling {names} failed: {error}") from error
        return compiled

    def init(
        self, compiled: CompiledModel, *, weights_registry: Mapping[str, DLPackArray] | None = None
    ) -> Model:
        """Binds weights to a compiled model.

        Args:
            compiled: holds one model.
            weights_registry: the weights by name. They are shared, not copied, and the model holds on to them.

        Raises:
            ValueError: a weight is missing or is not what the model expects, or there is more than one model.
        """
        native = _expect("compiled", compiled, CompiledModel)._native
        with _range(self._native, "InferenceSession.init"):
            return _wrap_model(self._native.init(native, weights_registry))

    def init_all(
        self, compiled: CompiledModel, *, weights_registry: Mapping[str, DLPackArray] | None = None
    ) -> dict[str, Model]:
        """As `init`, for all models of a compiled file, by their names."""
        native = _expect("compiled", compiled, CompiledModel)._native
        with _range(self._native, "InferenceSession.init_all"):
            models = self._native.init_all(native, weights_registry)
        return {name: _wrap_model(model) for name, model in models}

    def load(
        self,
        model: str | Path | Graph,
        *,
        custom_extensions: CustomExtensionsType | None = None,
        weights_registry: Mapping[str, DLPackArray] | None = None,
    ) -> Model:
        """Compiles a model and binds its weights: `compile` and `init` in one call."""
        with _range(self._native, "InferenceSession.load"):
            graphs = _graphs(model)
            if graphs is not None:
                if len(graphs) != 1:
                    raise ValueError(f"`load` makes one model, but {len(graphs)} graphs were given; use `load_all`")
                compiled = self.compile(model, custom_extensions=custom_extensions)
                return self.init(compiled, weights_registry=weights_registry)
            path, extensions = _model_path(model), _paths(custom_extensions)
            return _wrap_model(self._native.load(path, extensions, weights_registry))

    def load_all(
        self,
        model: str | Path | Module | Graph,
        *,
        custom_extensions: CustomExtensionsType | None = None,
        weights_registry: Mapping[str, DLPackArray] | None = None,
    ) -> dict[str, Model]:
        """As `load`, for all models of a file or module, by their names."""
        with _range(self._native, "InferenceSession.load_all"):
            if _graphs(model) is not None:
                compiled = self.compile(model, custom_extensions=custom_extensions)
                return self.init_all(compiled, weights_registry=weights_registry)
            path, extensions = _model_path(model), _paths(custom_extensions)
            models = self._native.load_all(path, extensions, weights_registry)
        return {name: _wrap_model(native) for name, native in models}

    def set_debug_print_options(
        self,
        style: str | PrintStyle = PrintStyle.COMPACT,
        precision: int = 6,
        output_directory: str | Path | None = None,
    ) -> None:
        """Sets how the values that graphs print are shown, for all models of this session.

        Args:
            style: a member of `PrintStyle`, or its name.
            precision: digits behind the point, for `FULL`.
            output_directory: where the files of `BINARY` and `BINARY_MAX_CHECKPOINT` go.

        Raises:
            TypeError: the style is no member, or an argument that the style uses has another type.
            ValueError: a binary style has no directory.
        """
        member = _member("style", style, PrintStyle)
        if member is PrintStyle.FULL:
            _expect("precision", precision, int)
            if not 0 <= precision <= 1 << 16:
                raise ValueError(f"precision: got {precision}, expected at least 0, and at most {1 << 16}")
        elif member is not PrintStyle.BINARY and member is not PrintStyle.BINARY_MAX_CHECKPOINT:
            output_directory = None
        elif output_directory is not None:
            _expect("output_directory", output_directory, (str, Path))
        digits = precision if member is PrintStyle.FULL else 6
        self._native.set_debug_print_options(member.name, digits, output_directory)

    def set_mojo_assert_level(self, level: AssertLevel) -> None:
        """Sets which checks stay in models that are compiled afterwards."""
        self._native.set_mojo_assert_level(AssertLevel(level).name)

    def set_mojo_log_level(self, level: str | LogLevel) -> None:
        """Sets the least severe events that models compiled afterwards log.

        Raises:
            TypeError: the level is no member of `LogLevel`, or name of one.
        """
        self._native.set_mojo_log_level(_member("level", level, LogLevel).name)

    def set_split_k_reduction_precision(self, precision: str | SplitKReductionPrecision) -> None:
        """Sets in which precision the partial sums of long matrix products are added up.

        Raises:
            TypeError: the precision is no member of `SplitKReductionPrecision`, or name of one.
        """
        member = _member("precision", precision, SplitKReductionPrecision)
        self._native.set_split_k_reduction_precision(member.name)

    def gpu_profiling(self, mode: GPUProfilingMode) -> None:
        """Measures the calls of models, on any device, and writes a trace for Perfetto.

        "detailed" also marks what Python does: building graphs, compiling and loading them, calls, and `LLM.generate`.

        Raises:
            ValueError: the mode is none of "off", "on" and "detailed".
        """
        self._native.gpu_profiling(mode)

    def use_fi_topk_kernel(self, mode: str) -> None:
        """Turns the top-k kernel on that is made for few of many; "false", "off", "no" and "0" turn it off.

        It picks among the elements that reach a bound, which the maxima of parts of a row give. The results are the same.
        """
        self._native.use_fi_topk_kernel(mode)

    def use_old_top_k_kernel(self, mode: str) -> None:
        """Turns the top-k kernel that sorts on; "false", "off", "no" and "0" turn it off."""
        self._native.use_old_top_k_kernel(mode)

    def enable_per_tensor_fp8_quantize(self, mode: str) -> None:
        """Turns 8-bit floats in matrix products on; "false", "off", "no" and "0" turn them off."""
        self._native.enable_per_tensor_fp8_quantize(mode)

    def __repr__(self) -> str:
        threads = f", num_threads={self._num_threads}" if self._num_threads else ""
        return f"InferenceSession(devices={self.devices}{threads})"


def compile_for(
    session: InferenceSession,
    model: str | Path | Module | Graph,
    target: str,
    *,
    custom_extensions: CustomExtensionsType | None = None,
) -> CompiledModel:
    """Compiles a model for a kind of machine, which need not be attached. It can be exported, and loaded on such a machine.

    Args:
        session: compiles it.
        model: as for `InferenceSession.compile`.
        target: an architecture and an instruction set, such as `aarch64 neon`.
        custom_extensions: libraries of custom ops, in addition to the session's.

    Raises:
        RuntimeError: the path is no model (also a FileNotFoundError if nothing is there), or compiling fails.
        ValueError: the output of a graph is not set, or the target is unknown.
    """
    _expect("target", target, str)
    with _range(session._native, "compile_for"):
        return session._compile(model, custom_extensions, target)


def _wrap_model(native: _perihelion.Model) -> Model:
    """The model that a native handle stands for."""
    model = object.__new__(Model)
    model._native = native
    model._signature = None
    return model


@contextmanager
def _range(native: _perihelion.Session | _perihelion.Generator, name: str) -> Iterator[None]:
    """Marks a range of the trace, if calls are measured in detail."""
    begun = perf_counter()
    try:
        yield
    finally:
        seconds = perf_counter() - begun
        native.record_range(name, seconds, seconds)


def _native(buffer: Buffer) -> _perihelion.Buffer:
    return _expect("inputs", buffer, Buffer)._native


_T = TypeVar("_T")


def _expect(parameter: str, value: _T, kind: type | tuple[type, ...]) -> _T:
    """The value, if it has the type."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = " or ".join(one.__name__ for one in kinds)
    raise TypeError(f"{parameter}: got {type(value).__name__}, expected {names}")


def _member(parameter: str, value: object, kind: type[_E]) -> _E:
    """A member of an enum, given itself or by its exact name."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    names = ", ".join(kind.__members__)
    raise TypeError(f"{parameter}: got {value!r}, expected a {kind.__name__} or one of {names}")


def _graphs(model: object) -> list[Graph] | None:
    """The graphs of a model that was built in Python."""
    graphs: list[Graph] | None = getattr(model, "_graphs", None)
    return graphs


class _ModelNotFound(FileNotFoundError, RuntimeError):
    """There is no file at the path of a model."""


def _model_path(model: object) -> str | Path:
    if isinstance(model, (str, Path)):
        if not os.path.exists(model):
            raise _ModelNotFound(errno.ENOENT, "there is no model at this path", str(model))
        return model
    raise RuntimeError(f"model: got {type(model).__name__}, expected a Graph, a Module or the path of a model")


def _paths(extensions: CustomExtensionsType | None) -> list[str | PathLike[str]]:
    if extensions is None:
        return []
    return [extensions] if isinstance(extensions, (str, Path)) else list(extensions)


def _keys(graph_keys: int | Sequence[int]) -> list[int]:
    """The keys of a captured call as a list."""
    given: Any = graph_keys
    keys: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for key in keys:
        if isinstance(key, bool) or not isinstance(key, int):
            raise TypeError(f"graph_keys: got {type(key).__name__}, expected integers")
        if not 0 <= key < 2**64:
            raise ValueError(f"graph_keys: got {key}, expected 0 to 2**64 - 1")
    return keys


shorten_methods(InferenceSession)
