//! The tags that `transformers` adds to Jinja, written in Jinja's own, and what is read before compiling.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, ErrorKind};

/// White space as `transformers` has jinja2 treat it.
pub(super) fn config() -> SyntaxConfig {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    syntax.expect("the default delimiters are valid")
}

/// Tokens inside one tag: the compiler recurses over a chain of operators.
const MAX_TAG: usize = 2048;
/// `elif` in a template: the compiler recurses over them.
const MAX_ELIFS: usize = 512;

/// Refuses what the compiler would spend too much on, before it does.
///
/// # Errors
/// When a tag or a chain of `elif` is too long.
pub(super) fn check(source: &str) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::new(ErrorKind::SyntaxError, problem));
    let tokens: Vec<Token> = tokenize(source, false, config())
        .map(|token| token.map(|(token, _)| token))
        .collect::<Result<_, _>>()?;
    let tags = tokens.split(|token| matches!(token, Token::BlockStart | Token::VariableStart));
    if let Some(tag) = tags.map(<[Token]>::len).find(|&len| len > MAX_TAG) {
        return refuse(format!("one tag has {tag} tokens; the limit is {MAX_TAG}"));
    }
    let elifs = tokens.iter().filter(|token| matches!(token, Token::Ident("elif"))).count();
    match elifs > MAX_ELIFS {
        true => refuse(format!("{elifs} elif; the limit is {MAX_ELIFS}")),
        false => Ok(()),
    }
}

/// The source with the line ends of jinja2, and with `{% generation %}` … `{% endgeneration %}` as `{% with %}` … `{% endwith %}`.
///
/// The tag marks what the assistant says, for training; the text is the same, and either is a scope of its own.
/// Marks for white space stay.
pub(super) fn without_extensions(source: &str) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut rewritten = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        rewritten.push_str(before);
        let inner = tag[2..].trim_start_matches(['-', '+']).trim_start();
        let head = &tag[..tag.len() - inner.len()];
        rewritten.push_str(head);
        rest = inner;
        // Its first line end is text, which the engine takes for one after a block.
        if let Some(after) = inner.strip_prefix("raw")
            && let Some(text) = after.trim_start().strip_prefix("%}\n")
        {
            rewritten.push_str("raw %}\n\n");
            rest = text;
        }
        for (extension, own) in [("generation", "with"), ("endgeneration", "endwith")] {
            if let Some(after) = inner.strip_prefix(extension)
                && after.trim_start().trim_start_matches(['-', '+']).starts_with("%}")
            {
                rewritten.push_str(own);
                rest = after;
            }
        }
    }
    rewritten + rest
}

#[cfg(test)]
mod tests {
    use super::without_extensions;

    #[test]
    fn generation_becomes_a_scope() {
        let source = "a{%- generation -%} {{ b }} {% endgeneration +%}{% set generation = 1 %}{%generation%}";
        let expected = "a{%- with -%} {{ b }} {% endwith +%}{% set generation = 1 %}{%with%}";
        assert_eq!(without_extensions(source), expected);
    }
}
