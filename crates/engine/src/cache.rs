//! Compiled models kept in a folder, so that the next process finds them.
//!
//! An entry is an artifact without weights, named after the digest of everything it follows from: the graphs with
//! their constants, the passes, device and target, this crate's version and the program's build. What is looked up is
//! checked as every artifact is. Many processes may share a folder: entries appear whole or not at all, and one that goes away while it
//! is in use stays with those who use it.
//!
//! What a hit spares is the passes; what it costs is a digest of the graphs, a file, and lowering. For a 12-layer encoder
//! either way takes less than 2 ms, so a cache pays where passes take long: thousands of nodes, many folded constants.
//! Packed weights would be worth more, and take as much room as the model. They are not kept unasked: to find them by
//! their contents, all weights would have to be read, which is much of what packing costs. An artifact that somebody
//! exports with its weights starts without: [`crate::CompiledModel::export_mef_with`].

use std::ffi::OsString;
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use graph::ops::{Constant, TensorData};
use graph::{Graph, Op};

use crate::artifact::{self, Artifact, TEMPORARY};
use crate::export;
use crate::passes::Passes;
use crate::{CompiledModel, Device, Error, KernelSettings};

/// Bytes of all entries, unless said otherwise.
const LIMIT: u64 = 1 << 30;
/// The constants of an entry take at most the limit divided by this.
const SHARE: u64 = 4;
/// No writer takes that long: unfinished files of this age are of processes that died.
const ABANDONED: Duration = Duration::from_secs(3600);
/// What the names of entries end with.
const EXTENSION: &str = "mef";

/// A folder of compiled models, for [`crate::Builder::compile_cache`].
///
/// A session of this crate uses a cache only if it is given one; the doors give theirs [`CompileCache::user`].
///
/// No compile fails because of its cache. An entry that was damaged is made again, with a warning; a folder that
/// cannot be written is warned of. Once the entries take more than a limit, those that were used least recently go.
///
/// Digests detect accidents, not malice: a program that can write to the folder can change what is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileCache {
    folder: PathBuf,
    limit: u64,
}

/// What is in the folder of a [`CompileCache`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CacheHealth {
    /// Compiled models.
    pub entries: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Models that another version compiled. This version does not use them; they go when their room is needed.
    pub outdated: usize,
    /// What is wrong with those that are damaged. They are made again when they are needed.
    pub damaged: Vec<Error>,
    /// Files that are being written, or were when their process died.
    pub unfinished: usize,
}

impl CompileCache {
    /// A cache in a folder of its own, which is made when the first entry is. Holds 1 GiB.
    pub fn at(folder: impl Into<PathBuf>) -> CompileCache {
        CompileCache { folder: folder.into(), limit: LIMIT }
    }

    /// The user's cache: the folder `compiled` in `PERIHELION_CACHE_DIR`, or else in `perihelion` where the system
    /// wants caches to be (`XDG_CACHE_HOME` or `~/.cache`; `~/Library/Caches`; `%LOCALAPPDATA%`). `None` if
    /// `PERIHELION_CACHE_DIR` is empty or `off`, or there is no such place.
    pub fn user() -> Option<CompileCache> {
        let folder = user_folder(std::env::consts::OS, &|name| std::env::var_os(name))?;
        Some(CompileCache::at(folder.join("compiled")))
    }

    /// The same cache, holding at most so many bytes.
    pub fn with_limit(self, bytes: u64) -> CompileCache {
        CompileCache { limit: bytes, ..self }
    }

    /// Where the entries are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The most bytes that entries take, until the next one is added.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Looks at all entries, and checks that every byte is what was written.
    ///
    /// # Errors
    /// If the folder cannot be read. One that is not there is empty.
    pub fn check(&self) -> io::Result<CacheHealth> {
        let mut health = CacheHealth::default();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(health),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let Ok(metadata) = path.metadata() else { continue };
            if path.to_string_lossy().ends_with(TEMPORARY) {
                health.unfinished += 1;
            } else if path.extension().is_some_and(|extension| extension == EXTENSION) {
                health.entries += 1;
                health.bytes += metadata.len();
                match Artifact::open(&path).and_then(|entry| entry.verify()) {
                    Ok(()) => {}
                    Err(Error::Artifact { fault, .. }) if fault.is_another_version() => health.outdated += 1,
                    Err(error) => health.damaged.push(error),
                }
            }
        }
        Ok(health)
    }

    /// Whether an entry of these graphs leaves room for others: constants may be as large as weights.
    pub(crate) fn takes(&self, graphs: &[Graph]) -> bool {
        let bytes: u64 = graphs.iter().map(constant_bytes).sum();
        bytes <= self.limit / SHARE
    }

    /// What a compiled model follows from, as the name of its entry.
    pub(crate) fn key(
        &self,
        graphs: &[Graph],
        passes: &Passes,
        settings: &KernelSettings,
        device: &dyn Device,
    ) -> String {
        let mut hasher = blake3::Hasher::new();
        // Each part with its length, so that no two lists of parts read alike.
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update_rayon(bytes);
        };
        part(artifact::maker().as_bytes());
        part(build().as_bytes());
        part(device.name().as_bytes());
        part(device.target().as_bytes());
        part(format!("{passes:?}").as_bytes());
        part(settings.to_string().as_bytes());
        for graph in graphs {
            let (text, constants) = graph.detached_text();
            part(text.as_bytes());
            constants.iter().for_each(|constant| part(constant.bytes()));
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The entry of a key, read by `read`; or what `make` makes, which then becomes the entry.
    pub(crate) fn find_or_make(
        &self,
        key: &str,
        read: &dyn Fn(&Artifact) -> Result<CompiledModel, Error>,
        make: &dyn Fn() -> Result<CompiledModel, Error>,
    ) -> Result<CompiledModel, Error> {
        let path = self.folder.join(key).with_extension(EXTENSION);
        if let Some(found) = find(&path, key, read) {
            return Ok(found);
        }
        let made = make()?;
        match self.keep(&path, key, &made) {
            Ok(()) => self.trim(),
            Err(error) => tracing::warn!("a compiled model is not kept: {error}"),
        }
        Ok(made)
    }

    fn keep(&self, path: &Path, key: &str, compiled: &CompiledModel) -> Result<(), Error> {
        fs::create_dir_all(&self.folder).map_err(export::failed(&self.folder))?;
        let file = export::write(path, &compiled.contents(key), |_| Ok(()))?;
        // An entry that a crash of the machine damages is noticed and made again, so writers do not wait for the disk.
        file.commit_unsynced().map_err(export::failed(path))
    }

    /// Removes what was used least recently until the rest fits, and what dead processes left unfinished. Whatever
    /// cannot be removed, or is gone already, is left to the next time.
    fn trim(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut finished: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let Ok((used, bytes)) = facts(&entry) else { continue };
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                finished.push((used, bytes, path));
            } else if is_abandoned(&path, used) {
                let _ = fs::remove_file(path);
            }
        }
        finished.sort();
        let mut total: u64 = finished.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in finished {
            if total <= self.limit {
                return;
            }
            let _ = fs::remove_file(path);
            total -= bytes;
        }
    }
}

/// Bytes of all constants, in the graphs that nodes run too.
fn constant_bytes(graph: &Graph) -> u64 {
    let of = |op: &Op| match op {
        Op::Constant(Constant { value: TensorData(value) }) => {
            value.dtype().bytes_for(value.elements()).unwrap_or(0) as u64
        }
        op => op.regions().into_iter().map(|region| constant_bytes(region)).sum(),
    };
    graph.nodes().map(|(_, node)| of(&node.op)).sum()
}

/// What tells a build of this program from others of the same version: who works on a pass would get what an earlier
/// one made.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let file = std::env::current_exe().and_then(fs::metadata);
        file.map_or(String::new(), |file| format!("{} {:?}", file.len(), file.modified().ok()))
    })
}

/// The entry at a path, if there is one and it is good.
fn find(
    path: &Path,
    key: &str,
    read: &dyn Fn(&Artifact) -> Result<CompiledModel, Error>,
) -> Option<CompiledModel> {
    if !path.exists() {
        return None;
    }
    let found = Artifact::open(path).and_then(|entry| {
        if entry.key() == key {
            read(&entry)
        } else {
            Err(Error::File { path: path.into(), message: "an entry under another's name".into() })
        }
    });
    match found {
        Ok(compiled) => {
            mark_used(path);
            Some(compiled)
        }
        Err(error) => {
            tracing::warn!("a compiled model that was kept is made again: {error}");
            None
        }
    }
}

/// Sets the time of an entry's last use. Where that is not allowed, the time it was made stands for it.
fn mark_used(path: &Path) {
    // Windows changes the times of files that are open for writing.
    let _ = File::options().write(true).open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

/// When a file was used last, and its bytes.
fn facts(entry: &DirEntry) -> io::Result<(SystemTime, u64)> {
    let metadata = entry.metadata()?;
    Ok((metadata.modified()?, metadata.len()))
}

fn is_abandoned(path: &Path, used: SystemTime) -> bool {
    let unfinished = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(TEMPORARY));
    unfinished && SystemTime::now().duration_since(used).is_ok_and(|age| age > ABANDONED)
}

/// Where the user's caches are, on an operating system with environment variables; `None` for nowhere.
fn user_folder(system: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(folder) = variable("PERIHELION_CACHE_DIR") {
        let is_off = folder.is_empty() || folder == "off";
        return (!is_off).then(|| PathBuf::from(folder));
    }
    // The XDG specification: relative paths are to be ignored.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = match system {
        "windows" => absolute("LOCALAPPDATA")?,
        "macos" => absolute("HOME")?.join("Library/Caches"),
        _ => absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?,
    };
    Some(caches.join("perihelion"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestDevice, TestFolder, build, f32};
    use crate::{CacheUse, CompileOptions, InferenceSession, ReferenceDevice};
    use std::sync::Arc;
    use tensor::{Buffer, Tensor};

    /// `x + value`, with a constant that is kept apart from the text.
    fn graph(value: f32) -> Graph {
        build("g", |b| {
            let x = b.input("x", f32(&["20"]));
            let y = b.constant(Tensor::from_slice([20], &[value; 20]));
            Ok(vec![b.add(x, y)?])
        })
    }

    fn cached(cache: &CompileCache) -> InferenceSession {
        let builder = InferenceSession::builder().device(Arc::new(TestDevice));
        builder.compile_cache(cache.clone()).build().unwrap()
    }

    fn entries(cache: &CompileCache) -> Vec<PathBuf> {
        let entries = fs::read_dir(cache.folder()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    /// What a compiled [`graph`] adds.
    fn added(session: &InferenceSession, compiled: &CompiledModel) -> f32 {
        let model = session.init(compiled, &()).unwrap();
        let x = Buffer::from_slice([20], &[0f32; 20]);
        model.execute(&[x]).unwrap()[0].to_vec::<f32>()[7]
    }

    #[test]
    fn what_is_compiled_is_kept_by_what_it_follows_from() {
        let folder = TestFolder::new("cache_keys");
        let cache = CompileCache::at(folder.path().join("new/folder"));
        let session = cached(&cache);
        for (value, count) in [(1.0, 1), (1.0, 1), (2.0, 2), (1.0, 2)] {
            let compiled = session.compile(&graph(value)).unwrap();
            assert_eq!((added(&session, &compiled), entries(&cache).len()), (value, count));
        }
        let without = CompileOptions { passes: Passes::None, ..CompileOptions::default() };
        session.compile_with(&graph(1.0), &without).unwrap();
        assert_eq!(entries(&cache).len(), 3);
        let reference = InferenceSession::builder().device(Arc::new(ReferenceDevice));
        reference.compile_cache(cache.clone()).build().unwrap().compile(&graph(1.0)).unwrap();
        assert_eq!(entries(&cache).len(), 4);
        let bypass = CompileOptions { cache: CacheUse::Bypass, ..CompileOptions::default() };
        session.compile_with(&graph(3.0), &bypass).unwrap();
        assert_eq!(entries(&cache).len(), 4);
        session.use_old_top_k_kernel("on");
        session.compile(&graph(1.0)).unwrap();
        assert_eq!(entries(&cache).len(), 5);
        session.use_old_top_k_kernel("off");
        let printed = |session: &InferenceSession| session.compile(&graph(1.0)).unwrap().to_string();
        assert_eq!(printed(&session), printed(&crate::testing::session()));
    }

    #[test]
    fn what_an_entry_cannot_hold_is_compiled_again() {
        let folder = TestFolder::new("cache_refusals");
        let cache = CompileCache::at(folder.path());
        let bytes = 20 * 4;
        cached(&cache.clone().with_limit(SHARE * bytes - 1)).compile(&graph(1.0)).unwrap();
        assert_eq!(entries(&cache).len(), 0, "constants that leave no room for others");
        let session = cached(&cache);
        session.debug().set_source_tracebacks(true);
        let text = "graph g(%x: f32[n]) { %y = slice(%x) {axis = 0, start = 1, stop = 9} return %y }";
        session.compile(&Graph::parse(text).unwrap()).unwrap();
        assert_eq!(entries(&cache).len(), 0, "places in the source");
        session.debug().set_source_tracebacks(false);
        session.compile(&graph(1.0)).unwrap();
        assert_eq!(entries(&cache).len(), 1);
    }

    #[test]
    fn damaged_entries_are_made_again() {
        let folder = TestFolder::new("cache_damage");
        let cache = CompileCache::at(folder.path());
        let session = cached(&cache);
        session.compile(&graph(1.0)).unwrap();
        let path = entries(&cache).remove(0);
        let good = fs::read(&path).unwrap();
        session.compile(&graph(2.0)).unwrap();
        let other = fs::read(entries(&cache).iter().find(|other| **other != path).unwrap()).unwrap();
        let mut altered = good.clone();
        altered[100] ^= 1;
        let mut newer = good.clone();
        newer[8] = 9;
        for damaged in [&altered[..], &good[..good.len() / 2], &other, &newer, b"", b"text"] {
            fs::write(&path, damaged).unwrap();
            let health = cache.check().unwrap();
            assert_eq!(health.outdated, usize::from(damaged == &newer[..]));
            assert_eq!(health.damaged.len(), usize::from(damaged != &other[..] && damaged != &newer[..]));
            let compiled = session.compile(&graph(1.0)).unwrap();
            assert_eq!(added(&session, &compiled), 1.0);
            assert_eq!(fs::read(&path).unwrap(), good, "the entry is made again");
        }
    }

    #[test]
    fn a_check_counts_what_is_there() {
        let folder = TestFolder::new("cache_check");
        let cache = CompileCache::at(folder.path().join("none"));
        assert_eq!(cache.check().unwrap().entries, 0);
        cached(&cache).compile(&graph(1.0)).unwrap();
        fs::write(cache.folder().join(".a.mef.1.1.tmp"), "unfinished").unwrap();
        let health = cache.check().unwrap();
        let bytes = entries(&cache).iter().map(|path| path.metadata().unwrap().len()).max().unwrap();
        assert_eq!((health.entries, health.bytes, health.unfinished), (1, bytes, 1));
        assert!(health.damaged.is_empty());
    }

    #[test]
    fn the_least_recently_used_entries_go() {
        let folder = TestFolder::new("cache_limit");
        let cache = CompileCache::at(folder.path());
        let session = cached(&cache);
        session.compile(&graph(0.0)).unwrap();
        let first = entries(&cache).remove(0);
        let bytes = first.metadata().unwrap().len();
        let age = |path: &Path, seconds| {
            let time = SystemTime::now() - Duration::from_secs(seconds);
            File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
        };
        session.compile(&graph(1.0)).unwrap();
        let second = entries(&cache).into_iter().find(|path| *path != first).unwrap();
        age(&first, 100);
        age(&second, 50);
        let (fresh, dead) = (folder.path().join(".a.mef.1.1.tmp"), folder.path().join(".b.mef.1.1.tmp"));
        for unfinished in [&fresh, &dead] {
            fs::write(unfinished, "unfinished").unwrap();
        }
        age(&dead, 7200);
        // The first is used again, and so the second goes when there is room for two.
        session.compile(&graph(0.0)).unwrap();
        cached(&cache.with_limit(2 * bytes)).compile(&graph(2.0)).unwrap();
        assert!(first.exists() && !second.exists());
        assert!(fresh.exists() && !dead.exists(), "what others may be writing stays");
    }

    #[test]
    fn no_compile_fails_because_of_its_cache() {
        let folder = TestFolder::new("cache_unwritable");
        let file = folder.path().join("file");
        fs::write(&file, "in the way").unwrap();
        let session = cached(&CompileCache::at(file.join("below")));
        let compiled = session.compile(&graph(1.0)).unwrap();
        assert_eq!(added(&session, &compiled), 1.0);
    }

    #[test]
    fn the_users_folder_follows_the_environment() {
        let check = |system: &str, variables: &[(&str, &str)], expected: Option<&str>| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(other, _)| *other == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(user_folder(system, &variable), expected.map(PathBuf::from), "{variables:?}");
        };
        check("linux", &[("HOME", "/home/u")], Some("/home/u/.cache/perihelion"));
        check("linux", &[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], Some("/x/perihelion"));
        check("linux", &[("HOME", "/h"), ("XDG_CACHE_HOME", "x")], Some("/h/.cache/perihelion"));
        check("linux", &[], None);
        check("macos", &[("HOME", "/Users/u")], Some("/Users/u/Library/Caches/perihelion"));
        check("linux", &[("HOME", "/h"), ("PERIHELION_CACHE_DIR", "c")], Some("c"));
        check("linux", &[("HOME", "/h"), ("PERIHELION_CACHE_DIR", "")], None);
        check("linux", &[("HOME", "/h"), ("PERIHELION_CACHE_DIR", "off")], None);
    }
}
