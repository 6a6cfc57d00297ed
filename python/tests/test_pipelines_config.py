"""Configurations: the page's signature, what dataclasses can do, and what the files of a model say."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import perihelion
from conftest import STORYTELLER, shared
from perihelion import ConfigError, OutOfMemory
from perihelion.driver import CPU, DeviceSpec
from perihelion.dtype import DType
from perihelion.graph.quantization import QuantizationEncoding
from perihelion.pipelines import (
    AutoConfig,
    ConfigWarning,
    HuggingFaceRepo,
    KVCacheStrategy,
    PipelineConfig,
    PipelineEngine,
    RepoType,
    RopeType,
    SupportedEncoding,
    WeightsFormat,
)

# The class as its documentation shows it.
PAGE = (
    "(huggingface_repo_id: 'str', engine: 'Optional[PipelineEngine]' = None, architecture: 'Optional[str]' = None, "
    "weight_path: 'list[Path]' = <factory>, device_specs: 'list[DeviceSpec]' = <factory>, "
    "quantization_encoding: 'Optional[SupportedEncoding]' = None, serialized_model_path: 'Optional[str]' = None, "
    "save_to_serialized_model_path: 'Optional[str]' = None, max_length: 'int' = 512, max_new_tokens: 'int' = -1, "
    "max_cache_batch_size: 'int' = 1, max_ce_batch_size: 'int' = 32, cache_strategy: 'KVCacheStrategy' = continuous, "
    "max_num_steps: 'int' = 1, pad_to_multiple_of: 'int' = 2, kv_cache_page_size: 'int' = 512, "
    "enable_prefix_caching: 'bool' = False, gpu_memory_utilization: 'float' = 0.9, top_k: 'Optional[int]' = None, "
    "trust_remote_code: 'bool' = False, force_download: 'bool' = False, enable_echo: 'bool' = False, "
    "rope_type: 'Optional[RopeType]' = None, _huggingface_config: 'Optional[AutoConfig]' = None, "
    "_devices: 'list[Device]' = <factory>, _weights_converter: 'Optional[type[WeightsConverter]]' = None, "
    "_weights_repo_id: 'Optional[str]' = None)"
)


def test_default_max_length_is_lowered_but_explicit_512_is_an_error(tmp_path: Path) -> None:
    for file in shared("stories260k/hf").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(json.dumps({**json.loads(text), "max_position_embeddings": 128}))
    default = PipelineConfig(str(tmp_path))
    for config in (default, dataclasses.replace(default, top_k=3), pickle.loads(pickle.dumps(default))):
        with pytest.warns(UserWarning, match="max_length is lowered from the default 512 to 128"):
            assert config.resolve().max_length == 128
    given = PipelineConfig(str(tmp_path), max_length=512)
    assert given == default and repr(given) == repr(default)
    for config in (given, dataclasses.replace(given, top_k=3), pickle.loads(pickle.dumps(given))):
        with pytest.raises(ConfigError, match="give at most 128"):
            config.resolve()
    default.max_length = 512
    with pytest.raises(ConfigError, match="give at most 128"):
        default.resolve()


def test_the_signatures_are_those_of_the_page() -> None:
    parameters = str(inspect.signature(PipelineConfig)).removesuffix(" -> None")
    assert parameters == PAGE
    repo = "(repo_id: 'str', trust_remote_code: 'bool' = False, repo_type: 'Optional[RepoType]' = None)"
    assert str(inspect.signature(HuggingFaceRepo)).removesuffix(" -> None") == repo
    page = shared("../seeds/001_380a8bbb1a866d6a.txt").read_text()
    assert f"class max.pipelines.config.PipelineConfig{PAGE}" in page
    assert f"class max.pipelines.config.HuggingFaceRepo{repo}" in page


def test_each_name_of_the_page_is_there() -> None:
    page = shared("../seeds/001_380a8bbb1a866d6a.txt").read_text()
    owner, members = None, 0
    for line in page.splitlines():
        if found := re.match(r"class max\.pipelines\.config\.(\w+)\(", line):
            owner = getattr(perihelion.pipelines, found[1])
        elif owner and (found := re.fullmatch(r"([A-Za-z_]+)(\(\))?", line)) and found[1] != owner.__name__:
            is_field = dataclasses.is_dataclass(owner) and found[1] in {one.name for one in dataclasses.fields(owner)}
            assert is_field or hasattr(owner, found[1]) or hasattr(perihelion.pipelines, found[1]), line
            members += 1
    assert members > 50


def test_configurations_are_dataclasses() -> None:
    config = PipelineConfig("org/name", weight_path=["a.gguf"], max_length=100, revision="v1")
    assert config.weight_path == [Path("a.gguf")] and config.short_name == "name"
    assert copy.copy(config) == copy.deepcopy(config) == pickle.loads(pickle.dumps(config)) == config
    longer = dataclasses.replace(config, max_length=200)
    assert longer != config and (longer.max_length, longer.revision) == (200, "v1")
    fields = dataclasses.asdict(config)
    assert fields["huggingface_repo_id"] == "org/name" and fields["revision"] == "v1"
    assert "cache_strategy=continuous" in repr(config)
    assert PipelineConfig(Path("folder")).huggingface_repo_id == "folder"
    with pytest.raises(TypeError, match="max_lenght"):
        PipelineConfig("org/name", max_lenght=3)
    with pytest.raises(TypeError):
        PipelineConfig()


def test_pickles_hold_no_devices_and_no_files() -> None:
    config = PipelineConfig(STORYTELLER, _huggingface_config=AutoConfig({"a": 1}))
    assert config.devices == [CPU()] and config.device == CPU()
    restored = pickle.loads(pickle.dumps(config))
    assert (restored._devices, restored._huggingface_config) == ([], None)
    two = PipelineConfig(STORYTELLER, device_specs=[DeviceSpec.cpu(), DeviceSpec.cpu()])
    with pytest.raises(ConfigError, match="expected one"):
        two.device


def test_later_names_of_fields_are_taken_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="max_batch_size is called max_cache_batch_size"):
        config = PipelineConfig("org/name", max_batch_size=8)
    assert config.max_cache_batch_size == 8
    with pytest.warns(DeprecationWarning, match="model_path"):
        assert PipelineConfig(model_path="org/name") == PipelineConfig("org/name")
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="both"):
        PipelineConfig("org/name", max_batch_size=8, max_cache_batch_size=9)


def test_each_field_has_help() -> None:
    names = [one.name for one in dataclasses.fields(PipelineConfig) if not one.name.startswith("_")]
    assert sorted(PipelineConfig.help()) == sorted(names)
    assert all(PipelineConfig.help().values())


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (PipelineEngine, {"MAX": "max", "HUGGINGFACE": "huggingface"}),
        (RepoType, {"local": "local", "online": "online"}),
        (RopeType, {"neox": "neox", "none": "none", "normal": "normal"}),
        (WeightsFormat, {name: name for name in ("gguf", "pytorch", "safetensors")}),
        (SupportedEncoding, {name: name for name in ("bfloat16", "float32", "q4_0", "q4_k", "q6_k")}),
        (KVCacheStrategy, {name: name for name in ("continuous", "model_default", "naive", "paged")}),
    ],
)
def test_choices_print_as_their_names(kind: type, names: dict[str, str]) -> None:
    for name, value in names.items():
        member = kind[name]
        assert member is kind(value) and member == value
        assert str(member) == repr(member) == f"{member}" == value
        assert json.dumps(member) == f'"{value}"'
        assert pickle.loads(pickle.dumps(member)) is member
    with pytest.raises(ValueError):
        kind("zip")


def test_encodings_know_their_dtypes() -> None:
    from perihelion import _perihelion

    assert {name for name, _ in _perihelion.encodings()} == {member.value for member in SupportedEncoding}
    assert SupportedEncoding.parse_from_file_name("llama-BF16.gguf") is SupportedEncoding.bfloat16
    assert SupportedEncoding.parse_from_file_name("model.gguf") is None
    assert SupportedEncoding.float32.dtype == DType.float32 and SupportedEncoding.q4_k.dtype == DType.uint8
    assert SupportedEncoding.float32.quantization_encoding is None
    assert SupportedEncoding.q4_k.quantization_encoding is QuantizationEncoding.Q4_K


def test_all_problems_come_at_once() -> None:
    config = PipelineConfig(STORYTELLER, max_cache_batch_size=0, kv_cache_page_size=7, top_k=-5)
    with pytest.raises(ConfigError) as raised:
        config.validate()
    assert [field for field, _, _ in raised.value.problems] == ["max_cache_batch_size", "kv_cache_page_size", "top_k"]
    assert all(fix in str(raised.value) for _, _, fix in raised.value.problems)
    with pytest.raises(ConfigError, match="cache_strategy is .*zip"):
        PipelineConfig(STORYTELLER, cache_strategy="zip").validate()
    with pytest.raises(ConfigError, match="name a model"):
        PipelineConfig("  ").validate()
    with pytest.raises(FileNotFoundError) as missing:
        PipelineConfig("nowhere.gguf").validate()
    assert missing.value.filename == Path("nowhere.gguf")


def test_models_that_do_not_fit_say_what_would() -> None:
    config = PipelineConfig(STORYTELLER, max_length=512, max_cache_batch_size=1_000_000_000)
    with pytest.raises(OutOfMemory) as raised:
        config.validate()
    error = raised.value
    assert isinstance(error, MemoryError) and error.needed and error.free
    assert error.needed > error.free and "max_cache_batch_size" in error.suggestions[0]


def test_resolving_decides_every_field() -> None:
    decided = PipelineConfig(STORYTELLER, cache_strategy="model_default", max_length=None).resolve()
    assert decided.architecture == "LlamaForCausalLM" and decided.max_length == 512
    assert decided.quantization_encoding is SupportedEncoding.q4_k and decided.engine is PipelineEngine.MAX
    assert decided.cache_strategy is KVCacheStrategy.paged
    assert decided.dtype == DType.uint8 and decided.resolve() == decided
    with pytest.raises(ConfigError, match="quantization_encoding"):
        PipelineConfig(STORYTELLER).dtype


def test_entries_that_a_file_leaves_out_have_the_defaults_of_the_family(tmp_path: Path) -> None:
    text = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_attention_heads": 8, "own": [1]}
    (tmp_path / "config.json").write_text(json.dumps(text))
    config = PipelineConfig(tmp_path).huggingface_config
    assert (config.own, config.hidden_size, config.head_dim, config.num_key_value_heads) == ([1], 64, 8, 8)
    # As `transformers.LlamaConfig` has them.
    assert (config.vocab_size, config.intermediate_size, config.num_hidden_layers) == (32000, 11008, 32)
    assert (config.rms_norm_eps, config.rope_theta, config.max_position_embeddings) == (1e-6, 10000.0, 2048)


def test_a_given_configuration_takes_the_place_of_the_file(tmp_path: Path) -> None:
    source = shared("stories260k/hf")
    for file in source.iterdir():
        if file.name != "config.json":
            shutil.copy(file, tmp_path)
    entries = json.loads((source / "config.json").read_text())
    with pytest.raises(ValueError, match="config.json"):
        PipelineConfig(tmp_path).resolve()

    class Other:
        """As configurations of Transformers are."""

        def to_dict(self) -> dict[str, Any]:
            return entries

    given: Any = Other()
    config = PipelineConfig(tmp_path, _huggingface_config=given)
    assert config.huggingface_config.hidden_size == 64
    assert config.resolve().architecture == "LlamaForCausalLM"
    short = AutoConfig({**entries, "max_position_embeddings": 64})
    with pytest.raises(ConfigError, match="max_length is 256"):
        PipelineConfig(source, max_length=256, _huggingface_config=short).resolve()
    # That of the file says 512.
    assert PipelineConfig(source, max_length=256).resolve().max_length == 256
    # What was read is no configuration that was given.
    read = PipelineConfig(source)
    assert read.huggingface_config.vocab_size == 512
    assert read.resolve().huggingface_config is read.huggingface_config
    with pytest.warns(ConfigWarning, match="_huggingface_config has no effect: a GGUF file"):
        PipelineConfig(STORYTELLER, _huggingface_config=short).validate()


def test_the_files_of_a_folder_are_read() -> None:
    folder = shared("stories260k/hf")
    config = PipelineConfig(folder)
    loaded = config.huggingface_config
    assert loaded is config.huggingface_config
    assert loaded.hidden_size == loaded["hidden_size"] == loaded.get("hidden_size") == 64
    assert loaded.to_dict()["architectures"] == ["LlamaForCausalLM"] and "hidden_size" in loaded
    assert loaded.get("no_such_key", 7) == 7
    with pytest.raises(AttributeError, match="no_such_key"):
        loaded.no_such_key
    assert copy.copy(loaded) == loaded and pickle.loads(pickle.dumps(loaded)) == loaded
    config.update_architecture()
    assert config.architecture == "LlamaForCausalLM"
    weights = folder / "model.safetensors"
    assert config.weights_size() == weights.stat().st_size
    config.download_weights()
    assert config.weight_path == [weights] and config.weights_format is WeightsFormat.safetensors
    names = {name for name, _ in PipelineConfig(folder).load_weights().items()}
    assert "model.norm.weight" in names
    repo = config.huggingface_weights_repo()
    assert (str(repo), repr(repo), repo.repo_type) == (str(folder), str(folder), RepoType.local)


def test_repositories_answer() -> None:
    folder = shared("stories260k/gguf")
    repo = HuggingFaceRepo(str(folder))
    assert repo == HuggingFaceRepo(str(folder), repo_type=RepoType.local) == pickle.loads(pickle.dumps(repo))
    assert repo.formats_available == [WeightsFormat.gguf]
    assert "stories260K-Q4_0.gguf" in repo.weight_files["gguf"]  # type: ignore[index]
    assert {SupportedEncoding.float32, SupportedEncoding.q4_0} <= set(repo.supported_encodings)
    files = repo.files_for_encoding(SupportedEncoding.q4_0)
    assert files == {WeightsFormat.gguf: [Path("stories260K-Q4_0.gguf")]}
    assert repo.encoding_for_file("stories260K-BF16.gguf") is SupportedEncoding.bfloat16
    assert repo.file_exists("stories260K-F32.gguf") and not repo.file_exists("no.gguf")
    path = folder / "stories260K-F32.gguf"
    assert repo.size_of("stories260K-F32.gguf") == path.stat().st_size and repo.download(path.name) == path
    with pytest.raises(ValueError, match="local folder"):
        repo.info
    with pytest.raises(FileNotFoundError, match="no.gguf"):
        repo.download("no.gguf")


def test_the_network_can_be_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE"):
        PipelineConfig("org/no-such-model").validate()
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE"):
        HuggingFaceRepo("org/no-such-model")
