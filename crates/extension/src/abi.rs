//! The C ABI: what crosses between a host and an extension, byte by byte.
//!
//! A library exports one function, [`SYMBOL`], of type [`Entry`]. What it points to lives as long as the library does
//! and never changes. `include/perihelion_extension.h` says the same in C.

use std::ffi::c_void;

/// The version of everything in this module. Another version has another symbol.
pub const VERSION: u32 = 1;
/// The function that a library exports.
pub const SYMBOL: &str = "perihelion_extension_v1";
/// The most axes a tensor can have.
pub const MAX_RANK: usize = 8;

/// The status of a call that succeeded.
pub const OK: u32 = 0;
/// The status of a call that was refused; the message says why.
pub const ERROR: u32 = 1;
/// The status of a call that panicked; the message says with what.
pub const PANIC: u32 = 2;

/// [`Operand::access`]: a tensor, which is only read.
pub const ACCESS_TENSOR: u32 = 0;
/// [`Operand::access`]: a buffer, which is only read.
pub const ACCESS_READ: u32 = 1;
/// [`Operand::access`]: a buffer that the op changes, and may read.
pub const ACCESS_WRITE: u32 = 2;

/// [`Parameter::kind`]: `true` or `false`, in [`Argument::int`] as 1 or 0.
pub const KIND_BOOL: u32 = 1;
/// [`Parameter::kind`]: a whole number, in [`Argument::int`].
pub const KIND_INT: u32 = 2;
/// [`Parameter::kind`]: a number, in [`Argument::float`].
pub const KIND_FLOAT: u32 = 3;
/// [`Parameter::kind`]: UTF-8, in [`Argument::text`].
pub const KIND_TEXT: u32 = 4;
/// [`Parameter::kind`]: the code of a dtype, in [`Argument::int`].
pub const KIND_DTYPE: u32 = 5;
/// [`Parameter::kind`]: whole numbers, in [`Argument::ints`].
pub const KIND_INTS: u32 = 6;

/// The function a library exports under [`SYMBOL`].
pub type Entry = unsafe extern "C" fn() -> *const Library;
/// What an op does with a call: it gives a status.
pub type Function = unsafe extern "C" fn(*const Call) -> u32;
/// One chunk of parallel work: the context it was given with, and its index.
pub type Body = unsafe extern "C" fn(*mut c_void, usize);

/// UTF-8, not ended by a zero.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Text {
    /// The bytes; may be null if there are none.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

/// What a library offers.
#[derive(Debug)]
#[repr(C)]
pub struct Library {
    /// [`VERSION`].
    pub abi_version: u32,
    /// The bytes of this struct.
    pub struct_size: u32,
    /// The bytes of [`Op`].
    pub op_size: u32,
    /// 0.
    pub reserved: u32,
    /// Of the library.
    pub name: Text,
    /// Of the library; in plans and messages.
    pub version: Text,
    /// [`Library::op_count`] ops with names of their own.
    pub ops: *const Op,
    /// At least 1.
    pub op_count: usize,
}

/// An op: what it takes and gives, and what it does.
#[derive(Debug)]
#[repr(C)]
pub struct Op {
    /// Letters, digits, underscores, points; starts with no digit.
    pub name: Text,
    /// [`Op::operand_count`] operands in order.
    pub operands: *const Operand,
    /// How many.
    pub operand_count: usize,
    /// [`Op::parameter_count`] parameters with names of their own.
    pub parameters: *const Parameter,
    /// How many.
    pub parameter_count: usize,
    /// The fewest results a node may state.
    pub min_results: u32,
    /// The most results a node may state.
    pub max_results: u32,
    /// 1 if the last operand, a tensor, may come any number of times, also none; else 0.
    pub variadic: u32,
    /// 0.
    pub reserved: u32,
    /// The type rule: sets dtype, rank and shape of each result from those of the operands. They hold at first what
    /// the graph states, and what they hold afterwards must be that. There is no data. Null if there is no rule.
    pub infer: Option<Function>,
    /// Computes the results.
    pub run: Option<Function>,
}

/// What an op takes at one position.
#[derive(Debug)]
#[repr(C)]
pub struct Operand {
    /// For messages.
    pub name: Text,
    /// [`ACCESS_TENSOR`], [`ACCESS_READ`] or [`ACCESS_WRITE`].
    pub access: u32,
    /// 0.
    pub reserved: u32,
}

/// What an op is told besides its operands.
#[derive(Debug)]
#[repr(C)]
pub struct Parameter {
    /// Letters, digits, underscores; starts with no digit.
    pub name: Text,
    /// One of the `KIND_` constants.
    pub kind: u32,
    /// 1 if it must be given, else 0.
    pub required: u32,
}

/// The value of a parameter that was given.
#[derive(Debug)]
#[repr(C)]
pub struct Argument {
    /// The parameter's name.
    pub name: Text,
    /// The parameter's kind: says which of the fields below counts.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
    /// Bool, int, dtype.
    pub int: i64,
    /// Float.
    pub float: f64,
    /// Text.
    pub text: Text,
    /// Ints.
    pub ints: *const i64,
    /// How many.
    pub int_count: usize,
}

/// A row-major array, aligned to the size of its elements at least.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Tensor {
    /// The elements; null in type rules.
    pub data: *mut c_void,
    /// How many bytes; 0 in type rules.
    pub bytes: usize,
    /// The sizes of the axes, outermost first; those from `rank` on are 0.
    pub shape: [usize; MAX_RANK],
    /// The number of axes.
    pub rank: u32,
    /// The code of the dtype.
    pub dtype: u32,
}

/// Room for the words of an error.
#[derive(Debug)]
#[repr(C)]
pub struct Message {
    /// [`Message::capacity`] bytes of the host's.
    pub data: *mut u8,
    /// How many there are.
    pub capacity: usize,
    /// How many the op wrote, as UTF-8; 0 at first.
    pub len: usize,
}

/// What the host offers during a call.
#[derive(Debug)]
#[repr(C)]
pub struct Host {
    /// The bytes of this struct.
    pub struct_size: usize,
    /// To be handed back.
    pub context: *mut c_void,
    /// Calls `body(body_context, i)` once with each `i` below `chunks`, on any thread and in any order, and returns
    /// when all are done. The arguments: the context above, chunks, the body's context, the body.
    pub parallel_for: unsafe extern "C" fn(*mut c_void, usize, *mut c_void, Body),
}

/// One call of a type rule or of an op.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The bytes of this struct.
    pub struct_size: usize,
    /// The operands; those of buffers that the op writes may be written.
    pub operands: *const Tensor,
    /// How many.
    pub operand_count: usize,
    /// The results.
    pub results: *mut Tensor,
    /// How many.
    pub result_count: usize,
    /// The parameters that were given.
    pub arguments: *const Argument,
    /// How many.
    pub argument_count: usize,
    /// Where to say why a status is not [`OK`].
    pub message: *mut Message,
    /// What the host offers.
    pub host: *const Host,
}

impl Text {
    /// The text of a constant.
    pub const fn new(text: &'static str) -> Text {
        Text { data: text.as_ptr(), len: text.len() }
    }
}

// SAFETY: declarations are constants; nothing changes them or what they point to.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Sync for Op {}
