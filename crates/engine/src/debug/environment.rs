//! The environment variable `PERIHELION_DEBUG`, or else `MODULAR_DEBUG`, and a file before it, read once: what the
//! configurations of process and sessions fall back to.

use std::path::PathBuf;
use std::sync::OnceLock;

use super::DebugConfig;
use crate::settings::turns_on;
use crate::{AssertLevel, Error, LogLevel, PrintStyle, UninitializedReadMode};

/// The variables. The first that is set counts.
const VARIABLES: [&str; 2] = ["PERIHELION_DEBUG", "MODULAR_DEBUG"];

/// The file that is read before.
const FILE: &str = "modular.cfg";

/// The options that the environment variable and the file set.
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
        let (variable, text) = set.unwrap_or((FILE, String::new()));
        let file = file(&|name| std::env::var_os(name).map(PathBuf::from));
        let lines = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        // The variable comes last, and wins.
        let reading = Reading { variable, ..read(&format!("{},{text}", section(&lines))) };
        for name in &reading.unknown {
            eprintln!("warning: {variable} names `{name}`, which is no debug option");
        }
        reading
    })
}

/// The file whose section of debug options is read.
fn file(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let home = || Some(variable("TEST_TMPDIR").or_else(|| variable("HOME"))?.join(".modular"));
    Some(variable("MODULAR_HOME").or_else(home)?.join(FILE))
}

/// The lines of the section `[max-debug]`, with commas between them.
fn section(file: &str) -> String {
    let lines = file.lines().map(str::trim).skip_while(|line| *line != "[max-debug]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let options = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    options.collect::<Vec<_>>().join(",")
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
                    self.config.set_text("uninitialized_read_mode", value.unwrap_or_default());
                }
            }
            "op-log-level" => {
                if let Some(level) = self.choice("op-log-level", value, LogLevel::MEMBERS) {
                    self.config.set_op_log_level(level);
                    self.config.set_text("op_log_level", value.unwrap_or_default());
                }
            }
            "assert-level" => {
                if let Some(level) = self.choice("assert-level", value, AssertLevel::MEMBERS) {
                    self.config.set_assert_level(level);
                    self.config.set_text("assert_level", value.unwrap_or_default());
                }
            }
            "print-style" => {
                if let Some(style) = self.choice("print-style", value, PrintStyle::MEMBERS) {
                    self.config.set_print_style(style);
                    self.config.set_text("print_style", value.unwrap_or_default());
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
        assert_eq!(config.text("op_log_level").as_deref(), Some("INFO"));
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
    fn a_section_of_a_file_has_options() {
        let text = "[other]\nnan-check = true\n[max-debug]\n# checks\ndevice-sync-mode = true\n\nassert-level = safe\n[more]\n";
        assert_eq!(section(text), "device-sync-mode = true,assert-level = safe");
        let config = read(&format!("{},assert-level=all", section(text))).config;
        assert!(config.device_sync_mode() && !config.nan_check());
        assert_eq!(config.assert_level(), Some(AssertLevel::All));
        let at = |given: &'static [(&str, &str)]| {
            let path =
                file(&|name| given.iter().find(|(other, _)| *other == name).map(|(_, value)| value.into()));
            path.map(|path| path.to_string_lossy().into_owned())
        };
        assert_eq!(at(&[("HOME", "h"), ("MODULAR_HOME", "m")]).as_deref(), Some("m/modular.cfg"));
        assert_eq!(at(&[("HOME", "h"), ("TEST_TMPDIR", "t")]).as_deref(), Some("t/.modular/modular.cfg"));
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn options_can_be_unset() {
        let config = read("assert-level=All").config;
        assert_eq!(config.text("assert_level").as_deref(), Some("All"));
        config.unset_assert_level();
        assert_eq!((config.assert_level(), config.text("assert_level")), (None, None));
    }

    #[test]
    fn wrong_values_are_kept_for_the_session() {
        let wrong = read("assert-level=some,ir-output-dir").wrong;
        let expected = "one of none, warn, safe, all".to_string();
        assert_eq!(wrong[0], ("assert-level", "some".to_string(), expected));
        assert_eq!(wrong[1].0, "ir-output-dir");
    }
}
