//! The name of a model, parsed once: a path, or a repository with its revision and what is meant of it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::hub::{Repo, decoded, file_path, is_repo_id};
use crate::{Error, WeightsFormat};

/// A model as users name it.
///
/// | text | means |
/// |---|---|
/// | `models/tiny.gguf`, `models/tiny/` | a path, if it exists or cannot name a repository |
/// | `org/name` | a repository on the hub, at its branch `main` |
/// | `org/name@v1.0` | at a branch, tag or commit |
/// | `org/name:Q4_K_M` | of its models, the one whose file name has this label or whose weights have this encoding |
/// | `hf.co/org/name…`, `https://huggingface.co/org/name…` | the same |
/// | `https://huggingface.co/org/name/tree/REV[/FOLDER]` | at a revision, perhaps below a folder |
/// | `https://huggingface.co/org/name/blob/REV/FILE`, `…/resolve/REV/FILE` | one file |
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelName {
    /// A file or folder on this machine.
    Path(PathBuf),
    /// A repository on a hub.
    Repo(RepoName),
}

/// A repository of a hub, and what is meant of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoName {
    /// The repository, at its revision; `main` if the name has none.
    pub repo: Repo,
    /// Whether the name has a revision.
    pub has_revision: bool,
    /// A file or folder below the root.
    pub file: Option<String>,
    /// A label of files (`Q4_K_M`, `UD-Q4_K_XL`) or an encoding (`q4_k`).
    pub label: Option<String>,
}

/// Hosts of the hub, without the scheme.
const HOSTS: [&str; 3] = ["huggingface.co", "www.huggingface.co", "hf.co"];

impl ModelName {
    /// Parses a name. The only look at this machine is whether the whole text is a path that exists.
    ///
    /// # Errors
    /// If it is an address of another host than the hub's (`HF_ENDPOINT`), or a page of it that is no model.
    pub fn parse(text: &str) -> Result<ModelName, Error> {
        if Path::new(text).exists() {
            return Ok(ModelName::Path(PathBuf::from(text)));
        }
        let id = text.split(['@', ':']).next().unwrap_or_default();
        let is_path = WeightsFormat::from_file_name(text).is_some() || !is_repo_id(id) || text.contains('\\');
        if is_path && without_host(text)?.is_none() {
            return Ok(ModelName::Path(PathBuf::from(text)));
        }
        ModelName::from_hub(text)
    }

    /// Parses the name of a repository, even if there is a path with this name.
    ///
    /// # Errors
    /// As [`ModelName::parse`], and if no hub has such names.
    pub fn from_hub(text: &str) -> Result<ModelName, Error> {
        if let Some(rest) = without_host(text)? {
            return parse_address(text, rest).map(ModelName::Repo);
        }
        let (id, rest) = text.split_at(text.find(['@', ':']).unwrap_or(text.len()));
        let mut name = RepoName { repo: Repo::new(id)?, has_revision: false, file: None, label: None };
        name.read_suffixes(text, rest)?;
        Ok(ModelName::Repo(name))
    }

    /// The repository, if it is one.
    pub fn repo(&self) -> Option<&RepoName> {
        match self {
            ModelName::Path(_) => None,
            ModelName::Repo(name) => Some(name),
        }
    }

    /// Says that a repository is meant at a revision.
    ///
    /// # Errors
    /// If the name has another revision already, is a path, or there are no such revisions.
    pub fn at(self, revision: &str) -> Result<ModelName, Error> {
        let problem =
            |value: &str, fix: String| Err(Error::Field { field: "revision", value: value.to_string(), fix });
        match self {
            ModelName::Path(path) => problem(
                revision,
                format!("{} is a path, and only repositories have revisions", path.display()),
            ),
            ModelName::Repo(name) if name.has_revision && name.repo.revision() != revision => {
                problem(revision, format!("the name says {}: leave one out", name.repo.revision()))
            }
            ModelName::Repo(name) => {
                Ok(ModelName::Repo(RepoName { repo: name.repo.at(revision)?, has_revision: true, ..name }))
            }
        }
    }
}

impl RepoName {
    /// Reads `@REVISION` and `:LABEL`, in any order.
    fn read_suffixes(&mut self, text: &str, rest: &str) -> Result<(), Error> {
        let invalid = |problem| Error::InvalidName { what: "model", name: text.to_string(), problem };
        let mut rest = rest;
        while let Some(kind) = rest.chars().next() {
            let end = rest[1..].find(['@', ':']).map_or(rest.len(), |end| end + 1);
            let (word, more) = (&rest[1..end], &rest[end..]);
            match kind {
                _ if word.is_empty() => {
                    return Err(invalid("a revision must follow `@`, and a label such as Q4_K_M `:`"));
                }
                '@' if !self.has_revision => {
                    self.repo = self.repo.clone().at(word)?;
                    self.has_revision = true;
                }
                ':' if self.label.is_none() => self.label = Some(word.to_string()),
                _ => return Err(invalid("give at most one `@` with a revision and one `:` with a label")),
            }
            rest = more;
        }
        Ok(())
    }
}

/// Whether an address is one of the hub's.
pub(crate) fn is_of_hub(address: &str) -> bool {
    matches!(without_host(address), Ok(Some(_)))
}

/// What follows the host of the hub's addresses; `None` if the text is no address.
fn without_host(text: &str) -> Result<Option<&str>, Error> {
    let lower = text.to_ascii_lowercase();
    let of_host = |text: &str, lower: &str| {
        let (host, _) = lower.split_once('/')?;
        Some((host.to_string(), text[host.len() + 1..].len()))
    };
    if lower.starts_with("hf://") {
        return Ok(Some(&text["hf://".len()..]));
    }
    for scheme in ["https://", "http://"] {
        let Some(rest) = lower.strip_prefix(scheme) else { continue };
        let own = std::env::var("HF_ENDPOINT").unwrap_or_default().to_ascii_lowercase();
        let own = own.split_once("://").map_or("", |(_, host)| host.trim_end_matches('/'));
        return match of_host(&text[scheme.len()..], rest) {
            Some((host, length)) if HOSTS.contains(&&host[..]) || host == own => {
                Ok(Some(&text[text.len() - length..]))
            }
            _ => Err(Error::Field {
                field: "huggingface_repo_id",
                value: text.to_string(),
                fix: "only addresses of models on the hub are taken: give https://huggingface.co/org/name, \
                      set HF_ENDPOINT if this is another hub, or give the address of a file as weight_path"
                    .to_string(),
            }),
        };
    }
    Ok(of_host(text, &lower)
        .filter(|(host, _)| HOSTS.contains(&&host[..]))
        .map(|(_, length)| &text[text.len() - length..]))
}

/// `org/name[@REV][:LABEL]`, `org/name/tree/REV[/FOLDER]`, `org/name/blob/REV/FILE`, `org/name/FILE`.
fn parse_address(text: &str, rest: &str) -> Result<RepoName, Error> {
    let rest = rest.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    let invalid = || Error::Field {
        field: "huggingface_repo_id",
        value: text.to_string(),
        fix: "this is the address of no model: give https://huggingface.co/org/name, or that of its files"
            .into(),
    };
    let parts: Vec<String> = rest.split('/').map(decoded).collect();
    let [owner, name, more @ ..] = &parts[..] else { return Err(invalid()) };
    if ["datasets", "spaces", "api"].contains(&&owner[..]) {
        return Err(invalid());
    }
    let (name, suffixes) = name.split_at(name.find(['@', ':']).unwrap_or(name.len()));
    let repo = Repo::new(&format!("{owner}/{name}"))?;
    let mut found = RepoName { repo, has_revision: false, file: None, label: None };
    found.read_suffixes(text, suffixes)?;
    let file = match more {
        [] => return Ok(found),
        [kind, revision, file @ ..] if ["tree", "blob", "resolve", "raw"].contains(&&kind[..]) => {
            found.repo = found.repo.at(revision)?;
            found.has_revision = true;
            file.join("/")
        }
        [kind] if ["tree", "blob", "resolve", "raw"].contains(&&kind[..]) => return Ok(found),
        file => file.join("/"),
    };
    if !file.is_empty() {
        file_path(&file)?;
        found.file = Some(file);
    }
    Ok(found)
}

/// `org/name@REV:LABEL/FILE`, with the parts that the name has.
impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.repo.id())?;
        if self.has_revision {
            write!(f, "@{}", self.repo.revision())?;
        }
        self.label.iter().try_for_each(|label| write!(f, ":{label}"))?;
        self.file.iter().try_for_each(|file| write!(f, "/{file}"))
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelName::Path(path) => path.display().fmt(f),
            ModelName::Repo(name) => name.repo.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repository, revision, file and label of a name.
    fn check(text: &str, expected: (&str, &str, Option<&str>, Option<&str>)) {
        let name = ModelName::parse(text).unwrap();
        let name = name.repo().unwrap_or_else(|| panic!("{text} is a path"));
        let found = (name.repo.id(), name.repo.revision(), name.file.as_deref(), name.label.as_deref());
        assert_eq!(found, expected, "{text}");
        if name.file.is_none() {
            assert_eq!(ModelName::from_hub(&name.to_string()).unwrap().repo(), Some(name), "{text}: {name}");
        }
    }

    #[test]
    fn repositories_have_revisions_and_labels() {
        check("gpt2", ("gpt2", "main", None, None));
        check("org/name", ("org/name", "main", None, None));
        check("org/name@v1.0", ("org/name", "v1.0", None, None));
        check("org/name@refs/pr/7", ("org/name", "refs/pr/7", None, None));
        check("org/name:Q4_K_M", ("org/name", "main", None, Some("Q4_K_M")));
        check("org/name@v2:q8_0", ("org/name", "v2", None, Some("q8_0")));
        check("org/name:q8_0@v2", ("org/name", "v2", None, Some("q8_0")));
    }

    #[test]
    fn addresses_of_the_hub_name_repositories() {
        check("hf.co/org/name", ("org/name", "main", None, None));
        check("hf.co/org/name:IQ4_XS", ("org/name", "main", None, Some("IQ4_XS")));
        check("huggingface.co/org/name/", ("org/name", "main", None, None));
        check("hf://org/name@v1", ("org/name", "v1", None, None));
        check("HTTPS://HuggingFace.co/Org/Name", ("Org/Name", "main", None, None));
        let address = "https://huggingface.co/org/name";
        check(address, ("org/name", "main", None, None));
        check(&format!("{address}/tree/dev"), ("org/name", "dev", None, None));
        check(&format!("{address}/tree/refs%2Fpr%2F1/fp16"), ("org/name", "refs/pr/1", Some("fp16"), None));
        check(&format!("{address}/blob/main/a/b.gguf"), ("org/name", "main", Some("a/b.gguf"), None));
        check(
            &format!("{address}/resolve/v1/x%20y.gguf?download=true"),
            ("org/name", "v1", Some("x y.gguf"), None),
        );
    }

    #[test]
    fn what_cannot_be_a_repository_is_a_path() {
        for text in ["/models/x", "./x", "a/b/c", "nowhere.gguf", "a/b.safetensors", "~/x", "C:\\x", ""] {
            assert_eq!(ModelName::parse(text).unwrap(), ModelName::Path(PathBuf::from(text)), "{text}");
        }
        // A path that exists is one, whatever else it could be.
        assert_eq!(ModelName::parse("src").unwrap(), ModelName::Path(PathBuf::from("src")));
    }

    #[test]
    fn wrong_names_say_why() {
        let error = |text: &str| ModelName::parse(text).unwrap_err().to_string();
        for text in ["org/name@", "org/name:", "org/name:a:b", "org/name@a@b", "org/name@a..b"] {
            assert!(matches!(ModelName::parse(text), Err(Error::InvalidName { .. })), "{text}");
        }
        assert!(error("https://example.com/org/name").contains("set HF_ENDPOINT"));
        assert!(error("https://huggingface.co/datasets/org/name").contains("the address of no model"));
        assert!(
            error("https://huggingface.co/org/name/resolve/main/../../x").contains("relative to the root")
        );
        let at = |text: &str, revision: &str| ModelName::parse(text).unwrap().at(revision);
        assert_eq!(at("org/name", "v1").unwrap(), ModelName::parse("org/name@v1").unwrap());
        assert_eq!(
            at("org/name@v1", "v2").unwrap_err().to_string(),
            "revision is v2: the name says v1: leave one out"
        );
        assert!(at("src", "v1").unwrap_err().to_string().contains("only repositories have revisions"));
    }
}
