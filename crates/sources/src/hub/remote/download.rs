//! One file on its way from a hub into the cache: resumed where it broke off, checked, and only then given its name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use ureq::http::{Method, StatusCode};

use super::Remote;
use super::digest::Digest;
use super::request::{Failure, Span, Subject};
use crate::Error;
use crate::hub::cache::INCOMPLETE;
use crate::hub::names::is_commit;
use crate::hub::{Progress, Repo, file_path};

/// Bytes that are written at once.
const CHUNK: usize = 256 << 10;

/// A content that is to be received.
pub(super) struct Content<'a> {
    pub(super) url: &'a str,
    pub(super) subject: Subject<'a>,
    /// The repository or the server, for messages.
    pub(super) origin: String,
    /// The file's name, for messages.
    pub(super) name: &'a str,
    /// Its bytes.
    pub(super) total: u64,
    /// The digest that the content must have. A file outside of hubs has one only if the user demands it.
    pub(super) expected: Option<&'a str>,
    /// The version that a server said it has.
    pub(super) version: Option<&'a str>,
}

/// A file that has not wholly arrived.
pub(super) struct Partial {
    path: PathBuf,
    file: File,
    /// Bytes that are in it.
    done: u64,
    /// Of those bytes.
    digest: Digest,
    /// Whether some are from an earlier run, which may have been another content.
    resumed: bool,
}

impl Remote {
    /// Fetches one file, unless its content is in the cache; gives its path in the snapshot.
    pub(super) fn fetch(
        &self,
        repo: &Repo,
        name: &str,
        force: bool,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<PathBuf, Error> {
        let head = self.head(repo, name, progress)?;
        let total = head.size.ok_or_else(|| Error::Protocol {
            url: self.url(repo, name),
            problem: "the hub does not state the file's size".to_string(),
        })?;
        let storage = self.hub.cache.join(repo.folder());
        let blob = storage.join("blobs").join(&head.etag);
        let _lock = self.lock(&repo.folder(), name, &head.etag, progress)?;
        // The process that held the lock may have fetched it.
        let is_there = blob.metadata().is_ok_and(|found| found.is_file() && found.len() == total);
        if force || !is_there {
            let content = Content {
                url: &self.url(repo, name),
                subject: Subject::File(repo, name),
                origin: repo.to_string(),
                name,
                total,
                expected: Some(&head.etag),
                version: None,
            };
            self.receive(&content, &blob, progress)?.0.finish(&blob)?;
        }
        let snapshot = storage.join("snapshots").join(repo.revision());
        let path = snapshot.join(file_path(name)?);
        link(&blob, &snapshot, name)?;
        progress(Progress::Done { file: name, total });
        Ok(path)
    }

    /// Notes the commit that a branch or tag stands for.
    pub(super) fn write_ref(&self, repo: &Repo, reference: &str) -> Result<(), Error> {
        if is_commit(reference) {
            return Ok(());
        }
        let path = self.hub.cache.join(repo.folder()).join("refs").join(file_path(reference)?);
        let folder = path.parent().expect("a file in `refs`");
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        replace(&path, |temporary| fs::write(temporary, repo.revision()))
    }

    /// Waits until no other thread fetches a content of the folder in the cache, in this process or another.
    pub(super) fn lock(
        &self,
        folder: &str,
        name: &str,
        content: &str,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<File, Error> {
        let folder = self.hub.cache.join(".locks").join(folder);
        fs::create_dir_all(&folder).map_err(Error::io(&folder))?;
        let path = folder.join(format!("{content}.lock"));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(Error::io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress(Progress::Waiting { file: name });
                file.lock().map_err(Error::io(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
        }
        Ok(file)
    }

    /// Receives a content next to `blob`, from where an earlier run broke off. Gives it with its digest.
    pub(super) fn receive(
        &self,
        content: &Content<'_>,
        blob: &Path,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(Partial, String), Error> {
        let name = content.name;
        let mut partial = Partial::open(blob, content)?;
        partial.check_space(content.total)?;
        loop {
            let mut report = |wait, problem: &str| progress(Progress::Retrying { file: name, wait, problem });
            self.agent
                .retry(content.url, &mut report, || self.receive_once(content, &mut partial, progress))?;
            let kind = partial.digest.name();
            let digest = std::mem::replace(&mut partial.digest, Digest::Unknown);
            let digest = digest.finish(content.expected.unwrap_or_default());
            let Some(expected) = content.expected.filter(|expected| !digest.eq_ignore_ascii_case(expected))
            else {
                return Ok((partial, digest));
            };
            if !partial.resumed {
                fs::remove_file(&partial.path).map_err(Error::io(&partial.path))?;
                return Err(Error::WrongDigest {
                    repo: content.origin.clone(),
                    file: name.to_string(),
                    digest: kind,
                    found: digest,
                    expected: expected.to_string(),
                });
            }
            partial.restart(content)?;
        }
    }

    /// Receives what is missing, as far as the connection lasts.
    fn receive_once(
        &self,
        content: &Content<'_>,
        partial: &mut Partial,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<(), Failure> {
        let Content { url, name: file, total, .. } = *content;
        progress(Progress::Bytes { file, done: partial.done, total });
        if partial.done == total {
            return Ok(());
        }
        let answer = self.agent.send(Method::GET, url, Span::From(partial.done), content.subject)?;
        if content.version.is_some_and(|version| answer.version().is_some_and(|now| now != version)) {
            let problem = "the file changed during the download: try again".to_string();
            return Err(Error::Protocol { url: url.to_string(), problem }.into());
        }
        let continues = answer.status == StatusCode::PARTIAL_CONTENT
            && answer.header("content-range").and_then(range_start) == Some(partial.done);
        if partial.done > 0 && !continues {
            // A proxy does not support ranges, or the content was replaced.
            partial.restart(content)?;
            if answer.status != StatusCode::OK {
                return Err(Failure::Passing {
                    problem: "the server does not send the rest of the file".into(),
                    progress: false,
                });
            }
        }
        let before = partial.done;
        let (mut reader, mut chunk) = (answer.reader(), vec![0; CHUNK]);
        loop {
            let passing = |problem| Failure::Passing { problem, progress: partial.done > before };
            let length = match reader.read(&mut chunk) {
                Ok(0) if partial.done == total => return Ok(()),
                Ok(0) => return Err(passing(format!("ended after {} of {total} bytes", partial.done))),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(passing(error.to_string())),
            };
            if length as u64 > total - partial.done {
                let problem = format!("sends more than the {total} bytes it states");
                return Err(Error::Protocol { url: url.to_string(), problem }.into());
            }
            partial.write(&chunk[..length], total)?;
            progress(Progress::Bytes { file, done: partial.done, total });
        }
    }
}

impl Content<'_> {
    /// Its digest, before anything was read.
    fn digest(&self) -> Digest {
        match self.subject {
            Subject::Web => Digest::sha256(),
            _ => Digest::from_etag(self.expected.unwrap_or_default(), self.total),
        }
    }
}

impl Drop for Partial {
    /// Removes the file if nothing of it has arrived. A partial file is kept: the next run resumes it.
    fn drop(&mut self) {
        if self.done == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Partial {
    /// Opens what an earlier run left, or a new file, next to where the content will be.
    fn open(blob: &Path, content: &Content<'_>) -> Result<Partial, Error> {
        let folder = blob.parent().expect("a file in a folder of the cache");
        fs::create_dir_all(folder).map_err(Error::io(folder))?;
        let path = blob.with_added_extension(INCOMPLETE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(Error::io(&path))?;
        let mut digest = content.digest();
        let (mut done, mut chunk) = (0, vec![0; CHUNK]);
        loop {
            match file.read(&mut chunk).map_err(Error::io(&path))? {
                0 => break,
                length => {
                    done += length as u64;
                    digest.update(&chunk[..length]);
                }
            }
        }
        let mut partial = Partial { path, file, done, digest, resumed: done > 0 };
        if done > content.total {
            partial.restart(content)?;
        }
        Ok(partial)
    }

    /// Throws away what is there.
    fn restart(&mut self, content: &Content<'_>) -> Result<(), Error> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(Error::io(&self.path))?;
        (self.done, self.digest, self.resumed) = (0, content.digest(), false);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], total: u64) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(|error| match error.kind() {
            ErrorKind::StorageFull => self.disk_full(total),
            _ => Error::io(&self.path)(error),
        })?;
        self.digest.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// Says no before a byte was asked for, if the rest has no room.
    fn check_space(&self, total: u64) -> Result<(), Error> {
        match fs4::available_space(&self.path) {
            Ok(available) if available < total - self.done => Err(self.disk_full(total)),
            // Where the system does not say, writing will.
            _ => Ok(()),
        }
    }

    fn disk_full(&self, total: u64) -> Error {
        let path = self.path.parent().unwrap_or(&self.path).to_path_buf();
        let available = fs4::available_space(&path).unwrap_or(0);
        Error::DiskFull { path, needed: total.saturating_sub(self.done), available }
    }

    /// Gives the whole, checked content its name, once it is on the disk.
    pub(super) fn finish(self, blob: &Path) -> Result<(), Error> {
        self.file.sync_all().map_err(Error::io(&self.path))?;
        fs::rename(&self.path, blob).map_err(Error::io(blob))?;
        // So that the name survives as well, where folders can be synchronized.
        if let Some(Ok(folder)) = blob.parent().map(File::open) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// The first byte that a `Content-Range` states.
fn range_start(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// Makes a file of a snapshot lead to its content.
fn link(blob: &Path, snapshot: &Path, name: &str) -> Result<(), Error> {
    let path = snapshot.join(file_path(name)?);
    let folder = path.parent().expect("a file in a snapshot");
    fs::create_dir_all(folder).map_err(Error::io(folder))?;
    replace(&path, |temporary| {
        #[cfg(unix)]
        {
            // From `snapshots/COMMIT/…` up to `blobs`.
            let mut target: PathBuf = name.split('/').map(|_| "..").collect();
            target.push("..");
            target.push("blobs");
            target.push(blob.file_name().expect("a file in `blobs`"));
            std::os::unix::fs::symlink(target, temporary)
        }
        #[cfg(not(unix))]
        fs::hard_link(blob, temporary).or_else(|_| fs::copy(blob, temporary).map(|_| ()))
    })
}

/// Makes a file under another name, and moves it to where it belongs: others see the old one or the new one.
pub(super) fn replace(path: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), Error> {
    let unique = format!(".{}-{:016x}", std::process::id(), fastrand::u64(..));
    let temporary = path.with_file_name(unique);
    make(&temporary).and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::io(path)(error)
    })
}
