"""What tests share: sessions, and models of graph text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("PERIHELION_CACHE_DIR", "off")

from perihelion.engine import InferenceSession, Model  # noqa: E402

Save = Callable[[str], Path]
Load = Callable[..., Model]


@pytest.fixture(scope="session")
def session() -> InferenceSession:
    return InferenceSession()


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes graph text to a file."""

    def save(text: str) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.graph"
        path.write_text(text)
        return path

    return save


@pytest.fixture
def load(session: InferenceSession, save: Save) -> Load:
    """Loads graph text."""

    def load(text: str, **weights: object) -> Model:
        return session.load(save(text), weights_registry=weights or None)

    return load
