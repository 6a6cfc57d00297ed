//! A request whose constraint is compiled, which takes time: its caller spends that, not the thread that runs the model.

use text::{Grammar, GrammarCompiler};

use super::request::Request;
use crate::Error;

/// A request whose constraint is compiled.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) grammar: Option<Grammar>,
}

impl Prepared {
    /// # Errors
    /// If the constraint cannot be enforced.
    pub(crate) fn new(request: Request, grammars: &GrammarCompiler) -> Result<Prepared, Error> {
        let compile = |constraint| grammars.compile(constraint);
        let grammar = request.constraint.as_ref().map(compile).transpose()?;
        Ok(Prepared { request, grammar })
    }
}
