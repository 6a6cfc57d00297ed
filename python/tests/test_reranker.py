"""Models that rank."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import ROOT, STORYTELLER
from perihelion import PromptTooLong, Reranker
from perihelion.pipelines import Ranked

ENCODERS = ROOT / "crates" / "perihelion" / "tests" / "models" / "encoders"


@pytest.fixture(scope="module")
def reranker() -> Iterator[Reranker]:
    with Reranker(ENCODERS / "roberta_classifier") as reranker:
        yield reranker


@pytest.fixture(scope="module")
def golden() -> Any:
    """The scores of sentence-transformers."""
    return json.loads((ENCODERS / "roberta_classifier" / "texts.json").read_text())


def test_documents_are_ranked_as_the_reference_does(reranker: Reranker, golden: Any) -> None:
    query, documents = golden["pairs"][0][0], [document for _, document in golden["pairs"][:5]]
    pairs = [(query, document) for document in documents]
    ranking = reranker.rank(query, documents, truncate=True)
    assert [one.document for one in ranking] == [documents[one.index] for one in ranking]
    assert [one.score for one in ranking] == sorted((one.score for one in ranking), reverse=True)
    expected = {tuple(pair): scores[0] for pair, scores in zip(golden["pairs"], golden["scores"])}
    known = [one for one in ranking if pairs[one.index] in expected]
    assert known and all(abs(one.score - expected[pairs[one.index]]) < 1e-4 for one in known)
    assert reranker.rank(query, documents, top_n=2, truncate=True) == ranking[:2]
    assert asyncio.run(reranker.arank(query, documents, truncate=True)) == ranking
    assert isinstance(ranking[0], Ranked) and reranker.rank(query, []) == []
    assert repr(reranker) == "Reranker('roberta_classifier')" and reranker.status()["texts"] >= 10


def test_decoders_rank_as_they_are_instructed() -> None:
    folder = ENCODERS.parent / "rerankers" / "qwen3_reranker"
    golden = json.loads((folder / "texts.json").read_text())
    query, documents = golden["pairs"][0][0], [document for _, document in golden["pairs"][:4]]
    with Reranker(folder) as decoder:
        for prompt, key in [(None, "scores"), ("query", "scores"), ("Judge well", "instructed")]:
            ranking = decoder.rank(query, documents, prompt=prompt)
            assert all(abs(one.score - golden[key][one.index][0]) < 1e-3 for one in ranking)


def test_pairs_that_cannot_be_ranked(reranker: Reranker) -> None:
    with pytest.raises(PromptTooLong) as raised:
        reranker.rank("cat", ["dog", "cat " * 500])
    assert raised.value.limit == reranker.max_length < raised.value.tokens
    with pytest.raises(TypeError, match="documents"):
        reranker.rank("cat", "dog")
    with pytest.raises(ValueError, match="scores 3 labels"), Reranker(ENCODERS / "bert_classifier") as several:
        several.rank("cat", ["dog"])


def test_models_that_do_not_rank_say_so() -> None:
    with pytest.raises(ValueError, match="no classification head"):
        Reranker(ENCODERS / "bert")
    with pytest.raises(ValueError):
        Reranker(STORYTELLER)
    with pytest.raises(ValueError, match="name a model"):
        Reranker()
    closed = Reranker(ENCODERS / "roberta_classifier")
    closed.close()
    with pytest.raises(RuntimeError, match="the reranker is closed"):
        closed.rank("cat", ["dog"])
