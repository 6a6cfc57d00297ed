"""Models that embed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest

from conftest import ROOT, shared
from perihelion import Embedder, PromptTooLong
from perihelion.pipelines import PipelineConfig


@pytest.fixture(scope="module")
def embedder() -> Iterator[Embedder]:
    with Embedder(shared("minilm-l6-v2")) as embedder:
        yield embedder


def test_texts_become_rows(embedder: Embedder) -> None:
    vectors = embedder.embed(["a cat", "a kitten", "a car"])
    assert vectors.shape == (3, embedder.dimensions) == (3, 384) and vectors.dtype == np.float32
    assert vectors.flags.writeable and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    similarity = Embedder.similarity(vectors, vectors)
    assert similarity[0, 1] > similarity[0, 2] and np.allclose(np.diag(similarity), 1, atol=1e-6)
    assert Embedder.similarity(2 * vectors[0], vectors[1]).shape == (1, 1)
    assert (embedder.embed("a cat") == vectors[:1]).all()
    assert embedder.embed([]).shape == (0, 384)
    assert repr(embedder) == "Embedder('minilm-l6-v2', dimensions=384)" and embedder.model == "minilm-l6-v2"
    assert embedder.status()["texts"] >= 3


def test_vectors_are_those_of_the_reference(embedder: Embedder) -> None:
    folder = shared("minilm-l6-v2/reference")
    sentences = json.loads((folder / "sentences.json").read_text())["sentences"]
    stored = (folder / "embeddings.safetensors").read_bytes()
    length = int.from_bytes(stored[:8], "little")
    tensor = json.loads(stored[8 : 8 + length])["embeddings"]
    begin, end = tensor["data_offsets"]
    expected = np.frombuffer(stored[8 + length + begin : 8 + length + end], np.float32).reshape(tensor["shape"])
    assert np.allclose(embedder.embed(sentences, truncate=True), expected, atol=1e-5)


def test_options_change_vectors(embedder: Embedder) -> None:
    plain = embedder.embed("a cat")
    assert embedder.embed("a cat", normalize=False).std() != plain.std()
    short = embedder.embed("a cat", dimensions=10)
    assert short.shape == (1, 10) and np.isclose(np.linalg.norm(short), 1)
    assert (embedder.embed("cat", prompt="a ") == plain).all()
    long = "cat " * 2000
    with pytest.raises(PromptTooLong) as raised:
        embedder.embed(["a", long])
    assert raised.value.limit == embedder.max_length < raised.value.tokens
    assert embedder.embed(long, truncate=True).shape == (1, 384)
    for options in ({"dimensions": 0}, {"dimensions": 385}):
        with pytest.raises(ValueError, match="give 1 to 384") as wrong:
            embedder.embed("a", **options)  # type: ignore[arg-type]
        assert wrong.value.problems[0][0] == "dimensions"  # type: ignore[attr-defined]


def test_models_that_do_not_embed_say_so() -> None:
    with pytest.raises(ValueError, match="pooling"):
        Embedder(ROOT / "crates" / "storyteller" / "model.gguf")
    with pytest.raises(ValueError, match="name a model"):
        Embedder()
    with pytest.raises(ValueError, match="is an encoder"):
        from perihelion import LLM

        LLM(shared("minilm-l6-v2"))


def test_a_configuration_is_taken_as_it_is() -> None:
    config = PipelineConfig(shared("minilm-l6-v2"), max_cache_batch_size=3)
    with Embedder(config) as embedder:
        assert embedder.config.max_cache_batch_size == 3
        assert embedder.embed(["a"] * 10).shape == (10, 384)
    with pytest.raises(RuntimeError, match="the embedder is closed"):
        embedder.embed("a")
