//! Ops of libraries.

use super::Builder;
use crate::ops::{Attributes, Custom, CustomOps};
use crate::{Error, Kind, Type, Value};

impl Builder {
    /// An op of a library: `results` are the types of what it makes, as its library will make them.
    ///
    /// # Errors
    /// If no library has the op, or an operand is a buffer, or numbers of operands and results or the names and kinds of
    /// parameters are not what the library declares.
    #[track_caller]
    pub fn custom(
        &mut self,
        ops: &dyn CustomOps,
        op: &str,
        values: &[Value],
        results: Vec<Type>,
        parameters: Attributes,
    ) -> Result<Vec<Value>, Error> {
        for (position, &value) in values.iter().enumerate() {
            let ty = self.operand("custom", value)?;
            if ty.kind == Kind::Buffer {
                let message = format!("operand {position} is {ty}; buffers are for `inplace_custom`");
                return Err(self.refuse("custom", message));
            }
        }
        self.custom_op("custom", ops, op, values, results, parameters)
    }

    /// An op of a library that reads or changes buffers.
    ///
    /// # Errors
    /// As [`Builder::custom`], but one operand at least must be a buffer.
    #[track_caller]
    pub fn inplace_custom(
        &mut self,
        ops: &dyn CustomOps,
        op: &str,
        values: &[Value],
        results: Vec<Type>,
        parameters: Attributes,
    ) -> Result<Vec<Value>, Error> {
        let mut has_buffer = false;
        for &value in values {
            has_buffer |= self.operand("inplace_custom", value)?.kind == Kind::Buffer;
        }
        if !has_buffer {
            return Err(self.refuse("inplace_custom", "no operand is a buffer; use `custom`"));
        }
        self.custom_op("inplace_custom", ops, op, values, results, parameters)
    }

    #[track_caller]
    fn custom_op(
        &mut self,
        name: &'static str,
        ops: &dyn CustomOps,
        op: &str,
        values: &[Value],
        results: Vec<Type>,
        parameters: Attributes,
    ) -> Result<Vec<Value>, Error> {
        let types: Vec<&Type> = values.iter().map(|&value| self.ty(value)).collect();
        match Custom::new(ops, op, &types, results, parameters) {
            Ok(custom) => self.ops(custom, values),
            Err(error) => Err(self.refuse(name, error.0)),
        }
    }
}
