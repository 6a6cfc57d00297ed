//! GBNF, the notation of llama.cpp's grammars, as Lark.
//!
//! GBNF describes texts character by character, whereas Lark first cuts them into terminals, each as long as possible. The
//! two agree where the whole grammar is one terminal, which it can be unless a rule contains itself, and where each
//! terminal is one character. So the former is made of grammars without recursion, and the latter of the others.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::{ConstraintError, lark};
use crate::Tokenizer;

/// The most bytes of a grammar.
const MAX_BYTES: usize = 128 << 10;
/// Groups inside groups.
const MAX_DEPTH: usize = 48;
/// The most rules.
const MAX_RULES: usize = 2048;
/// Where answers begin.
const ROOT: &str = "root";

/// Whether a text defines a rule as GBNF does.
pub(super) fn is_gbnf(text: &str) -> bool {
    let defines = |line: &str| {
        let name = line.trim_start().split("::=").next().filter(|name| name.len() < line.trim_start().len());
        name.is_some_and(|name| !name.trim().is_empty() && name.trim().chars().all(is_name))
    };
    text.lines().any(defines)
}

/// The same grammar as Lark.
///
/// # Errors
/// If it is malformed or too large, with the line and column.
pub(super) fn to_lark(grammar: &str, tokenizer: &Tokenizer) -> Result<String, ConstraintError> {
    let refuse = |problem: String| Err(ConstraintError::new("grammar", problem));
    if grammar.len() > MAX_BYTES {
        return refuse(format!("the grammar has {} bytes; the limit is {MAX_BYTES}", grammar.len()));
    }
    let rules = Parser { grammar, position: 0, depth: 0, tokenizer }.rules()?;
    let index: HashMap<&str, usize> = rules.iter().enumerate().map(|(at, rule)| (&*rule.name, at)).collect();
    let named = rules.iter().flat_map(|rule| rule.body.names().into_iter().map(move |name| (rule, name)));
    for (rule, name) in named {
        if !index.contains_key(name) {
            return refuse(format!("rule `{}` uses `{name}`, which is not defined", rule.name));
        }
    }
    let Some(&root) = index.get(ROOT) else { return refuse(format!("there is no rule `{ROOT}`")) };
    if index.len() < rules.len() || rules.len() > MAX_RULES {
        return refuse(format!("a rule is defined twice, or there are more than {MAX_RULES}"));
    }
    let is_terminal = rules.iter().all(|rule| !rule.body.has_tokens()) && !is_recursive(&rules, &index);
    let writer = Writer { index: &index, is_terminal };
    let mut lark = format!("start: {}\n", writer.name(root));
    for (at, rule) in rules.iter().enumerate() {
        let mut body = String::new();
        writer.expression(&rule.body, &mut body);
        let _ = writeln!(lark, "{}: {body}", writer.name(at));
    }
    Ok(lark)
}

#[derive(Debug)]
struct Rule {
    name: String,
    body: Expression,
}

#[derive(Debug)]
enum Expression {
    /// One of these.
    Choice(Vec<Expression>),
    /// One after the other.
    Sequence(Vec<Expression>),
    /// At least so often, and at most.
    Repeat(Box<Expression>, u32, Option<u32>),
    Text(String),
    /// A character as a regular expression.
    Class(String),
    /// A token, as Lark writes it.
    Token(String),
    Rule(String),
}

impl Expression {
    /// The parts of an expression.
    fn parts(&self) -> &[Expression] {
        match self {
            Expression::Choice(parts) | Expression::Sequence(parts) => parts,
            Expression::Repeat(part, ..) => std::slice::from_ref(part),
            _ => &[],
        }
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Expression::Rule(name) => vec![name],
            other => other.parts().iter().flat_map(Expression::names).collect(),
        }
    }

    fn has_tokens(&self) -> bool {
        matches!(self, Expression::Token(_)) || self.parts().iter().any(Expression::has_tokens)
    }
}

/// Whether a rule contains itself.
fn is_recursive(rules: &[Rule], index: &HashMap<&str, usize>) -> bool {
    // A rule is done when all that it contains is; where none of the rest gets done, they contain themselves.
    let mut done: HashSet<usize> = HashSet::new();
    loop {
        let is_ready = |rule: &Rule| rule.body.names().iter().all(|name| done.contains(&index[name]));
        let ready: Vec<usize> =
            (0..rules.len()).filter(|at| !done.contains(at) && is_ready(&rules[*at])).collect();
        if ready.is_empty() {
            return done.len() < rules.len();
        }
        done.extend(ready);
    }
}

/// Writes expressions as Lark.
struct Writer<'a> {
    index: &'a HashMap<&'a str, usize>,
    /// Whether rules become terminals, which are joined into one.
    is_terminal: bool,
}

impl Writer<'_> {
    fn name(&self, rule: usize) -> String {
        format!("{}{rule}", if self.is_terminal { "R" } else { "r" })
    }

    fn expression(&self, expression: &Expression, out: &mut String) {
        let joined = |parts: &[Expression], separator: &str, out: &mut String| {
            out.push('(');
            for (at, part) in parts.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { separator });
                self.expression(part, out);
            }
            out.push(')');
        };
        match expression {
            Expression::Choice(parts) => joined(parts, " | ", out),
            Expression::Sequence(parts) if parts.is_empty() => out.push_str("\"\""),
            Expression::Sequence(parts) => joined(parts, " ", out),
            Expression::Repeat(part, least, most) => {
                out.push('(');
                self.expression(part, out);
                out.push(')');
                let most = most.map_or_else(String::new, |most| most.to_string());
                let _ = write!(out, "{{{least},{most}}}");
            }
            Expression::Text(text) if text.is_empty() || self.is_terminal => {
                out.push_str(&lark::quoted(text))
            }
            Expression::Text(text) => {
                let characters = text.chars().map(|c| lark::quoted(c.encode_utf8(&mut [0; 4])));
                let _ = write!(out, "({})", characters.collect::<Vec<_>>().join(" "));
            }
            Expression::Class(class) => {
                let _ = write!(out, "/{class}/");
            }
            Expression::Token(token) => out.push_str(token),
            Expression::Rule(name) => out.push_str(&self.name(self.index[&**name])),
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

struct Parser<'a> {
    grammar: &'a str,
    position: usize,
    depth: usize,
    tokenizer: &'a Tokenizer,
}

impl<'a> Parser<'a> {
    fn rules(mut self) -> Result<Vec<Rule>, ConstraintError> {
        let mut rules = Vec::new();
        self.skip(true);
        while !self.rest().is_empty() {
            let name = self.word()?.to_owned();
            self.skip(false);
            self.expect("::=")?;
            self.skip(true);
            let body = self.choice(false)?;
            rules.push(Rule { name, body });
            self.skip(true);
        }
        Ok(rules)
    }

    fn rest(&self) -> &'a str {
        &self.grammar[self.position..]
    }

    /// Skips spaces and comments, and line breaks where a rule does not end with them.
    fn skip(&mut self, breaks: bool) {
        loop {
            let rest = self.rest();
            let length = match rest.chars().next() {
                Some(' ' | '\t') => 1,
                Some('\n' | '\r') if breaks => 1,
                Some('#') => rest.find('\n').unwrap_or(rest.len()),
                _ => return,
            };
            self.position += length;
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        self.position += if found { text.len() } else { 0 };
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), ConstraintError> {
        if self.take(text) { Ok(()) } else { Err(self.refuse(&format!("expected `{text}`"))) }
    }

    fn word(&mut self) -> Result<&'a str, ConstraintError> {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        self.position += word.len();
        if word.is_empty() { Err(self.refuse("expected the name of a rule")) } else { Ok(word) }
    }

    fn choice(&mut self, is_inside: bool) -> Result<Expression, ConstraintError> {
        let mut options = vec![self.sequence(is_inside)?];
        loop {
            // A line that begins with `|` goes on with the rule.
            let end = self.position;
            self.skip(true);
            if !self.take("|") {
                self.position = end;
                return Ok(Expression::Choice(options));
            }
            self.skip(true);
            options.push(self.sequence(is_inside)?);
        }
    }

    fn sequence(&mut self, is_inside: bool) -> Result<Expression, ConstraintError> {
        let mut parts = Vec::new();
        loop {
            self.skip(is_inside);
            let Some(part) = self.atom()? else { return Ok(Expression::Sequence(parts)) };
            parts.push(self.repeated(part)?);
        }
    }

    fn atom(&mut self) -> Result<Option<Expression>, ConstraintError> {
        let first = self.rest().chars().next();
        Ok(Some(match first {
            Some('"') => Expression::Text(self.text()?),
            Some('[') => Expression::Class(self.class()?),
            Some('.') => {
                self.position += 1;
                Expression::Class(r"[\x{0}-\x{10FFFF}]".to_owned())
            }
            Some('(') => {
                self.position += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(self.refuse(&format!("more than {MAX_DEPTH} groups inside each other")));
                }
                self.skip(true);
                let group = self.choice(true)?;
                self.skip(true);
                self.expect(")")?;
                self.depth -= 1;
                group
            }
            Some('<' | '!') => Expression::Token(self.token()?),
            Some(c) if is_name(c) => Expression::Rule(self.word()?.to_owned()),
            Some('|' | ')' | '\n' | '\r') | None => return Ok(None),
            Some(c) => return Err(self.refuse(&format!("unexpected {c:?}"))),
        }))
    }

    fn repeated(&mut self, mut part: Expression) -> Result<Expression, ConstraintError> {
        loop {
            self.skip(false);
            let (least, most) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => {
                    self.position += 1;
                    part = match self.counts()? {
                        (0, Some(0)) => Expression::Sequence(Vec::new()),
                        (least, most) => Expression::Repeat(Box::new(part), least, most),
                    };
                    continue;
                }
                _ => return Ok(part),
            };
            self.position += 1;
            part = Expression::Repeat(Box::new(part), least, most);
        }
    }

    /// The counts of `{least,most}` up to its end.
    fn counts(&mut self) -> Result<(u32, Option<u32>), ConstraintError> {
        let Some(end) = self.rest().find('}') else { return Err(self.refuse("`{` without `}`")) };
        let counts = &self.rest()[..end];
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let found = match counts.split_once(',') {
            None => number(counts).map(|count| (count, Some(count))),
            Some((least, most)) if most.trim().is_empty() => number(least).map(|least| (least, None)),
            Some((least, most)) if least.trim().is_empty() => number(most).map(|most| (0, Some(most))),
            Some((least, most)) => number(least).zip(number(most)).map(|(least, most)| (least, Some(most))),
        };
        let is_range = |&(least, most): &(u32, Option<u32>)| most.is_none_or(|most| most >= least);
        let found = found.filter(is_range);
        let found = found.ok_or_else(|| self.refuse(&format!("`{{{counts}}}` is not a range of counts")))?;
        self.position += end + 1;
        Ok(found)
    }

    fn text(&mut self) -> Result<String, ConstraintError> {
        let mut text = String::new();
        self.position += 1;
        while !self.take("\"") {
            text.push(self.character()?);
        }
        Ok(text)
    }

    /// `[a-z]` as a regular expression.
    fn class(&mut self) -> Result<String, ConstraintError> {
        self.position += 1;
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        while !self.take("]") {
            let first = self.character()?;
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            let last = if is_range {
                self.position += 1;
                self.character()?
            } else {
                first
            };
            if last < first {
                return Err(self.refuse(&format!("the range {first:?} to {last:?} is empty")));
            }
            let _ = write!(class, "\\x{{{:X}}}-\\x{{{:X}}}", u32::from(first), u32::from(last));
        }
        if class.ends_with(['[', '^']) {
            return Err(self.refuse("a class of no characters"));
        }
        Ok(class + "]")
    }

    /// A character of a text or class, which may be written with an escape.
    fn character(&mut self) -> Result<char, ConstraintError> {
        let mut characters = self.rest().chars();
        let Some(first) = characters.next() else { return Err(self.refuse("the text ends within quotes")) };
        self.position += first.len_utf8();
        if first != '\\' {
            return Ok(first);
        }
        let Some(escaped) = characters.next() else { return Err(self.refuse("the text ends with `\\`")) };
        self.position += escaped.len_utf8();
        let digits = match escaped {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' => return Ok(escaped),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other => return Err(self.refuse(&format!("unknown escape `\\{other}`"))),
        };
        let code = self.rest().get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        let Some(character) = code.and_then(char::from_u32) else {
            return Err(
                self.refuse(&format!("`\\{escaped}` wants {digits} hexadecimal digits of a character"))
            );
        };
        self.position += digits;
        Ok(character)
    }

    /// `<name>` or `<[id]>`, or any token but these.
    fn token(&mut self) -> Result<String, ConstraintError> {
        let is_negated = self.take("!");
        let Some(end) = self.rest().find('>').filter(|_| self.rest().starts_with('<')) else {
            return Err(self.refuse("expected a token such as `<name>`"));
        };
        let name = &self.rest()[..=end];
        let id = match name.strip_prefix("<[").and_then(|name| name.strip_suffix("]>")) {
            Some(id) => id.parse::<u32>().ok().filter(|&id| (id as usize) < self.tokenizer.vocab_size()),
            None => self.tokenizer.id(name),
        };
        let Some(id) = id else {
            return Err(self.refuse(&format!("the vocabulary has no token `{name}`")));
        };
        self.position += name.len();
        Ok(if is_negated { format!("<[^{id}]>") } else { format!("<[{id}]>") })
    }

    fn refuse(&self, problem: &str) -> ConstraintError {
        let before = &self.grammar[..self.position];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        ConstraintError::new("grammar", format!("line {line}, column {column}: {problem}"))
    }
}
