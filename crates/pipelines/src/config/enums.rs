//! Choices that have a few values, each with a name: in files, in flags, and in what is printed.

use std::path::Path;

use graph::ops::RopeStyle;

use super::nearest::nearest;

/// A name that is none of those there are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{given}`: give {}{}", .names.join(", "), meant(given, names))]
pub struct UnknownName {
    /// What has such names.
    pub what: &'static str,
    /// The name that was given.
    pub given: String,
    /// All there are.
    pub names: Vec<&'static str>,
}

impl UnknownName {
    /// The name that was probably meant.
    pub fn nearest(&self) -> Option<&'static str> {
        nearest(&self.given, self.names.iter().copied())
    }
}

fn meant(given: &str, names: &[&'static str]) -> String {
    nearest(given, names.iter().copied()).map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}

/// Enums whose values have names: `ALL`, `name`, printing, parsing (case does not count), serde.
macro_rules! named {
    ($what:literal, $(#[$doc:meta])* $enum:ident { $($(#[$value_doc:meta])* $value:ident = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $enum { $($(#[$value_doc])* $value,)* }

        impl $enum {
            /// Every value, in the order in which they are listed to users.
            pub const ALL: &[$enum] = &[$($enum::$value,)*];

            /// The name in files and flags.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$value => $name,)* }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = $crate::config::UnknownName;

            fn from_str(given: &str) -> Result<$enum, Self::Err> {
                let found = $enum::ALL.iter().find(|value| value.name().eq_ignore_ascii_case(given));
                found.copied().ok_or_else(|| $crate::config::UnknownName {
                    what: $what,
                    given: given.to_string(),
                    names: $enum::ALL.iter().map(|value| value.name()).collect(),
                })
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$enum, D::Error> {
                let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(super) use named;

named! { "engine",
    /// What runs a model.
    PipelineEngine {
        /// The engine of this project.
        Max = "max",
        /// The fallback for architectures that have no graph here. There is none: asking for it is an error that
        /// lists the architectures there are.
        HuggingFace = "huggingface",
    }
}

named! { "kind of repository",
    /// Where a repository of model files is.
    RepoType {
        /// On this machine.
        Local = "local",
        /// On a hub.
        Online = "online",
    }
}

named! { "rope type",
    /// How the rows of queries and keys pair up in rotary embeddings. Matters for GGUF files only, which do not say.
    RopeType {
        /// As the architecture has it.
        None = "none",
        /// Neighbours: `2i` and `2i + 1`.
        Normal = "normal",
        /// Halves: `i` and `i + head_dim / 2`.
        Neox = "neox",
    }
}

named! { "format of weights",
    /// How files store weights.
    WeightsFormat {
        /// llama.cpp's single file: weights, configuration and vocabulary.
        Gguf = "gguf",
        /// Hugging Face's: a JSON header and plain data.
        Safetensors = "safetensors",
        /// A pickle and plain data.
        Pytorch = "pytorch",
    }
}

named! { "cache strategy",
    /// How the keys and values of earlier tokens are kept.
    KVCacheStrategy {
        /// What the architecture prefers.
        ModelDefault = "model_default",
        /// Room for the longest text, in padded batches that run to their end together.
        Naive = "naive",
        /// Room for the longest text in a slot of its own, for each text.
        Continuous = "continuous",
        /// Pages, taken as a text grows and shared by texts that begin alike.
        Paged = "paged",
    }
}

impl RopeType {
    /// The pairs, unless the architecture says.
    pub fn style(self) -> Option<RopeStyle> {
        match self {
            RopeType::None => None,
            RopeType::Normal => Some(RopeStyle::Interleaved),
            RopeType::Neox => Some(RopeStyle::HalfSplit),
        }
    }
}

impl WeightsFormat {
    /// The format that a file's name promises: `.gguf`, `.safetensors`, or `.bin`, `.pt`, `.pth`.
    pub fn of_file_name(name: impl AsRef<Path>) -> Option<WeightsFormat> {
        let suffix = name.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        WeightsFormat::ALL.iter().copied().find(|format| format.suffixes().contains(&suffix.as_str()))
    }

    /// The suffixes of its files.
    pub fn suffixes(self) -> &'static [&'static str] {
        match self {
            WeightsFormat::Gguf => &["gguf"],
            WeightsFormat::Safetensors => &["safetensors"],
            WeightsFormat::Pytorch => &["bin", "pt", "pth"],
        }
    }
}

impl From<weights::Format> for WeightsFormat {
    fn from(format: weights::Format) -> WeightsFormat {
        match format {
            weights::Format::Gguf => WeightsFormat::Gguf,
            weights::Format::Safetensors => WeightsFormat::Safetensors,
            weights::Format::PyTorch => WeightsFormat::Pytorch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SupportedEncoding;

    /// Names are those of the page, and survive printing, parsing and JSON.
    fn check<T>(all: &[T], names: &[&str])
    where
        T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr<Err = UnknownName>,
        T: serde::Serialize + for<'de> serde::Deserialize<'de>,
    {
        assert_eq!(all.iter().map(T::to_string).collect::<Vec<_>>(), names);
        for &value in all {
            assert_eq!(value.to_string().to_uppercase().parse::<T>(), Ok(value));
            let json = serde_json::to_string(&value).unwrap();
            assert_eq!(json, format!("\"{value}\""));
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), value);
        }
    }

    #[test]
    fn names_are_those_that_users_know() {
        check(PipelineEngine::ALL, &["max", "huggingface"]);
        check(RepoType::ALL, &["local", "online"]);
        check(RopeType::ALL, &["none", "normal", "neox"]);
        check(WeightsFormat::ALL, &["gguf", "safetensors", "pytorch"]);
        check(KVCacheStrategy::ALL, &["model_default", "naive", "continuous", "paged"]);
        let encodings = ["float32", "bfloat16", "q4_0", "q4_k", "q6_k"];
        let more = ["float16", "q4_1", "q5_0", "q5_1", "q5_k", "q8_0", "q2_k", "q3_k", "iq4_nl", "iq4_xs"];
        check(SupportedEncoding::ALL, &[&encodings[..], &more, &["gptq"]].concat());
    }

    #[test]
    fn unknown_names_are_told_what_there_is() {
        let error = "pagd".parse::<KVCacheStrategy>().unwrap_err();
        let text = "unknown cache strategy `pagd`: give model_default, naive, continuous, paged (did you mean paged?)";
        assert_eq!((error.to_string().as_str(), error.nearest()), (text, Some("paged")));
        let error = "zip".parse::<WeightsFormat>().unwrap_err();
        assert_eq!(error.to_string(), "unknown format of weights `zip`: give gguf, safetensors, pytorch");
        let error = serde_json::from_str::<RopeType>("\"neo\"").unwrap_err();
        assert!(error.to_string().contains("did you mean neox?"), "{error}");
    }

    #[test]
    fn suffixes_promise_formats() {
        for (name, format) in [
            ("model-00001-of-00002.safetensors", Some(WeightsFormat::Safetensors)),
            ("a/b.c/tiny.Q4_0.GGUF", Some(WeightsFormat::Gguf)),
            ("pytorch_model.bin", Some(WeightsFormat::Pytorch)),
            ("consolidated.00.pth", Some(WeightsFormat::Pytorch)),
            ("model.safetensors.index.json", None),
            ("gguf", None),
        ] {
            assert_eq!(WeightsFormat::of_file_name(name), format, "{name}");
        }
    }
}
