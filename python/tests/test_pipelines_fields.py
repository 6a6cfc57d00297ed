"""Fields of configurations: each reaches the model that is run, or is refused with its name."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import pytest

from conftest import STORYTELLER, shared
from perihelion import LLM, ConfigError, SamplingParams
from perihelion.pipelines import (
    KVCacheStrategy,
    PipelineConfig,
    PipelineEngine,
    RepoType,
    RopeType,
    SupportedEncoding,
    WeightsFormat,
)

GREEDY = SamplingParams(temperature=0, max_tokens=12)
PROMPTS = ["Once upon a time", "The fox", "Once upon a time there was"]


def answers(config: PipelineConfig) -> list[str]:
    with LLM(config) as llm:
        return [out.text for out in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_cache_batch_size": 2, "max_ce_batch_size": 1},
        {"max_cache_batch_size": 2, "cache_strategy": KVCacheStrategy.naive, "pad_to_multiple_of": 8},
        {"max_cache_batch_size": 2, "cache_strategy": "continuous", "max_num_steps": 4},
        {"cache_strategy": "paged", "kv_cache_page_size": 16, "enable_prefix_caching": True},
        {"gpu_memory_utilization": 0.5, "max_batch_tokens": 16},
        {"engine": PipelineEngine.MAX, "architecture": "LlamaForCausalLM"},
    ],
)
def test_limits_and_caches_change_no_answer(fields: dict[str, Any]) -> None:
    config = PipelineConfig(STORYTELLER, **fields)
    decided = config.resolve()
    assert {name: getattr(decided, name) for name in fields} == fields
    assert answers(config) == answers(PipelineConfig(STORYTELLER))


@pytest.mark.parametrize(
    "fields",
    [
        {"python": "python3"},
        {"architecture": "NoSuchModel"},
        {"quantization_encoding": SupportedEncoding.q6_k},
        {"max_length": 100_000},
        {"max_new_tokens": -2},
        {"max_cache_batch_size": 0},
        {"max_ce_batch_size": 0},
        {"cache_strategy": "naive", "enable_prefix_caching": True},
        {"max_num_steps": 0},
        {"pad_to_multiple_of": 0},
        {"kv_cache_page_size": 7},
        {"gpu_memory_utilization": 1.5},
        {"top_k": -5},
    ],
    ids=lambda fields: list(fields)[-1],
)
def test_values_that_cannot_be_are_named(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        PipelineConfig(STORYTELLER, **fields).validate()
    assert [field for field, _, _ in raised.value.problems] == [list(fields)[-1]]


def test_lengths_end_answers() -> None:
    with LLM(STORYTELLER, max_length=20, max_new_tokens=5) as llm:
        endless = SamplingParams(ignore_eos=True)
        assert llm.generate("The fox", endless)[0].usage.generated_tokens == 5
        endless.max_tokens = 100
        usage = llm.generate("The fox", endless)[0].usage
        assert usage.prompt_tokens + usage.generated_tokens == 20


def test_the_number_of_tokens_to_sample_from_is_a_default() -> None:
    params = SamplingParams(temperature=5, max_tokens=12, seed=1)
    with LLM(STORYTELLER, top_k=1) as llm:
        greedy = llm.generate(PROMPTS[0], GREEDY)[0].text
        assert llm.generate(PROMPTS[0], params)[0].text == greedy
        params.top_k = 40
        assert llm.generate(PROMPTS[0], params)[0].text != greedy


def test_rows_of_gguf_files_are_paired_as_asked() -> None:
    expected = answers(PipelineConfig(STORYTELLER))
    for rope_type in RopeType:
        is_same = answers(PipelineConfig(STORYTELLER, rope_type=rope_type)) == expected
        assert is_same == (rope_type is not RopeType.neox)


def test_fields_without_effect_give_warnings() -> None:
    with pytest.warns(UserWarning, match="force_download"):
        PipelineConfig(STORYTELLER, force_download=True).validate()
    with pytest.warns(UserWarning, match="trust_remote_code"):
        PipelineConfig(STORYTELLER, trust_remote_code=True).validate()


@pytest.mark.parametrize(
    ("path", "encoding", "kind"),
    [
        ("stories260k/hf", "float32", "safetensors"),
        ("stories260k/pytorch/pytorch_model.bin", "float32", "pytorch"),
        ("stories260k/gguf/stories260K-BF16.gguf", "bfloat16", "gguf"),
        ("stories260k/gguf/stories260K-Q4_0.gguf", "q4_0", "gguf"),
        ("storyteller/gguf/storyteller-Q4_K_M.gguf", "q4_k", "gguf"),
        ("storyteller/gguf/storyteller-Q6_K.gguf", "q6_k", "gguf"),
    ],
)
def test_files_of_each_format_and_encoding_run(path: str, encoding: str, kind: str) -> None:
    file = shared(path)
    config = PipelineConfig(str(file))
    if kind == "pytorch":
        config = PipelineConfig(str(shared("stories260k/hf")), weight_path=[file])
    config.download_weights()
    assert config.weights_format is WeightsFormat(kind)
    decided = config.resolve()
    assert decided.quantization_encoding is SupportedEncoding(encoding)
    assert all(answers(config))


def test_weights_come_from_the_named_files_or_encoding() -> None:
    folder, file = shared("stories260k/gguf"), "stories260K-Q4_0.gguf"
    expected = answers(PipelineConfig(str(folder / file)))
    for config in (
        PipelineConfig(str(folder), weight_path=[Path(file)]),
        PipelineConfig(str(folder), quantization_encoding=SupportedEncoding.q4_0),
    ):
        assert answers(config) == expected
        config.download_weights()
        assert config.weight_path == [folder / file]


@pytest.mark.parametrize(
    "kind", [KVCacheStrategy, PipelineEngine, RepoType, RopeType, SupportedEncoding, WeightsFormat]
)
def test_choices_are_enums_of_python_and_take_no_members(kind: Any) -> None:
    assert issubclass(kind, enum.Enum)
    with pytest.raises(TypeError, match="extend"):
        kind("Other", names=["a"], module=__name__, qualname="Other", type=str, start=1)
