"""The engine `huggingface`: models that Transformers runs, with an interpreter that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, STORYTELLER

from perihelion import LLM, Embedder, SamplingParams
from perihelion.pipelines import ConfigWarning, PipelineConfig, PipelineEngine

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def interpreter() -> str | None:
    """An interpreter that has the packages, or `None`."""
    named = os.environ.get("PERIHELION_TEST_TRANSFORMERS")
    for python in [named] if named else [sys.executable, "python3"]:
        try:
            subprocess.run([python, "-c", "import torch, transformers"], check=True, capture_output=True)
            return python
        except (OSError, subprocess.CalledProcessError):
            pass
    assert not named, f"{named} cannot import torch and transformers"
    return None


class Made:
    """Tiny models, and what Transformers answers."""

    def __init__(self, folder: Path) -> None:
        python = interpreter()
        if python is None:
            pytest.skip("no torch and transformers: name a Python that has them as PERIHELION_TEST_TRANSFORMERS")
        self.folder, self.fields = folder, {"engine": PipelineEngine.HUGGINGFACE, "python": python}
        script = ROOT / "tests" / "huggingface" / "make_models.py"
        subprocess.run([python, str(script), str(folder)], check=True, capture_output=True)
        self.expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())

    def llm(self, name: str, **more: Any) -> LLM:
        return LLM(self.folder / name, **self.fields, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("huggingface"))


def test_texts_are_those_of_transformers(made: Made, recwarn: pytest.WarningsRecorder) -> None:
    with made.llm("opt") as llm:
        assert not [one for one in recwarn if one.category is ConfigWarning]
        assert llm.config.engine is PipelineEngine.HUGGINGFACE
        alone = llm.generate("Once upon", GREEDY)[0].outputs[0]
        assert (alone.text, alone.token_ids) == (made.expected["opt"]["text"], made.expected["opt"]["tokens"])
        params = SamplingParams(max_tokens=8, n=2, seed=4, temperature=1.0, logprobs=2, ignore_eos=True)
        first = llm.generate(["Once upon", "x", "y" * 30], params)
        again = [llm.generate(prompt, params)[0] for prompt in ("Once upon", "x", "y" * 30)]
        assert [one.outputs for one in first] == [one.outputs for one in again], "the same bits, alone and together"
        assert "".join(chunk.text for chunk in llm.stream("Once upon", GREEDY)) == alone.text
        scores = llm.score("Once upon")[0].logprobs
        assert scores[0] is None and all(score is not None and score < 0 for score in scores[1:])
        choice = llm.generate("Once", SamplingParams(choice=["abc", "abd"], max_tokens=8))[0].outputs[0].text
        assert choice in ("abc", "abd")


def test_settings_without_effect_and_trusted_code_give_one_warning_each(made: Made) -> None:
    with pytest.raises(RuntimeError, match="set trust_remote_code"):
        made.llm("mean")
    with pytest.warns(ConfigWarning) as caught:
        llm = made.llm("mean", trust_remote_code=True, enable_prefix_caching=True)
    messages = [str(one.message) for one in caught if one.category is ConfigWarning]
    assert len(messages) == len(set(messages)) == 2
    assert "run with your rights" in messages[0] and "enable_prefix_caching has no effect" in messages[1]
    assert llm.generate("Once upon", GREEDY)[0].outputs[0].text == made.expected["mean"]["text"]
    llm.close()


def test_vectors_are_those_of_transformers(made: Made) -> None:
    with Embedder(made.folder / "albert", **made.fields) as embedder:
        vectors = embedder.embed(["Once upon", "x"])
    np.testing.assert_allclose(vectors[0], made.expected["albert"], atol=1e-5)


def test_warnings_of_models_name_this_line() -> None:
    config = PipelineConfig(STORYTELLER, max_length=100, force_download=True)
    with pytest.warns(ConfigWarning, match="force_download has no effect") as caught:
        LLM(config).close()
    assert [one.filename for one in caught] == [__file__]
    with pytest.warns(ConfigWarning, match="force_download"):
        Embedder(config, pooling="mean").close()
