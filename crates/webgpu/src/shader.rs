//! Shaders as kernels describe them: a text in WGSL, and the declarations that stand before it.

use std::fmt::Write;

use tensor::DType;

/// Workgroups in a row of a grid; rows follow one another.
pub(crate) const ROW: usize = 1 << 15;
/// Functions that every shader may call.
const COMMON: &str = include_str!("kernels/common.wgsl");

/// How a shader uses a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Values, which are read and written. Operands may share a buffer with results, so that those are declared so too.
    Memory,
    /// A packed weight, which is read.
    Weight,
}

/// What a kernel computes with: a text in WGSL, and how its bindings are used.
pub(crate) struct Shader {
    name: String,
    text: String,
    accesses: Vec<Access>,
    dtypes: Vec<DType>,
}

impl Shader {
    /// A shader from its own text and what stands before that: `struct Params` with `groups`, for each binding the place of
    /// its first element, and the `params`; functions that read and write elements; constants.
    pub(crate) fn new(
        name: &str,
        bindings: &[(&str, DType, Access)],
        params: &[&str],
        constants: &[(&str, String)],
        source: &str,
    ) -> Shader {
        let mut text = String::from("struct Params { groups: u32");
        bindings.iter().for_each(|(binding, ..)| put(&mut text, format_args!(", {binding}_at: u32")));
        params.iter().for_each(|param| put(&mut text, format_args!(", {param}: u32")));
        text.push_str(" }\n@group(0) @binding(0) var<uniform> p: Params;\n");
        put(&mut text, format_args!("const ROW = {ROW}u;\n"));
        for (index, (binding, dtype, access)) in bindings.iter().enumerate() {
            declare(&mut text, index + 1, binding, *dtype, *access);
        }
        constants.iter().for_each(|(name, value)| put(&mut text, format_args!("const {name} = {value};\n")));
        text.push_str(COMMON);
        text.push_str(source);
        let accesses = bindings.iter().map(|(_, _, access)| *access).collect();
        let dtypes = bindings.iter().map(|(_, dtype, _)| *dtype).collect();
        Shader { name: name.to_string(), text, accesses, dtypes }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn dtypes(&self) -> &[DType] {
        &self.dtypes
    }

    pub(crate) fn accesses(&self) -> &[Access] {
        &self.accesses
    }
}

/// Declares a binding, and the functions that read its elements and write them.
fn declare(text: &mut String, index: usize, name: &str, dtype: DType, access: Access) {
    let mode = if access == Access::Weight { "read" } else { "read_write" };
    put(text, format_args!("@group(0) @binding({index}) var<storage, {mode}> {name}_words: array<u32>;\n"));
    let word = format!("{name}_words[p.{name}_at + i]");
    // The type of an element, and how it is made of a word and a word of it; or else of a part of a word.
    let whole = |ty: &str| (ty.to_string(), format!("bitcast<{ty}>({word})"), "bitcast<u32>(v)".to_string());
    let (ty, read, written) = match dtype {
        DType::F32 => whole("f32"),
        DType::I32 => whole("i32"),
        DType::U32 => whole("u32"),
        DType::I64 | DType::U64 | DType::F64 => return declare_pairs(text, name, access),
        _ => return declare_parts(text, name, dtype, access),
    };
    put(text, format_args!("fn {name}(i: u32) -> {ty} {{ return {read}; }}\n"));
    if access == Access::Memory {
        put(text, format_args!("fn set_{name}(i: u32, v: {ty}) {{ {word} = {written}; }}\n"));
    }
}

/// Declares a binding whose elements have two words each.
fn declare_pairs(text: &mut String, name: &str, access: Access) {
    let word = |k: u32| format!("{name}_words[2u * (p.{name}_at + i) + {k}u]");
    let (low, high) = (word(0), word(1));
    put(text, format_args!("fn {name}(i: u32) -> vec2<u32> {{ return vec2<u32>({low}, {high}); }}\n"));
    if access == Access::Memory {
        put(text, format_args!("fn set_{name}(i: u32, v: vec2<u32>) {{ {low} = v.x; {high} = v.y; }}\n"));
    }
}

/// Declares a binding of which a word holds two or four elements. Dtypes that kernels do not compute with count as bytes.
fn declare_parts(text: &mut String, name: &str, dtype: DType, access: Access) {
    let (count, ty, read, written) = match dtype {
        DType::F16 => (2, "f32", "f16_of(bits)", "f16_bits(v)"),
        DType::BF16 => (2, "f32", "bitcast<f32>(bits << 16u)", "bf16_bits(v)"),
        DType::I16 => (2, "i32", "bitcast<i32>(bits << 16u) >> 16u", "(bitcast<u32>(v) & 0xffffu)"),
        DType::U16 => (2, "u32", "bits", "(v & 0xffffu)"),
        DType::I8 => (4, "i32", "bitcast<i32>(bits << 24u) >> 24u", "(bitcast<u32>(v) & 0xffu)"),
        _ => (4, "u32", "bits", "(v & 0xffu)"),
    };
    let width = 32 / count;
    put(
        text,
        format_args!(
            "fn {name}(i: u32) -> {ty} {{ let e = p.{name}_at + i; let bits = ({name}_words[e / {count}u] >> \
             ({width}u * (e % {count}u))) & {mask:#x}u; return {read}; }}\n",
            mask = (1u64 << width) - 1,
        ),
    );
    if access == Access::Memory {
        let arguments: Vec<String> = (0..count).map(|k| format!("v{k}: {ty}")).collect();
        let parts: Vec<String> = (0..count)
            .map(|k| format!("({} << {}u)", written.replace('v', &format!("v{k}")), k * width))
            .collect();
        put(
            text,
            format_args!(
                "fn set_{name}_word(word: u32, {}) {{ {name}_words[p.{name}_at / {count}u + word] = {}; }}\n",
                arguments.join(", "),
                parts.join(" | "),
            ),
        );
    }
}

fn put(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a string takes all");
}
