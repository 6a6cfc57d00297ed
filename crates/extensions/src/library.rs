//! A loaded library: found, opened, checked.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use extension::abi;

use crate::table::{self, Fault, Table};
use crate::{Error, Op};

/// A library of custom ops. Clones share it. Its code stays loaded until the process ends: threads and destructors of
/// its own may still run after the last call of its ops.
#[derive(Clone)]
pub struct Library {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    version: String,
    path: PathBuf,
    digest: blake3::Hash,
    ops: Vec<Op>,
}

impl Library {
    /// The library's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The library's version.
    pub fn version(&self) -> &str {
        &self.inner.version
    }

    /// The shared library that was loaded.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The blake3 digest of the shared library, in hexadecimal: for the key of what is compiled with it.
    pub fn digest(&self) -> String {
        self.inner.digest.to_hex().to_string()
    }

    /// The ops, in the library's order.
    pub fn ops(&self) -> &[Op] {
        &self.inner.ops
    }

    /// The op with a name, if there is one.
    pub fn op(&self, name: &str) -> Option<&Op> {
        self.ops().iter().find(|op| op.signature().name == name)
    }
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({} {})", self.name(), self.version())
    }
}

/// Loads a shared library. Its digest must be `expected`, if that is given.
pub(crate) fn load(path: &Path, expected: Option<blake3::Hash>) -> Result<Library, Error> {
    let bytes = fs::read(path).map_err(|error| Error::Io { path: path.to_path_buf(), error })?;
    let digest = blake3::hash(&bytes);
    if let Some(expected) = expected
        && expected != digest
    {
        let message = format!("its blake3 digest is {digest}, the manifest says {expected}");
        return Err(Error::NotALibrary { path: path.to_path_buf(), message });
    }
    check_format(&bytes).map_err(|message| Error::NotALibrary { path: path.to_path_buf(), message })?;
    let Table { name, version, ops } = open(path, digest)?;
    let label: Arc<str> = format!("{name} {version}").into();
    let ops = ops.into_iter().map(|(signature, functions)| Op {
        signature: Arc::new(signature),
        library: Arc::clone(&label),
        functions,
    });
    let inner = Inner { name, version, path: path.to_path_buf(), digest, ops: ops.collect() };
    Ok(Library { inner: Arc::new(inner) })
}

/// The digest of each file that was loaded. The system's loader knows files by their names, and would give the old code
/// for new contents.
static LOADED: Mutex<Option<HashMap<PathBuf, blake3::Hash>>> = Mutex::new(None);

fn open(path: &Path, digest: blake3::Hash) -> Result<Table, Error> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default();
    if loaded.get(path).is_some_and(|earlier| *earlier != digest) {
        return Err(Error::Changed { path: path.to_path_buf() });
    }
    let fail = |error: libloading::Error| {
        let reason = std::error::Error::source(&error).map_or(error.to_string(), |source| source.to_string());
        let message = format!("the system's loader refuses it: {reason}");
        Error::NotALibrary { path: path.to_path_buf(), message }
    };
    let library = open_now(path).map_err(fail)?;
    // SAFETY: an extension exports this symbol with this type; what else exports it breaks the ABI's contract.
    let entry = unsafe { library.get::<abi::Entry>(abi::SYMBOL) };
    let entry = match entry {
        Ok(entry) => *entry,
        Err(_) => return Err(Error::MissingSymbol { path: path.to_path_buf(), symbol: abi::SYMBOL }),
    };
    // SAFETY: the type that the ABI says, checked as far as a symbol can be: by its versioned name. The library is
    // loaded, and stays so if the table is sound.
    let table = unsafe { table::read(entry()) }.map_err(|fault| match fault {
        Fault::Abi(found) => Error::Abi { path: path.to_path_buf(), found, expected: abi::VERSION },
        Fault::Nonsense(message) => Error::Table { path: path.to_path_buf(), message },
    })?;
    loaded.insert(path.to_path_buf(), digest);
    // Ops point into it from now on.
    std::mem::forget(library);
    Ok(table)
}

/// Opens a library with all its symbols, so that one it lacks is an error here and no crash later.
#[cfg(unix)]
fn open_now(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: the code that libraries run when they are loaded is the user's, who named the file.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(libloading::Library::from)
}

/// Opens a library.
#[cfg(not(unix))]
fn open_now(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: the code that libraries run when they are loaded is the user's, who named the file.
    unsafe { libloading::Library::new(path) }
}

/// Says what a file is instead of a shared library for this machine, where its first bytes tell.
fn check_format(bytes: &[u8]) -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let Some(header) = bytes.first_chunk::<20>().filter(|header| header.starts_with(b"\x7fELF")) else {
        let first = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
        return Err(format!("no shared library (ELF): it starts with {first:?}"));
    };
    let half = |at: usize| match header[5] {
        1 => u16::from_le_bytes([header[at], header[at + 1]]),
        _ => u16::from_be_bytes([header[at], header[at + 1]]),
    };
    let (kind, machine) = (half(16), half(18));
    if kind != 3 {
        return Err(format!("no shared library: its ELF type is {kind}, expected 3"));
    }
    let bits = if header[4] == 2 { 64 } else { 32 };
    let name = MACHINES.iter().find(|(code, _)| *code == machine).map_or("another machine", |(_, name)| name);
    if (bits, name) == (usize::BITS as usize, std::env::consts::ARCH) {
        Ok(())
    } else {
        Err(format!(
            "made for {name} ({bits} bits, ELF machine {machine}), but this process runs on {}",
            std::env::consts::ARCH
        ))
    }
}

/// ELF's codes of machines, and Rust's names.
const MACHINES: &[(u16, &str)] =
    &[(3, "x86"), (40, "arm"), (62, "x86_64"), (183, "aarch64"), (243, "riscv64")];
