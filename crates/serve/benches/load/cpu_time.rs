//! How long threads ran on a core.

use std::path::Path;
use std::time::Duration;

/// The name of the server's threads.
const NAME: &str = "serve\n";

/// How long the server's threads ran; nothing where the system does not say.
pub(crate) fn of_server() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads.filter_map(|thread| of_thread(&thread.path())).sum()
}

/// How long a thread of the server ran.
fn of_thread(folder: &Path) -> Option<Duration> {
    if std::fs::read_to_string(folder.join("comm")).ok()? != NAME {
        return None;
    }
    let times = std::fs::read_to_string(folder.join("schedstat")).ok()?;
    Some(Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?))
}
