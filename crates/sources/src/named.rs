//! Choices that have a few values, each with a name: in files, in flags, and in what is printed.

use std::path::Path;

use crate::nearest;

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
#[doc(hidden)]
#[macro_export]
macro_rules! named {
    ($what:literal, $(#[$doc:meta])* $enum:ident {
        $($(#[$value_doc:meta])* $value:ident = $name:literal $(| $alias:literal)*,)*
    }) => {
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

            /// Other names that are read.
            pub const fn aliases(self) -> &'static [&'static str] {
                match self { $($enum::$value => &[$($alias),*],)* }
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $enum {
            type Err = $crate::UnknownName;

            fn from_str(given: &str) -> Result<$enum, Self::Err> {
                let found = $enum::ALL.iter().find(|value| {
                    let mut names = value.aliases().iter().copied().chain([value.name()]);
                    names.any(|name| name.eq_ignore_ascii_case(given))
                });
                found.copied().ok_or_else(|| $crate::UnknownName {
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

named! { "kind of repository",
    /// Where a repository of model files is.
    RepoType {
        /// On this machine.
        Local = "local",
        /// On a hub.
        Online = "online",
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

/// The suffixes of weights files, for messages.
pub(crate) const WEIGHTS_SUFFIXES: &str = ".gguf, .safetensors, .bin, .pt or .pth";

impl WeightsFormat {
    /// The format that a file's name promises: `.gguf`, `.safetensors`, or `.bin`, `.pt`, `.pth`.
    pub fn from_file_name(name: impl AsRef<Path>) -> Option<WeightsFormat> {
        weights::Format::from_name(name).map(WeightsFormat::from)
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

impl From<WeightsFormat> for weights::Format {
    fn from(format: WeightsFormat) -> weights::Format {
        match format {
            WeightsFormat::Gguf => weights::Format::Gguf,
            WeightsFormat::Safetensors => weights::Format::Safetensors,
            WeightsFormat::Pytorch => weights::Format::PyTorch,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(WeightsFormat::from_file_name(name), format, "{name}");
        }
    }
}
