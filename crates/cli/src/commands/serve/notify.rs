//! Notifications to systemd (`sd_notify`): the server is ready, ends, or still lives. Each is text in a datagram.

#[cfg(unix)]
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use serve::ServerHandle;

/// Where systemd listens.
#[cfg(unix)]
const SOCKET: &str = "NOTIFY_SOCKET";
/// How often it wants to hear that the process lives, and which process.
const WATCHDOG: &str = "WATCHDOG_USEC";
const WATCHDOG_PROCESS: &str = "WATCHDOG_PID";

/// Sends a state to systemd if it asked for notifications.
#[cfg(unix)]
pub(super) fn notify(state: &str) {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let send = || -> std::io::Result<()> {
        let socket = UnixDatagram::unbound()?;
        #[cfg(target_os = "linux")]
        if let Some(name) = path.strip_prefix('@') {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            return socket.send_to_addr(state.as_bytes(), &address).map(drop);
        }
        socket.send_to(state.as_bytes(), &path).map(drop)
    };
    if let Err(error) = send() {
        crate::exit::warn(&format!("cannot notify systemd at {path}: {error}"));
    }
}

/// This system has no systemd.
#[cfg(not(unix))]
pub(super) fn notify(_: &str) {}

/// Starts a thread that feeds systemd's watchdog while the server's threads answer.
///
/// # Errors
/// If the system refuses a thread.
pub(super) fn watch(server: ServerHandle) -> std::io::Result<()> {
    let Some(interval) = interval(|name| std::env::var(name).ok(), std::process::id()) else {
        return Ok(());
    };
    let body = move || {
        loop {
            if server.answers_within(interval) {
                notify("WATCHDOG=1");
            }
            std::thread::sleep(interval);
        }
    };
    std::thread::Builder::new().name("watchdog".to_string()).spawn(body).map(drop)
}

/// A third of the time after which systemd takes this process for dead.
fn interval(variable: impl Fn(&str) -> Option<String>, process: u32) -> Option<Duration> {
    let is_other = variable(WATCHDOG_PROCESS).is_some_and(|id| id.parse() != Ok(process));
    let micros: u64 = variable(WATCHDOG)?.parse().ok().filter(|micros| *micros > 0 && !is_other)?;
    Some(Duration::from_micros(micros) / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_interval_is_a_third_and_only_for_this_process() {
        let check = |micros: Option<&str>, process: Option<&str>, expected: Option<u64>| {
            let variable = |name: &str| match name {
                WATCHDOG => micros.map(str::to_string),
                WATCHDOG_PROCESS => process.map(str::to_string),
                _ => None,
            };
            assert_eq!(interval(variable, 7), expected.map(Duration::from_millis));
        };
        check(None, None, None);
        check(Some("30000000"), None, Some(10_000));
        check(Some("30000000"), Some("7"), Some(10_000));
        check(Some("30000000"), Some("8"), None);
        check(Some("0"), None, None);
        check(Some("soon"), None, None);
    }
}
