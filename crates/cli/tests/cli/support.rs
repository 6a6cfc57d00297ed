//! Running the binary.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run left behind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `peri` with nothing on standard input.
pub(crate) fn peri(arguments: &[&str]) -> Outcome {
    peri_reading(arguments, b"")
}

/// Runs `peri` with standard input.
pub(crate) fn peri_reading(arguments: &[&str], input: &[u8]) -> Outcome {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    // A child that reads nothing may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// `peri`, with its outputs piped.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peri"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Outcome {
    /// Standard output of a run that went well.
    pub(crate) fn text(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Standard output of a run that went well: a JSON value.
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).unwrap()
    }

    /// Standard output of a run that went well: one JSON value a line.
    pub(crate) fn json_lines(self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The model that is built in, as a file.
pub(crate) fn storyteller() -> String {
    testdata::asset("storyteller/model.gguf").display().to_string()
}

/// A folder that goes away with its test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("peri-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and gives its path.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    /// A copy of the files of another folder.
    pub(crate) fn copy_of(name: &str, other: &Path) -> Folder {
        let folder = Folder::new(name);
        for entry in std::fs::read_dir(other).unwrap() {
            let entry = entry.unwrap();
            folder.file(&entry.file_name().to_string_lossy(), std::fs::read(entry.path()).unwrap());
        }
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
