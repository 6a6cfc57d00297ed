"""Keywords that several classes take, and hints for those that other libraries have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from perihelion.driver import DeviceSpec

    from .config import KVCacheStrategy, PipelineEngine, RopeType, SupportedEncoding

__all__ = ["ConfigFields"]


class ConfigFields(TypedDict, total=False):
    """The fields of `PipelineConfig`, as keywords of the classes that load models. `PipelineConfig.help()` explains them."""

    engine: PipelineEngine | str | None
    architecture: str | None
    weight_path: str | Path | Sequence[str | Path]
    device_specs: list[DeviceSpec]
    quantization_encoding: SupportedEncoding | str | None
    serialized_model_path: str | Path | None
    save_to_serialized_model_path: str | Path | None
    max_length: int | None
    max_new_tokens: int
    max_cache_batch_size: int
    max_ce_batch_size: int
    cache_strategy: KVCacheStrategy | str
    max_num_steps: int
    pad_to_multiple_of: int
    kv_cache_page_size: int
    enable_prefix_caching: bool
    gpu_memory_utilization: float
    top_k: int | None
    trust_remote_code: bool
    force_download: bool
    enable_echo: bool
    rope_type: RopeType | str | None
    revision: str | None
    max_batch_tokens: int
    max_step_ms: int
    weights_dtype: str | None
    cache_dtype: str | None
    quantize: str | None
    reproducible: str | None
    exact_activations: bool
    python: str | Path | None


_NOTHING = "it has no counterpart: leave it out"
_CPU = "a model runs on one device: leave it out, or name the device in device_specs"
_FIRST = "give the model as the first argument"

# Keywords of vLLM, llama-cpp-python and Transformers where models are loaded.
LOADING: dict[str, str] = {
    "attn_implementation": _NOTHING,
    "block_size": "it is called kv_cache_page_size here",
    "cache_dir": "set the environment variable HF_HUB_CACHE",
    "chat_format": "it is called chat_template here",
    "cpu_offload_gb": _CPU,
    "data_parallel_size": _CPU,
    "device_map": _CPU,
    "disable_log_stats": _NOTHING,
    "distributed_executor_backend": _CPU,
    "download_dir": "set the environment variable HF_HUB_CACHE",
    "draft_model": _NOTHING,
    "embedding": "load the model with Embedder",
    "enable_chunked_prefill": "prompts are always read in chunks of max_batch_tokens: leave it out",
    "enforce_eager": _NOTHING,
    "filename": 'it is called weight_path here, or give the encoding in the name: "org/name:Q4_K_M"',
    "flash_attn": _NOTHING,
    "hf_token": "set the environment variable HF_TOKEN",
    "kv_cache_dtype": "it is called cache_dtype here",
    "load_format": "the files say it: leave it out",
    "load_in_4bit": 'give quantize="q4_k_m"',
    "load_in_8bit": 'give quantize="q8_0"',
    "logits_all": "LLM.score and LLM.logits compute them for any text",
    "low_cpu_mem_usage": _NOTHING,
    "main_gpu": _CPU,
    "max_model_len": "it is called max_length here",
    "max_num_batched_tokens": "it is called max_batch_tokens here",
    "max_num_seqs": "it is called max_cache_batch_size here",
    "max_seq_len": "it is called max_length here",
    "model_name": _FIRST,
    "model_path": _FIRST,
    "n_batch": "it is called max_batch_tokens here",
    "n_ctx": "it is called max_length here",
    "n_gpu_layers": _CPU,
    "n_threads": "it is called num_threads here",
    "n_threads_batch": "it is called num_threads here",
    "n_ubatch": "it is called max_batch_tokens here",
    "offload_kqv": _CPU,
    "pipeline_parallel_size": _CPU,
    "pretrained_model_name_or_path": _FIRST,
    "quantization": 'the files say how they are quantized; quantize="q4_k_m" quantizes while loading',
    "repo_id": _FIRST,
    "rope_freq_base": "the model's files say it: leave it out",
    "rope_freq_scale": "the model's files say it: leave it out",
    "seed": "give it to SamplingParams",
    "split_mode": _CPU,
    "swap_space": _CPU,
    "task": "the class says it: LLM, Embedder, Reranker or Classifier",
    "tensor_parallel_size": _CPU,
    "tensor_split": _CPU,
    "token": "set the environment variable HF_TOKEN",
    "tokenizer": "the model's own tokenizer is used: leave it out",
    "tokenizer_mode": "the model's own tokenizer is used: leave it out",
    "torch_dtype": "it is called weights_dtype here",
    "type_k": "it is called cache_dtype here",
    "type_v": "it is called cache_dtype here",
    "use_mlock": _NOTHING,
    "use_mmap": "files are always mapped: leave it out",
    "verbose": "set the environment variable PERIHELION_LOG, or configure logging",
    "vocab_only": _NOTHING,
}

_FORMS = "give json_schema, regex, choice or grammar"

# Keywords of other libraries where answers are asked for.
SAMPLING: dict[str, str] = {
    "best_of": "give n",
    "detokenize": _NOTHING,
    "do_sample": "temperature=0 takes the likeliest token",
    "early_stopping": "there is no beam search: leave it out",
    "guided_choice": "it is called choice here",
    "guided_decoding": _FORMS,
    "guided_grammar": "it is called grammar here",
    "guided_json": "it is called json_schema here",
    "guided_regex": "it is called regex here",
    "include_stop_str_in_output": _NOTHING,
    "length_penalty": "there is no beam search: leave it out",
    "logits_processor": "it is called logits_processors here",
    "max_completion_tokens": "it is called max_tokens here",
    "max_new_tokens": "it is called max_tokens here",
    "min_new_tokens": "it is called min_tokens here",
    "mirostat_mode": "give temperature, top_k, top_p or min_p",
    "num_beams": "there is no beam search: leave it out",
    "num_return_sequences": "it is called n here",
    "repeat_penalty": "it is called repetition_penalty here",
    "response_format": _FORMS,
    "spaces_between_special_tokens": _NOTHING,
    "stop_strings": "it is called stop here",
    "stream": "call LLM.stream",
    "structured_outputs": _FORMS,
    "thinking_token_budget": "give thinking_budget to LLM.chat",
    "top_logprobs": "it is called logprobs here",
    "truncate_prompt_tokens": "cut prompts with LLM.tokenizer",
    "typical_p": "give temperature, top_k, top_p or min_p",
    "use_beam_search": "there is no beam search: leave it out",
}


def refuse_unknown(owner: str, given: Iterable[str], known: Collection[str], hints: Mapping[str, str]) -> None:
    """Raises `TypeError` for the first keyword that is not known."""
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, 1)
            similar = f"did you mean {close[0]}?" if close else "there is no keyword like it"
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}: {hints.get(name, similar)}")


def whole(name: str, value: Any, least: int, most: int | None = None, *, optional: bool = False) -> Any:
    """A whole number within bounds.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is out of bounds.
    """
    bounds = f"at least {least}" if most is None else f"from {least} to {most}"
    expected = f"a whole number, {bounds}" + (", or None" if optional else "")
    if value is None and optional:
        return None
    index = getattr(value, "__index__", None)
    if index is None:
        raise TypeError(f"{name}: got {type(value).__name__}, expected {expected}")
    number = index()
    if number < least or most is not None and number > most:
        raise ValueError(f"{name} is {number}: give {expected}")
    return number


def flag(name: str, value: Any, *, optional: bool = False) -> Any:
    """True or False.

    Raises:
        TypeError: it is neither.
    """
    if value is None and optional or value is True or value is False:
        return value
    raise TypeError(f"{name}: got {type(value).__name__}, expected True or False" + (" or None" if optional else ""))


def text(name: str, value: Any, *, optional: bool = False) -> Any:
    """A text.

    Raises:
        TypeError: it is not one.
    """
    if isinstance(value, str) or value is None and optional:
        return value
    hint = ": decode it first" if isinstance(value, (bytes, bytearray)) else ""
    expected = "a text or None" if optional else "a text"
    raise TypeError(f"{name}: got {type(value).__name__}, expected {expected}{hint}")


def texts(name: str, value: Any) -> list[str]:
    """A list of texts.

    Raises:
        TypeError: it is one text, or another object.
    """
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}: got {type(value).__name__}, expected a list of texts")
    return [text(f"{name}[{index}]", one) for index, one in enumerate(value)]
