"""Configurations: which model runs, on which devices, within which limits."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Protocol

from perihelion import _perihelion
from perihelion._tracebacks import warn
from perihelion.driver import Device, DeviceSpec, load_devices
from perihelion.dtype import DType
from perihelion.graph.weights.format import WeightsFormat

if TYPE_CHECKING:
    from perihelion.graph.quantization import QuantizationEncoding
    from perihelion.graph.weights import Weights

__all__ = [
    "AutoConfig",
    "ConfigWarning",
    "HuggingFaceRepo",
    "KVCacheStrategy",
    "ModelInfo",
    "PipelineConfig",
    "PipelineEngine",
    "RepoType",
    "RopeType",
    "SupportedEncoding",
    "WeightsConverter",
    "WeightsFormat",
]


class _Name(str, Enum):
    """A choice that prints as its name."""

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return str(self.value)


class PipelineEngine(_Name):
    """The engine that runs a model."""

    MAX = "max"
    HUGGINGFACE = "huggingface"


class RepoType(_Name):
    """Where a repository is: on this machine, or on a hub."""

    online = "online"
    local = "local"


class RopeType(_Name):
    """How a GGUF file orders the rows of queries and keys that rotate."""

    none = "none"
    normal = "normal"
    neox = "neox"


class KVCacheStrategy(_Name):
    """How the cache gives pages to sequences.

    >>> KVCacheStrategy("paged")
    paged
    """

    model_default = "model_default"
    naive = "naive"
    continuous = "continuous"
    paged = "paged"


_ENCODINGS = dict(_perihelion.encodings())


class SupportedEncoding(_Name):
    """How the matrices of a model are stored.

    >>> SupportedEncoding.parse_from_file_name("model-Q4_K_M.gguf")
    q4_k
    >>> SupportedEncoding.bfloat16.dtype
    bfloat16
    """

    float32 = "float32"
    bfloat16 = "bfloat16"
    q4_0 = "q4_0"
    q4_k = "q4_k"
    q6_k = "q6_k"
    float16 = "float16"
    q4_1 = "q4_1"
    q5_0 = "q5_0"
    q5_1 = "q5_1"
    q5_k = "q5_k"
    q8_0 = "q8_0"
    q2_k = "q2_k"
    q3_k = "q3_k"
    iq4_nl = "iq4_nl"
    iq4_xs = "iq4_xs"
    gptq = "gptq"
    mxfp4 = "mxfp4"
    fp8 = "fp8"
    gptq8 = "gptq8"
    nvfp4 = "nvfp4"
    nf4 = "nf4"
    fp4 = "fp4"
    iq1_s = "iq1_s"
    iq1_m = "iq1_m"
    iq2_xxs = "iq2_xxs"
    iq2_xs = "iq2_xs"
    iq2_s = "iq2_s"
    iq3_xxs = "iq3_xxs"
    iq3_s = "iq3_s"
    tq1_0 = "tq1_0"
    tq2_0 = "tq2_0"

    @classmethod
    def parse_from_file_name(cls, name: str) -> SupportedEncoding | None:
        """The encoding that the name of a file promises, or `None`."""
        found = _perihelion.encoding_of_name(os.fspath(name))
        return None if found is None else cls(found)

    @property
    def dtype(self) -> DType:
        """The dtype of the weights as graphs see them; bytes, if they are quantized."""
        return DType(_ENCODINGS[self.value])

    @property
    def quantization_encoding(self) -> QuantizationEncoding | None:
        """The blocks, if the weights are quantized in a format that graphs know."""
        from perihelion.graph.quantization import QuantizationEncoding

        return QuantizationEncoding.__members__.get(self.value.upper())


class AutoConfig(Mapping[str, Any]):
    """A `config.json`. Its entries are items and attributes.

    >>> config = AutoConfig({"hidden_size": 256})
    >>> config.hidden_size, config["hidden_size"], config.get("vocab_size", 0)
    (256, 256, 0)
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._entries:
            return self._entries[name]
        raise AttributeError(f"config.json has no entry {name!r}")

    def to_dict(self) -> dict[str, Any]:
        """The entries as a dict."""
        return dict(self._entries)

    def __repr__(self) -> str:
        return f"AutoConfig({self._entries})"


class _FileConfig(AutoConfig):
    """What was read from the file of a model."""


class WeightsConverter(Protocol):
    """Gives the tensors of a checkpoint the names that its architecture knows."""

    @staticmethod
    def convert(name: str) -> str | None:
        """The name of a tensor; `None` keeps the one it has."""


@dataclass(frozen=True)
class ModelInfo:
    """A repository's description on its hub."""

    id: str
    sha: str
    private: bool
    gated: bool
    last_modified: str | None
    pipeline_tag: str | None
    library_name: str | None
    tags: list[str]
    downloads: int | None
    likes: int | None
    architectures: list[str]
    safetensors: dict[str, int]
    siblings: list[tuple[str, int | None]]
    """Names and sizes of its files."""


@dataclass(repr=False)
class HuggingFaceRepo:
    """A repository of model files: a name on a hub, a folder, or a file.

    Files that are not on this machine are fetched, if the cache does not have them.
    """

    repo_id: str
    trust_remote_code: bool = False
    repo_type: Optional[RepoType] = None

    def __post_init__(self) -> None:
        self.repo_id = os.fspath(self.repo_id)
        given = None if self.repo_type is None else str(self.repo_type)
        self._attach(_perihelion.Repo(self.repo_id, self.trust_remote_code, given))

    def _attach(self, native: _perihelion.Repo) -> None:
        self._native = native
        self.repo_type = RepoType(native.repo_type)

    @property
    def info(self) -> ModelInfo:
        """The repository's description on its hub."""
        return ModelInfo(**self._native.info())

    @property
    def weight_files(self) -> dict[WeightsFormat, list[str]]:
        """The names of the files of weights, by format."""
        return {WeightsFormat(name): files for name, files in self._native.weight_files()}

    @property
    def formats_available(self) -> list[WeightsFormat]:
        """The formats of its weights."""
        return list(self.weight_files)

    @property
    def supported_encodings(self) -> list[SupportedEncoding]:
        """The encodings of its weights."""
        return [SupportedEncoding(name) for name in self._native.supported_encodings()]

    def files_for_encoding(
        self,
        encoding: SupportedEncoding,
        weights_format: WeightsFormat | None = None,
        alternate_encoding: SupportedEncoding | None = None,
    ) -> dict[WeightsFormat, list[Path]]:
        """The files of weights in an encoding, by format; those in the alternate encoding if there are none."""
        optional = [None if one is None else str(one) for one in (weights_format, alternate_encoding)]
        return {WeightsFormat(name): files for name, files in self._native.files_for_encoding(str(encoding), *optional)}

    def encoding_for_file(self, file: str | Path) -> SupportedEncoding:
        """The encoding of a file, as its content has it."""
        return SupportedEncoding(self._native.encoding_for_file(file))

    def file_exists(self, filename: str) -> bool:
        """Whether there is such a file, here or on the hub."""
        return self._native.file_exists(filename)

    def size_of(self, filename: str) -> int | None:
        """The size of a file in bytes; `None` if the hub does not say."""
        return self._native.size_of(filename)

    def download(self, filename: str, force_download: bool = False) -> Path:
        """The path of a file on this machine. Fetches it if it is not there."""
        return self._native.download(filename, force_download)

    def __str__(self) -> str:
        return self.repo_id

    def __repr__(self) -> str:
        return self.repo_id

    def __reduce__(self) -> tuple[Any, ...]:
        return HuggingFaceRepo, (self.repo_id, self.trust_remote_code, self.repo_type)


class _Default(int):
    """A default that a model may lower. An equal number that a program gives is an ordinary `int`, and stays."""


@dataclass(slots=True)
class PipelineConfig:
    """Which model runs, on which devices, within which limits. `PipelineConfig.help()` explains each field.

    Fields of our own are keywords too: `revision`, `max_batch_tokens`, `max_step_ms`, `weights_dtype`, `cache_dtype`,
    `quantize`, `reproducible`, `exact_activations` and `python`. Fields are checked when they are used, all at once.

    >>> config = PipelineConfig("org/name", cache_strategy=KVCacheStrategy.paged)
    >>> config.max_length, config.short_name
    (512, 'name')
    """

    huggingface_repo_id: str
    engine: Optional[PipelineEngine] = None
    architecture: Optional[str] = None
    weight_path: list[Path] = field(default_factory=list)
    device_specs: list[DeviceSpec] = field(default_factory=lambda: [DeviceSpec.cpu()])
    quantization_encoding: Optional[SupportedEncoding] = None
    serialized_model_path: Optional[str] = None
    save_to_serialized_model_path: Optional[str] = None
    max_length: int = _Default(512)
    max_new_tokens: int = -1
    max_cache_batch_size: int = 1
    max_ce_batch_size: int = 32
    cache_strategy: KVCacheStrategy = KVCacheStrategy.continuous
    max_num_steps: int = 1
    pad_to_multiple_of: int = 2
    kv_cache_page_size: int = 512
    enable_prefix_caching: bool = False
    gpu_memory_utilization: float = 0.9
    top_k: Optional[int] = None
    trust_remote_code: bool = False
    force_download: bool = False
    enable_echo: bool = False
    rope_type: Optional[RopeType] = None
    _huggingface_config: Optional[AutoConfig] = field(default=None, compare=False, repr=False)
    _devices: list[Device] = field(default_factory=list, compare=False, repr=False)
    _weights_converter: Optional[type[WeightsConverter]] = field(default=None, repr=False)
    _weights_repo_id: Optional[str] = field(default=None, repr=False)
    revision: Optional[str] = field(default=None, kw_only=True)
    max_batch_tokens: int = field(default=_Default(512), kw_only=True)
    max_step_ms: int = field(default=0, kw_only=True)
    weights_dtype: Optional[str] = field(default=None, kw_only=True)
    cache_dtype: Optional[str] = field(default=None, kw_only=True)
    quantize: Optional[str] = field(default=None, kw_only=True)
    reproducible: Optional[str] = field(default=None, kw_only=True)
    exact_activations: bool = field(default=False, kw_only=True)
    python: Optional[Path] = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.huggingface_repo_id = os.fspath(self.huggingface_repo_id)
        paths: Any = self.weight_path
        listed: Any = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        if not isinstance(listed, Iterable):
            raise TypeError(f"weight_path: got {type(paths).__name__}, expected a path or a list of paths")
        self.weight_path = [Path(path) for path in listed]
        devices: Any = self.device_specs
        if isinstance(devices, (str, DeviceSpec)):
            one: Any = [devices]
            self.device_specs = one
        config: Any = self._huggingface_config
        if config is not None and not isinstance(config, AutoConfig):
            self._huggingface_config = AutoConfig(config.to_dict() if hasattr(config, "to_dict") else config)

    @staticmethod
    def help() -> dict[str, str]:
        """The help of each field."""
        return {name: text for name, _, text in _perihelion.config_fields()}

    @property
    def short_name(self) -> str:
        """The model's name in messages."""
        return self._native.short_name()

    @property
    def devices(self) -> list[Device]:
        """The devices of `device_specs`, opened once."""
        if not self._devices:
            self._devices = load_devices(self.device_specs)
        return self._devices

    @property
    def device(self) -> Device:
        """The one device of `device_specs`.

        Raises:
            ConfigError: there are several.
        """
        devices = self.devices
        if len(devices) != 1:
            raise _perihelion.ConfigError(f"device_specs names {len(devices)} devices, expected one")
        return devices[0]

    @property
    def dtype(self) -> DType:
        """The dtype of `quantization_encoding`, which must be set."""
        return DType(self._native.dtype())

    @property
    def weights_format(self) -> WeightsFormat:
        """The format that the suffixes of `weight_path` promise."""
        return WeightsFormat(self._native.weights_format())

    @property
    def huggingface_config(self) -> AutoConfig:
        """The `config.json` of the model, read once, with the defaults that the model's family has for other entries.

        A `_huggingface_config` that was given takes the place of the file. Pickles leave both out.
        """
        if self._huggingface_config is None:
            self._huggingface_config = _FileConfig(json.loads(self._native.huggingface_config()))
        return self._huggingface_config

    def huggingface_weights_repo(self) -> HuggingFaceRepo:
        """The repository of the weights: the model's, unless `weight_path` is of another one."""
        native = self._native.weights_repo()
        repo = object.__new__(HuggingFaceRepo)
        repo.repo_id, repo.trust_remote_code = native.repo_id, native.trust_remote_code
        repo._attach(native)
        return repo

    def update_architecture(self) -> None:
        """Sets `architecture` from `config.json`, if it is not set."""
        self.architecture, notes = self._native.update_architecture()
        _warn(notes)

    def weights_size(self) -> int | None:
        """Bytes of the files of weights; `None` if a hub does not say."""
        return self._native.weights_size()

    def download_weights(self) -> None:
        """Fetches the weights that are not on this machine, and sets `weight_path` to their paths."""
        self.weight_path, self._weights_repo_id = self._native.download_weights()

    def load_weights(self) -> Weights:
        """The weights, fetched if they are not on this machine, and opened."""
        from perihelion.graph.weights import load_weights

        self.download_weights()
        return load_weights(self.weight_path)

    def validate(self) -> None:
        """Checks everything: the fields, the files that they name, the devices and the memory.

        Raises:
            ConfigError: with all that is wrong.
            OutOfMemory: the model does not fit.
        """
        _warn(self._native.validate())

    def resolve(self) -> PipelineConfig:
        """The configuration with every field decided. Loads nothing.

        Raises:
            ConfigError: with all that is wrong.
        """
        decided, notes = self._native.resolve()
        _warn(notes)
        return self._decided(decided)

    @property
    def _native(self) -> _perihelion.Config:
        """The native configuration of the fields that are not the defaults."""
        given = {name: _plain(getattr(self, name)) for name, default in _DEFAULTS.items()}
        changed = {name: value for name, value in given.items() if not _is_default(value, _DEFAULTS[name])}
        text = json.dumps({**changed, "device_specs": [_device_name(spec) for spec in self.device_specs]})
        config = None if self._given_config is None else json.dumps(self._given_config.to_dict(), default=str)
        return _perihelion.Config(text, self._weights_repo_id, self._weights_converter, config)

    @property
    def _given_config(self) -> AutoConfig | None:
        """The configuration that was given, not read from the model's file."""
        config = self._huggingface_config
        return None if isinstance(config, _FileConfig) else config

    def _decided(self, fields: str) -> PipelineConfig:
        """A configuration of the values that the native module decided on."""
        values = {name: value for name, value in json.loads(fields).items() if name != "device_specs"}
        values = {name: _KINDS[name](value) if name in _KINDS and value else value for name, value in values.items()}
        return PipelineConfig(
            **values,
            device_specs=self.device_specs,
            _huggingface_config=self._huggingface_config,
            _devices=self._devices,
            _weights_converter=self._weights_converter,
            _weights_repo_id=self._weights_repo_id,
        )

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return None, {**state, "_devices": [], "_huggingface_config": None}


_KINDS: dict[str, Callable[[Any], Any]] = {
    "engine": PipelineEngine,
    "quantization_encoding": SupportedEncoding,
    "cache_strategy": KVCacheStrategy,
    "rope_type": RopeType,
    "python": Path,
}
_OWN = [one.name for one in fields(PipelineConfig) if one.kw_only]
_DEFAULTS: dict[str, Any] = {
    one.name: "" if one.name == "huggingface_repo_id" else [] if one.name == "weight_path" else one.default
    for one in fields(PipelineConfig)
    if not one.name.startswith("_") and one.name != "device_specs"
}
_RENAMED = {other: name for name, others, _ in _perihelion.config_fields() for other in others}


def _accept_new_names(init: Callable[..., None]) -> Callable[..., None]:
    """Takes the names that fields have in later versions, with a warning."""

    @functools.wraps(init)
    def wrapper(self: PipelineConfig, *args: Any, **kwargs: Any) -> None:
        for other in kwargs.keys() & _RENAMED.keys():
            name = _RENAMED[other]
            warn(f"{other} is called {name} here", DeprecationWarning)
            if name in kwargs:
                raise TypeError(f"PipelineConfig got both {other} and {name}, which are the same field")
            kwargs[name] = kwargs.pop(other)
        init(self, *args, **kwargs)

    return wrapper


_parameters = [one for one in signature(PipelineConfig).parameters.values() if one.name not in _OWN]
setattr(PipelineConfig, "__signature__", signature(PipelineConfig).replace(parameters=_parameters))
setattr(PipelineConfig, "__init__", _accept_new_names(PipelineConfig.__init__))


def _plain(value: Any) -> Any:
    """A value of a field as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _is_default(value: Any, default: Any) -> bool:
    return bool(value == default) and isinstance(value, _Default) == isinstance(default, _Default)


def _device_name(spec: Any) -> str:
    if isinstance(spec, DeviceSpec):
        return "cpu" if spec.device_type == "cpu" else f"gpu:{spec.id}"
    return str(spec)


class ConfigWarning(UserWarning):
    """A setting of a `PipelineConfig` that has no effect, or less than one may think."""


def _warn(notes: list[str]) -> None:
    for note in dict.fromkeys(notes):
        warn(note, ConfigWarning)
