//! Texts on the lines of standard input.

use std::io::BufRead;

use anyhow::Context;

use crate::exit::Usage;

/// Reads lines, and hands them over in groups of at most `size`.
///
/// # Errors
/// If a line cannot be read or is not UTF-8, and the errors of `take`.
pub(crate) fn for_each_group(
    mut input: impl BufRead,
    size: usize,
    mut take: impl FnMut(Vec<String>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut texts = Vec::new();
    for number in 1.. {
        let mut bytes = Vec::new();
        if input.read_until(b'\n', &mut bytes).context("cannot read standard input")? == 0 {
            break;
        }
        let line = String::from_utf8(bytes).map_err(|error| {
            Usage(format!("standard input, line {number}: {error}; convert it, for example with iconv"))
        })?;
        let line = line.strip_suffix('\n').unwrap_or(&line);
        texts.push(line.strip_suffix('\r').unwrap_or(line).to_string());
        if texts.len() == size {
            take(std::mem::take(&mut texts))?;
        }
    }
    take(texts)
}
