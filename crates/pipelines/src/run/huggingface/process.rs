//! The process in which Transformers runs a model: how it starts, how it is asked, and how it ends.
//!
//! Commands and answers are lines of JSON on a socket, the child's standard input. Numbers come through memory without a
//! name, the child's standard output: the child maps it, and here it is read as a file, so a defect of the child makes wrong
//! numbers at worst. The child dies with this process: the system kills it (Linux), and it ends when the socket closes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Error;

/// What the child runs: it imports nothing from the current folder, takes its source as the first line, and goes on there.
const BOOTSTRAP: &str = "import sys; sys.path[:] = [path for path in sys.path if path]; import json, os; \
                         commands = os.fdopen(os.dup(0), 'rb'); exec(compile(json.loads(commands.readline()), \
                         'perihelion_worker.py', 'exec')); serve(commands, int(sys.argv[1]))";
const SOURCE: &str = include_str!("worker.py");

/// The longest answer: all are short.
const MAX_ANSWER: u64 = 1 << 20;
/// How long the exit status of a child may take after its socket has closed.
const END: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(5);
/// The longest line of standard error that is kept.
const MAX_LINE: usize = 1000;

/// A child process, until it is dropped.
pub(super) struct Process {
    python: PathBuf,
    channel: Mutex<Channel>,
    watched: Arc<Watched>,
}

/// The ends of what the child holds too.
struct Channel {
    commands: UnixStream,
    answers: BufReader<UnixStream>,
    memory: File,
}

/// What the thread that started the child knows of it.
#[derive(Default)]
struct Watched {
    child: Mutex<Option<Child>>,
    last_line: Mutex<String>,
    /// How it ended.
    end: OnceLock<String>,
}

/// An answer of the child.
#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
    #[serde(default)]
    shape: Vec<usize>,
    #[serde(default)]
    bytes: usize,
    #[serde(flatten)]
    facts: Value,
}

impl Process {
    /// Starts a child, which has done nothing yet.
    ///
    /// # Errors
    /// If the interpreter cannot be started.
    pub(super) fn start(python: &Path) -> Result<Process, Error> {
        let fail = |error: io::Error| failed(python, format!("cannot be started: {error}"));
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        let memory = memory().map_err(fail)?;
        let mut command = Command::new(python);
        command
            .args(["-c", BOOTSTRAP])
            .arg(std::process::id().to_string())
            .env("TOKENIZERS_PARALLELISM", "false")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(memory.try_clone().map_err(fail)?))
            .stderr(Stdio::piped());
        let watched = Arc::new(Watched::default());
        let (started, result) = channel();
        let of_thread = Arc::clone(&watched);
        let body = move || of_thread.watch(command, &started);
        std::thread::Builder::new().name("huggingface-worker".to_string()).spawn(body).map_err(fail)?;
        result.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended"))).map_err(fail)?;
        let answers = BufReader::new(ours.try_clone().map_err(fail)?);
        let channel = Mutex::new(Channel { commands: ours, answers, memory });
        let process = Process { python: python.to_path_buf(), channel, watched };
        process.send(&json!(SOURCE), &mut process.lock())?;
        Ok(process)
    }

    /// Asks, and reads no numbers.
    ///
    /// # Errors
    /// As [`Process::numbers`].
    pub(super) fn ask<T: for<'de> Deserialize<'de>>(&self, command: &Value) -> Result<T, Error> {
        let answer = self.answer(command, &mut self.lock())?;
        T::deserialize(answer.facts)
            .map_err(|error| failed(&self.python, format!("a strange answer: {error}")))
    }

    /// Asks for rows of numbers, and reads them: f32[rows, width].
    ///
    /// # Errors
    /// If the child fails, gives another shape, or has ended.
    pub(super) fn numbers(
        &self,
        command: &Value,
        rows: usize,
        width: usize,
        numbers: &mut [u8],
    ) -> Result<(), Error> {
        let mut channel = self.lock();
        let answer = self.answer(command, &mut channel)?;
        if answer.shape != [rows, width] {
            let problem =
                format!("the model gives numbers of shape {:?}, expected [{rows}, {width}]", answer.shape);
            return Err(failed(&self.python, problem));
        }
        channel.memory.read_exact_at(numbers, 0).map_err(|error| failed(&self.python, error.to_string()))
    }

    /// Asks for bytes.
    ///
    /// # Errors
    /// If the child fails, or has ended.
    pub(super) fn bytes(&self, command: &Value) -> Result<Vec<u8>, Error> {
        let mut channel = self.lock();
        let answer = self.answer(command, &mut channel)?;
        let mut bytes = vec![0; answer.bytes];
        let read = channel.memory.read_exact_at(&mut bytes, 0);
        read.map_err(|error| failed(&self.python, error.to_string()))?;
        Ok(bytes)
    }

    /// Tells the child something that has no answer. If it has ended, the next question says so.
    pub(super) fn tell(&self, command: &Value) {
        let _ = self.send(command, &mut self.lock());
    }

    /// How it ended, if it has.
    pub(super) fn end(&self) -> Option<Error> {
        self.watched.end.get().map(|end| Error::WorkerEnded { end: end.clone() })
    }

    fn answer(&self, command: &Value, channel: &mut Channel) -> Result<Answer, Error> {
        self.send(command, channel)?;
        let mut line = String::new();
        let read = channel.answers.by_ref().take(MAX_ANSWER).read_line(&mut line);
        if read.is_err() || !line.ends_with('\n') {
            return Err(self.lost(channel));
        }
        let answer: Answer = serde_json::from_str(&line)
            .map_err(|error| failed(&self.python, format!("a strange answer: {error}")))?;
        match answer.error {
            Some(problem) => Err(failed(&self.python, problem)),
            None => Ok(answer),
        }
    }

    fn send(&self, command: &Value, channel: &mut Channel) -> Result<(), Error> {
        let sent = channel.commands.write_all(format!("{command}\n").as_bytes());
        sent.map_err(|_| self.lost(channel))
    }

    /// The error of a child that does not answer. It is not asked again: an answer that came late would be taken for another.
    fn lost(&self, channel: &Channel) -> Error {
        let _ = channel.commands.shutdown(Shutdown::Both);
        let begin = Instant::now();
        loop {
            match self.end() {
                Some(error) => return error,
                // Processes that it started may hold its standard error open.
                None if begin.elapsed() > END => {
                    self.kill();
                    let _ = self.watched.end.set("it does not answer".to_string());
                }
                None => std::thread::sleep(POLL),
            }
        }
    }

    /// Ends the child, which keeps nothing that must be saved.
    fn kill(&self) {
        if let Some(child) = lock(&self.watched.child).as_mut() {
            let _ = child.kill();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Watched {
    /// Starts the child and waits for its end. The system kills the child with the thread that started it, not with the
    /// process, so this thread stays until then.
    fn watch(&self, mut command: Command, started: &Sender<io::Result<()>>) {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return drop(started.send(Err(error))),
        };
        // Its ends of socket, memory and pipe, which would keep them open.
        drop(command);
        let errors = child.stderr.take();
        *lock(&self.child) = Some(child);
        let _ = started.send(Ok(()));
        if let Some(errors) = errors {
            self.read_errors(BufReader::new(errors));
        }
        let status = loop {
            match lock(&self.child).as_mut().map(Child::try_wait) {
                Some(Ok(None)) => std::thread::sleep(POLL),
                Some(Ok(status)) => break status,
                Some(Err(_)) | None => break None,
            }
        };
        let _ = self.end.set(described(status, &lock(&self.last_line)));
    }

    /// Logs what the child writes on standard error, and keeps its last line.
    fn read_errors(&self, mut errors: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            if !matches!(errors.read_until(b'\n', &mut line), Ok(1..)) {
                return;
            }
            let text = String::from_utf8_lossy(&line);
            let text: String = text.trim().chars().take(MAX_LINE).collect();
            if !text.is_empty() {
                tracing::debug!("transformers: {text}");
                *lock(&self.last_line) = text;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a process in words.
fn described(status: Option<ExitStatus>, last_line: &str) -> String {
    let status = status.map_or("its status is unknown".to_string(), |status| status.to_string());
    if last_line.is_empty() { status } else { format!("{status}; its last line: {last_line}") }
}

fn failed(python: &Path, problem: String) -> Error {
    Error::Worker { python: python.display().to_string(), problem }
}

/// Memory that two processes can share, and that is gone with the last of them.
#[cfg(target_os = "linux")]
fn memory() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("perihelion", rustix::fs::MemfdFlags::CLOEXEC)?))
}

#[cfg(not(target_os = "linux"))]
fn memory() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// Starts the real worker with a `torch` that is a file of the test; `None`, and a line that says so, without `python3`.
    fn start(folder: &Path, torch: &str) -> Option<Process> {
        if Command::new("python3").arg("--version").output().is_err() {
            eprintln!("skipped: there is no python3");
            return None;
        }
        fs::write(folder.join("torch.py"), torch).unwrap();
        let python = folder.join("python");
        let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", folder.display());
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Some(Process::start(&python).unwrap())
    }

    fn load() -> Value {
        json!({"do": "load", "folder": "m", "task": "write", "dtype": null, "trust_remote_code": false, "threads": 1})
    }

    fn error(process: &Process) -> String {
        process.ask::<Value>(&load()).unwrap_err().to_string()
    }

    fn wait_for_end(watched: &Watched) {
        let begin = Instant::now();
        while watched.end.get().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the child runs on");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn an_error_is_an_answer_and_the_next_question_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let torch = "print('noise'); raise ImportError('call ' + str(__import__('os').getpid()))";
        let Some(process) = start(folder.path(), torch) else { return };
        let first = error(&process);
        assert!(first.contains("call ") && first.contains("install torch"), "{first}");
        assert_eq!(error(&process), first, "the same process");
        let refused = process.numbers(&json!({"do": "dance"}), 1, 1, &mut [0; 4]).unwrap_err().to_string();
        assert!(refused.contains("NoneType") || refused.contains("dance"), "{refused}");
        assert_eq!(error(&process), first);
        assert!(process.end().is_none());
    }

    #[test]
    fn the_end_of_a_child_is_an_error_with_its_last_line_for_all_that_follows() {
        let folder = tempfile::tempdir().unwrap();
        let torch =
            "import os, sys\nprint('first', file=sys.stderr)\nos.write(2, b'last words\\n'); os._exit(7)";
        let Some(process) = start(folder.path(), torch) else { return };
        for _ in 0..2 {
            let error = process.ask::<Value>(&load()).unwrap_err();
            assert!(error.is_worker_ended(), "{error}");
            let text = error.to_string();
            assert!(text.ends_with("exit status: 7; its last line: last words"), "{text}");
        }
        process.tell(&json!({"do": "drop", "runner": 0, "sequences": null}));
        let Some(killed) = start(folder.path(), "import os; os.kill(os.getpid(), 9)") else { return };
        assert!(error(&killed).contains("signal: 9"));
    }

    #[test]
    fn a_child_whose_standard_error_stays_open_has_ended_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let torch = "import os, subprocess; subprocess.Popen(['sleep', '90']); os._exit(7)";
        let Some(process) = start(folder.path(), torch) else { return };
        assert!(error(&process).ends_with("it does not answer"));
        assert!(process.end().is_some());
    }

    #[test]
    fn a_process_that_is_dropped_kills_its_child() {
        let folder = tempfile::tempdir().unwrap();
        let Some(process) = start(folder.path(), "") else { return };
        let watched = Arc::clone(&process.watched);
        assert!(process.end().is_none());
        drop(process);
        wait_for_end(&watched);
        let missing = Process::start(Path::new("/no/such/python")).err().unwrap().to_string();
        assert!(
            missing.starts_with("engine huggingface (/no/such/python): cannot be started: "),
            "{missing}"
        );
    }
}
