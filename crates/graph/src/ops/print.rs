//! Shows a value, or a text, where the program comes past: for debugging.

use super::prelude::*;

/// Shows `x` of any type, or without operands a text, as a session's print options say. No results; prints and writes
/// of buffers keep their order, and a print is never removed.
///
/// The reference shows nothing, as this crate reaches no file and no terminal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Print {
    /// What it is called, in the output and as a file.
    pub label: String,
    /// What to show instead of a value.
    pub text: Option<String>,
}

impl Define for Print {
    declare!("print" { label, text });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        match (inputs.len(), &self.text) {
            (1, None) | (0, Some(_)) => Ok(vec![]),
            (got, None) => Err(type_error!("takes 1 operand (x), or none and a text, got {got}")),
            (got, Some(_)) => Err(type_error!("takes no operand next to a text, got {got}")),
        }
    }

    fn has_side_effect(&self) -> bool {
        true
    }

    fn reference(&self, _inputs: &[&Tensor], _outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;
    use crate::Graph;

    #[test]
    fn types() {
        let value = Print { label: "x".to_string(), text: None };
        check_types(
            value.clone(),
            &[
                (&["f32[n, 2]"], ""),
                (&["q4_0[2, 32]"], ""),
                (&[], "print: takes 1 operand (x), or none and a text, got 0"),
                (
                    &["mut f32[1]"],
                    "print: operand 0 is mut f32[1], expected a tensor (load the buffer first)",
                ),
            ],
        );
        let text = Print { text: Some("here".to_string()), ..value };
        check_types(text, &[(&[], ""), (&["f32[1]"], "print: takes no operand next to a text, got 1")]);
    }

    #[test]
    fn labels_survive_as_text() {
        let text = "graph g(%x: f32[n]) {
  print(%x) {label = \"layers.0/\\\"q\\\"\"}
  print() {label = note, text = \"it came here\"}
  return %x
}
";
        assert_eq!(Graph::parse(text).unwrap().to_string(), text);
    }
}
