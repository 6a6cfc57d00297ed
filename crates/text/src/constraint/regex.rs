//! Regular expressions and choices as llguidance reads them.

use regex_syntax::ast::parse::Parser;

use super::ConstraintError;

/// The most bytes of an expression, and of the texts of a choice together.
pub(super) const MAX_BYTES: usize = 256 << 10;

/// Checks an expression, so that errors name the place in it.
pub(super) fn check(expression: &str) -> Result<(), ConstraintError> {
    let refuse = |problem: String| Err(ConstraintError::new("regex", problem));
    if expression.len() > MAX_BYTES {
        return refuse(format!("the expression has {} bytes; the limit is {MAX_BYTES}", expression.len()));
    }
    match Parser::new().parse(expression) {
        Ok(_) => Ok(()),
        Err(error) => {
            let start = error.span().start;
            refuse(format!("line {}, column {}: {}", start.line, start.column, error.kind()))
        }
    }
}

/// A grammar of the texts that an expression matches.
pub(super) fn to_lark(expression: &str) -> String {
    let (mut written, mut escaped) = (String::new(), false);
    for char in expression.chars() {
        match char {
            '/' if !escaped => written.push_str("\\/"),
            '\n' if escaped => written.push('n'),
            '\n' => written.push_str("\\n"),
            char => written.push(char),
        }
        escaped = char == '\\' && !escaped;
    }
    format!("start: /{written}/")
}

/// The expression that matches exactly some texts.
pub(super) fn of_choice(options: &[String]) -> Result<String, ConstraintError> {
    let refuse = |problem: String| Err(ConstraintError::new("choice", problem));
    if options.is_empty() {
        return refuse("there is nothing to choose from: give at least one text".into());
    }
    if let Some(index) = options.iter().position(String::is_empty) {
        return refuse(format!("text {index} (counted from 0) is empty"));
    }
    let bytes: usize = options.iter().map(String::len).sum();
    if bytes > MAX_BYTES {
        return refuse(format!("the texts have {bytes} bytes; the limit is {MAX_BYTES}"));
    }
    let mut escaped: Vec<String> = options.iter().map(|option| regex_syntax::escape(option)).collect();
    escaped.sort();
    escaped.dedup();
    Ok(escaped.join("|"))
}
