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
    /// One that is broken gives its error when it is rendered: see [`ChatTemplate::checked`].
    ///
    /// # Errors
    /// [`Error::Read`] when such a file is there and cannot be read.
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
            let sources = sources.iter().map(|(name, path, source)| {
                (&name[..], label(path), source.as_deref().map_err(String::clone))
            });
            return Ok(Some(ChatTemplate::labeled(sources, Limits::default())));
        }
        for name in JSON {
            let path = directory.join(name);
            if let Some(json) = text(&path)?
                && let Some(template) = ChatTemplate::in_json(json, &path)
            {
                return Ok(Some(template));
            }
        }
        Ok(None)
    }

    fn in_json(json: Result<String, String>, path: &Path) -> Option<ChatTemplate> {
        match json {
            Ok(json) => ChatTemplate::from_config(&json, Some(path)),
            Err(problem) => {
                let source = (DEFAULT, path.display().to_string(), Err(problem));
                Some(ChatTemplate::labeled([source], Limits::default()))
            }
        }
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
                true => ChatTemplate::in_json(source, path),
                false => {
                    let source =
                        (DEFAULT, path.display().to_string(), source.as_deref().map_err(String::clone));
                    Some(ChatTemplate::labeled([source], Limits::default()))
                }
            }
        };
        let none = || Error::ChatTemplate {
            name: path.display().to_string(),
            problem: "holds no chat template".to_owned(),
        };
        found.ok_or_else(none)?.checked()
    }
}

/// A file's text, or why it has none.
type FileText = Result<String, String>;

/// The templates with names, if there are any.
fn named(folder: &Path) -> Result<Vec<(String, PathBuf, FileText)>, Error> {
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
fn text(path: &Path) -> Result<Option<FileText>, Error> {
    match path.is_file() {
        true => read(path).map(Some).map_err(|source| Error::Read { path: path.to_owned(), source }),
        false => Ok(None),
    }
}

/// Reads a text of a size that a template or a configuration may have.
fn read(path: &Path) -> std::io::Result<FileText> {
    /// Configurations of tokenizers list their added tokens.
    const MOST: u64 = 64 << 20;
    let bytes = std::fs::metadata(path)?.len();
    if bytes > MOST {
        return Ok(Err(format!("the file has {bytes} bytes, more than {MOST}")));
    }
    let text = String::from_utf8(weights::read_file(path)?);
    Ok(text.map_err(|error| format!("the file is not UTF-8: {error}")))
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
    fn broken_templates_of_models_are_errors_of_chat_only() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, bytes: &[u8], problem: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let template = ChatTemplate::from_directory(folder.path()).unwrap().unwrap();
            let error = template.render(&ChatContext::new(&[])).unwrap_err().to_string();
            assert!(error.starts_with(&format!("chat template {}: {problem}", path.display())), "{error}");
            assert_eq!(template.checked().unwrap_err().to_string(), error);
            assert!(ChatTemplate::open(folder.path()).is_err());
            std::fs::remove_file(path).unwrap();
        };
        check("tokenizer_config.json", br#"{"chat_template": "{% for m in messages %}{{ m.content }"}"#, "");
        check(
            "tokenizer_config.json",
            br#"{"chat_template": 3}"#,
            "chat_template is neither a string nor a list",
        );
        check(
            "tokenizer_config.json",
            br#"{"chat_template": [{"name": "a"}]}"#,
            "an entry of chat_template lacks",
        );
        check("tokenizer_config.json", br#"{"chat_template": []}"#, "chat_template is an empty list");
        check("tokenizer_config.json", b"{", "the file that holds it is not JSON");
        check("chat_template.jinja", b"{{ 'a' ", "");
        check("chat_template.jinja", b"\xff", "the file is not UTF-8");
        check("chat_template.jinja", &vec![b'a'; 2 << 20], "has 2097152 bytes; the limit is 1048576");
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
