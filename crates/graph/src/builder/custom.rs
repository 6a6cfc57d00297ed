//! Ops of libraries.

use super::Builder;
use crate::ops::{Attributes, Custom, CustomOps};
use crate::{Error, Kind, Type, TypeError, Value};

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
        let buffer = values.iter().position(|&value| self.ty(value).kind == Kind::Buffer);
        if let Some(position) = buffer {
            let ty = self.ty(values[position]);
            let message = format!("operand {position} is {ty}; buffers are for `inplace_custom`");
            return Err(Error::Type { op: "custom", error: TypeError::new(message) });
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
        if values.iter().all(|&value| self.ty(value).kind == Kind::Tensor) {
            let error = TypeError::new("no operand is a buffer; use `custom`");
            return Err(Error::Type { op: "inplace_custom", error });
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
        let custom = Custom::new(ops, op, &types, results, parameters);
        self.ops(custom.map_err(|error| Error::Type { op: name, error })?, values)
    }
}
