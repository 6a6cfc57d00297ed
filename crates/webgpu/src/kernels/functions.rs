//! Functions of elements as WGSL expressions. Numbers of fewer than 32 bits are computed as f32, i32 or u32, truth values
//! as u32.

use graph::ops::{Binary, ElementFunction, Unary};
use tensor::DType;

use super::elements::wgsl_type;

/// A function of the values that `operands` name, of these dtypes, with a result of the dtype `to`; `None` for those that the
/// host computes.
pub(super) fn expression(
    function: ElementFunction,
    dtypes: &[DType],
    to: DType,
    operands: &[String],
) -> Option<String> {
    let class = dtypes.iter().map(|&dtype| wgsl_type(dtype)).collect::<Option<Vec<_>>>()?;
    match (function, operands) {
        (ElementFunction::Unary(function), [x]) => match class[0] {
            "f32" => unary(function, x),
            "vec2<u32>" => None,
            _ => unary_of_integer(function, x),
        },
        (ElementFunction::Binary(function), [x, y]) => match class[0] {
            "vec2<u32>" => None,
            class => binary(function, class == "f32", x, y),
        },
        (ElementFunction::Select, [condition, a, b]) => Some(format!("select({b}, {a}, {condition} != 0u)")),
        (ElementFunction::Cast(to), [x]) => cast(dtypes[0], to, x),
        _ => None,
    }
    .map(|text| if is_rounded(function) { rounded(to, text) } else { text })
}

/// Whether results may need to be rounded to their dtype.
fn is_rounded(function: ElementFunction) -> bool {
    match function {
        ElementFunction::Unary(function) => function != Unary::Not,
        ElementFunction::Binary(function) => !function.is_comparison() && !function.is_logical(),
        ElementFunction::Select => false,
        ElementFunction::Cast(_) => true,
    }
}

/// A number rounded to a dtype, or wrapped around into its range.
fn rounded(dtype: DType, text: String) -> String {
    match dtype {
        DType::F16 => format!("round_f16({text})"),
        DType::BF16 => format!("round_bf16({text})"),
        DType::I8 => format!("(({text}) << 24u) >> 24u"),
        DType::I16 => format!("(({text}) << 16u) >> 16u"),
        DType::U8 => format!("({text}) & 0xffu"),
        DType::U16 => format!("({text}) & 0xffffu"),
        _ => text,
    }
}

fn unary(function: Unary, x: &str) -> Option<String> {
    let name = match function {
        Unary::Acos | Unary::Atanh | Unary::Cos | Unary::Sin | Unary::Not => return None,
        Unary::Neg => return Some(format!("-{x}")),
        Unary::Reciprocal => return Some(format!("1.0 / {x}")),
        Unary::Relu => return Some(format!("select({x}, 0.0, {x} < 0.0)")),
        Unary::Rsqrt => return Some(format!("1.0 / sqrt({x})")),
        Unary::Abs => "abs",
        Unary::Ceil => "ceil",
        Unary::Erf => "erf_",
        Unary::Exp => "exp_",
        Unary::Floor => "floor",
        Unary::Gelu => "gelu",
        Unary::GeluTanh => "gelu_tanh",
        Unary::GeluQuick => "gelu_quick",
        Unary::Log => "log_",
        Unary::Log1p => "log1p_",
        Unary::Round => "round",
        Unary::Sigmoid => "sigmoid",
        Unary::Silu => "silu",
        Unary::Sqrt => "sqrt",
        Unary::Tanh => "tanh_",
        Unary::Trunc => "trunc",
    };
    Some(format!("{name}({x})"))
}

fn unary_of_integer(function: Unary, x: &str) -> Option<String> {
    match function {
        Unary::Abs => Some(format!("abs({x})")),
        Unary::Neg => Some(format!("-{x}")),
        Unary::Relu => Some(format!("max({x}, 0)")),
        Unary::Not => Some(format!("{x} ^ 1u")),
        _ => None,
    }
}

/// Of floats or of integers. What refuses some integers is the host's, and so is what the CPU computes in f64.
fn binary(function: Binary, is_float: bool, x: &str, y: &str) -> Option<String> {
    let operator = match function {
        Binary::Div if is_float => "/",
        Binary::Div | Binary::FloorDiv | Binary::Mod | Binary::Pow => return None,
        Binary::Min if is_float => return Some(format!("select({y}, {x}, {x} < {y} || is_nan({x}))")),
        Binary::Max if is_float => return Some(format!("select({y}, {x}, {x} > {y} || is_nan({x}))")),
        Binary::Min => return Some(format!("min({x}, {y})")),
        Binary::Max => return Some(format!("max({x}, {y})")),
        Binary::Equal => return Some(format!("u32({x} == {y})")),
        // In SPIR-V, `!=` is false of NaN.
        Binary::NotEqual => return Some(format!("u32(!({x} == {y}))")),
        Binary::Less => return Some(format!("u32({x} < {y})")),
        Binary::LessEqual => return Some(format!("u32({x} <= {y})")),
        Binary::Greater => return Some(format!("u32({x} > {y})")),
        Binary::GreaterEqual => return Some(format!("u32({x} >= {y})")),
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
    };
    Some(format!("{x} {operator} {y}"))
}

/// Before [`rounded`].
fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    if from == DType::F64 || to == DType::F64 {
        return None;
    }
    let (class, wanted) = (wgsl_type(from)?, wgsl_type(to)?);
    Some(match (class, wanted) {
        ("f32", "u32") if to == DType::Bool => format!("u32(is_true({x}))"),
        ("i32", "u32") if to == DType::Bool => format!("u32({x} != 0)"),
        ("u32", "u32") if to == DType::Bool => format!("u32({x} != 0u)"),
        ("vec2<u32>", "u32") if to == DType::Bool => format!("u32(({x}.x | {x}.y) != 0u)"),
        ("f32", "i32") => match to {
            DType::I8 => format!("clamp(i32_of({x}), -128, 127)"),
            DType::I16 => format!("clamp(i32_of({x}), -32768, 32767)"),
            _ => format!("i32_of({x})"),
        },
        ("f32", "u32") => match to {
            DType::U8 => format!("min(u32_of({x}), 255u)"),
            DType::U16 => format!("min(u32_of({x}), 65535u)"),
            _ => format!("u32_of({x})"),
        },
        ("i32" | "u32", "f32") if to == DType::BF16 => format!("odd_f32_of_{class}({x})"),
        ("i32" | "u32", "f32") => format!("f32({x})"),
        ("i32", "u32") | ("u32", "i32") => format!("bitcast<{wanted}>({x})"),
        ("i32", "vec2<u32>") => format!("vec2<u32>(bitcast<u32>({x}), bitcast<u32>({x} >> 31u))"),
        ("u32", "vec2<u32>") => format!("vec2<u32>({x}, 0u)"),
        ("vec2<u32>", "u32" | "i32") => format!("bitcast<{wanted}>({x}.x)"),
        ("vec2<u32>", "f32") | ("f32", "vec2<u32>") => return None,
        _ => x.to_string(),
    })
}
