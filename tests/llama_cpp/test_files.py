"""GGUF files of every decoder, written by `peri quantize`, have the same logits in llama.cpp."""

import json
import os
import subprocess

import pytest

import checkpoints
import llama_cpp

# How far a logit may be from PyTorch's, or ours, as a fraction of the largest.
BOUND = 1e-3
LENGTH = 40


def peri(*arguments):
    return subprocess.run([os.environ["PERI"], *arguments], capture_output=True, text=True)


def written(folder, path):
    """Writes a GGUF file; whether GGUF can say what the configuration says."""
    result = peri("quantize", folder, "--to", "f32", "--out", path, "--quiet")
    if "has no key in GGUF files" in result.stderr or "llama.cpp has no architecture for" in result.stderr:
        return False
    assert result.returncode == 0, result.stderr
    return True


def difference(found, expected):
    """The largest difference, as a fraction of the largest logit."""
    largest = max(abs(logit) for row in expected for logit in row)
    pairs = (pair for rows in zip(expected, found, strict=True) for pair in zip(*rows, strict=True))
    # A comparison with NaN is false.
    return max(abs(a - b) if a - b == a - b else float("inf") for a, b in pairs) / largest


def test_every_name_in_gguf_has_a_checkpoint():
    listed = json.loads(peri("list", "--json").stdout)["architectures"]
    of_decoders = {name: facts["gguf"] for name, facts in listed.items() if facts["task"] == "text_generation" and facts["gguf"]}
    covered = {of_decoders.get(name) for name in checkpoints.architectures()}
    assert set(of_decoders.values()) <= covered | checkpoints.OTHERWISE


@pytest.mark.parametrize("name", checkpoints.names())
def test_files_have_the_logits_of_pytorch(name, tmp_path):
    golden = checkpoints.tensors(checkpoints.GOLDENS / name / "logits.safetensors")
    expected, tokens = checkpoints.rows(golden["logits"]), golden["tokens"][1]
    checkpoints.write(name, tmp_path / "model", plain=False)
    if not written(tmp_path / "model", tmp_path / "model.gguf"):
        assert name not in checkpoints.ODD
        return
    try:
        worst = difference(llama_cpp.logits(tmp_path / "model.gguf", tokens, len(expected)), expected)
    except llama_cpp.LlamaCppError as error:
        assert name in checkpoints.ODD, error
        return
    assert (worst > BOUND) == (name in checkpoints.ODD), f"a logit is off by {worst:.1e} of the largest"


@pytest.mark.parametrize("name", checkpoints.PLAIN)
def test_files_of_plain_checkpoints_have_our_logits(name, tmp_path):
    folder = tmp_path / "model"
    vocabulary = checkpoints.write(name, folder, plain=True)
    first = len(checkpoints.tokenizer(0)["model"]["vocab"])
    tokens = [first + index * 17 % (vocabulary - first) for index in range(LENGTH)]
    text = " ".join(f"w{token}" for token in tokens)
    ours = peri("eval", folder, "--prompt", text, "--logits-out", tmp_path / "ours.safetensors", "--quiet")
    assert ours.returncode == 0, ours.stderr
    saved = checkpoints.tensors(tmp_path / "ours.safetensors")
    assert list(saved["tokens"][1]) == tokens
    assert written(folder, tmp_path / "model.gguf")
    found = llama_cpp.logits(tmp_path / "model.gguf", tokens, LENGTH)
    worst = difference(found, checkpoints.rows(saved["logits"]))
    assert worst <= BOUND, f"a logit is off by {worst:.1e} of the largest"
