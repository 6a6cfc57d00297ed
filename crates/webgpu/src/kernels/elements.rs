//! What kernels share that compute each element of a result by itself.

use tensor::DType;

use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Threads of a workgroup.
const THREADS: usize = 256;

/// The most operands of such a kernel: the result is a binding too, and an adapter has eight at least.
pub(super) const OPERANDS: usize = 7;

/// A function of the number of an element, written in WGSL, for each element of a result.
pub(super) struct ElementShader<'a> {
    /// For messages.
    pub(super) name: &'a str,
    /// The operands, as [`Shader::new`] takes them.
    pub(super) operands: &'a [(&'a str, DType)],
    /// The result, `y` in the text.
    pub(super) result: DType,
    /// Sizes that the text reads.
    pub(super) params: &'a [&'a str],
    /// Gives `fn value(i: u32)` of the type of an element.
    pub(super) text: &'a str,
}

impl ElementShader<'_> {
    /// Records the computation of `count` elements, each of about `work` operations. `places` are those of the operands, then
    /// that of the result.
    pub(super) fn dispatch(
        &self,
        recorder: &mut Recorder,
        places: &[Place<'_>],
        params: &[usize],
        (count, work): (usize, u64),
    ) -> Result<(), String> {
        let of_a_group = per_word(self.result) * THREADS;
        let groups = count.div_ceil(of_a_group);
        if u32::try_from(groups * of_a_group).is_err() {
            return Err(format!("{count} elements, the kernel counts to {}", u32::MAX));
        }
        let words: Vec<u32> = [count].iter().chain(params).map(|&size| size as u32).collect();
        recorder.dispatch(&self.shader(), places, &words, groups, count as u64 * work)
    }

    fn shader(&self) -> Shader {
        let operands = self.operands.iter().map(|&(name, dtype)| (name, dtype, Access::Memory));
        let bindings: Vec<_> = operands.chain([("y", self.result, Access::Memory)]).collect();
        let params: Vec<&str> = ["count"].iter().chain(self.params).copied().collect();
        let per_word = per_word(self.result);
        let constants = [("THREADS", format!("{THREADS}u")), ("PER_WORD", format!("{per_word}u"))];
        let text = format!("{}{}{}", self.text, store(per_word), include_str!("elements.wgsl"));
        Shader::new(self.name, &bindings, &params, &constants, &text)
    }
}

/// The elements of which one thread computes all: those of a word.
fn per_word(dtype: DType) -> usize {
    (4 / dtype.size_in_bytes()).max(1)
}

/// The function that stores what a thread computes. What a word holds behind the last element is that element again.
fn store(per_word: usize) -> String {
    if per_word == 1 {
        return "fn store(first: u32) { set_y(first, value(first)); }\n".to_string();
    }
    let value = |k: usize| format!("value(min(first + {k}u, p.count - 1u))");
    let values: Vec<String> = (0..per_word).map(value).collect();
    format!("fn store(first: u32) {{ set_y_word(first / {per_word}u, {}); }}\n", values.join(", "))
}

/// The dtype under which elements are moved, whatever they mean; `None` for those that are no whole bytes.
pub(super) fn moved_as(dtype: DType) -> Option<DType> {
    match dtype.size_in_bits() {
        8 => Some(DType::U8),
        16 => Some(DType::U16),
        32 => Some(DType::U32),
        64 => Some(DType::U64),
        _ => None,
    }
}

/// The type of an element in WGSL.
pub(super) fn wgsl_type(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => Some("f32"),
        DType::I8 | DType::I16 | DType::I32 => Some("i32"),
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => Some("u32"),
        DType::I64 | DType::U64 | DType::F64 => Some("vec2<u32>"),
        _ => None,
    }
}
