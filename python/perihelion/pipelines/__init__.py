"""Language models: configurations, models that write, models that embed, models that rank."""

from .config import (
    AutoConfig,
    ConfigWarning,
    HuggingFaceRepo,
    KVCacheStrategy,
    ModelInfo,
    PipelineConfig,
    PipelineEngine,
    RepoType,
    RopeType,
    SupportedEncoding,
    WeightsConverter,
    WeightsFormat,
)
from .embedder import Embedder
from .llm import LLM, Message, Prompt, Tokenizer
from .params import (
    Chunk,
    CompletionOutput,
    Histogram,
    Logprob,
    Metrics,
    Ranked,
    RequestOutput,
    SamplingParams,
    Timings,
    TokenScores,
    Usage,
)
from .reranker import Reranker

__all__ = [
    "LLM",
    "AutoConfig",
    "Chunk",
    "CompletionOutput",
    "ConfigWarning",
    "Embedder",
    "Histogram",
    "HuggingFaceRepo",
    "KVCacheStrategy",
    "Logprob",
    "Message",
    "Metrics",
    "ModelInfo",
    "PipelineConfig",
    "PipelineEngine",
    "Prompt",
    "Ranked",
    "RepoType",
    "RequestOutput",
    "Reranker",
    "RopeType",
    "SamplingParams",
    "SupportedEncoding",
    "Timings",
    "TokenScores",
    "Tokenizer",
    "Usage",
    "WeightsConverter",
    "WeightsFormat",
]
