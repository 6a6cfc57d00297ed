//! A request whose constraint is compiled, which takes time: its caller spends that, not the thread that runs the model.

use text::Grammar;

use super::request::Request;
use crate::Error;
use crate::text_model::TextModel;

/// A request whose constraint is compiled.
pub(crate) struct Prepared {
    pub(crate) request: Request,
    pub(crate) grammar: Option<Grammar>,
}

impl Prepared {
    /// # Errors
    /// If the constraint cannot be enforced.
    pub(crate) fn new(request: Request, model: &TextModel) -> Result<Prepared, Error> {
        let compile = |constraint| model.grammars().compile(constraint);
        let grammar = request.constraint.as_ref().map(compile).transpose()?;
        Ok(Prepared { request, grammar })
    }
}
