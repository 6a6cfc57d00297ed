//! How models mark what they think before they answer.

use crate::tokenizer::{AddSpecial, ParseSpecial};
use crate::{ChatTemplate, Error, Tokenizer};

/// How a model marks its reasoning, and what else it writes around the parts of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct ReasoningFormat {
    /// The name, as in `--reasoning-format`.
    pub name: &'static str,
    /// Begins reasoning.
    pub begin: &'static str,
    /// Ends reasoning.
    pub end: &'static str,
    /// How marks begin that a prompt may have begun already: `<|start|>assistant` at its end.
    pub lead: &'static str,
    /// Marks around other parts of an answer; they are no text.
    pub silent: &'static [&'static str],
    /// Ends reasoning early, and begins the answer.
    pub cut: &'static str,
}

/// Where a prompt ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReasoningPhase {
    /// The answer may begin with reasoning.
    #[default]
    Before,
    /// Inside the reasoning.
    Inside,
    /// Behind it.
    After,
}

const EMPTY: ReasoningFormat =
    ReasoningFormat { name: "", begin: "", end: "", lead: "", silent: &[], cut: "" };

/// All formats; the first whose marks a template contains counts.
pub const FORMATS: &[ReasoningFormat] = &[
    // gpt-oss.
    ReasoningFormat {
        name: "harmony",
        begin: "<|start|>assistant<|channel|>analysis<|message|>",
        end: "<|end|>",
        lead: "<|start|>assistant",
        silent: &[
            "<|start|>assistant<|channel|>final<|message|>",
            "<|start|>assistant<|channel|>commentary<|message|>",
            "<|end|>",
            "<|return|>",
        ],
        cut: "<|end|><|start|>assistant<|channel|>final<|message|>",
    },
    // What it thinks is a message to itself.
    ReasoningFormat {
        name: "muse-glimmer",
        begin: "<|start|>assistant to=self<|message|>",
        end: "<|eom|>",
        lead: "<|start|>assistant",
        silent: &["<|start|>assistant to=user<|message|>", "<|eom|>", "<|eot|>"],
        cut: "<|eom|><|start|>assistant to=user<|message|>",
    },
    ReasoningFormat {
        name: "solar",
        begin: "<|begin|>assistant<|think|>",
        end: "<|end|>",
        lead: "<|begin|>assistant",
        silent: &["<|begin|>assistant<|content|>", "<|end|>"],
        cut: "<|end|><|begin|>assistant<|content|>",
    },
    ReasoningFormat {
        name: "kimi-k3",
        begin: "<|open|>think<|sep|>",
        end: "<|close|>think<|sep|>",
        silent: &["<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"],
        cut: "<|close|>think<|sep|><|open|>response<|sep|>",
        ..EMPTY
    },
    ReasoningFormat {
        name: "cohere",
        begin: "<|START_THINKING|>",
        end: "<|END_THINKING|>",
        silent: &["<|START_RESPONSE|>", "<|END_RESPONSE|>"],
        cut: "<|END_THINKING|>",
        ..EMPTY
    },
    ReasoningFormat {
        name: "gemma-4",
        begin: "<|channel>thought",
        end: "<channel|>",
        cut: "\n<channel|>",
        ..EMPTY
    },
    ReasoningFormat {
        name: "seed-oss",
        begin: "<seed:think>",
        end: "</seed:think>",
        cut: "</seed:think>",
        ..EMPTY
    },
    // Magistral.
    ReasoningFormat { name: "mistral", begin: "[THINK]", end: "[/THINK]", cut: "[/THINK]", ..EMPTY },
    ReasoningFormat {
        name: "apertus",
        begin: "<|inner_prefix|>",
        end: "<|inner_suffix|>",
        cut: "<|inner_suffix|>",
        ..EMPTY
    },
    ReasoningFormat {
        name: "longcat",
        begin: "<longcat_think>",
        end: "</longcat_think>",
        cut: "\n</longcat_think>\n",
        ..EMPTY
    },
    ReasoningFormat {
        name: "hy3",
        begin: "<think:opensource>",
        end: "</think:opensource>",
        cut: "</think:opensource>",
        ..EMPTY
    },
    ReasoningFormat {
        name: "minicpm-3",
        begin: "<|thought_start|>",
        end: "<|thought_end|>",
        cut: "\n<|thought_end|>\n",
        ..EMPTY
    },
    // EXAONE.
    ReasoningFormat {
        name: "thought",
        begin: "<thought>",
        end: "</thought>",
        cut: "\n</thought>\n\n",
        ..EMPTY
    },
    // DeepSeek R1, Qwen 3, GLM, and most others.
    ReasoningFormat { name: "think", begin: "<think>", end: "</think>", cut: "\n</think>\n\n", ..EMPTY },
];

impl ReasoningFormat {
    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static ReasoningFormat> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The names that [`ReasoningFormat::named`] takes.
    pub fn names() -> impl ExactSizeIterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// The format whose marks a template contains.
    pub(super) fn in_template(template: &ChatTemplate) -> Option<&'static Self> {
        FORMATS.iter().find(|format| template.mentions(format.own_begin(), format.end))
    }

    /// The format that a prompt opens.
    pub(super) fn opened_by(prompt: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.is_open(prompt, None))
    }

    /// The format whose marks are tokens.
    pub(super) fn in_vocabulary(tokenizer: &Tokenizer) -> Option<&'static Self> {
        let is_token = |mark: &str| tokenizer.id(mark).is_some();
        FORMATS.iter().find(|format| is_token(format.begin) && is_token(format.end))
    }

    /// Whether an answer to this prompt begins inside the reasoning. `continued` is the content that the prompt ends
    /// with, if the model goes on with a message.
    pub fn is_open(&self, prompt: &str, continued: Option<&str>) -> bool {
        let begins = |text: &str| text.trim_end().ends_with(self.begin);
        let is_open =
            |text: &str| text.rfind(self.begin).is_some_and(|begin| !text[begin..].contains(self.end));
        begins(prompt) || continued.is_some_and(is_open)
    }

    /// Where a prompt ends; `continued` is as in [`ReasoningFormat::is_open`].
    pub fn phase(&self, prompt: &str, continued: Option<&str>) -> ReasoningPhase {
        // Marks of channels end other messages too.
        let is_closed = self.lead.is_empty() && prompt.trim_end().ends_with(self.end);
        if self.is_open(prompt, continued) {
            ReasoningPhase::Inside
        } else if is_closed || continued.is_some_and(|text| !text.trim().is_empty()) {
            ReasoningPhase::After
        } else {
            ReasoningPhase::Before
        }
    }

    /// The tokens that end the reasoning and begin the answer: to be forced once a budget is spent.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn cut_tokens(&self, tokenizer: &Tokenizer) -> Result<Vec<u32>, Error> {
        tokenizer.encode(self.cut, AddSpecial::No, ParseSpecial::Yes)
    }

    /// The begin mark without its lead, which templates write separately.
    pub(super) fn own_begin(&self) -> &'static str {
        self.begin.strip_prefix(self.lead).unwrap_or(self.begin)
    }

    /// All texts of the format, to find special tokens in.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        [self.begin, self.end].into_iter().chain(self.silent.iter().copied())
    }
}
