//! From the table of a library to ops: nothing is believed before it is checked.

use std::collections::BTreeSet;

use extension::abi;

use crate::op::Functions;
use crate::{Access, OperandDeclaration, ParameterDeclaration, ParameterKind, Signature};

/// More ops, operands, parameters or results than this are taken for a mistake.
const MAX_OPS: usize = 4096;
const MAX_ITEMS: usize = 256;
/// The longest name.
const MAX_TEXT: usize = 256;

/// A library as it describes itself.
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ops: Vec<(Signature, Functions)>,
}

/// Why a table is refused.
pub(crate) enum Fault {
    /// It is for another version of the ABI.
    Abi(u32),
    /// It makes no sense.
    Nonsense(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault::Nonsense(message)
    }
}

/// The contents of a table.
///
/// # Safety
/// `table` is null or points to what a library calls a table: readable memory whose pointers, where they are not null,
/// are readable for the counts next to them. It stays so.
pub(crate) unsafe fn read(table: *const abi::Library) -> Result<Table, Fault> {
    check_pointer("the table", table)?;
    // SAFETY: not null and aligned; every version of the ABI starts with its number.
    let version = unsafe { (&raw const (*table).abi_version).read() };
    if version != abi::VERSION {
        return Err(Fault::Abi(version));
    }
    // SAFETY: not null and aligned, and of the version whose struct this is.
    let table = unsafe { &*table };
    expect_size("the table", table.struct_size, size_of::<abi::Library>())?;
    expect_size("an op", table.op_size, size_of::<abi::Op>())?;
    // SAFETY: the caller's, for all texts and lists below.
    let (name, version) =
        unsafe { (text("the library's name", &table.name)?, text("the version", &table.version)?) };
    if name.is_empty() || table.op_count == 0 {
        return Err(Fault::Nonsense(format!(
            "the library `{name}` has {} ops and this name",
            table.op_count
        )));
    }
    // SAFETY: as above.
    let raw = unsafe { list("the ops", table.ops, table.op_count, MAX_OPS)? };
    let mut names = BTreeSet::new();
    let mut ops = Vec::with_capacity(raw.len());
    for (i, op) in raw.iter().enumerate() {
        // SAFETY: as above.
        let (signature, functions) =
            unsafe { read_op(op) }.map_err(|message| format!("op {i} of `{name}`: {message}"))?;
        if !names.insert(signature.name.clone()) {
            return Err(Fault::Nonsense(format!("two ops of `{name}` are named `{}`", signature.name)));
        }
        ops.push((signature, functions));
    }
    Ok(Table { name, version, ops })
}

/// # Safety
/// As [`read`].
unsafe fn read_op(op: &abi::Op) -> Result<(Signature, Functions), String> {
    // SAFETY: the caller's.
    let (name, operands, parameters) = unsafe {
        (
            text("the name", &op.name)?,
            list("the operands", op.operands, op.operand_count, MAX_ITEMS)?,
            list("the parameters", op.parameters, op.parameter_count, MAX_ITEMS)?,
        )
    };
    // SAFETY: the caller's.
    let operands =
        operands.iter().map(|operand| unsafe { read_operand(operand) }).collect::<Result<_, _>>()?;
    // SAFETY: the caller's.
    let parameters =
        parameters.iter().map(|parameter| unsafe { read_parameter(parameter) }).collect::<Result<_, _>>()?;
    let signature = Signature {
        name,
        operands,
        variadic: flag("variadic", op.variadic)?,
        min_results: op.min_results as usize,
        max_results: op.max_results as usize,
        parameters,
    };
    check(&signature)?;
    let run = op.run.ok_or_else(|| format!("`{}` has no function `run`", signature.name))?;
    Ok((signature, Functions { infer: op.infer, run }))
}

/// # Safety
/// As [`read`].
unsafe fn read_operand(operand: &abi::Operand) -> Result<OperandDeclaration, String> {
    // SAFETY: the caller's.
    let name = unsafe { text("the name of an operand", &operand.name)? };
    let access = match operand.access {
        abi::ACCESS_TENSOR => Access::Tensor,
        abi::ACCESS_READ => Access::Read,
        abi::ACCESS_WRITE => Access::Write,
        other => return Err(format!("operand `{name}` has the unknown access {other}")),
    };
    Ok(OperandDeclaration { name, access })
}

/// # Safety
/// As [`read`].
unsafe fn read_parameter(parameter: &abi::Parameter) -> Result<ParameterDeclaration, String> {
    // SAFETY: the caller's.
    let name = unsafe { text("the name of a parameter", &parameter.name)? };
    let kind = match parameter.kind {
        abi::KIND_BOOL => ParameterKind::Bool,
        abi::KIND_INT => ParameterKind::Int,
        abi::KIND_FLOAT => ParameterKind::Float,
        abi::KIND_TEXT => ParameterKind::Text,
        abi::KIND_DTYPE => ParameterKind::DType,
        abi::KIND_INTS => ParameterKind::Ints,
        other => return Err(format!("parameter `{name}` has the unknown kind {other}")),
    };
    Ok(ParameterDeclaration { required: flag("required", parameter.required)?, name, kind })
}

/// Checks what a signature says; those of manifests too.
pub(crate) fn check(signature: &Signature) -> Result<(), String> {
    let Signature { name, operands, variadic, min_results, max_results, parameters } = signature;
    let is_word = |text: &str, more: &str| {
        text.chars().all(|c| c == '_' || c.is_ascii_alphanumeric() || more.contains(c))
            && text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
    };
    if !is_word(name, ".") {
        return Err(format!("the name `{name}` is not made of letters, digits, underscores and points"));
    }
    if min_results > max_results || *max_results > MAX_ITEMS {
        return Err(format!("`{name}` has {min_results} to {max_results} results"));
    }
    if *variadic && operands.last().is_none_or(|operand| operand.access != Access::Tensor) {
        return Err(format!("the last operand of `{name}` may repeat, but is no tensor"));
    }
    let writes = operands.iter().any(|operand| operand.access == Access::Write);
    if *max_results == 0 && !writes {
        return Err(format!("`{name}` has no results and writes no operand"));
    }
    let mut names = BTreeSet::new();
    match parameters.iter().find(|parameter| !is_word(&parameter.name, "") || !names.insert(&parameter.name))
    {
        None => Ok(()),
        Some(other) => Err(format!("the parameter `{}` of `{name}` is no word, or there twice", other.name)),
    }
}

fn flag(what: &str, value: u32) -> Result<bool, String> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("`{what}` is {other}, expected 0 or 1")),
    }
}

fn expect_size(what: &str, found: u32, expected: usize) -> Result<(), String> {
    if found as usize == expected {
        Ok(())
    } else {
        Err(format!("{what} takes {found} bytes, expected {expected}"))
    }
}

fn check_pointer<T>(what: &str, pointer: *const T) -> Result<(), String> {
    if pointer.is_null() || !pointer.is_aligned() {
        Err(format!("{what} is at the impossible address {pointer:p}"))
    } else {
        Ok(())
    }
}

/// # Safety
/// A pointer that is not null is readable for `count` items.
unsafe fn list<'a, T>(what: &str, items: *const T, count: usize, most: usize) -> Result<&'a [T], String> {
    if count == 0 {
        return Ok(&[]);
    }
    if count > most {
        return Err(format!("the number of {what} is {count}, the most are {most}"));
    }
    check_pointer(what, items)?;
    // SAFETY: not null and aligned; readable as the caller says.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// # Safety
/// A pointer that is not null is readable for the text's length.
unsafe fn text(what: &str, text: &abi::Text) -> Result<String, String> {
    // SAFETY: the caller's.
    let bytes = unsafe { list(what, text.data, text.len, MAX_TEXT)? };
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{what} is no UTF-8: {bytes:?}"))?;
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    const OPERAND: abi::Operand =
        abi::Operand { name: abi::Text::new("x"), access: abi::ACCESS_TENSOR, reserved: 0 };
    const FLOAT: abi::Parameter =
        abi::Parameter { name: abi::Text::new("slope"), kind: abi::KIND_FLOAT, required: 0 };

    unsafe extern "C" fn run(_: *const abi::Call) -> u32 {
        abi::OK
    }

    fn op(operands: &'static [abi::Operand], parameters: &'static [abi::Parameter]) -> abi::Op {
        abi::Op {
            name: abi::Text::new("leaky_relu"),
            operands: operands.as_ptr(),
            operand_count: operands.len(),
            parameters: parameters.as_ptr(),
            parameter_count: parameters.len(),
            min_results: 1,
            max_results: 1,
            variadic: 0,
            reserved: 0,
            infer: None,
            run: Some(run),
        }
    }

    fn sound() -> abi::Op {
        op(&[OPERAND], &[FLOAT])
    }

    /// What is said of a library with these ops, after a change to its table.
    fn check(ops: &[abi::Op], change: impl FnOnce(&mut abi::Library)) -> Result<Table, String> {
        let mut library = abi::Library {
            abi_version: abi::VERSION,
            struct_size: size_of::<abi::Library>() as u32,
            op_size: size_of::<abi::Op>() as u32,
            reserved: 0,
            name: abi::Text::new("test"),
            version: abi::Text::new("1"),
            ops: ops.as_ptr(),
            op_count: ops.len(),
        };
        change(&mut library);
        // SAFETY: the tests below change what is checked before it is followed.
        unsafe { read(&library) }.map_err(|fault| match fault {
            Fault::Abi(version) => format!("ABI {version}"),
            Fault::Nonsense(message) => message,
        })
    }

    #[test]
    fn sound_tables_are_read() {
        let table = check(&[sound()], |_| ()).map(|table| (table.name, table.version, table.ops));
        let (name, version, ops) = table.unwrap_or_else(|message| panic!("{message}"));
        assert_eq!((&name[..], &version[..], ops.len()), ("test", "1", 1));
        assert_eq!(ops[0].0.operands, [OperandDeclaration { name: "x".into(), access: Access::Tensor }]);
        let slope =
            ParameterDeclaration { name: "slope".into(), kind: ParameterKind::Float, required: false };
        assert_eq!(ops[0].0.parameters, [slope]);
    }

    #[test]
    fn each_fault_of_a_table_is_named() {
        type Change = fn(&mut abi::Library);
        let cases: &[(Change, &str)] = &[
            (|l| l.abi_version = 7, "ABI 7"),
            (|l| l.struct_size = 8, "the table takes 8 bytes, expected"),
            (|l| l.op_size = 9, "an op takes 9 bytes, expected"),
            (|l| l.name.data = ptr::null(), "the library's name is at the impossible address 0x0"),
            (|l| l.name = abi::Text { data: [0xffu8; 2].as_ptr(), len: 2 }, "the library's name is no UTF-8"),
            (|l| l.name.len = 0, "the library `` has 1 ops and this name"),
            (|l| l.version.len = usize::MAX, "the number of the version is 18446744073709551615"),
            (|l| l.op_count = 0, "the library `test` has 0 ops"),
            (|l| l.op_count = 1 << 40, "the number of the ops is"),
            (|l| l.ops = ptr::null(), "the ops is at the impossible address 0x0"),
            (|l| l.ops = l.ops.wrapping_byte_add(1), "the ops is at the impossible address"),
        ];
        for (change, expected) in cases {
            let message = check(&[sound()], change).err().unwrap();
            assert!(message.starts_with(expected), "{message}");
        }
        assert_eq!(
            check(&[sound(), sound()], |_| ()).err().unwrap(),
            "two ops of `test` are named `leaky_relu`"
        );
        // SAFETY: null is allowed.
        assert!(unsafe { read(ptr::null()) }.is_err());
    }

    #[test]
    fn each_fault_of_an_op_is_named() {
        type Change = fn(&mut abi::Op);
        let cases: &[(Change, &str)] = &[
            (|op| op.name = abi::Text::new("a b"), "the name `a b` is not made of"),
            (|op| op.name.len = 0, "the name `` is not made of"),
            (|op| op.run = None, "`leaky_relu` has no function `run`"),
            (|op| op.operands = ptr::null(), "the operands is at the impossible address 0x0"),
            (|op| op.parameter_count = 1000, "the number of the parameters is 1000"),
            (|op| op.max_results = 0, "`leaky_relu` has 1 to 0 results"),
            (
                |op| (op.min_results, op.max_results) = (0, 0),
                "`leaky_relu` has no results and writes no operand",
            ),
            (|op| op.variadic = 2, "`variadic` is 2, expected 0 or 1"),
            (|op| (op.variadic, op.operand_count) = (1, 0), "the last operand of `leaky_relu` may repeat"),
        ];
        for (change, expected) in cases {
            let mut ops = [sound()];
            change(&mut ops[0]);
            let message = check(&ops, |_| ()).err().unwrap();
            assert!(message.starts_with(&format!("op 0 of `test`: {expected}")), "{message}");
        }
        const ODD_OPERAND: abi::Operand = abi::Operand { access: 3, ..OPERAND };
        const ODD_KIND: abi::Parameter = abi::Parameter { kind: 0, ..FLOAT };
        const ODD_NAME: abi::Parameter = abi::Parameter { name: abi::Text::new("a.b"), ..FLOAT };
        let cases = [
            (op(&[ODD_OPERAND], &[]), "operand `x` has the unknown access 3"),
            (op(&[OPERAND], &[ODD_KIND]), "parameter `slope` has the unknown kind 0"),
            (op(&[OPERAND], &[ODD_NAME]), "the parameter `a.b` of `leaky_relu` is no word, or there twice"),
            (
                op(&[OPERAND], &[FLOAT, FLOAT]),
                "the parameter `slope` of `leaky_relu` is no word, or there twice",
            ),
        ];
        for (op, expected) in cases {
            assert_eq!(check(&[op], |_| ()).err().unwrap(), format!("op 0 of `test`: {expected}"));
        }
    }
}
