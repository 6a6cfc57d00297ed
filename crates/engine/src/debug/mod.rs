//! Debugging of a session: what is checked, logged and written while its models compile and run.

pub(crate) mod crash;
pub(crate) mod dump;
mod environment;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{AssertLevel, LogLevel, PrintStyle, UninitializedReadMode};

/// What to check, log and write, each unset until someone sets it.
///
/// Every session has one ([`crate::InferenceSession::debug`]); what it leaves unset is taken from the one of the
/// process ([`DebugConfig::process`]), and then from the environment variable `PERIHELION_DEBUG` (`MODULAR_DEBUG` if that
/// is unset): names in kebab case with commas between them, as in `nan-check, assert-level=all`. A name alone turns on,
/// `sensible` stands for [`DebugConfig::sensible_mode`], and unknown names are told on standard error. Before the variable,
/// the section `[max-debug]` of `modular.cfg` counts, whose lines are such names with values. The file is in the folder that
/// `MODULAR_HOME` names, else in `.modular` in the home folder (or in `TEST_TMPDIR`).
///
/// Checks take effect for what is compiled afterwards; `device_sync_mode`, the stack traces and the print style at once.
#[derive(Debug, Default)]
pub struct DebugConfig {
    /// For each [`Flag`] the bit of its value, and 16 bits above it whether it is set.
    flags: AtomicU32,
    values: Mutex<Values>,
    /// Where unset options are looked up.
    below: Option<&'static DebugConfig>,
}

/// What takes more than a bit.
#[derive(Debug, Default)]
struct Values {
    uninitialized_read_mode: Option<UninitializedReadMode>,
    op_log_level: Option<LogLevel>,
    assert_level: Option<AssertLevel>,
    ir_output_dir: Option<PathBuf>,
    print_style: Option<PrintStyle>,
    /// The texts that options were set to, by the name of the option.
    texts: BTreeMap<&'static str, String>,
}

macro_rules! flags {
    ($($(#[$docs:meta])* $Flag:ident, $get:ident, $set:ident;)*) => {
        #[derive(Debug, Clone, Copy)]
        enum Flag { $($Flag,)* }

        impl DebugConfig {
            $(
                $(#[$docs])*
                pub fn $get(&self) -> bool {
                    self.flag(Flag::$Flag)
                }

                #[doc = concat!("Sets [`DebugConfig::", stringify!($get), "`].")]
                pub fn $set(&self, on: bool) {
                    self.set_flag(Flag::$Flag, on);
                }
            )*
        }
    };
}

macro_rules! values {
    ($($(#[$docs:meta])* $get:ident, $set:ident, $unset:ident: $Value:ty;)*) => {
        impl DebugConfig {
            $(
                $(#[$docs])*
                pub fn $get(&self) -> Option<$Value> {
                    self.layers().find_map(|layer| layer.values().$get.clone())
                }

                #[doc = concat!("Sets [`DebugConfig::", stringify!($get), "`].")]
                pub fn $set(&self, value: impl Into<$Value>) {
                    let mut values = self.values();
                    values.texts.remove(stringify!($get));
                    values.$get = Some(value.into());
                }

                #[doc = concat!("Unsets [`DebugConfig::", stringify!($get), "`] here.")]
                pub fn $unset(&self) {
                    let mut values = self.values();
                    values.texts.remove(stringify!($get));
                    values.$get = None;
                }
            )*
        }
    };
}

flags! {
    /// Whether the step that makes the first NaN, or an infinity of operands that have none, fails its call.
    NanCheck, nan_check, set_nan_check;
    /// Whether memory is filled with a pattern before it is written, and reads of that pattern are found.
    UninitializedReadCheck, uninitialized_read_check, set_uninitialized_read_check;
    /// Whether each step waits for its device, so that failures show where they arise.
    DeviceSyncMode, device_sync_mode, set_device_sync_mode;
    /// Whether errors of calls carry the stack of the caller.
    StackTraceOnError, stack_trace_on_error, set_stack_trace_on_error;
    /// Whether a panic during a call prints the stack of its thread to standard error.
    StackTraceOnCrash, stack_trace_on_crash, set_stack_trace_on_crash;
    /// Whether messages about steps, and about nodes that cannot be compiled, name the place in the source where their
    /// op was built.
    SourceTracebacks, source_tracebacks, set_source_tracebacks;
    /// Whether compiling stops with [`crate::Error::CompilationStopped`] once all passes ran.
    PreJit, pre_jit, set_pre_jit;
}

values! {
    /// What an uninitialized read does. Unset: the call fails.
    uninitialized_read_mode, set_uninitialized_read_mode, unset_uninitialized_read_mode: UninitializedReadMode;
    /// The level at which each op that runs is logged. Unset: it is not.
    op_log_level, set_op_log_level, unset_op_log_level: LogLevel;
    /// Which checks stay in compiled models. Unset: [`AssertLevel::Safe`].
    assert_level, set_assert_level, unset_assert_level: AssertLevel;
    /// The directory where compiling writes the graph after each pass, and the plan.
    ir_output_dir, set_ir_output_dir, unset_ir_output_dir: PathBuf;
    /// How the values of [`graph::ops::Print`] are shown. Unset: [`PrintStyle::Compact`].
    print_style, set_print_style, unset_print_style: PrintStyle;
}

impl DebugConfig {
    /// Turns on what helps most to find a mistake: `nan_check`, `assert_level` ALL, `device_sync_mode`, both stack
    /// traces and `source_tracebacks`. What is set later wins.
    pub fn sensible_mode(&self) {
        self.set_nan_check(true);
        self.set_assert_level(AssertLevel::All);
        self.set_device_sync_mode(true);
        self.set_stack_trace_on_error(true);
        self.set_stack_trace_on_crash(true);
        self.set_source_tracebacks(true);
    }

    /// Returns the text that an option was set to. Another spelling may mean the same value.
    pub fn text(&self, option: &str) -> Option<String> {
        self.layers().find_map(|layer| layer.values().texts.get(option).cloned())
    }

    /// Sets [`DebugConfig::text`], after the option itself, which forgets it.
    pub fn set_text(&self, option: &'static str, text: &str) {
        self.values().texts.insert(option, text.to_string());
    }

    /// Unsets everything that was set here.
    pub fn reset(&self) {
        self.flags.store(0, Ordering::Relaxed);
        *self.values() = Values::default();
    }

    /// This configuration and those it falls back to.
    fn layers(&self) -> impl Iterator<Item = &DebugConfig> {
        std::iter::successors(Some(self), |layer| layer.below)
    }

    fn flag(&self, flag: Flag) -> bool {
        let bits = self.layers().map(|layer| layer.flags.load(Ordering::Relaxed) >> flag as u32);
        bits.into_iter().find(|bits| bits >> 16 & 1 == 1).is_some_and(|bits| bits & 1 == 1)
    }

    fn set_flag(&self, flag: Flag, on: bool) {
        let (value, known) = (1 << flag as u32, 1 << (16 + flag as u32));
        let change = |bits| Some(if on { bits | known | value } else { (bits | known) & !value });
        // Never fails, as the change is always some.
        let _ = self.flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }

    fn values(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_layers() -> (&'static DebugConfig, DebugConfig) {
        let below: &DebugConfig = Box::leak(Box::default());
        (below, DebugConfig { below: Some(below), ..DebugConfig::default() })
    }

    #[test]
    fn the_session_wins_over_the_process() {
        let (process, session) = two_layers();
        assert!(!session.nan_check() && session.assert_level().is_none());
        process.set_nan_check(true);
        process.set_assert_level(AssertLevel::Warn);
        assert!(session.nan_check());
        assert_eq!(session.assert_level(), Some(AssertLevel::Warn));
        session.set_nan_check(false);
        session.set_assert_level(AssertLevel::None);
        assert!(!session.nan_check() && process.nan_check());
        assert_eq!(session.assert_level(), Some(AssertLevel::None));
        session.reset();
        assert!(session.nan_check());
        assert_eq!(session.assert_level(), Some(AssertLevel::Warn));
    }
}
