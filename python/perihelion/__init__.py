"""Runs graphs and language models on CPUs and GPUs.

The parts are modules of their own: `perihelion.pipelines`, `perihelion.graph`, `perihelion.engine`, `perihelion.driver`
and `perihelion.dtype`. The names of language models are here too, and `serve`, which answers
requests over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._perihelion import AxisError, ConfigError, FileError, InternalError, OutOfMemory, PromptTooLong, __version__

if TYPE_CHECKING:
    from .pipelines import LLM, Classifier, Embedder, PipelineConfig, Reranker, SamplingParams, quantize
    from .server import serve

__all__ = [
    "LLM",
    "AxisError",
    "Classifier",
    "ConfigError",
    "Embedder",
    "FileError",
    "InternalError",
    "OutOfMemory",
    "PipelineConfig",
    "PromptTooLong",
    "Reranker",
    "SamplingParams",
    "__version__",
    "get_include",
    "quantize",
    "serve",
]


def get_include() -> str:
    """The folder of `perihelion_extension.h`, the header with which libraries of custom ops in C and C++ are built."""
    from os.path import dirname, join

    return join(dirname(__file__), "include")


def __getattr__(name: str) -> object:
    # Imported when it is first used, so that programs without language models start as quickly as before.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module("perihelion.server" if name == "serve" else "perihelion.pipelines")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
