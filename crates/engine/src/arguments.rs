//! The arguments of a call: buffers and numbers, by position or by name.

use tensor::{AlignedBytes, Buffer, DType, bf16, f16, float8};

use crate::model::TensorSpec;
use crate::{Error, Model};

/// A buffer as it is, or a number for an input without axes.
#[derive(Debug, Clone)]
pub enum Argument {
    /// A buffer of the input's very type.
    Buffer(Buffer),
    /// A truth value, for a bool.
    Bool(bool),
    /// A whole number, for an integer or a float that holds it exactly.
    Int(i64),
    /// A number, for a float; rounded to it.
    Float(f64),
}

impl Model {
    /// Computes the outputs of arguments that are given by name: the name of the input in the graph, or `input0`,
    /// `input1`, … by position. All must be given, each once, in any order.
    ///
    /// # Errors
    /// If names are missing, doubled or unknown, a number does not fit, and as [`Model::execute`].
    pub fn call<A: Into<Argument> + Clone>(&self, arguments: &[(&str, A)]) -> Result<Vec<Buffer>, Error> {
        let specs = self.input_metadata();
        let mut given: Vec<Option<Argument>> = vec![None; specs.len()];
        for (name, argument) in arguments {
            let position = position(specs, name).ok_or_else(|| {
                let known: Vec<&str> = specs.iter().map(|spec| &spec.name[..]).collect();
                self.arguments(format!("there is no input `{name}`, the inputs are: {}", known.join(", ")))
            })?;
            if given[position].replace(argument.clone().into()).is_some() {
                return Err(
                    self.arguments(format!("input {position} '{}' is given twice", specs[position].name))
                );
            }
        }
        let missing: Vec<&str> = given
            .iter()
            .zip(specs)
            .filter(|(given, _)| given.is_none())
            .map(|(_, spec)| &spec.name[..])
            .collect();
        if !missing.is_empty() {
            return Err(self.arguments(format!("these inputs are missing: {}", missing.join(", "))));
        }
        self.call_in_order(&given.into_iter().flatten().collect::<Vec<_>>())
    }

    /// Computes the outputs of arguments in the order of the inputs, as [`Model::execute`] does, numbers among them.
    ///
    /// # Errors
    /// If a number does not fit, and as [`Model::execute`].
    pub fn call_in_order(&self, arguments: &[Argument]) -> Result<Vec<Buffer>, Error> {
        let specs = self.input_metadata();
        if arguments.len() != specs.len() {
            let message = format!("takes {} arguments, got {}", specs.len(), arguments.len());
            return Err(self.arguments(message));
        }
        let buffers = specs.iter().zip(arguments).enumerate().map(|(position, (spec, argument))| {
            let name = spec.name.clone();
            argument.to_buffer(spec).map_err(|message| Error::Input { position, name, message })
        });
        self.execute(&buffers.collect::<Result<Vec<_>, _>>()?)
    }

    fn arguments(&self, message: String) -> Error {
        Error::Arguments { model: self.name().to_string(), message }
    }
}

/// The input with a name; `input3` is the one at 3, if none is called so.
fn position(specs: &[TensorSpec], name: &str) -> Option<usize> {
    let numbered = || {
        let position: usize = name.strip_prefix("input")?.parse().ok()?;
        (position < specs.len() && name == format!("input{position}")).then_some(position)
    };
    specs.iter().position(|spec| spec.name == name).or_else(numbered)
}

impl Argument {
    fn to_buffer(&self, spec: &TensorSpec) -> Result<Buffer, String> {
        let shown = match self {
            Argument::Buffer(buffer) => return Ok(buffer.clone()),
            Argument::Bool(value) => value.to_string(),
            Argument::Int(value) => value.to_string(),
            Argument::Float(value) => value.to_string(),
        };
        let fail = || format!("got the number {shown}, expected {}", spec.ty);
        if spec.ty.rank() > 0 {
            return Err(fail());
        }
        let bytes = self.bytes(spec.ty.dtype).ok_or_else(fail)?;
        Ok(Buffer::from_bytes(spec.ty.dtype, [0usize; 0], AlignedBytes::copy_of(&bytes)))
    }

    /// The number as an element, if it can be one.
    fn bytes(&self, dtype: DType) -> Option<Vec<u8>> {
        match *self {
            Argument::Bool(value) if dtype == DType::Bool => Some(vec![u8::from(value)]),
            Argument::Int(value) if dtype.is_integer() => integer(dtype, value),
            Argument::Int(value) if dtype.is_float() => {
                let bytes = float(dtype, value as f64)?;
                let exact = value as f64 as i64 == value && value != i64::MAX;
                (exact && read_float(dtype, &bytes)? == value as f64).then_some(bytes)
            }
            Argument::Float(value) if dtype.is_float() => float(dtype, value),
            _ => None,
        }
    }
}

fn integer(dtype: DType, value: i64) -> Option<Vec<u8>> {
    match dtype {
        DType::U8 => Some(u8::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::I8 => Some(i8::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::U16 => Some(u16::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::I16 => Some(i16::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::U32 => Some(u32::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::I32 => Some(i32::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::U64 => Some(u64::try_from(value).ok()?.to_le_bytes().to_vec()),
        DType::I64 => Some(value.to_le_bytes().to_vec()),
        _ => None,
    }
}

fn float(dtype: DType, value: f64) -> Option<Vec<u8>> {
    match dtype {
        DType::F64 => Some(value.to_le_bytes().to_vec()),
        DType::F32 => Some((value as f32).to_le_bytes().to_vec()),
        DType::F16 => Some(f16::from_f64(value).to_le_bytes().to_vec()),
        DType::BF16 => Some(bf16::from_f64(value).to_le_bytes().to_vec()),
        dtype if dtype.is_float8() => Some(vec![float8::encode(dtype, value as f32)]),
        _ => None,
    }
}

fn read_float(dtype: DType, bytes: &[u8]) -> Option<f64> {
    match dtype {
        DType::F64 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
        DType::F32 => Some(f32::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::F16 => Some(f16::from_le_bytes(bytes.try_into().ok()?).into()),
        DType::BF16 => Some(bf16::from_le_bytes(bytes.try_into().ok()?).into()),
        dtype if dtype.is_float8() => Some(float8::decode(dtype, *bytes.first()?).into()),
        _ => None,
    }
}

impl From<Buffer> for Argument {
    fn from(buffer: Buffer) -> Argument {
        Argument::Buffer(buffer)
    }
}

impl From<&Buffer> for Argument {
    fn from(buffer: &Buffer) -> Argument {
        Argument::Buffer(buffer.clone())
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Argument {
        Argument::Bool(value)
    }
}

impl From<i64> for Argument {
    fn from(value: i64) -> Argument {
        Argument::Int(value)
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Argument {
        Argument::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{build, f32, reference_session};

    /// `x · scale`, with one axis and without.
    fn scaled() -> Model {
        let graph = build("scaled", |b| {
            let (x, scale) = (b.input("x", f32(&["n"])), b.input("scale", f32(&[])));
            Ok(vec![b.mul(x, scale)?])
        });
        reference_session().load(&graph, &()).unwrap()
    }

    #[test]
    fn names_and_numbers_in_any_order() {
        let (model, x) = (scaled(), Buffer::from_slice([2], &[1f32, 2.0]));
        let check = |arguments: &[(&str, Argument)], expected: [f32; 2]| {
            assert_eq!(model.call(arguments).unwrap()[0].to_vec::<f32>(), expected);
        };
        check(&[("scale", 3i64.into()), ("x", x.clone().into())], [3.0, 6.0]);
        check(&[("input0", x.clone().into()), ("input1", 0.5.into())], [0.5, 1.0]);
        let y = model.call_in_order(&[(&x).into(), 2.0.into()]).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), [2.0, 4.0]);
    }

    #[test]
    fn what_does_not_match_is_named() {
        let (model, x) = (scaled(), Argument::from(Buffer::from_slice([2], &[1f32, 2.0])));
        let check = |arguments: &[(&str, Argument)], expected: &str| {
            assert_eq!(model.call(arguments).unwrap_err().to_string(), expected);
        };
        check(&[("x", x.clone())], "model `scaled`: these inputs are missing: scale");
        let twice = [("x", x.clone()), ("scale", 1.0.into()), ("input1", 1.0.into())];
        check(&twice, "model `scaled`: input 1 'scale' is given twice");
        let unknown = [("x", x.clone()), ("factor", 1.0.into())];
        check(&unknown, "model `scaled`: there is no input `factor`, the inputs are: x, scale");
        check(&[("x", 1.0.into()), ("scale", 1.0.into())], "input 0 'x': got the number 1, expected f32[n]");
        let exact = [("x", x.clone()), ("scale", ((1i64 << 24) + 1).into())];
        check(&exact, "input 1 'scale': got the number 16777217, expected f32[]");
        let few = model.call_in_order(&[x]).unwrap_err().to_string();
        assert_eq!(few, "model `scaled`: takes 2 arguments, got 1");
    }

    #[test]
    fn numbers_become_elements() {
        let check = |argument: Argument, dtype: DType, expected: Option<Vec<u8>>| {
            assert_eq!(argument.bytes(dtype), expected, "{argument:?} as {dtype}");
        };
        check(Argument::Int(-1), DType::I16, Some(vec![0xff, 0xff]));
        check(Argument::Int(-1), DType::U16, None);
        check(Argument::Int(256), DType::U8, None);
        check(Argument::Int(i64::MAX), DType::F64, None);
        check(Argument::Int(256), DType::BF16, Some(vec![0x80, 0x43]));
        check(Argument::Int(257), DType::BF16, None);
        check(Argument::Float(1.5), DType::I32, None);
        check(Argument::Float(1.0), DType::F8E4M3, Some(vec![0x38]));
        check(Argument::Bool(true), DType::Bool, Some(vec![1]));
        check(Argument::Bool(true), DType::F32, None);
    }
}
