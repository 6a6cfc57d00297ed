"""Models that classify."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from conftest import ROOT, STORYTELLER
from perihelion import Classifier, PromptTooLong

FOLDER = ROOT / "crates" / "perihelion" / "tests" / "models" / "encoders" / "bert_classifier"


@pytest.fixture(scope="module")
def classifier() -> Iterator[Classifier]:
    with Classifier(FOLDER) as classifier:
        yield classifier


@pytest.fixture(scope="module")
def golden() -> Any:
    """The scores of sentence-transformers."""
    return json.loads((FOLDER / "texts.json").read_text())


def test_scores_are_those_of_the_reference(classifier: Classifier, golden: Any) -> None:
    pairs = [tuple(pair) for pair in golden["pairs"]]
    classified = classifier.classify(pairs, activation="identity", truncate=True)
    assert len(classifier.labels) == 3
    for one, expected in zip(classified, golden["scores"]):
        assert list(one.scores) == classifier.labels
        assert all(abs(got - score) < 1e-3 for got, score in zip(one.scores.values(), expected))
        assert one.score == max(one.scores.values()) == one.scores[one.label]
    assert classifier.classify(pairs[0], activation="identity", truncate=True) == classified[:1]
    assert asyncio.run(classifier.aclassify(pairs, activation="identity", truncate=True)) == classified
    assert classifier.classify([]) == []


def test_activations_change_scores(classifier: Classifier) -> None:
    (softmax,) = classifier.classify("a cat", activation="softmax")
    (sigmoid,) = classifier.classify("a cat", activation="sigmoid")
    assert abs(sum(softmax.scores.values()) - 1) < 1e-6 and softmax.label == sigmoid.label
    assert all(0 < score < 1 for score in sigmoid.scores.values()) and sigmoid.scores != softmax.scores
    with pytest.raises(ValueError, match="activation is tanh: choose one of identity, sigmoid, softmax"):
        classifier.classify("a cat", activation="tanh")


def test_texts_that_cannot_be_classified(classifier: Classifier) -> None:
    with pytest.raises(PromptTooLong) as raised:
        classifier.classify("cat " * 1000)
    assert raised.value.limit == classifier.max_length < raised.value.tokens
    for texts in (5, [5], [("a", 5)], b"cat", {"a": "b"}):
        with pytest.raises(TypeError, match="texts"):
            classifier.classify(texts)  # type: ignore[arg-type]
    assert repr(classifier).startswith("Classifier('bert_classifier', labels=[") and classifier.status()["texts"]


def test_models_that_do_not_classify_say_so() -> None:
    with pytest.raises(ValueError):
        Classifier(STORYTELLER)
    closed = Classifier(FOLDER)
    closed.close()
    with pytest.raises(RuntimeError, match="the classifier is closed"):
        closed.classify("cat")
