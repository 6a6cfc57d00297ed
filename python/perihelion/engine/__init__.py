"""Compiling and executing graphs."""

from perihelion import __version__

from .api import (
    AssertLevel,
    CompilationStopped,
    CompiledModel,
    CustomExtensionsType,
    DebugConfig,
    GPUProfilingMode,
    InferenceSession,
    InputType,
    LogLevel,
    Model,
    PrintStyle,
    SplitKReductionPrecision,
    TensorSpec,
    compile_for,
)

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
    "__version__",
    "compile_for",
]
