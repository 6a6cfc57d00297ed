"""What all classes of models share: their configuration, their session, and how they end."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from perihelion import _perihelion
from perihelion.engine import InferenceSession

from . import keywords
from .config import _RENAMED, KVCacheStrategy, PipelineConfig, PipelineEngine

_Native = TypeVar("_Native", _perihelion.Generator, _perihelion.Embedder, _perihelion.Classifier)
_Self = TypeVar("_Self")


class _Model(Generic[_Native]):
    """A model with a thread of its own, until it is closed."""

    _native: _Native
    _config: PipelineConfig

    @property
    def config(self) -> PipelineConfig:
        """The configuration with every field decided."""
        return self._config

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._config.short_name if self._config.huggingface_repo_id else "storyteller"

    def close(self) -> None:
        """Cancels all requests and frees the memory."""
        self._native.close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not sys.is_finalizing():
            native.release()

    def __reduce__(self) -> Any:
        raise TypeError(f"{type(self).__name__} cannot be pickled: make one in each process")


def _defaults(use_case: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults for a use, except those that the fields of a program rule out."""
    values = json.loads(_perihelion.config_defaults(use_case))
    defaults = {name: None if value == "auto" else value for name, value in values.items()}
    is_paged = fields.get("cache_strategy", KVCacheStrategy.paged) == KVCacheStrategy.paged
    if not is_paged or fields.get("engine") == PipelineEngine.HUGGINGFACE:
        defaults.pop("enable_prefix_caching", None)
    return defaults


def _config(
    owner: str,
    model: str | Path | PipelineConfig | None,
    use_case: Literal["library", "server", "batch", "encode"],
    fields: Mapping[str, Any],
) -> PipelineConfig:
    """The configuration of a model that is given by name, or as a configuration, with some fields changed."""
    keywords.refuse_unknown(owner, fields, _FIELDS, keywords.LOADING)
    if isinstance(model, PipelineConfig):
        return dataclasses.replace(model, **fields)
    if model is not None and not isinstance(model, (str, os.PathLike)):
        expected = "a name, a path or a PipelineConfig"
        raise TypeError(f"model: got {type(model).__name__}, expected {expected}")
    return PipelineConfig("" if model is None else os.fspath(model), **{**_defaults(use_case, fields), **fields})


# The first argument is not a keyword as well.
_FIELDS = {field.name for field in dataclasses.fields(PipelineConfig)} | _RENAMED.keys()
_FIELDS -= {"huggingface_repo_id", "model", "model_path"}


def _threads(num_threads: Any) -> int:
    """The number of threads as the native module takes it."""
    return keywords.whole("num_threads", num_threads, 0, 1 << 16, optional=True) or 0


def _native_session(session: Any) -> _perihelion.Session | None:
    if session is None or isinstance(session, InferenceSession):
        return None if session is None else session._native
    raise TypeError(f"session: got {type(session).__name__}, expected an InferenceSession or None")
