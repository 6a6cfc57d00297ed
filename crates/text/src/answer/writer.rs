//! Writes the rules of a grammar in llguidance's variant of Lark.
//!
//! Marks that are special tokens are written by id (`<[123]>`), all others as text, so that a grammar belongs to one
//! tokenizer. A text of the grammar has no special tokens in it.

use crate::Tokenizer;

/// The rules that all grammars share. White space between parts of an answer is bounded.
pub(super) const TERMINALS: &str = "TEXT: /(?s:.*)/\nGAP: /[ \\n]{0,4}/\n";

/// Any text, as a regular expression.
pub(super) const FREE: &str = "(?s:.*)";

/// Writes rules.
pub(super) struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    /// Names of special tokens, longest first.
    special: Vec<(String, u32)>,
    rules: String,
    count: usize,
    /// The rules of any value, once they were needed.
    pub(super) any: Option<AnyValue>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Writer<'a> {
        let is_special = |id: &u32| tokenizer.is_special(*id) || tokenizer.eos_ids().contains(id);
        let ids = (0..tokenizer.vocab_size() as u32).filter(is_special);
        let named = ids.filter_map(|id| Some((tokenizer.token(id)?.into_owned(), id)));
        let mut special: Vec<_> = named.filter(|(name, _)| !name.is_empty()).collect();
        special.sort_by_key(|(name, id)| (std::cmp::Reverse(name.len()), *id));
        Writer { tokenizer, special, rules: String::new(), count: 0, any: None }
    }

    /// The grammar, whose first rule is `start`.
    pub(super) fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}{TERMINALS}", self.rules)
    }

    /// Adds a rule; gives its name.
    pub(super) fn rule(&mut self, name: &str, body: &str) -> String {
        self.rules.push_str(&format!("{name}: {body}\n"));
        name.split('[').next().unwrap_or(name).to_owned()
    }

    /// Adds a rule with a name of its own, and options in brackets.
    pub(super) fn new_rule(&mut self, options: &str, body: &str) -> String {
        let name = self.reserve();
        self.rule(&(name + options), body)
    }

    /// A name of its own, for a rule that is added later.
    pub(super) fn reserve(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// A text with special tokens in it as terms of a rule. Tokens that end an answer end the text.
    pub(super) fn literal(&self, text: &str) -> String {
        let mut terms = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(char) = rest.chars().next() {
            let special = self.special.iter().find(|(name, _)| rest.starts_with(&name[..]));
            match (special, placeholder(rest)) {
                (Some((_, id)), _) if self.tokenizer.eos_ids().contains(id) => break,
                (Some((name, id)), _) => {
                    terms.extend(quoted(&std::mem::take(&mut plain)));
                    terms.push(format!("<[{id}]>"));
                    rest = &rest[name.len()..];
                }
                (None, Some((pattern, length))) => {
                    terms.extend(quoted(&std::mem::take(&mut plain)));
                    terms.push(pattern);
                    rest = &rest[length..];
                }
                (None, None) => {
                    plain.push(char);
                    rest = &rest[char.len_utf8()..];
                }
            }
        }
        terms.extend(quoted(&plain));
        terms.join(" ")
    }

    /// A text of a request as a term of a rule: names of special tokens in it are text.
    pub(super) fn plain(&self, text: &str) -> String {
        quoted(text).unwrap_or_else(|| "\"\"".to_owned())
    }

    /// Whether a text has no special tokens in it.
    pub(super) fn is_plain(&self, text: &str) -> bool {
        self.plain_start(text) == text
    }

    /// A text up to its first special token.
    fn plain_start<'t>(&self, text: &'t str) -> &'t str {
        let end = self.special.iter().filter_map(|(name, _)| text.find(&name[..])).min();
        &text[..end.unwrap_or(text.len())]
    }

    /// Text of a pattern up to and with `end`. White space before a special token is part of the text.
    pub(super) fn text_until(&mut self, pattern: &str, end: &str) -> String {
        if self.is_plain(end) {
            let text = if pattern == FREE { "TEXT".to_owned() } else { format!("/{pattern}/") };
            return self.new_rule("[lazy]", &format!("{text} {}", self.literal(end)));
        }
        // A text takes all up to a special token, so what stands before that belongs to its pattern.
        let start = self.plain_start(end);
        let rest = self.literal(&end[start.len()..]);
        match (pattern, start.trim_start()) {
            (FREE, "") => format!("TEXT {rest}"),
            (pattern, start) => format!("/{pattern}{}/ {rest}", escaped(start)),
        }
    }

    /// Marks of which one follows a free text. Text takes what stands before a special token.
    pub(super) fn one_of(&self, marks: &[&str]) -> String {
        let of_mark = |mark: &&str| match self.plain_start(mark) {
            plain if plain == *mark => self.literal(mark),
            plain => self.literal(&mark[plain.len()..]),
        };
        match marks {
            [only] => of_mark(only),
            marks => format!("({})", marks.iter().map(of_mark).collect::<Vec<_>>().join(" | ")),
        }
    }
}

/// The rules of values of any schema.
#[derive(Clone)]
pub(super) struct AnyValue {
    pub(super) string: String,
    pub(super) array: String,
    pub(super) object: String,
}

/// A text as a regular expression between slashes.
fn escaped(text: &str) -> String {
    let is_special = |char: char| r"\/.+*?()|[]{}^$#&-~".contains(char);
    text.chars().flat_map(|char| is_special(char).then_some('\\').into_iter().chain([char])).collect()
}

/// A text as a string of Lark, unless it is empty. Its escapes are JSON's.
fn quoted(text: &str) -> Option<String> {
    let quoted = serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    (!text.is_empty()).then_some(quoted)
}

/// The pattern of a placeholder that `text` begins with, and its length.
fn placeholder(text: &str) -> Option<(String, usize)> {
    if text.starts_with("{index}") {
        return Some(("/[0-9]{1,3}/".to_owned(), "{index}".len()));
    }
    if text.starts_with("{name}") {
        return Some(("/[a-zA-Z0-9_.-]{1,128}/".to_owned(), "{name}".len()));
    }
    let (digits, _) = text.strip_prefix("{id:")?.split_once('}')?;
    Some((format!("/[a-zA-Z0-9]{{{digits}}}/"), "{id:}".len() + digits.len()))
}
