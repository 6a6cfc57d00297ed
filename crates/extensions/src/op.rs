//! An op of a loaded library: its type rule and its calls.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use extension::abi;
use tensor::{AlignedBytes, DType, Shape};

use crate::Signature;

/// Room for the words of an error.
const MESSAGE: usize = 2048;
/// Bytes around what an op may write that it must leave alone.
const GUARD: usize = 64;
/// What those bytes hold.
const PATTERN: u8 = 0xa5;

/// An op of a loaded library. Clones share it.
#[derive(Clone)]
pub struct Op {
    pub(crate) signature: Arc<Signature>,
    /// The library's name and version, for messages.
    pub(crate) library: Arc<str>,
    pub(crate) functions: Functions,
}

/// Pointers into a library, which is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    pub(crate) infer: Option<abi::Function>,
    pub(crate) run: abi::Function,
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Argument {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text.
    Text(String),
    /// A dtype.
    DType(DType),
    /// Whole numbers.
    Ints(Vec<i64>),
}

/// A row-major array to read.
#[derive(Debug, Clone, Copy)]
pub struct Array<'m> {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: Shape,
    /// The elements.
    pub bytes: &'m [u8],
}

/// A row-major array to write.
#[derive(Debug)]
pub struct ArrayMut<'m> {
    /// The type of the elements.
    pub dtype: DType,
    /// The sizes of the axes.
    pub shape: Shape,
    /// The elements.
    pub bytes: &'m mut [u8],
}

/// An operand of a call.
#[derive(Debug)]
pub enum Operand<'m> {
    /// One that is read.
    Read(Array<'m>),
    /// A buffer that the op changes.
    Write(ArrayMut<'m>),
}

/// The type that an op's rule gives to a result, or what it is instead.
type Inferred = Result<(DType, Shape), String>;

/// Whether an op's writes are watched: it then gets copies of its operands and results between guard bytes, and what it
/// may write is copied back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guards {
    /// The op reads the operands and writes to the results themselves.
    Off,
    /// Writes to operands that are only read, and within 64 bytes outside of any operand or result, are found.
    On,
}

/// Runs a body once with each index below a count, on any thread and in any order, until all are done.
pub type Parallel<'p> = dyn Fn(usize, &(dyn Fn(usize) + Sync)) + Sync + 'p;

impl Op {
    /// What it takes and gives.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The name and version of its library.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Asks the op's type rule whether operands of these types make the results that the graph states.
    ///
    /// # Errors
    /// If the rule refuses the operands, or makes other results; with both facts.
    pub fn check_types(
        &self,
        arguments: &[(String, Argument)],
        operands: &[(DType, Shape)],
        results: &[(DType, Shape)],
    ) -> Result<(), String> {
        let makes = self.infer(arguments, operands, results)?;
        for (i, ((dtype, shape), makes)) in results.iter().zip(makes).enumerate() {
            if makes.as_ref() != Ok(&(*dtype, *shape)) {
                return Err(self.disagreement(i, &format!("{dtype}{shape}"), makes));
            }
        }
        Ok(())
    }

    /// [`Op::check_types`] where sizes are not known yet: dtypes and numbers of axes alone are compared. `operands` and
    /// `results` have sizes that are as good as any; a rule that refuses them says nothing of others.
    ///
    /// # Errors
    /// If the rule makes results of another dtype or number of axes; with both facts.
    pub fn check_forms(
        &self,
        arguments: &[(String, Argument)],
        operands: &[(DType, Shape)],
        results: &[(DType, Shape)],
    ) -> Result<(), String> {
        let Ok(makes) = self.infer(arguments, operands, results) else { return Ok(()) };
        for (i, ((dtype, shape), makes)) in results.iter().zip(makes).enumerate() {
            let is_same = |makes: &(DType, Shape)| (makes.0, makes.1.rank()) == (*dtype, shape.rank());
            if !makes.as_ref().is_ok_and(is_same) {
                return Err(self.disagreement(i, &format!("{dtype} with {} axes", shape.rank()), makes));
            }
        }
        Ok(())
    }

    /// The types that the op's rule gives to results, each a type or what it is instead; those stated where it leaves
    /// them alone.
    fn infer(
        &self,
        arguments: &[(String, Argument)],
        operands: &[(DType, Shape)],
        stated: &[(DType, Shape)],
    ) -> Result<Vec<Inferred>, String> {
        let Some(infer) = self.functions.infer else { return Ok(stated.iter().copied().map(Ok).collect()) };
        let typed = |types: &[(DType, Shape)]| {
            let tensors = types.iter().map(|(dtype, shape)| typed(*dtype, shape));
            tensors.collect::<Result<Vec<abi::Tensor>, _>>().map_err(|message| self.message(&message))
        };
        let (operands, mut inferred) = (typed(operands)?, typed(stated)?);
        self.call(infer, arguments, &operands, &mut inferred, &in_order)?;
        Ok(inferred.iter().map(read_type).collect())
    }

    fn disagreement(&self, result: usize, stated: &str, makes: Inferred) -> String {
        let makes = makes.map_or_else(|message| message, |(dtype, shape)| format!("{dtype}{shape}"));
        self.message(&format!("result {result} is stated as {stated}, but it makes {makes}"))
    }

    /// Computes the results, after [`Op::check_types`].
    ///
    /// # Errors
    /// If the types disagree, or the op refuses its data, panics, or writes where it must not.
    pub fn run(
        &self,
        arguments: &[(String, Argument)],
        operands: &mut [Operand<'_>],
        results: &mut [ArrayMut<'_>],
        parallel: &Parallel<'_>,
        guards: Guards,
    ) -> Result<(), String> {
        let types: Vec<(DType, Shape)> = operands.iter().map(Operand::ty).collect();
        let result_types: Vec<(DType, Shape)> =
            results.iter().map(|array| (array.dtype, array.shape)).collect();
        self.check_counts(operands, results)?;
        self.check_types(arguments, &types, &result_types)?;
        let mut copies = Vec::new();
        let mut inputs = Vec::with_capacity(operands.len());
        for (position, operand) in operands.iter_mut().enumerate() {
            inputs.push(match operand {
                Operand::Read(array) => self.lend(position, array, guards, &mut copies)?,
                Operand::Write(array) => self.lend_mut(array, guards, &mut copies)?,
            });
        }
        let mut outputs = Vec::with_capacity(results.len());
        for array in results {
            outputs.push(self.lend_mut(array, guards, &mut copies)?);
        }
        self.call(self.functions.run, arguments, &inputs, &mut outputs, parallel)?;
        copies.into_iter().try_for_each(|copy| copy.finish()).map_err(|message| self.message(&message))
    }

    /// Whether there are as many operands and results as declared, and those to write are so.
    fn check_counts(&self, operands: &[Operand<'_>], results: &[ArrayMut<'_>]) -> Result<(), String> {
        let Signature { operands: declared, variadic, min_results, max_results, .. } = &*self.signature;
        let fixed = declared.len() - usize::from(*variadic);
        if operands.len() < fixed || (operands.len() > fixed && !variadic) {
            return Err(self.message(&format!(
                "got {} operands, expected {}",
                operands.len(),
                declared.len()
            )));
        }
        if !(*min_results..=*max_results).contains(&results.len()) {
            let expected = format!("expected {min_results} to {max_results}");
            return Err(self.message(&format!("got {} results, {expected}", results.len())));
        }
        for (i, operand) in operands.iter().enumerate() {
            let access = declared.get(i).map_or(crate::Access::Tensor, |declared| declared.access);
            if (access == crate::Access::Write) != matches!(operand, Operand::Write(_)) {
                return Err(
                    self.message(&format!("operand {i} is declared as {access:?}, and given otherwise"))
                );
            }
        }
        Ok(())
    }

    /// An array as the op sees it; a copy where it is not aligned to its elements, or watched.
    fn lend<'m>(
        &self,
        position: usize,
        array: &'m Array<'_>,
        guards: Guards,
        copies: &mut Vec<Watched<'m>>,
    ) -> Result<abi::Tensor, String> {
        self.check_bytes(array.dtype, &array.shape, array.bytes.len())?;
        let ty = typed(array.dtype, &array.shape).map_err(|message| self.message(&message))?;
        let bytes = array.bytes.len();
        if guards == Guards::Off && is_aligned(array.dtype, array.bytes) {
            return Ok(abi::Tensor { data: array.bytes.as_ptr().cast_mut().cast(), bytes, ..ty });
        }
        let mut memory = self.guarded(array.bytes)?;
        let data = memory[GUARD..].as_mut_ptr().cast();
        copies.push(Watched { memory, original: Original::Read(position, array.bytes) });
        Ok(abi::Tensor { data, bytes, ..ty })
    }

    fn lend_mut<'m>(
        &self,
        array: &'m mut ArrayMut<'_>,
        guards: Guards,
        copies: &mut Vec<Watched<'m>>,
    ) -> Result<abi::Tensor, String> {
        self.check_bytes(array.dtype, &array.shape, array.bytes.len())?;
        let ty = typed(array.dtype, &array.shape).map_err(|message| self.message(&message))?;
        let bytes = array.bytes.len();
        if guards == Guards::Off && is_aligned(array.dtype, array.bytes) {
            return Ok(abi::Tensor { data: array.bytes.as_mut_ptr().cast(), bytes, ..ty });
        }
        let mut memory = self.guarded(array.bytes)?;
        let data = memory[GUARD..].as_mut_ptr().cast();
        copies.push(Watched { memory, original: Original::Written(array.bytes) });
        Ok(abi::Tensor { data, bytes, ..ty })
    }

    /// A copy between guard bytes.
    fn guarded(&self, bytes: &[u8]) -> Result<AlignedBytes, String> {
        let memory = AlignedBytes::try_zeroed(bytes.len() + 2 * GUARD);
        let mut memory = memory.map_err(|error| self.message(&error.to_string()))?;
        memory.fill(PATTERN);
        memory[GUARD..][..bytes.len()].copy_from_slice(bytes);
        Ok(memory)
    }

    fn check_bytes(&self, dtype: DType, shape: &Shape, found: usize) -> Result<(), String> {
        match dtype.bytes_for_shape(shape) {
            Some(bytes) if bytes == found => Ok(()),
            needed => Err(self.message(&format!("{dtype}{shape} has {found} bytes, expected {needed:?}"))),
        }
    }

    fn call(
        &self,
        function: abi::Function,
        arguments: &[(String, Argument)],
        operands: &[abi::Tensor],
        results: &mut [abi::Tensor],
        parallel: &Parallel<'_>,
    ) -> Result<(), String> {
        let arguments: Vec<abi::Argument> = arguments.iter().map(|(name, value)| value.lend(name)).collect();
        let mut room = [0; MESSAGE];
        let mut message = abi::Message { data: room.as_mut_ptr(), capacity: MESSAGE, len: 0 };
        let host = abi::Host {
            struct_size: size_of::<abi::Host>(),
            context: (&raw const parallel).cast_mut().cast(),
            parallel_for,
        };
        let call = abi::Call {
            struct_size: size_of::<abi::Call>(),
            operands: operands.as_ptr(),
            operand_count: operands.len(),
            results: results.as_mut_ptr(),
            result_count: results.len(),
            arguments: arguments.as_ptr(),
            argument_count: arguments.len(),
            message: &raw mut message,
            host: &raw const host,
        };
        // SAFETY: the function is of a library that is never unloaded, and has the type that version 1 of the ABI, which
        // was checked, says. All that the call points to outlives it; nothing else uses what the op may write.
        let status = unsafe { function(&raw const call) };
        let len = message.len.min(MESSAGE);
        let words = String::from_utf8_lossy(&room[..len]);
        match (status, &words[..]) {
            (abi::OK, _) => Ok(()),
            (abi::ERROR, "") => Err(self.message("it refused the call without a message")),
            (abi::ERROR, words) => Err(self.message(words)),
            (abi::PANIC, words) => Err(self.message(&format!("it panicked: {words}"))),
            (other, words) => Err(self.message(&format!("it gave the unknown status {other}: {words}"))),
        }
    }

    fn message(&self, words: &str) -> String {
        format!("`{}` of {}: {words}", self.signature.name, self.library)
    }
}

impl Operand<'_> {
    fn ty(&self) -> (DType, Shape) {
        match self {
            Operand::Read(array) => (array.dtype, array.shape),
            Operand::Write(array) => (array.dtype, array.shape),
        }
    }
}

impl Argument {
    fn lend(&self, name: &str) -> abi::Argument {
        let text = |text: &str| abi::Text { data: text.as_ptr(), len: text.len() };
        let none = abi::Argument {
            name: text(name),
            kind: 0,
            reserved: 0,
            int: 0,
            float: 0.0,
            text: text(""),
            ints: ptr::null(),
            int_count: 0,
        };
        match self {
            Argument::Bool(value) => abi::Argument { kind: abi::KIND_BOOL, int: i64::from(*value), ..none },
            Argument::Int(value) => abi::Argument { kind: abi::KIND_INT, int: *value, ..none },
            Argument::Float(value) => abi::Argument { kind: abi::KIND_FLOAT, float: *value, ..none },
            Argument::Text(value) => abi::Argument { kind: abi::KIND_TEXT, text: text(value), ..none },
            Argument::DType(value) => {
                abi::Argument { kind: abi::KIND_DTYPE, int: i64::from(value.code()), ..none }
            }
            Argument::Ints(values) => {
                let (ints, int_count) = (values.as_ptr(), values.len());
                abi::Argument { kind: abi::KIND_INTS, ints, int_count, ..none }
            }
        }
    }
}

/// Memory between guard bytes that an op gets in place of its operand or result.
struct Watched<'m> {
    memory: AlignedBytes,
    original: Original<'m>,
}

enum Original<'m> {
    /// An operand, by its position, that the op must leave as it is.
    Read(usize, &'m [u8]),
    /// A buffer or result.
    Written(&'m mut [u8]),
}

impl Watched<'_> {
    /// Copies back what was written, if the guards are whole, and operands that are only read are what they were.
    fn finish(self) -> Result<(), String> {
        let (len, what) = match &self.original {
            Original::Read(position, bytes) => (bytes.len(), format!("operand {position}")),
            Original::Written(bytes) => (bytes.len(), "a result or buffer".to_string()),
        };
        let (before, rest) = self.memory.split_at(GUARD);
        let (contents, after) = rest.split_at(len);
        let whole = |guard: &[u8]| guard.iter().all(|&byte| byte == PATTERN);
        let side = match (whole(before), whole(after)) {
            (true, true) => None,
            (false, _) => Some("before"),
            (true, false) => Some("behind"),
        };
        match (side, self.original) {
            (Some(side), _) => Err(format!("it wrote {side} the {len} bytes of {what}")),
            (None, Original::Written(target)) => {
                target.copy_from_slice(contents);
                Ok(())
            }
            (None, Original::Read(_, bytes)) => match contents.iter().zip(bytes).position(|(a, b)| a != b) {
                Some(byte) => Err(format!("it wrote to {what}, which it only reads, at byte {byte}")),
                None => Ok(()),
            },
        }
    }
}

/// The loop without threads.
fn in_order(chunks: usize, body: &(dyn Fn(usize) + Sync)) {
    (0..chunks).for_each(body);
}

/// What the op's threads carry: its own pointer.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: the ABI says that bodies are called from any thread with it.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The pointer. (A method, so that closures capture the wrapper and not its field.)
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// # Safety
/// `context` is that of a call under way, and `body` may be called with `body_context` from any thread until this
/// returns.
unsafe extern "C" fn parallel_for(
    context: *mut c_void,
    chunks: usize,
    body_context: *mut c_void,
    body: abi::Body,
) {
    // SAFETY: the context that `Op::call` made, from a reference that lives as long as the call.
    let parallel = unsafe { *context.cast_const().cast::<&Parallel<'_>>() };
    let body_context = Context(body_context);
    // SAFETY: the caller's.
    parallel(chunks, &|index| unsafe { body(body_context.get(), index) });
}

/// A type as the op sees it.
fn typed(dtype: DType, shape: &Shape) -> Result<abi::Tensor, String> {
    let mut sizes = [0; abi::MAX_RANK];
    let Some(own) = sizes.get_mut(..shape.rank()) else {
        let most = abi::MAX_RANK;
        return Err(format!("{dtype}{shape} has {} axes; custom ops take at most {most}", shape.rank()));
    };
    own.copy_from_slice(shape);
    let (rank, dtype) = (shape.rank() as u32, u32::from(dtype.code()));
    Ok(abi::Tensor { data: ptr::null_mut(), bytes: 0, shape: sizes, rank, dtype })
}

/// A type as the op left it, or what it is instead.
fn read_type(tensor: &abi::Tensor) -> Inferred {
    let dtype = u8::try_from(tensor.dtype).ok().and_then(DType::from_code);
    let dtype = dtype.ok_or_else(|| format!("elements of the unknown dtype {}", tensor.dtype))?;
    let shape = usize::try_from(tensor.rank).ok().and_then(|rank| tensor.shape.get(..rank));
    Ok((dtype, Shape::new(shape.ok_or_else(|| format!("a shape of {} axes", tensor.rank))?)))
}

/// Whether bytes start at a multiple of the size of their elements. Blocks may start anywhere.
fn is_aligned(dtype: DType, bytes: &[u8]) -> bool {
    dtype.is_block() || bytes.as_ptr().addr().is_multiple_of(dtype.block().bytes)
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({} of {})", self.signature.name, self.library)
    }
}
