//! What is logged, shown on standard error by programs that have no subscriber of their own.

use std::sync::Once;

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;

use crate::{Error, LogLevel};

/// The variable that says what is shown.
pub(crate) const VARIABLE: &str = "PERIHELION_LOG";
/// Where models log.
const KERNELS: &str = "perihelion::kernel";

/// Installs a [`tracing`] subscriber that writes to standard error. One that the program has installed before stays, and
/// the doors call this for each session, so a program that wants its own installs it before its first session.
///
/// It shows warnings, and whatever the log levels ask for ([`crate::InferenceSession::set_mojo_log_level`],
/// [`crate::DebugConfig::set_op_log_level`]). The environment variable `PERIHELION_LOG` changes that: a level (`error`,
/// `warn`, `info`, `debug`, `trace`), or targets with levels, as in `warn,perihelion::kernel=debug`; `off` shows nothing
/// and installs nothing. Sessions start with the level that it gives `perihelion::kernel`.
///
/// # Errors
/// If the variable holds something else.
pub fn show_logs() -> Result<(), Error> {
    static INSTALL: Once = Once::new();
    if let Some(targets) = targets(std::env::var(VARIABLE).ok().as_deref())? {
        INSTALL.call_once(|| {
            let lines = fmt::layer().without_time().with_writer(std::io::stderr);
            let subscriber = tracing_subscriber::registry().with(lines).with(targets);
            // Fails where the program has one.
            let _ = tracing::subscriber::set_global_default(subscriber);
        });
    }
    Ok(())
}

/// The level that sessions start with.
///
/// # Errors
/// As [`show_logs`].
pub(crate) fn starting_level(text: Option<&str>) -> Result<LogLevel, Error> {
    let targets = targets(text)?.filter(|_| text.is_some_and(|text| !text.trim().is_empty()));
    let levels =
        [(Level::TRACE, LogLevel::Trace), (Level::DEBUG, LogLevel::Debug), (Level::INFO, LogLevel::Info)];
    let shown = |level: &Level| targets.as_ref().is_some_and(|targets| targets.would_enable(KERNELS, level));
    Ok(levels.into_iter().find(|(level, _)| shown(level)).map_or(LogLevel::NotSet, |(_, level)| level))
}

/// What is shown where the variable says this; `None` for nothing at all.
fn targets(text: Option<&str>) -> Result<Option<Targets>, Error> {
    match text.map(str::trim).filter(|text| !text.is_empty()) {
        // Models log what they were told to; all of our crates and targets begin with this name.
        None => Ok(Some(
            Targets::new()
                .with_target("perihelion", LevelFilter::WARN)
                .with_targets([(KERNELS, LevelFilter::TRACE), ("perihelion::op", LevelFilter::TRACE)]),
        )),
        Some(text) if text.eq_ignore_ascii_case("off") => Ok(None),
        Some(text) => match text.parse() {
            Ok(targets) => Ok(Some(targets)),
            Err(_) => {
                let expected = "a level (off, error, warn, info, debug, trace), or targets with levels, as in \
                                warn,perihelion::kernel=debug";
                Err(Error::setting(VARIABLE, text, expected))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_says_what_is_shown_and_where_sessions_start() {
        let check = |text: Option<&str>, shown: [bool; 4], level: LogLevel| {
            let targets = targets(text).unwrap().unwrap_or_default();
            let of = [
                (KERNELS, Level::DEBUG),
                ("perihelion::check", Level::WARN),
                ("perihelion_engine::cache", Level::INFO),
                ("another_crate", Level::WARN),
            ];
            assert_eq!(of.map(|(target, level)| targets.would_enable(target, &level)), shown, "{text:?}");
            assert_eq!(starting_level(text).unwrap(), level, "{text:?}");
        };
        check(None, [true, true, false, false], LogLevel::NotSet);
        check(Some(" "), [true, true, false, false], LogLevel::NotSet);
        check(Some("off"), [false; 4], LogLevel::NotSet);
        check(Some("warn"), [false, true, false, true], LogLevel::NotSet);
        check(Some("info"), [false, true, true, true], LogLevel::Info);
        check(Some("warn,perihelion::kernel=debug"), [true, true, false, true], LogLevel::Debug);
        check(Some("trace"), [true; 4], LogLevel::Trace);
        let error = starting_level(Some("perihelion=loud")).unwrap_err().to_string();
        assert!(
            error.starts_with("the PERIHELION_LOG is `perihelion=loud`, expected a level (off, "),
            "{error}"
        );
    }
}
