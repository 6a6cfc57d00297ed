//! The C header says what the Rust structs say: the compiler of C is asked for sizes, offsets and constants.

use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use perihelion_extension::{DType, abi};

/// What is asked for in C, and what it is in Rust.
fn facts() -> Vec<(String, usize)> {
    let mut facts = Vec::new();
    macro_rules! structs {
        ($($c:literal = $rust:ident { $($c_field:ident = $field:ident),* })*) => {
            $(
                facts.push((format!("sizeof({})", $c), size_of::<abi::$rust>()));
                $(facts.push((
                    format!("offsetof({}, {})", $c, stringify!($c_field)),
                    offset_of!(abi::$rust, $field),
                ));)*
            )*
        };
    }
    structs! {
        "PerihelionText" = Text { data = data, len = len }
        "PerihelionTensor" = Tensor { data = data, bytes = bytes, shape = shape, rank = rank, dtype = dtype }
        "PerihelionArgument" = Argument {
            name = name, kind = kind, integer = int, number = float, text = text, ints = ints, int_count = int_count
        }
        "PerihelionMessage" = Message { data = data, capacity = capacity, len = len }
        "PerihelionHost" = Host { struct_size = struct_size, context = context, parallel_for = parallel_for }
        "PerihelionCall" = Call {
            struct_size = struct_size, operands = operands, operand_count = operand_count, results = results,
            result_count = result_count, arguments = arguments, argument_count = argument_count, message = message,
            host = host
        }
        "PerihelionOperand" = Operand { name = name, access = access, reserved = reserved }
        "PerihelionParameter" = Parameter { name = name, kind = kind, required = required }
        "PerihelionOp" = Op {
            name = name, operands = operands, operand_count = operand_count, parameters = parameters,
            parameter_count = parameter_count, min_results = min_results, max_results = max_results,
            variadic = variadic, infer = infer, run = run
        }
        "PerihelionLibrary" = Library {
            abi_version = abi_version, struct_size = struct_size, op_size = op_size, name = name, version = version,
            ops = ops, op_count = op_count
        }
    }
    let constants = [
        ("ABI_VERSION", abi::VERSION),
        ("MAX_RANK", abi::MAX_RANK as u32),
        ("OK", abi::OK),
        ("ERROR", abi::ERROR),
        ("PANIC", abi::PANIC),
        ("TENSOR", abi::ACCESS_TENSOR),
        ("BUFFER_READ", abi::ACCESS_READ),
        ("BUFFER_WRITE", abi::ACCESS_WRITE),
        ("BOOL", abi::KIND_BOOL),
        ("INT", abi::KIND_INT),
        ("FLOAT", abi::KIND_FLOAT),
        ("STRING", abi::KIND_TEXT),
        ("DTYPE", abi::KIND_DTYPE),
        ("INTS", abi::KIND_INTS),
        ("DTYPE_BOOL", DType::BOOL.0),
        ("DTYPE_F16", DType::F16.0),
        ("DTYPE_BF16", DType::BF16.0),
        ("DTYPE_F32", DType::F32.0),
        ("DTYPE_F64", DType::F64.0),
        ("DTYPE_U8", DType::U8.0),
        ("DTYPE_I8", DType::I8.0),
        ("DTYPE_U16", DType::U16.0),
        ("DTYPE_I16", DType::I16.0),
        ("DTYPE_U32", DType::U32.0),
        ("DTYPE_I32", DType::I32.0),
        ("DTYPE_U64", DType::U64.0),
        ("DTYPE_I64", DType::I64.0),
    ];
    facts.extend(constants.map(|(name, value)| (format!("PERIHELION_{name}"), value as usize)));
    facts
}

#[test]
fn the_header_agrees_with_the_structs() {
    let mut program = String::from("#include \"perihelion_extension.h\"\n");
    for (fact, value) in facts() {
        writeln!(program, "_Static_assert({fact} == {value}, \"{fact} is not {value}\");").unwrap();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("header.c");
    std::fs::write(&source, program).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(include)
        .arg(&source);
    let Ok(output) = compiler.output() else {
        eprintln!("skipped: there is no `cc`");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
