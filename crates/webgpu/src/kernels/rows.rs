//! What kernels of rows and other lanes along an axis have in common.

use tensor::{DType, Shape};

/// Folds over the lanes of a workgroup of 64.
pub(super) const LANES: &str = include_str!("lanes.wgsl");
/// The order of elements.
pub(super) const ORDER: &str = include_str!("order.wgsl");
/// Threads of a workgroup whose threads know nothing of each other.
pub(super) const THREADS: usize = 256;

/// The shape of an array around an axis: `[outer, n, inner]`.
pub(super) fn around(shape: &Shape, axis: usize) -> [usize; 3] {
    [shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product()]
}

/// Whether shaders compute with elements of a dtype.
pub(super) fn is_number(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::F32
            | DType::F16
            | DType::BF16
            | DType::I32
            | DType::U32
            | DType::I16
            | DType::U16
            | DType::I8
            | DType::U8
    )
}

/// The type of an element in a shader.
pub(super) fn element_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "f32",
        DType::I32 | DType::I16 | DType::I8 => "i32",
        DType::U32 | DType::U16 | DType::U8 => "u32",
        other => panic!("shaders do not compute with {other}"),
    }
}

/// How many elements of a dtype a thread writes: those of a word.
pub(super) fn in_word(dtype: DType) -> usize {
    4 / dtype.block().bytes.min(4)
}

/// The main function that writes `element(i)` as element `i` of the result `y`: a thread for each of `p.words` words.
pub(super) fn each_element(dtype: DType) -> String {
    let elements = |count: usize| {
        let all = (0..count).map(|i| format!("element({count}u * word + {i}u)"));
        all.collect::<Vec<_>>().join(", ")
    };
    let write = match in_word(dtype) {
        1 => "set_y(word, element(word))".to_string(),
        count => format!("set_y_word(word, {})", elements(count)),
    };
    format!(
        "@compute @workgroup_size({THREADS})\n\
         fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {{\n\
         let word = group_of(id) * {THREADS}u + thread;\n\
         if (word < p.words) {{ {write}; }}\n}}\n"
    )
}
