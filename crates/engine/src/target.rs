//! The kinds of machines that models are compiled for.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// A kind of machine that models are compiled for: an architecture, and how much of its instruction set is used. Its text
/// is that of artifacts, as in `x86_64 avx2` and `aarch64 neon`. [`Device::targets`](crate::Device::targets) lists those
/// that a device knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    architecture: String,
    instruction_set: String,
}

impl Target {
    /// The target of an architecture, as [`std::env::consts::ARCH`] names it, and an instruction set.
    pub fn new(architecture: &str, instruction_set: &str) -> Target {
        Target { architecture: architecture.to_string(), instruction_set: instruction_set.to_string() }
    }

    /// The architecture, such as `aarch64`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// The instruction set, such as `neon`; `portable` is what every machine of the architecture has.
    pub fn instruction_set(&self) -> &str {
        &self.instruction_set
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.architecture, self.instruction_set)
    }
}

impl FromStr for Target {
    type Err = Error;

    /// # Errors
    /// If the text is not two words. Whether there is such a target, devices know.
    fn from_str(text: &str) -> Result<Target, Error> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [architecture, instruction_set] => Ok(Target::new(architecture, instruction_set)),
            _ => {
                let expected = "an architecture and an instruction set, such as `aarch64 neon`";
                Err(Error::setting("target", text, expected))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_print_and_parse() {
        let target: Target = " aarch64  neon+dotprod ".parse().unwrap();
        assert_eq!(target, Target::new("aarch64", "neon+dotprod"));
        assert_eq!((target.architecture(), target.instruction_set()), ("aarch64", "neon+dotprod"));
        assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        for text in ["", "neon", "aarch64 neon dotprod"] {
            let expected = format!(
                "the target is `{text}`, expected an architecture and an instruction set, such as `aarch64 neon`"
            );
            assert_eq!(text.parse::<Target>().unwrap_err().to_string(), expected);
        }
    }
}
