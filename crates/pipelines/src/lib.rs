//! How tokens are made: sequences, scheduler, KV pages, runner, sampler, generator.
//!
//! Layer 3: never names a device.

#![forbid(unsafe_code)]

mod activation;
mod batch;
mod chat_turn;
mod classification_model;
mod classifier;
mod classifier_files;
mod compiled;
pub mod config;
mod dense;
mod embedder;
mod embedding_model;
pub mod error;
mod generator;
mod generator_limits;
mod gguf_metadata;
mod huggingface;
mod isolation;
mod kv_cache;
mod limits;
mod memory;
mod pair_template;
mod plan;
mod pooling;
mod quantize;
mod repo_tokenizer;
mod runner;
pub mod sampler;
mod sampling;
mod scheduler;
mod scorer;
mod sentence_transformers;
#[cfg(test)]
mod testing;
mod text_generator;
mod text_model;
mod texts;
mod transformers_facts;
mod vectors;
mod worker;

pub use activation::ScoreActivation;
pub use batch::{Batch, Slice};
pub use chat_turn::{AnswerReader, ChatDefaults, ChatReading, ChatTurn, RenderedTurn, Thinking, ToolUse};
pub use classification_model::ClassificationModel;
pub use classifier::{
    Classification, ClassificationParameters, ClassificationRequest, ClassificationText, Classifier, Ranked,
    Ranking, RerankRequest,
};
pub use compiled::CompiledPlan;
pub use config::KVCacheStrategy;
pub use embedder::{
    AsyncEmbeddingStream, Embedder, Embedding, EmbeddingParameters, EmbeddingRequest, EmbeddingStream,
    EmbeddingText,
};
pub use embedding_model::EmbeddingModel;
pub use error::{Error, Fitting, OutOfMemory, QueueUnit, TooLong};
pub use generator::{
    Event, EventKind, FinishReason, FinishedRequests, Generator, Histogram, LogitsProcessor, MAX_BAD_TOKENS,
    MAX_SAMPLES, MAX_STOP_BYTES, MAX_STOP_TOKENS, MAX_STOPS, ReasoningBudget, Request, Status, TokenLogprob,
    TokenLogprobs, Warning, random_seed,
};
pub use huggingface::set_python;
pub use kv_cache::{
    CacheEvent, KvCache, Page, PageCopy, PrefixEnd, PrefixStats, Sequence, SequenceId, StateSlot,
};
pub use limits::SLOTS_PER_SEQUENCE;
pub use memory::{MemoryPlan, available as available_memory, limit as memory_limit};
pub use models::{Importance, QuantizeOptions};
pub use plan::{Machine, Plan};
pub use pooling::Pooling;
pub use quantize::{Quantized, measure_importance, quantize};
pub use repo_tokenizer::tokenizer_from_repo;
pub use runner::{Logits, Runner};
pub use sampler::Sampler;
pub use sampling::{LogprobsMode, SamplingOptions, SamplingParams};
pub use scheduler::{Batching, Limits, MAX_PASSES, Scheduler};
pub use scorer::{Divergence, divergence, log_probabilities, log_probability, visit_logits};
pub use sources::{MemoryBytes, Progress as FetchProgress};
pub use text::{
    AddSpecial, Answer, AnswerEvent, AnswerFormat, AnswerParser, AnswerPart, ChatContext, ChatTemplate,
    Constraint, ConstraintError, Detokenizer, Error as TextError, Grammar, GrammarCompiler, InfillFile,
    InfillFormat, InfillPrompt, InfillTexts, Moment, ParseSpecial, Piece, ReasoningFormat, ReasoningPhase,
    SkipSpecial, Tokenizer, Tool, ToolCall, ToolChoice, ToolFormat, answer, chat_template, constraint,
    detokenizer, tokenizer,
};
pub use text_generator::{
    AsyncTextStream, BatchEvent, BatchStream, CacheEvents, Chat, ChatMessage, Completion, HIGH_WATER,
    IndexedCompletion, Prompt, PromptToken, QueueLimits, TextGenerator, TextGeneratorOptions, TextRequest,
    TextStream, Timings, Usage,
};
pub use text_model::TextModel;
pub use vectors::{BatchStatus, EmbeddingPrompt, Truncate};
