//! Where models keep their chat templates, beside their weights.

use std::path::Path;

use super::{ChatTemplate, DEFAULT, Limits};
use crate::Error;

/// The template in a file of its own, which comes before all others.
const SOURCE: &str = "chat_template.jinja";
/// The folder of templates with names.
const NAMED: &str = "additional_chat_templates";
/// JSON files that may hold one, the first that does.
const JSON: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];

impl ChatTemplate {
    /// The template of a model's folder, or `None` where it has none: `chat_template.jinja`, beside which
    /// `additional_chat_templates` may hold others by name, or else `chat_template.json`, or else
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`Error::Read`] when such a file is there and cannot be read; as [`ChatTemplate::from_tokenizer_config`].
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Option<ChatTemplate>, Error> {
        let directory = directory.as_ref();
        let mut sources = Vec::new();
        if let Some(source) = text(&directory.join(SOURCE))? {
            sources.push((DEFAULT.to_owned(), source));
        }
        sources.extend(named(&directory.join(NAMED))?);
        if !sources.is_empty() {
            let sources = sources.iter().map(|(name, source)| (&name[..], &source[..]));
            return ChatTemplate::with_limits(sources, Limits::default()).map(Some);
        }
        for name in JSON {
            let Some(json) = text(&directory.join(name))? else { continue };
            if let Some(template) = ChatTemplate::from_tokenizer_config(&json)? {
                return Ok(Some(template));
            }
        }
        Ok(None)
    }

    /// The template at a path: a model's folder, one of its JSON files, or else a Jinja source.
    ///
    /// # Errors
    /// When there is none, or as [`ChatTemplate::from_directory`].
    pub fn open(path: impl AsRef<Path>) -> Result<ChatTemplate, Error> {
        let path = path.as_ref();
        let found = if path.is_dir() {
            ChatTemplate::from_directory(path)?
        } else {
            let source = read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
            match path.extension().is_some_and(|extension| extension == "json") {
                true => ChatTemplate::from_tokenizer_config(&source)?,
                false => Some(ChatTemplate::new(&source)?),
            }
        };
        found.ok_or_else(|| Error::ChatTemplate {
            name: DEFAULT.to_owned(),
            problem: format!("{} holds none", path.display()),
        })
    }
}

/// The templates with names, if there are any.
fn named(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut named = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jinja"));
        if let (Some(name), Some(source)) = (name, text(&path)?) {
            named.push((name.to_owned(), source));
        }
    }
    Ok(named)
}

/// A file's text, or `None` where there is no such file.
fn text(path: &Path) -> Result<Option<String>, Error> {
    match path.is_file() {
        true => read(path).map(Some).map_err(|source| Error::Read { path: path.to_owned(), source }),
        false => Ok(None),
    }
}

/// Reads a text of a size that a template or a configuration may have.
fn read(path: &Path) -> std::io::Result<String> {
    /// Configurations of tokenizers list their added tokens.
    const MOST: u64 = 64 << 20;
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MOST {
        return Err(std::io::Error::other(format!("it has {bytes} bytes, more than {MOST}")));
    }
    String::from_utf8(weights::read_file(path)?).map_err(std::io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ChatContext;

    #[test]
    fn files_come_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let rendered = || {
            let template = ChatTemplate::from_directory(folder.path()).unwrap()?;
            Some(template.render(&ChatContext::new(&[])).unwrap())
        };
        assert_eq!(rendered(), None);
        assert!(ChatTemplate::open(folder.path()).unwrap_err().to_string().contains("holds none"));
        write("tokenizer_config.json", r#"{"chat_template": "config"}"#);
        assert_eq!(rendered().as_deref(), Some("config"));
        write("chat_template.json", r#"{"chat_template": "json"}"#);
        assert_eq!(rendered().as_deref(), Some("json"));
        write("chat_template.jinja", "own");
        write("additional_chat_templates/rag.jinja", "named");
        assert_eq!(rendered().as_deref(), Some("own"));
        let template = ChatTemplate::from_directory(folder.path()).unwrap().unwrap();
        assert_eq!(template.names().collect::<Vec<_>>(), ["default", "rag"]);
        let open = |name: &str| ChatTemplate::open(folder.path().join(name)).map(|template| template.sources);
        assert_eq!(open("tokenizer_config.json").unwrap()["default"], "config");
        assert_eq!(open("chat_template.jinja").unwrap()["default"], "own");
        assert!(matches!(open("missing"), Err(Error::Read { .. })));
    }
}
