//! Single sources of Rust: compiled once, kept by the digest of all that they are made from.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Error;

/// A larger source is taken for a mistake.
const MAX_SOURCE: u64 = 16 << 20;
/// How much of what a compiler says is passed on.
const MAX_MESSAGE: usize = 8 << 10;
/// The crate that sources are compiled against.
const SDK: &str = "perihelion_extension";
/// How sources and that crate are compiled.
const FLAGS: &[&str] = &["--edition=2024", "-Copt-level=3", "-Cstrip=debuginfo", "--color=never"];
/// The file that holds the digest of the file next to it.
const DIGEST: &str = "blake3";

/// The compiler of sources, and where their libraries are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// The program: a path, or a name to look for as shells do.
    pub rustc: PathBuf,
    /// The folder for libraries; `None` where the user has no place for such things.
    pub cache: Option<PathBuf>,
}

impl Compiler {
    /// The compiler that the environment names: `PERIHELION_RUSTC`, `RUSTC`, or `rustc`. The folder is
    /// `PERIHELION_CACHE_DIR`, or `perihelion` among the user's caches; also where that says `off`, as a library must
    /// lie somewhere.
    pub fn from_env() -> Compiler {
        Compiler::from_variables(&|name| env::var_os(name))
    }

    fn from_variables(variable: &dyn Fn(&str) -> Option<OsString>) -> Compiler {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let rustc =
            set("PERIHELION_RUSTC").or_else(|| set("RUSTC")).unwrap_or_else(|| OsString::from("rustc"));
        let home = || env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let user_cache = || match env::consts::OS {
            "macos" => home().map(|home| home.join("Library/Caches")),
            "windows" => set("LOCALAPPDATA").map(PathBuf::from),
            _ => set("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| home().map(|home| home.join(".cache"))),
        };
        let own = set("PERIHELION_CACHE_DIR").filter(|folder| folder != "off").map(PathBuf::from);
        let cache = own.or_else(|| user_cache().map(|cache| cache.join("perihelion")));
        Compiler { rustc: rustc.into(), cache }
    }
}

/// The shared library of a source.
pub(crate) fn compile(source: &Path, compiler: &Compiler) -> Result<PathBuf, Error> {
    let io = |error| Error::Io { path: source.to_path_buf(), error };
    let size = fs::metadata(source).map_err(io)?.len();
    if size > MAX_SOURCE {
        let message = format!("the source has {size} bytes, the most are {MAX_SOURCE}");
        return Err(Error::Compile { path: source.to_path_buf(), message });
    }
    let text = fs::read(source).map_err(io)?;
    let build = Build { source, compiler, version: version(source, compiler)? };
    let sdk_parts = extension::SOURCES.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
    let sdk_key = build.key(sdk_parts);
    let sdk = build.cached(&sdk_key, &format!("lib{SDK}.rlib"), |folder, file| build.sdk(folder, file))?;
    let file = format!("{}{}{}", env::consts::DLL_PREFIX, crate_name(source), env::consts::DLL_SUFFIX);
    let key = build.key([sdk_key.as_bytes(), file.as_bytes(), &text]);
    build.cached(&key, &file, |_, library| build.library(&sdk, library))
}

/// What compiling one source needs.
struct Build<'a> {
    source: &'a Path,
    compiler: &'a Compiler,
    /// What the compiler says of itself.
    version: String,
}

impl Build<'_> {
    /// A name for what is made of these parts by this compiler.
    fn key<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> String {
        let mut hasher = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        };
        add(self.version.as_bytes());
        FLAGS.iter().for_each(|flag| add(flag.as_bytes()));
        parts.into_iter().for_each(add);
        hasher.finalize().to_hex()[..32].to_string()
    }

    /// The file with a key: from the cache, or made there. Processes that make it at once do not disturb each other,
    /// and a file that was damaged is made anew.
    fn cached(
        &self,
        key: &str,
        file: &str,
        make: impl FnOnce(&Path, &Path) -> Result<(), Error>,
    ) -> Result<PathBuf, Error> {
        let Some(cache) = &self.compiler.cache else {
            let message = "no folder to keep its library in: set PERIHELION_CACHE_DIR or HOME".to_string();
            return Err(Error::Compile { path: self.source.to_path_buf(), message });
        };
        let folder = cache.join("extensions").join(key);
        if is_intact(&folder, file) {
            return Ok(folder.join(file));
        }
        let scratch = Scratch::new(&cache.join("extensions"))?;
        make(&scratch.0, &scratch.0.join(file))?;
        let io = |error| Error::Io { path: folder.clone(), error };
        let digest = blake3::hash(&fs::read(scratch.0.join(file)).map_err(io)?);
        fs::write(scratch.0.join(DIGEST), digest.to_hex().as_str()).map_err(io)?;
        if fs::rename(&scratch.0, &folder).is_err() && !is_intact(&folder, file) {
            fs::remove_dir_all(&folder).map_err(io)?;
            fs::rename(&scratch.0, &folder).map_err(io)?;
        }
        Ok(folder.join(file))
    }

    /// Compiles the crate that sources use.
    fn sdk(&self, folder: &Path, output: &Path) -> Result<(), Error> {
        let sources = folder.join("src");
        let io = |error| Error::Io { path: sources.clone(), error };
        fs::create_dir(&sources).map_err(io)?;
        for (name, text) in extension::SOURCES {
            fs::write(sources.join(name), text).map_err(io)?;
        }
        // Where it is compiled must not show in what is made.
        let mut remap = OsString::from("--remap-path-prefix=");
        remap.push(&sources);
        remap.push(format!("={SDK}"));
        let mut command = Command::new(&self.compiler.rustc);
        command.args(FLAGS).arg(remap).args(["--crate-type=rlib", "--crate-name", SDK, "-o"]).arg(output);
        self.finish(command.arg(sources.join("lib.rs")))
    }

    fn library(&self, sdk: &Path, output: &Path) -> Result<(), Error> {
        let mut link = OsString::from(format!("{SDK}="));
        link.push(sdk);
        let mut command = Command::new(&self.compiler.rustc);
        command.args(FLAGS).args(["--crate-type=cdylib", "--crate-name", &crate_name(self.source), "-o"]);
        self.finish(command.arg(output).arg("--extern").arg(link).arg(self.source))
    }

    fn finish(&self, command: &mut Command) -> Result<(), Error> {
        let output = call(self.source, self.compiler, command)?;
        if output.status.success() {
            return Ok(());
        }
        let mut message = String::from_utf8_lossy(&output.stderr).into_owned();
        if message.len() > MAX_MESSAGE {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE));
            message.push('…');
        }
        if message.is_empty() {
            message = format!("the compiler ended with {}", output.status);
        }
        Err(Error::Compile { path: self.source.to_path_buf(), message })
    }
}

/// A folder that goes with this value, unless it got another name.
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Scratch, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!(".new-{}-{count}", process::id()));
        // What an earlier process of this number left behind.
        let _ = fs::remove_dir_all(&path);
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Scratch(path)),
            Err(error) => Err(Error::Io { path, error }),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn version(source: &Path, compiler: &Compiler) -> Result<String, Error> {
    let output = call(source, compiler, Command::new(&compiler.rustc).arg("-vV"))?;
    if !output.status.success() {
        let message = format!("`{} -vV` ended with {}", compiler.rustc.display(), output.status);
        return Err(Error::Compile { path: source.to_path_buf(), message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn call(source: &Path, compiler: &Compiler, command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::NoCompiler { path: source.to_path_buf(), rustc: compiler.rustc.clone() }
        }
        _ => Error::Io { path: compiler.rustc.clone(), error },
    })
}

/// Whether a file of the cache is what was put there.
fn is_intact(folder: &Path, file: &str) -> bool {
    let digest =
        fs::read_to_string(folder.join(DIGEST)).ok().and_then(|text| blake3::Hash::from_hex(text).ok());
    digest.is_some() && fs::read(folder.join(file)).ok().map(|bytes| blake3::hash(&bytes)) == digest
}

/// The name of the crate that a source is: its file's name, made a word.
fn crate_name(source: &Path) -> String {
    let stem = source.file_stem().unwrap_or_default().to_string_lossy();
    let word: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("extension_{word}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_sources_have_a_place_where_the_compile_cache_is_off() {
        let cache = |own: &str| {
            let compiler = Compiler::from_variables(&|name| match name {
                "PERIHELION_CACHE_DIR" => Some(own.into()),
                "XDG_CACHE_HOME" | "LOCALAPPDATA" => Some("/caches".into()),
                _ => None,
            });
            compiler.cache.unwrap()
        };
        assert_eq!(cache("here"), Path::new("here"));
        let usual = match env::consts::OS {
            "macos" => env::home_dir().unwrap().join("Library/Caches/perihelion"),
            _ => PathBuf::from("/caches/perihelion"),
        };
        for own in ["", "off"] {
            assert_eq!(cache(own), usual);
        }
    }
}
