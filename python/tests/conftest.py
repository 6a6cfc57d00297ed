"""Fixtures and helpers of tests: sessions, models of graph text, shared data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("PERIHELION_CACHE_DIR", "off")
# A shell without job control starts background jobs with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

from perihelion import LLM  # noqa: E402
from perihelion.engine import InferenceSession, Model  # noqa: E402

ROOT = Path(__file__).parents[2]
STORYTELLER = str(ROOT / "crates" / "storyteller" / "model.gguf")
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


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, "float32")


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs code in an interpreter of its own, with more environment variables."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})


def shared(path: str) -> Path:
    """A file or folder of the shared test data. Without that data, the test is skipped."""
    root = Path(os.environ.get("PERIHELION_TEST_DATA") or ROOT.parent / "shared" / "data")
    if not root.is_dir():
        pytest.skip(f"{path}: no shared test data at {root}")
    return root / path


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """The built-in model."""
    with LLM() as llm:
        yield llm


def wait_until_empty(llm: LLM) -> None:
    """Waits until no request runs or waits."""
    for _ in range(500):
        status = llm.status()
        if status["running"] == status["waiting"] == status["paused"] == 0:
            return
        time.sleep(0.01)
    raise AssertionError(llm.status())
