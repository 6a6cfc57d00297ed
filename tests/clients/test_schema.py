"""Requests made from the server's OpenAPI document: no answer is of class 5xx, and all have the forms that it describes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, serve

HERE = Path(__file__).resolve().parent
MODELS = ROOT / "crates" / "perihelion" / "tests" / "models"
POOLING = "/(embed|embedding|embeddings|pooling)$"
SCORING = "/(rerank|score|classify)$"
# The most random requests for each operation; with PERI_SCHEMA_EXAMPLES=150, there are more than 10,000 requests in all.
EXAMPLES = os.environ.get("PERI_SCHEMA_EXAMPLES", "20")


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        ("storyteller", ["--exclude-path-regex", f"{POOLING}|{SCORING}"]),
        (MODELS / "embedders" / "qwen3_embedding", ["--include-path-regex", POOLING]),
        (MODELS / "rerankers" / "qwen3_reranker", ["--include-path-regex", SCORING]),
        (MODELS / "rerankers" / "qwen3_classifier", ["--include-path-regex", "/classify$"]),
    ],
)
def test_answers_are_as_the_openapi_document_says(model, paths, tmp_path):
    with serve([model]) as address:
        program = Path(sys.executable).with_name("schemathesis")
        config = ["--config-file", HERE / "schemathesis.toml"]
        cases = ["--checks", "all", "--phases", "coverage,fuzzing", "--seed", "1", "--max-examples", EXAMPLES]
        command = [program, *config, "run", f"{address}/openapi.json", *cases, *paths, "--no-color"]
        result = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
