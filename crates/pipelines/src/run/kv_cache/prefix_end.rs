//! Why a sequence shares no more tokens with the cache.

/// Why a sequence shares no more tokens with the cache than it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PrefixEnd {
    /// Sequences share nothing: prefix caching is off.
    #[default]
    Off,
    /// All tokens have to run, since the logits of the whole prompt are wanted.
    PromptLogits,
    /// The cache holds all tokens but the last, which always runs.
    LastToken,
    /// The cache holds other tokens here.
    OtherTokens,
    /// The cache holds nothing that follows the tokens before.
    NothingCached,
    /// The model keeps a state per sequence, and none is cached after more tokens, though the pages of these are.
    NoState {
        /// Tokens that pages hold.
        matching: usize,
    },
}

impl PrefixEnd {
    /// The name in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            PrefixEnd::Off => "off",
            PrefixEnd::PromptLogits => "prompt_logits",
            PrefixEnd::LastToken => "last_token",
            PrefixEnd::OtherTokens => "other_tokens",
            PrefixEnd::NothingCached => "nothing_cached",
            PrefixEnd::NoState { .. } => "no_state",
        }
    }
}
