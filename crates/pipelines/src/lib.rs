//! How tokens are made, in three folders: `plan` decides what to load and within which limits, `run` runs batches of
//! sequences within limits, and `tasks` makes text, embeddings and scores with both.
//!
//! Layer 3: never names a device.

#![forbid(unsafe_code)]

mod activation;
pub mod error;
mod limits;
mod plan;
mod pooling;
mod run;
mod sampling;
mod tasks;
#[cfg(test)]
mod testing;

pub use activation::ScoreActivation;
pub use error::{Error, Fitting, OutOfMemory, QueueUnit, TooLong};
pub use limits::SLOTS_PER_SEQUENCE;
pub use models::{Importance, QuantizeOptions};
pub use plan::config::{self, KVCacheStrategy};
pub use plan::memory::{MemoryPlan, available as available_memory, limit as memory_limit};
pub use plan::model_files::repo_tokenizer::tokenizer_from_repo;
pub use plan::{Machine, Plan};
pub use pooling::Pooling;
pub use run::batch::{Batch, Slice};
pub use run::generator::{
    Event, EventKind, FinishReason, FinishedRequests, Generator, Histogram, LogitsProcessor, MAX_BAD_TOKENS,
    MAX_SAMPLES, MAX_STOP_BYTES, MAX_STOP_TOKENS, MAX_STOPS, ReasoningBudget, Request, Status, TokenLogprob,
    TokenLogprobs, Warning, random_seed,
};
pub use run::huggingface::set_python;
pub use run::kv_cache::{
    CacheEvent, KvCache, Page, PageCopy, PrefixEnd, PrefixStats, Sequence, SequenceId, StateSlot,
};
pub use run::runner::{Logits, Runner};
pub use run::sampler::{self, Sampler};
pub use run::scheduler::{Batching, Limits, MAX_PASSES, Scheduler};
pub use sampling::{LogprobsMode, SamplingOptions, SamplingParams};
pub use sources::{MemoryBytes, Progress as FetchProgress};
pub use tasks::chat_turn::{
    AnswerReader, ChatDefaults, ChatReading, ChatTurn, RenderedTurn, Thinking, ToolUse,
};
pub use tasks::classification_model::ClassificationModel;
pub use tasks::classifier::{
    Classification, ClassificationParameters, ClassificationRequest, ClassificationText, Classifier, Ranked,
    Ranking, RerankRequest,
};
pub use tasks::compiled::CompiledPlan;
pub use tasks::embedder::{
    AsyncEmbeddingStream, Embedder, Embedding, EmbeddingParameters, EmbeddingRequest, EmbeddingStream,
    EmbeddingText,
};
pub use tasks::embedding_model::EmbeddingModel;
pub use tasks::handle::{Handle, Waiting};
pub use tasks::quantize::{Quantized, measure_importance, quantize};
pub use tasks::scorer::{Divergence, divergence, log_probabilities, log_probability, visit_logits};
pub use tasks::text_generator::{
    AsyncTextStream, BatchEvent, BatchStream, CacheEvents, Chat, ChatMessage, Completion, HIGH_WATER,
    IndexedCompletion, Prompt, PromptToken, QueueLimits, TextGenerator, TextGeneratorOptions, TextRequest,
    TextStream, Timings, Usage,
};
pub use tasks::text_model::TextModel;
pub use tasks::vectors::{BatchStatus, EmbeddingPrompt, Truncate, VectorRequest, VectorStream};
pub use text::{
    AddSpecial, Answer, AnswerEvent, AnswerFormat, AnswerParser, AnswerPart, ChatContext, ChatTemplate,
    Constraint, ConstraintError, Detokenizer, Error as TextError, Grammar, GrammarCompiler, InfillFile,
    InfillFormat, InfillPrompt, InfillTexts, Moment, ParseSpecial, Piece, ReasoningFormat, ReasoningPhase,
    SkipSpecial, Tokenizer, Tool, ToolCall, ToolChoice, ToolFormat, answer, chat_template, constraint,
    detokenizer, tokenizer,
};
