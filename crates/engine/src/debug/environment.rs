//! The environment variable `PERIHELION_DEBUG`, or else `MODULAR_DEBUG`, read once: what the configurations of process and
//! sessions fall back to.

use std::sync::OnceLock;

use super::DebugConfig;
use crate::settings::turns_on;
use crate::{AssertLevel, Error, LogLevel, PrintStyle, UninitializedReadMode};

/// The variables. The first that is set counts.
const VARIABLES: [&str; 2] = ["PERIHELION_DEBUG", "MODULAR_DEBUG"];

/// What the variable says.
#[derive(Debug, Default)]
struct Reading {
    variable: &'static str,
    config: DebugConfig,
    /// Names that are no option.
    unknown: Vec<String>,
    /// Names, values that these options cannot have, and what they can.
    wrong: Vec<(&'static str, String, String)>,
}

impl DebugConfig {
    /// The one that sessions fall back to.
    pub fn process() -> &'static DebugConfig {
        static PROCESS: OnceLock<DebugConfig> = OnceLock::new();
        PROCESS.get_or_init(|| DebugConfig { below: Some(&reading().config), ..DebugConfig::default() })
    }

    /// The one of a new session.
    ///
    /// # Errors
    /// If the environment gives an option a value that it cannot have.
    pub(crate) fn of_session() -> Result<DebugConfig, Error> {
        let Reading { variable, wrong, .. } = reading();
        match wrong.first() {
            None => Ok(DebugConfig { below: Some(DebugConfig::process()), ..DebugConfig::default() }),
            Some((name, value, expected)) => {
                Err(Error::setting(&format!("{variable} {name}"), value, expected))
            }
        }
    }
}

fn reading() -> &'static Reading {
    static READING: OnceLock<Reading> = OnceLock::new();
    READING.get_or_init(|| {
        let set = VARIABLES.into_iter().find_map(|variable| Some((variable, std::env::var(variable).ok()?)));
        let (variable, text) = set.unwrap_or_default();
        let reading = Reading { variable, ..read(&text) };
        for name in &reading.unknown {
            eprintln!("warning: {variable} names `{name}`, which is no debug option");
        }
        reading
    })
}

fn read(text: &str) -> Reading {
    let mut reading = Reading::default();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        match entry.split_once('=') {
            Some((name, value)) => reading.entry(name.trim_end(), Some(value.trim_start())),
            None => reading.entry(entry, None),
        }
    }
    reading
}

impl Reading {
    fn entry(&mut self, name: &str, value: Option<&str>) {
        let on = value.is_none_or(turns_on);
        let config = &self.config;
        match name {
            "sensible" if on => config.sensible_mode(),
            "sensible" => (),
            "nan-check" => config.set_nan_check(on),
            "uninitialized-read-check" => config.set_uninitialized_read_check(on),
            "device-sync-mode" => config.set_device_sync_mode(on),
            "stack-trace-on-error" => config.set_stack_trace_on_error(on),
            "stack-trace-on-crash" => config.set_stack_trace_on_crash(on),
            "source-tracebacks" => config.set_source_tracebacks(on),
            "pre-jit" => config.set_pre_jit(on),
            "uninitialized-read-mode" => {
                let modes = UninitializedReadMode::MEMBERS;
                if let Some(mode) = self.choice("uninitialized-read-mode", value, modes) {
                    self.config.set_uninitialized_read_mode(mode);
                }
            }
            "op-log-level" => {
                if let Some(level) = self.choice("op-log-level", value, LogLevel::MEMBERS) {
                    self.config.set_op_log_level(level);
                }
            }
            "assert-level" => {
                if let Some(level) = self.choice("assert-level", value, AssertLevel::MEMBERS) {
                    self.config.set_assert_level(level);
                }
            }
            "print-style" => {
                if let Some(style) = self.choice("print-style", value, PrintStyle::MEMBERS) {
                    self.config.set_print_style(style);
                }
            }
            "ir-output-dir" => match value.filter(|path| !path.is_empty()) {
                Some(path) => config.set_ir_output_dir(path),
                None => self.wrong.push(("ir-output-dir", String::new(), "a directory".to_string())),
            },
            unknown => self.unknown.push(unknown.to_string()),
        }
    }

    /// The member with this name in any case.
    fn choice<T: std::fmt::Display + Copy>(
        &mut self,
        name: &'static str,
        value: Option<&str>,
        members: &[T],
    ) -> Option<T> {
        let value = value.unwrap_or_default();
        let found = members.iter().find(|member| member.to_string().eq_ignore_ascii_case(value));
        if found.is_none() {
            let names: Vec<String> = members.iter().map(|member| member.to_string().to_lowercase()).collect();
            self.wrong.push((name, value.to_string(), format!("one of {}", names.join(", "))));
        }
        found.copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_and_blanks() {
        let Reading { config, unknown, wrong, .. } = read(
            " nan-check , assert-level = warn,, pre-jit=off, op-log-level=INFO, ir-output-dir=some/where, nap-check, \
             uninitialized-read-mode=report,print-style=binary_max_checkpoint",
        );
        assert!(config.nan_check() && !config.pre_jit());
        assert_eq!(config.assert_level(), Some(AssertLevel::Warn));
        assert_eq!(config.op_log_level(), Some(LogLevel::Info));
        assert_eq!(config.ir_output_dir().unwrap().to_str(), Some("some/where"));
        assert_eq!(config.uninitialized_read_mode(), Some(UninitializedReadMode::Report));
        assert_eq!(config.print_style(), Some(PrintStyle::BinaryMaxCheckpoint));
        assert_eq!(unknown, ["nap-check"]);
        assert!(wrong.is_empty());
    }

    #[test]
    fn single_names_win_over_sensible() {
        let config = read("sensible,nan-check=no").config;
        assert!(!config.nan_check() && config.device_sync_mode());
        assert_eq!(config.assert_level(), Some(AssertLevel::All));
        assert!(!read("sensible=0").config.device_sync_mode());
    }

    #[test]
    fn wrong_values_are_kept_for_the_session() {
        let wrong = read("assert-level=some,ir-output-dir").wrong;
        let expected = "one of none, warn, safe, all".to_string();
        assert_eq!(wrong[0], ("assert-level", "some".to_string(), expected));
        assert_eq!(wrong[1].0, "ir-output-dir");
    }
}
