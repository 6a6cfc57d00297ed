"""Language models: configurations, models that write, models that embed, models that classify and rank."""

from .classifier import Classifier, TextOrPair
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
from .keywords import ConfigFields
from .llm import LLM
from .params import (
    Chunk,
    Classification,
    CompletionOutput,
    Histogram,
    LogitsProcessor,
    Logprob,
    Metrics,
    Ranked,
    RequestOutput,
    SamplingParams,
    Timings,
    TokenScores,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from .prompts import ChatOptions, Message, Prompt, Prompts, TextPrompt, TokensPrompt, Tool
from .quantization import Quantized, quantize
from .reranker import Reranker
from .tokenizer import Encoding, Tokenizer

__all__ = [
    "LLM",
    "AutoConfig",
    "ChatOptions",
    "Chunk",
    "Classification",
    "Classifier",
    "CompletionOutput",
    "ConfigFields",
    "ConfigWarning",
    "Embedder",
    "Encoding",
    "Histogram",
    "HuggingFaceRepo",
    "KVCacheStrategy",
    "LogitsProcessor",
    "Logprob",
    "Message",
    "Metrics",
    "ModelInfo",
    "PipelineConfig",
    "PipelineEngine",
    "Prompt",
    "Prompts",
    "Quantized",
    "Ranked",
    "RepoType",
    "RequestOutput",
    "Reranker",
    "RopeType",
    "SamplingParams",
    "SupportedEncoding",
    "TextOrPair",
    "TextPrompt",
    "Timings",
    "TokenScores",
    "Tokenizer",
    "TokensPrompt",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "Usage",
    "WeightsConverter",
    "WeightsFormat",
    "quantize",
]
