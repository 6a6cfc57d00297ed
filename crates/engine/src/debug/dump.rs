//! What compiling makes of a graph, pass by pass, as files.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

use graph::Graph;

use crate::{Error, Program};

/// Writes `NAME.00.input.graph`, `NAME.01.PASS.graph`, … and `NAME.plan.txt` into a directory, if there is one.
pub(crate) struct Dump {
    name: String,
    directory: Option<PathBuf>,
    count: usize,
}

impl Dump {
    pub(crate) fn new(graph: &str, directory: Option<PathBuf>) -> Dump {
        Dump { name: file_name(graph), directory, count: 0 }
    }

    /// The graph after a pass.
    pub(crate) fn graph(&mut self, pass: &str, graph: &Graph) -> Result<(), Error> {
        self.write(&format!("{:02}.{pass}.graph", self.count), graph)?;
        self.count += 1;
        Ok(())
    }

    /// What the graph became.
    pub(crate) fn program(&self, program: &Program) -> Result<(), Error> {
        self.write("plan.txt", program)
    }

    fn write(&self, what: &str, content: &dyn Display) -> Result<(), Error> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let path = directory.join(format!("{}.{what}", self.name));
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(&path, content.to_string()));
        written.map_err(|error| Error::Write { path, message: error.to_string() })
    }
}

/// A name as that of a file. Letters, digits, `_` and `-` stand for themselves, and so do dots
/// behind the first character; the bytes of all else become `%2F` and the like, so that two names are two files.
fn file_name(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for (i, c) in name.chars().enumerate() {
        if c.is_alphanumeric() || c == '_' || c == '-' || (c == '.' && i > 0) {
            file.push(c);
        } else {
            let mut bytes = [0; 4];
            file.extend(c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        }
    }
    if file.is_empty() { "%".to_string() } else { file }
}
