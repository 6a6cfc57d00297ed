"""Language models and embeddings: configurations, models that write, models that embed."""

from .config import (
    AutoConfig,
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
    RequestOutput,
    SamplingParams,
    Timings,
    TokenScores,
    Usage,
)

__all__ = [
    "LLM",
    "AutoConfig",
    "Chunk",
    "CompletionOutput",
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
    "RepoType",
    "RequestOutput",
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
