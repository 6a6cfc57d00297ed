"""Public names and their signatures, compared with the documentation and the list in `docs/reference`."""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perihelion

MODULES = [
    "perihelion",
    "perihelion.driver",
    "perihelion.driver.buffer",
    "perihelion.driver.driver",
    "perihelion.dtype",
    "perihelion.engine",
    "perihelion.engine.api",
    "perihelion.graph",
    "perihelion.graph.buffer_utils",
    "perihelion.graph.dim",
    "perihelion.graph.dtype_promotion",
    "perihelion.graph.graph",
    "perihelion.graph.ops",
    "perihelion.graph.ops.allreduce",
    "perihelion.graph.ops.bundled_allreduce",
    "perihelion.graph.ops.complex",
    "perihelion.graph.ops.elementwise",
    "perihelion.graph.ops.random",
    "perihelion.graph.ops.reduction",
    "perihelion.graph.ops.reducescatter",
    "perihelion.graph.quantization",
    "perihelion.graph.shape",
    "perihelion.graph.type",
    "perihelion.graph.value",
    "perihelion.graph.weight",
    "perihelion.graph.weights",
    "perihelion.pipelines",
    "perihelion.pipelines.classifier",
    "perihelion.pipelines.config",
    "perihelion.pipelines.embedder",
    "perihelion.pipelines.keywords",
    "perihelion.pipelines.llm",
    "perihelion.pipelines.params",
    "perihelion.pipelines.prompts",
    "perihelion.pipelines.quantization",
    "perihelion.pipelines.reranker",
    "perihelion.pipelines.schemas",
    "perihelion.pipelines.tokenizer",
    "perihelion.server",
]
LIST = Path(__file__).parents[2] / "docs" / "reference" / "python-names.txt"

# `InferenceSession` as its documentation shows it.
SEED = {
    "__init__": "(self, devices=(), num_threads=None, *, custom_extensions=None)",
    "compile": "(self, model, *, custom_extensions=None)",
    "enable_per_tensor_fp8_quantize": "(self, mode)",
    "gpu_profiling": "(self, mode)",
    "init": "(self, compiled, *, weights_registry=None)",
    "init_all": "(self, compiled, *, weights_registry=None)",
    "load": "(self, model, *, custom_extensions=None, weights_registry=None)",
    "load_all": "(self, model, *, custom_extensions=None, weights_registry=None)",
    "set_debug_print_options": "(self, style=PrintStyle.COMPACT, precision=6, output_directory=None)",
    "set_mojo_assert_level": "(self, level)",
    "set_mojo_log_level": "(self, level)",
    "set_split_k_reduction_precision": "(self, precision)",
    "use_fi_topk_kernel": "(self, mode)",
    "use_old_top_k_kernel": "(self, mode)",
}


def text(signature: inspect.Signature, annotated: bool) -> str:
    """A signature on one line; enum members as the documentation shows them."""
    parts, star = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        part = prefix + parameter.name
        if annotated and parameter.annotation is not parameter.empty:
            part += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            shown = str(default) if isinstance(default, enum.Enum) else repr(default)
            part += f" = {shown}" if annotated and ":" in part else f"={shown}"
        parts.append(part)
    result = signature.return_annotation
    arrow = f" -> {result}" if annotated and result is not signature.empty else ""
    return f"({', '.join(parts)}){arrow}"


def members(owner: type) -> Iterator[tuple[str, Any]]:
    """The names that a class adds to its public bases, without the interpreter's own methods."""
    own = [base for base in reversed(owner.__mro__) if base is owner or base.__name__.startswith("_")]
    for name, value in sorted({name: value for base in own for name, value in vars(base).items()}.items()):
        if not name.startswith("_") or name in ("__init__", "__call__", "__dlpack__", "__array__"):
            yield name, value


def describe(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield path
        for member in value:
            yield f"{path}.{member.name} = {member.value!r}"
    elif isinstance(value, type):
        yield path
    elif inspect.isfunction(value):
        yield path + text(inspect.signature(value), annotated=True)
        return
    else:
        yield path
        return
    for name, member in members(value):
        if isinstance(member, property):
            assert member.fget is not None
            yield f"{path}.{name}: {member.fget.__annotations__['return']}"
        elif isinstance(member, (staticmethod, classmethod)):
            yield f"{path}.{name}" + text(inspect.signature(member.__func__), annotated=True)
        elif inspect.isfunction(member):
            yield f"{path}.{name}" + text(inspect.signature(member), annotated=True)
        elif type(member).__name__ in ("_Flag", "_Text", "_Current"):
            kind = inspect.signature(type(member).__get__).return_annotation
            yield f"{path}.{name}: {kind}"
        elif type(member).__name__ == "DebugConfig":
            yield f"{path}.{name}: DebugConfig"


def names() -> list[str]:
    found: dict[int, str] = {}
    lines = []
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in sorted(loaded.__all__):
            value = getattr(loaded, name)
            first = found.setdefault(id(value), f"{module}.{name}")
            same = first == f"{module}.{name}"
            lines += describe(f"{module}.{name}", value) if same else [f"{module}.{name} is {first}"]
    return lines


def test_names_are_those_of_the_list() -> None:
    assert LIST.read_text().splitlines() == names(), "run `python python/tests/test_names.py` and review the difference"


@pytest.mark.parametrize("name", SEED)
def test_signatures_are_those_of_the_documentation(name: str) -> None:
    from perihelion.engine import InferenceSession

    method = getattr(InferenceSession, name)
    assert text(inspect.signature(method), annotated=False) == SEED[name]
    assert isinstance(InferenceSession.devices, property)
    public = {name for name in vars(InferenceSession) if not name.startswith("_")}
    assert public == {*SEED, "debug", "devices"} - {"__init__"}


@pytest.mark.parametrize("module", MODULES)
def test_modules_say_what_is_public_and_document_it(module: str) -> None:
    loaded = importlib.import_module(module)
    assert loaded.__doc__
    for name in loaded.__all__:
        value = getattr(loaded, name)
        if isinstance(value, type) or inspect.isfunction(value):
            assert value.__doc__, name
        for method, member in members(value) if isinstance(value, type) else ():
            if isinstance(member, property) or inspect.isfunction(member) and not method.startswith("_"):
                assert member.__doc__, f"{name}.{method}"


def test_versions_are_one_string() -> None:
    from perihelion import driver, engine

    assert perihelion.__version__ == driver.__version__ == engine.__version__


if __name__ == "__main__":
    LIST.write_text("".join(f"{line}\n" for line in names()))
