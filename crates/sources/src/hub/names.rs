//! Names of repositories, revisions and files: checked before any of them becomes part of a path or an address.

use std::fmt;
use std::path::PathBuf;

use crate::Error;

/// The longest name of a repository on a hub.
const MAX_REPO: usize = 96;
/// The longest name of a file or revision that is looked at.
const MAX_NAME: usize = 1024;

/// A repository of models on a hub, at a revision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Repo {
    id: String,
    revision: String,
}

impl Repo {
    /// The repository `name` or `owner/name` at its branch `main`.
    ///
    /// # Errors
    /// If no hub has such names.
    pub fn new(id: &str) -> Result<Repo, Error> {
        check_id(id).map_err(|problem| invalid("repository", id, problem))?;
        Ok(Repo { id: id.to_string(), revision: "main".to_string() })
    }

    /// The same repository at a branch, tag or commit.
    ///
    /// # Errors
    /// If there are no such names.
    pub fn at(self, revision: &str) -> Result<Repo, Error> {
        check_revision(revision).map_err(|problem| invalid("revision", revision, problem))?;
        Ok(Repo { revision: revision.to_string(), ..self })
    }

    /// `name` or `owner/name`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The folder in the cache.
    pub(crate) fn folder(&self) -> String {
        format!("models--{}", self.id.replace('/', "--"))
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.id)
    }
}

/// Whether a text could be the name of a repository on a hub.
pub fn is_repo_id(id: &str) -> bool {
    check_id(id).is_ok()
}

/// The path, below the root of its repository, of a file whose name comes from a user or a hub.
///
/// # Errors
/// If it leads elsewhere.
pub fn file_path(name: &str) -> Result<PathBuf, Error> {
    check_file(name).map_err(|problem| invalid("file", name, problem))?;
    Ok(name.split('/').collect())
}

/// Whether this is the hexadecimal id of a commit.
pub(crate) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn invalid(what: &'static str, name: &str, problem: &'static str) -> Error {
    Error::InvalidName { what, name: name.chars().take(MAX_REPO).collect(), problem }
}

fn check_id(id: &str) -> Result<(), &'static str> {
    let parts: Vec<&str> = id.split('/').collect();
    if parts.len() > 2 {
        return Err("give a path on this machine, or the name of a repository: owner/name");
    }
    if id.len() > MAX_REPO {
        return Err("names have at most 96 characters");
    }
    for part in parts {
        check_word(part)?;
    }
    if id.ends_with(".git") { Err("names do not end with .git") } else { Ok(()) }
}

fn check_word(word: &str) -> Result<(), &'static str> {
    if !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
        return Err("names consist of letters, digits, `-`, `_` and `.`");
    }
    let borders = [word.bytes().next(), word.bytes().next_back()];
    if borders.iter().any(|byte| byte.is_none_or(|byte| b"-.".contains(&byte))) {
        return Err("names begin and end with a letter, a digit or `_`");
    }
    if word.contains("--") || word.contains("..") { Err("names have no `--` and no `..`") } else { Ok(()) }
}

fn check_revision(revision: &str) -> Result<(), &'static str> {
    check_file(revision)?;
    if revision.contains("..") || revision.contains("@{") {
        return Err("revisions have no `..` and no `@{`");
    }
    if revision.bytes().any(|byte| b" ~^:?*[\x7f".contains(&byte)) {
        return Err("revisions have no spaces and none of `~^:?*[`");
    }
    Ok(())
}

fn check_file(name: &str) -> Result<(), &'static str> {
    if name.len() > MAX_NAME {
        return Err("too long");
    }
    if name.chars().any(char::is_control) {
        return Err("names have no control characters");
    }
    // A drive (`C:`) or a stream of a file where the system has these.
    if name.contains('\\') || cfg!(windows) && name.contains(':') {
        return Err("folders are separated by `/`");
    }
    if name.split('/').any(|part| part.is_empty() || part == "." || part == "..") {
        return Err("give a path relative to the root of the repository, without `..`");
    }
    Ok(())
}

/// Decodes the percent escapes (`%2F`) of a part of a URL. A part that would not be UTF-8 stays as it is.
pub(crate) fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, more @ ..] = rest {
        let byte = match more {
            [high, low, ..] if *first == b'%' => {
                std::str::from_utf8(&[*high, *low]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| part.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_have_plain_names() {
        for id in ["gpt2", "meta-llama/Llama-3.1-8B", "a/b_c.d", "0x/y"] {
            assert_eq!(Repo::new(id).unwrap().id(), id);
        }
        let long = "x".repeat(97);
        let hostile = [
            "",
            "/",
            "a/",
            "/a",
            "a/b/c",
            "../a",
            "a/..",
            "..",
            ".",
            "a b",
            "a\n",
            "a\0b",
            "a\\b",
            "a--b/c",
            "-a/b",
            "a/b.",
            "a/b.git",
            "models--a--b",
            "ä/b",
            "C:a",
            "~/x",
            "https://x/y",
            &long,
        ];
        for id in hostile {
            let error = Repo::new(id).unwrap_err();
            assert!(matches!(error, Error::InvalidName { .. }), "{id}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert_eq!(Repo::new("a/b").unwrap().folder(), "models--a--b");
    }

    #[test]
    fn files_lie_below_the_root() {
        assert_eq!(file_path("a/b c.gguf").unwrap(), PathBuf::from("a").join("b c.gguf"));
        for name in
            ["", "..", ".", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "./a", "a\u{1b}[31m", "a\\..\\b"]
        {
            assert!(file_path(name).is_err(), "{name}");
        }
    }

    #[test]
    fn revisions_are_those_of_git() {
        let at = |revision: &str| Repo::new("a/b").unwrap().at(revision);
        for revision in ["main", "v1.0", "refs/pr/7", "0123456789abcdef0123456789abcdef01234567"] {
            assert_eq!(at(revision).unwrap().revision(), revision);
        }
        for revision in ["", "..", "a..b", "../main", "/main", "a b", "x\n", "x:y", "HEAD~1", "a@{1}"] {
            assert!(at(revision).is_err(), "{revision}");
        }
    }
}
