//! Packages: a folder with a manifest, and a shared library for each kind of machine.

use std::collections::BTreeMap;
use std::env::consts;
use std::fs;
use std::path::{Component, Path, PathBuf};

use extension::abi;
use serde::{Deserialize, Serialize};

use crate::{Error, Library, Signature, library, table};

/// The manifest's name in its folder.
pub const MANIFEST: &str = "manifest.json";
/// A larger manifest is taken for a mistake.
const MAX_MANIFEST: u64 = 1 << 20;

/// What a package holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    version: String,
    abi: u32,
    ops: Vec<Signature>,
    /// By machine, such as `x86_64-linux`.
    libraries: BTreeMap<String, Entry>,
}

/// One shared library of a package.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// Within the folder.
    file: PathBuf,
    /// The digest of the file, in hexadecimal.
    blake3: String,
}

/// Puts a shared library, made for this machine, into a package, which is made if it is not there. A package for
/// several kinds of machines is made by doing this on each.
///
/// # Errors
/// If the library cannot be loaded, the folder cannot be written, or it holds a package of another name, version or ops.
pub fn pack(shared_library: &Path, folder: &Path) -> Result<(), Error> {
    let fail = |path: &Path, error| Error::Io { path: path.to_path_buf(), error };
    let path = shared_library.canonicalize().map_err(|error| fail(shared_library, error))?;
    let library = library::load(&path, None)?;
    let mut manifest = Manifest {
        name: library.name().to_string(),
        version: library.version().to_string(),
        abi: abi::VERSION,
        ops: library.ops().iter().map(|op| op.signature().clone()).collect(),
        libraries: BTreeMap::new(),
    };
    if folder.join(MANIFEST).exists() {
        let earlier = read(folder)?;
        check_library(&earlier, &library).map_err(|message| error(folder, message))?;
        manifest.libraries = earlier.libraries;
    }
    let file = Path::new(&target()).join(path.file_name().expect("a file has a name"));
    let copy = folder.join(&file);
    fs::create_dir_all(copy.parent().expect("in a folder")).map_err(|error| fail(&copy, error))?;
    // A copy of its own: a library of that name that is in use must not change under those who use it.
    let fresh = copy.with_extension("new");
    fs::copy(&path, &fresh).and_then(|_| fs::rename(&fresh, &copy)).map_err(|error| fail(&copy, error))?;
    manifest.libraries.insert(target(), Entry { file, blake3: library.digest() });
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
    let path = folder.join(MANIFEST);
    fs::write(&path, text + "\n").map_err(|error| fail(&path, error))
}

/// Loads the library of a package that this machine can run.
pub(crate) fn open(folder: &Path) -> Result<Library, Error> {
    let manifest = read(folder)?;
    let fail = |message: String| error(folder, message);
    let Some(entry) = manifest.libraries.get(&target()) else {
        let known = manifest.libraries.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(fail(format!("it holds no library for {}, only for: {known}", target())));
    };
    if entry.file.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(fail(format!("the file {:?} is not within the folder", entry.file)));
    }
    let digest = blake3::Hash::from_hex(&entry.blake3)
        .map_err(|error| fail(format!("the digest {:?} is none: {error}", entry.blake3)))?;
    let library = library::load(&folder.join(&entry.file), Some(digest))?;
    check_library(&manifest, &library).map_err(fail)?;
    Ok(library)
}

fn read(folder: &Path) -> Result<Manifest, Error> {
    let path = folder.join(MANIFEST);
    let io = |error: std::io::Error| error_of_manifest(folder, &error);
    let size = fs::metadata(&path).map_err(io)?.len();
    if size > MAX_MANIFEST {
        return Err(error(folder, format!("{MANIFEST} has {size} bytes, the most are {MAX_MANIFEST}")));
    }
    let text = fs::read_to_string(&path).map_err(io)?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|fault| error(folder, format!("{MANIFEST}: {fault}")))?;
    if manifest.abi != abi::VERSION {
        let path = folder.to_path_buf();
        return Err(Error::Abi { path, found: manifest.abi, expected: abi::VERSION });
    }
    manifest.ops.iter().try_for_each(table::check).map_err(|message| error(folder, message))?;
    Ok(manifest)
}

/// Whether a library is what the manifest says.
fn check_library(manifest: &Manifest, library: &Library) -> Result<(), String> {
    let said = (&manifest.name[..], &manifest.version[..]);
    if said != (library.name(), library.version()) {
        let (name, version) = (library.name(), library.version());
        return Err(format!("the manifest says {} {}, the library says {name} {version}", said.0, said.1));
    }
    let found: Vec<&Signature> = library.ops().iter().map(|op| op.signature()).collect();
    match manifest.ops.iter().find(|op| !found.contains(op)) {
        Some(op) => Err(format!("the library has no op `{}` as the manifest says it", op.name)),
        None if found.len() == manifest.ops.len() => Ok(()),
        None => Err(format!("the manifest says {} ops, the library has {}", manifest.ops.len(), found.len())),
    }
}

/// The kind of machine this is.
fn target() -> String {
    format!("{}-{}", consts::ARCH, consts::OS)
}

fn error_of_manifest(folder: &Path, fault: &std::io::Error) -> Error {
    error(folder, format!("{MANIFEST}: {fault}"))
}

fn error(folder: &Path, message: String) -> Error {
    Error::Package { path: folder.to_path_buf(), message }
}
