"""Servers for the tests: by default `peri serve` with the built-in model and, where the shared data is, an embedding model."""

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PERIHELION_TEST_DATA", ROOT.parent / "shared" / "data"))
ENCODER = DATA / "minilm-l6-v2"


@contextmanager
def serve(models):
    """Runs a server of models, and gives its address, such as `http://127.0.0.1:1234`."""
    command = [os.environ["PERI"], "serve", *models, "--port", "0", "--quiet"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if match := re.search(r"http://[0-9.:]+", line):
                yield match.group()
                break
        else:
            pytest.fail(f"the server ended with {process.wait()}")
    finally:
        process.terminate()
        assert process.wait(timeout=30) == 0


@pytest.fixture(scope="session")
def server():
    """The address of a server."""
    with serve(["storyteller"] + ([str(ENCODER)] if ENCODER.exists() else [])) as address:
        yield address


@pytest.fixture
def base_url(server):
    """The address with which clients of OpenAI are made."""
    return f"{server}/v1"


@pytest.fixture
def encoder():
    """The name of the embedding model."""
    if not ENCODER.exists():
        pytest.skip("the shared data has no embedding model")
    return ENCODER.name
