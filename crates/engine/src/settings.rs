//! The settings of a session: how kernels are chosen and checked, and how values print.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Declares a setting that is one of a few names, in the order of the documentation.
macro_rules! choices {
    (
        $(#[$docs:meta])* $Choice:ident: $Value:ty, $kind:literal {
            $($(#[$member_docs:meta])* $Member:ident = $name:literal, $value:expr;)*
        }
    ) => {
        $(#[$docs])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub enum $Choice { $($(#[$member_docs])* $Member,)* }

        impl $Choice {
            /// Every member, in order.
            pub const MEMBERS: &[$Choice] = &[$($Choice::$Member,)*];

            /// The name, which [`FromStr`] reads.
            pub fn name(self) -> &'static str {
                match self { $($Choice::$Member => $name,)* }
            }

            /// The value that stands for it outside of Rust.
            pub fn value(self) -> $Value {
                match self { $($Choice::$Member => $value,)* }
            }
        }

        impl fmt::Display for $Choice {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $Choice {
            type Err = Error;

            /// The member with exactly this name.
            fn from_str(name: &str) -> Result<$Choice, Error> {
                let found = $Choice::MEMBERS.iter().find(|member| member.name() == name);
                found.copied().ok_or_else(|| {
                    let names: Vec<&str> = $Choice::MEMBERS.iter().map(|member| member.name()).collect();
                    Error::setting($kind, name, &format!("one of {}", names.join(", ")))
                })
            }
        }

        impl TryFrom<&str> for $Choice {
            type Error = Error;

            fn try_from(name: &str) -> Result<$Choice, Error> {
                name.parse()
            }
        }
    };
}

choices! {
    /// How the values of [`graph::ops::Print`] are shown.
    PrintStyle: u8, "print style" {
        /// Four decimals, the first and last three elements of each axis; to standard output.
        #[default]
        Compact = "COMPACT", 0;
        /// All elements in scientific notation, with as many digits as asked for; to standard output.
        Full = "FULL", 1;
        /// The bytes alone, in a file named after the label.
        Binary = "BINARY", 2;
        /// Not at all.
        None = "NONE", 3;
        /// A checkpoint with dtype and shape, in a file named after the label, with the extension `max`.
        BinaryMaxCheckpoint = "BINARY_MAX_CHECKPOINT", 4;
    }
}

choices! {
    /// Which checks stay in compiled models. Whatever the level, no index reaches memory out of range.
    AssertLevel: &'static str, "assert level" {
        /// None: an index out of range means the nearest one in it, and so does the start of a slice.
        None = "NONE", "none";
        /// As [`AssertLevel::None`], and a warning is logged.
        Warn = "WARN", "warn";
        /// A call with an index out of range fails.
        #[default]
        Safe = "SAFE", "safe";
        /// As [`AssertLevel::Safe`], and a call fails with NaN or infinity in an output, or where an op of a library writes
        /// to what it only reads, or near its operands and results.
        All = "ALL", "all";
    }
}

choices! {
    /// The least severe events that compiled models log, through [`tracing`].
    LogLevel: &'static str, "log level" {
        /// No events at all.
        #[default]
        NotSet = "NOTSET", "notset";
        /// Each step, with shapes and time.
        Trace = "TRACE", "trace";
        /// Each call.
        Debug = "DEBUG", "debug";
        /// New sizes, for which memory is planned.
        Info = "INFO", "info";
        /// What works, but not as intended.
        Warning = "WARNING", "warning";
        /// Failed calls.
        Error = "ERROR", "error";
        /// What leaves the model unusable.
        Critical = "CRITICAL", "critical";
    }
}

choices! {
    /// In which precision the partial sums of long matrix products are added up.
    SplitKReductionPrecision: u8, "split-k reduction precision" {
        /// In that of the accumulator, f32.
        #[default]
        Accum = "ACCUM", 1;
        /// In that of the result: each partial sum is rounded to bf16 or f16, where the result is such.
        Output = "OUTPUT", 2;
    }
}

choices! {
    /// Where a model computes the same bits.
    Reproducible: &'static str, "reproducibility" {
        /// On machines of every kind.
        #[default]
        Any = "any", "any";
        /// On this machine. Processors that multiply pairs of bf16 do so for bf16 weights: they round the other operand to
        /// bf16, and sums in a way that differs between kinds of processors.
        Machine = "machine", "machine";
    }
}

choices! {
    /// How much of each call is measured.
    Profiling: &'static str, "profiling mode" {
        /// Nothing.
        #[default]
        Off = "off", "off";
        /// The steps.
        On = "on", "on";
        /// The steps, with the shapes they saw, and the phases of the call around them.
        Detailed = "detailed", "detailed";
    }
}

choices! {
    /// What happens when a step reads memory that no step wrote.
    UninitializedReadMode: &'static str, "uninitialized read mode" {
        /// The call fails.
        #[default]
        Abort = "abort", "abort";
        /// A warning is logged.
        Report = "report", "report";
    }
}

/// Which kernel picks the largest elements. All give the same results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TopKKernel {
    /// Selection in one pass, whose bar rises as it goes.
    #[default]
    Select,
    /// Selection among the elements that reach a bound, which the maxima of spans give.
    Bounded,
    /// A full sort.
    Sort,
}

/// How a session wants a device to choose its kernels: all that a device sees of [`KernelSettings`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceSettings {
    /// Whether products with quantized weights take activations as they are, rather than rounded to int8 in blocks.
    pub exact_activations: bool,
    /// Where the same bits are computed.
    pub reproducible: Reproducible,
    /// The kernel for `top_k`.
    pub top_k: TopKKernel,
}

/// The settings that shape a plan, besides its graph: part of a compiled model and of its key. Prints those that differ
/// from the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelSettings {
    /// Whether operands of matrix products are quantized to `f8e4m3`, with one scale per tensor.
    pub per_tensor_fp8_quantize: bool,
    /// Whether products with quantized weights take activations as they are, rather than rounded to int8 in blocks.
    pub exact_activations: bool,
    /// Where the same bits are computed.
    pub reproducible: Reproducible,
    /// What is measured.
    pub profiling: Profiling,
    /// Which checks stay.
    pub assert_level: AssertLevel,
    /// What kernels log.
    pub log_level: LogLevel,
    /// At which level each op that runs is logged.
    pub op_log_level: LogLevel,
    /// How partial sums of matrix products are kept.
    pub split_k_reduction_precision: SplitKReductionPrecision,
    /// Whether `top_k` runs on [`TopKKernel::Bounded`].
    pub fi_top_k: bool,
    /// Whether `top_k` runs on [`TopKKernel::Sort`], whatever `fi_top_k` says.
    pub old_top_k: bool,
    /// Whether a step that makes the first NaN fails the call.
    pub nan_check: bool,
    /// Whether reads of uninitialized memory are detected, and what happens then.
    pub uninitialized_read_check: Option<UninitializedReadMode>,
    /// Whether messages about steps, and about nodes that cannot be compiled, name the place in the source where their
    /// op was built.
    pub source_tracebacks: bool,
}

impl LogLevel {
    /// Whether events of a level are logged.
    pub(crate) fn shows(self, level: LogLevel) -> bool {
        self != LogLevel::NotSet && level >= self
    }
}

impl KernelSettings {
    /// The settings that concern a device.
    pub fn for_device(&self) -> DeviceSettings {
        let top_k = match (self.old_top_k, self.fi_top_k) {
            (true, _) => TopKKernel::Sort,
            (false, true) => TopKKernel::Bounded,
            (false, false) => TopKKernel::Select,
        };
        let KernelSettings { exact_activations, reproducible, .. } = *self;
        DeviceSettings { exact_activations, reproducible, top_k }
    }

    /// What these compute, with what others measure, log and look for: a model that was compiled elsewhere is watched as
    /// the session that loads it says.
    pub(crate) fn watched_as(&self, other: &KernelSettings) -> KernelSettings {
        KernelSettings {
            profiling: other.profiling,
            log_level: other.log_level,
            op_log_level: other.op_log_level,
            nan_check: other.nan_check,
            uninitialized_read_check: other.uninitialized_read_check,
            source_tracebacks: other.source_tracebacks,
            ..*self
        }
    }
}

impl fmt::Display for KernelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = KernelSettings::default();
        let mut changed: Vec<String> = Vec::new();
        let mut show = |name: &str, value: &dyn fmt::Display, is_usual: bool| {
            if !is_usual {
                changed.push(format!("{name} = {value}"));
            }
        };
        let fp8 = self.per_tensor_fp8_quantize;
        show("per_tensor_fp8_quantize", &fp8, !fp8);
        show("exact_activations", &self.exact_activations, !self.exact_activations);
        show("reproducible", &self.reproducible, self.reproducible == usual.reproducible);
        show("profiling", &self.profiling, self.profiling == usual.profiling);
        show("assert_level", &self.assert_level, self.assert_level == usual.assert_level);
        show("log_level", &self.log_level, self.log_level == usual.log_level);
        show("op_log_level", &self.op_log_level, self.op_log_level == usual.op_log_level);
        let precision = self.split_k_reduction_precision;
        show("split_k_reduction_precision", &precision, precision == usual.split_k_reduction_precision);
        show("fi_top_k", &self.fi_top_k, !self.fi_top_k);
        show("old_top_k", &self.old_top_k, !self.old_top_k);
        show("nan_check", &self.nan_check, !self.nan_check);
        if let Some(mode) = self.uninitialized_read_check {
            show("uninitialized_read_check", &mode, false);
        }
        show("source_tracebacks", &self.source_tracebacks, !self.source_tracebacks);
        f.write_str(&changed.join(", "))
    }
}

/// How the values of [`graph::ops::Print`] are shown, for all models of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintOptions {
    /// In which form.
    pub style: PrintStyle,
    /// Digits behind the point, for [`PrintStyle::Full`].
    pub precision: usize,
    /// Where the files of the two binary styles go. Made when the first is written.
    pub output_directory: Option<PathBuf>,
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions { style: PrintStyle::default(), precision: 6, output_directory: None }
    }
}

impl PrintOptions {
    /// Refuses a binary style without a directory.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let binary = matches!(self.style, PrintStyle::Binary | PrintStyle::BinaryMaxCheckpoint);
        match &self.output_directory {
            None if binary => Err(Error::setting(
                "output directory",
                "",
                &format!("a directory, as the print style is {}", self.style),
            )),
            Some(directory) if binary && directory.as_os_str().is_empty() => {
                PrintOptions { output_directory: None, ..self.clone() }.check()
            }
            _ => Ok(()),
        }
    }
}

/// Whether a word turns a setting on: all do but `false`, `off`, `no` and `0`, in any case.
pub(crate) fn turns_on(word: &str) -> bool {
    !["false", "off", "no", "0"].iter().any(|off| word.eq_ignore_ascii_case(off))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values() {
        let values: Vec<u8> = PrintStyle::MEMBERS.iter().map(|style| style.value()).collect();
        assert_eq!(values, [0, 1, 2, 3, 4]);
        assert_eq!("BINARY_MAX_CHECKPOINT".parse::<PrintStyle>().unwrap(), PrintStyle::BinaryMaxCheckpoint);
        assert_eq!(SplitKReductionPrecision::Output.value(), 2);
        assert_eq!((AssertLevel::All.value(), AssertLevel::All.to_string()), ("all", "ALL".to_string()));
        let levels: Vec<&str> = LogLevel::MEMBERS.iter().map(|level| level.value()).collect();
        assert_eq!(levels, ["notset", "trace", "debug", "info", "warning", "error", "critical"]);
    }

    #[test]
    fn wrong_names_are_errors_that_list_the_members() {
        let check = |error: Error, expected: &str| assert_eq!(error.to_string(), expected);
        check(
            "info".parse::<LogLevel>().unwrap_err(),
            "the log level is `info`, expected one of NOTSET, TRACE, DEBUG, INFO, WARNING, ERROR, CRITICAL",
        );
        check(
            "full".parse::<PrintStyle>().unwrap_err(),
            "the print style is `full`, expected one of COMPACT, FULL, BINARY, NONE, BINARY_MAX_CHECKPOINT",
        );
        check(
            "F32".parse::<SplitKReductionPrecision>().unwrap_err(),
            "the split-k reduction precision is `F32`, expected one of ACCUM, OUTPUT",
        );
    }

    #[test]
    fn only_four_words_turn_off() {
        assert!(["false", "OFF", "No", "0"].iter().all(|word| !turns_on(word)));
        assert!(["true", "on", "1", "", "nope"].iter().all(|word| turns_on(word)));
    }

    #[test]
    fn changed_settings_print_and_survive_serialization() {
        assert_eq!(KernelSettings::default().to_string(), "");
        let settings = KernelSettings {
            fi_top_k: true,
            assert_level: AssertLevel::Warn,
            uninitialized_read_check: Some(UninitializedReadMode::Report),
            ..KernelSettings::default()
        };
        let printed = "assert_level = WARN, fi_top_k = true, uninitialized_read_check = report";
        assert_eq!(settings.to_string(), printed);
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<KernelSettings>(&text).unwrap(), settings);
        assert_eq!(KernelSettings::default().for_device().top_k, TopKKernel::Select);
        assert_eq!(settings.for_device().top_k, TopKKernel::Bounded);
        assert_eq!(KernelSettings { old_top_k: true, ..settings }.for_device().top_k, TopKKernel::Sort);
    }
}
