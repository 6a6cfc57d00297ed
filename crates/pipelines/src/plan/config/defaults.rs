//! The defaults that depend on what a model is used for: one table, of which every door picks a column.

use sources::named;

use super::PipelineConfig;
use super::auto::Auto::{self, At, Usual};
use super::enums::KVCacheStrategy::{self, Continuous, Paged};
use crate::sampling::SamplingOptions;

named! { "use",
    /// What a model is used for: a column of the table of defaults.
    UseCase {
        /// Programs that set their own configuration: one sequence of 512 tokens, decoded greedily.
        Library = "library",
        /// A prompt on a command line: `peri generate`, and the commands that show or check what it would do.
        Prompt = "prompt",
        /// A conversation: `peri chat`.
        Chat = "chat",
        /// Requests of many clients: `peri serve`, and `serve` of the Python package.
        Server = "server",
        /// Many prompts of one program: `LLM` of the Python package.
        Batch = "batch",
        /// Texts that become vectors or scores: `peri encode`, `peri rerank`, `peri classify`, and the Python classes for
        /// these.
        Encode = "encode",
    }
}

/// The struct of the fields that have a row, and its values in each column.
macro_rules! table {
    ($($name:ident: $ty:ty = [$($value:expr),*];)*) => {
        /// The defaults of the fields that have a row.
        pub(super) struct Defaults {
            $(pub(super) $name: $ty,)*
        }

        /// A column.
        const fn column(use_case: UseCase) -> Defaults {
            Defaults { $($name: [$($value),*][use_case as usize],)* }
        }

        impl UseCase {
            /// The configuration of no model, with the defaults for this use.
            pub fn config(self) -> PipelineConfig {
                let Defaults { $($name,)* } = column(self);
                PipelineConfig { $($name,)* ..PipelineConfig::default() }
            }
        }
    };
}

table! {
    //                                 Library     Prompt      Chat        Server      Batch       Encode
    max_length: Auto                = [Usual(512), AUTO,       AUTO,       AUTO,       AUTO,       AUTO];
    max_new_tokens: i64             = [-1,         200,        -1,         -1,         -1,         -1];
    max_cache_batch_size: Auto      = [At(1),      At(1),      At(1),      AUTO,       At(16),     At(256)];
    max_batch_tokens: Auto          = [Usual(512), Usual(512), Usual(512), Usual(512), Usual(512), At(4096)];
    cache_strategy: KVCacheStrategy = [Continuous, Paged,      Paged,      Paged,      Paged,      Paged];
    kv_cache_page_size: usize       = [512,        64,         64,         64,         64,         64];
    enable_prefix_caching: bool     = [false,      false,      true,       true,       true,       false];
    enable_echo: bool               = [false,      false,      false,      true,       false,      false];
    max_step_ms: usize              = [0,          0,          0,          100,        0,          0];
}

/// How tokens are chosen in each column if neither a request nor a setting nor the model's files say.
const SAMPLING: [SamplingOptions; 6] = [OPEN, WARM, WARM, DRAWN, OPEN, OPEN];

impl UseCase {
    /// The sampling if neither a request, nor a setting, nor the model's files set it. Values that are `None` are as
    /// [`SamplingOptions::params`] has it: greedy.
    pub const fn sampling(self) -> SamplingOptions {
        SAMPLING[self as usize]
    }
}

/// The defaults of [`PipelineConfig`].
pub(super) const LIBRARY: Defaults = column(UseCase::Library);
/// As large as model and memory allow.
const AUTO: Auto = Auto::Auto;
/// Nothing said.
const OPEN: SamplingOptions = SamplingOptions::OPEN;
/// Suits most models.
const WARM: SamplingOptions = SamplingOptions { temperature: Some(0.7), top_k: Some(40), ..OPEN };
/// As the APIs of servers say: as the model predicts.
const DRAWN: SamplingOptions = SamplingOptions { temperature: Some(1.0), top_k: Some(usize::MAX), ..OPEN };

#[cfg(test)]
mod tests {
    use super::super::{Problems, check};
    use super::*;

    #[test]
    fn columns_are_valid_and_pages_are_alike() {
        assert_eq!(UseCase::Library.config(), PipelineConfig::default());
        for use_case in UseCase::ALL {
            let mut problems = Problems::default();
            check(&PipelineConfig { huggingface_repo_id: "-".into(), ..use_case.config() }, &mut problems);
            assert!(problems.0.is_empty(), "{use_case:?}: {problems:?}");
            // One command loads what another saved.
            let pages = use_case.config().kv_cache_page_size;
            assert_eq!(pages == 64, *use_case != UseCase::Library, "{use_case:?}");
        }
    }
}
