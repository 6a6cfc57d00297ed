//! The files of a model that may hold its chat templates.

use std::path::{Path, PathBuf};

use super::{ChatTemplate, DEFAULT, Limits};
use crate::Error;

/// The template in a file of its own, which comes before all others.
const SOURCE: &str = "chat_template.jinja";
/// The folder of templates with names.
const NAMED: &str = "additional_chat_templates";
/// JSON files that may hold one, the first that does.
const JSON: [&str; 2] = ["chat_template.json", "tokenizer_config.json"];

impl ChatTemplate {
    /// The template of a model's folder, or `None` if it has none: `chat_template.jinja`, with others by name in
    /// `additional_chat_templates`; or else `chat_template.json`, or else
    /// `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`Error::Read`] when such a file is there and cannot be read; as [`ChatTemplate::from_tokenizer_config`].
    pub fn from_directory(directory: impl AsRef<Path>) -> Result<Option<ChatTemplate>, Error> {
        let directory = directory.as_ref();
        let mut sources = Vec::new();
        let path = directory.join(SOURCE);
        if let Some(source) = text(&path)? {
            sources.push((DEFAULT.to_owned(), path, source));
        }
        sources.extend(named(&directory.join(NAMED))?);
        if !sources.is_empty() {
            let label = |path: &PathBuf| path.display().to_string();
            let sources = sources.iter().map(|(name, path, source)| (&name[..], label(path), &source[..]));
            return ChatTemplate::labeled(sources, Limits::default()).map(Some);
        }
        for name in JSON {
            let path = directory.join(name);
            let Some(json) = text(&path)? else { continue };
            if let Some(template) = ChatTemplate::from_config(&json, Some(&path))? {
                return Ok(Some(template));
            }
        }
        Ok(None)
    }

    /// The template that a user names: a built-in one ([`ChatTemplate::named`]), a path ([`ChatTemplate::open`]), or the
    /// source itself, which contains `{`.
    ///
    /// # Errors
    /// As [`ChatTemplate::open`] and [`ChatTemplate::new`].
    pub fn find(given: impl AsRef<Path>) -> Result<ChatTemplate, Error> {
        let path = given.as_ref();
        let text = path.to_str().unwrap_or_default();
        match ChatTemplate::named(text) {
            Some(template) => Ok(template),
            None if text.contains('{') && !path.exists() => ChatTemplate::new(text),
            None => ChatTemplate::open(path),
        }
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
                true => ChatTemplate::from_config(&source, Some(path))?,
                false => {
                    let label = path.display().to_string();
                    Some(ChatTemplate::labeled([(DEFAULT, label, &source[..])], Limits::default())?)
                }
            }
        };
        found.ok_or_else(|| Error::ChatTemplate {
            name: path.display().to_string(),
            problem: "holds no chat template".to_owned(),
        })
    }
}

/// The templates with names, if there are any.
fn named(folder: &Path) -> Result<Vec<(String, PathBuf, String)>, Error> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut named = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jinja"));
        if let (Some(name), Some(source)) = (name, text(&path)?) {
            named.push((name.to_owned(), path.clone(), source));
        }
    }
    Ok(named)
}

/// A file's text, or `None` if the file does not exist.
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
        assert!(
            ChatTemplate::open(folder.path()).unwrap_err().to_string().contains("holds no chat template")
        );
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
        assert_eq!(open("tokenizer_config.json").unwrap()["default"].text, "config");
        assert_eq!(open("chat_template.jinja").unwrap()["default"].text, "own");
        assert!(matches!(open("missing"), Err(Error::Read { .. })));
    }

    #[test]
    fn templates_are_found_by_name_by_path_and_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("{a}.jinja");
        std::fs::write(&path, "own").unwrap();
        let find =
            |given: &Path| ChatTemplate::find(given).map(|mut template| template.sources.remove(DEFAULT));
        let text = |given: &Path| find(given).unwrap().unwrap().text;
        assert!(text(Path::new("chatml")).contains("<|im_start|>"));
        assert_eq!(text(&path), "own");
        assert_eq!(text(Path::new("{{ bos_token }}/")), "{{ bos_token }}/");
        assert!(matches!(find(Path::new("missing")), Err(Error::Read { .. })));
    }

    #[test]
    fn errors_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &str, name: &str, text: &str| {
            let is_named = path.starts_with(NAMED);
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            let opened = ChatTemplate::open(if is_named { folder.path() } else { &path });
            let rendered = opened.and_then(|template| template.render(&ChatContext::new(&[])));
            let error = rendered.unwrap_err().to_string();
            let expected = format!("chat template {}{name}", path.display());
            assert!(error.starts_with(&expected), "{error} should begin with {expected}");
            std::fs::remove_file(path).unwrap();
        };
        check("broken.jinja", ": ", "{{");
        check("uses.jinja", ": ", "{{ nope() }}");
        check("unfit.jinja", " cannot render", "{{ 1 + 'a' }}");
        check("tokenizer_config.json", ": ", r#"{"chat_template": "{{"}"#);
        check(
            "tokenizer_config.json",
            " (rag): ",
            r#"{"chat_template": [{"name": "rag", "template": "{%"}]}"#,
        );
        check("tokenizer_config.json", ": holds no", "{}");
        check("chat_template.json", ": the file", "{");
        check("additional_chat_templates/x.jinja", ": ", "{{");
    }
}
