//! A call as authors see it: typed slices, sizes, parameters, parallel loops.

use std::any::Any;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError};

use crate::{DType, Element, Operand, abi};

/// One call of an op.
pub struct Call<'c> {
    raw: &'c abi::Call,
    declared: &'static [Operand],
    /// The operands and results that were lent for writing.
    lent_operands: Vec<usize>,
    lent_results: Vec<usize>,
}

/// The types around a call, for type rules.
pub struct Types<'c> {
    operands: &'c [abi::Tensor],
    results: &'c mut [abi::Tensor],
    parameters: Parameters<'c>,
}

/// The parameters that were given.
#[derive(Clone, Copy)]
pub struct Parameters<'c>(&'c [abi::Argument]);

impl<'c> Call<'c> {
    /// # Safety
    /// The call is as [`abi::Call`] describes it, and nothing else uses it during `'c`.
    pub(crate) unsafe fn new(raw: &'c abi::Call, declared: &'static [Operand]) -> Call<'c> {
        Call { raw, declared, lent_operands: Vec::new(), lent_results: Vec::new() }
    }

    /// The number of operands.
    pub fn operand_count(&self) -> usize {
        self.raw.operand_count
    }

    /// The number of results.
    pub fn result_count(&self) -> usize {
        self.raw.result_count
    }

    /// The dtype of an operand.
    ///
    /// # Panics
    /// If there is no such operand, as all functions of an operand do.
    pub fn dtype(&self, operand: usize) -> DType {
        DType(self.tensor(operand).dtype)
    }

    /// The sizes of an operand's axes, outermost first.
    pub fn shape(&self, operand: usize) -> &'c [usize] {
        shape(self.tensor(operand))
    }

    /// The dtype of a result.
    ///
    /// # Panics
    /// If there is no such result, as all functions of a result do.
    pub fn result_dtype(&self, result: usize) -> DType {
        DType(self.result_tensor(result).dtype)
    }

    /// The sizes of a result's axes, outermost first.
    pub fn result_shape(&self, result: usize) -> &'c [usize] {
        shape(self.result_tensor(result))
    }

    /// The elements of a tensor, or of a buffer that the op only reads.
    ///
    /// # Errors
    /// If its elements are no `T`, or the op writes it.
    pub fn operand<T: Element>(&self, operand: usize) -> Result<&'c [T], String> {
        let tensor = self.tensor(operand);
        check::<T>(&format!("operand {operand}"), tensor)?;
        if self.is_written(operand) {
            return Err(format!("operand {operand} is a buffer to write"));
        }
        // SAFETY: `check` found aligned elements of this type; nothing that a call only reads is written during it.
        Ok(unsafe { slice(tensor.data.cast_const().cast(), tensor.bytes / size_of::<T>()) })
    }

    /// The bytes of a tensor, or of a buffer that the op only reads; for dtypes that are stored in blocks.
    ///
    /// # Errors
    /// If the op writes it.
    pub fn operand_bytes(&self, operand: usize) -> Result<&'c [u8], String> {
        let tensor = self.tensor(operand);
        if self.is_written(operand) {
            return Err(format!("operand {operand} is a buffer to write"));
        }
        // SAFETY: the host lends so many bytes, and nothing that a call only reads is written during it.
        Ok(unsafe { slice(tensor.data.cast_const().cast(), tensor.bytes) })
    }

    /// The elements of a buffer that the op writes; can be had once in a call.
    ///
    /// # Errors
    /// If its elements are no `T`, the op does not write it, or it was lent already.
    pub fn written<T: Element>(&mut self, operand: usize) -> Result<&'c mut [T], String> {
        let tensor = self.tensor(operand);
        check::<T>(&format!("operand {operand}"), tensor)?;
        if !self.is_written(operand) {
            return Err(format!("operand {operand} is not declared as written"));
        }
        lend(&mut self.lent_operands, "operand", operand)?;
        // SAFETY: `check` found aligned elements of this type, which the host lets the op write, and nothing else has
        // them: they overlap no other operand or result, and are lent once.
        Ok(unsafe { slice_mut(tensor.data.cast(), tensor.bytes / size_of::<T>()) })
    }

    /// The elements of a result; can be had once in a call. The contents are undefined.
    ///
    /// # Errors
    /// If its elements are no `T`, or it was lent already.
    pub fn result<T: Element>(&mut self, result: usize) -> Result<&'c mut [T], String> {
        let tensor = self.result_tensor(result);
        check::<T>(&format!("result {result}"), tensor)?;
        lend(&mut self.lent_results, "result", result)?;
        // SAFETY: as in `written`.
        Ok(unsafe { slice_mut(tensor.data.cast(), tensor.bytes / size_of::<T>()) })
    }

    /// The bytes of a result, for ops that move elements of any dtype; can be had once in a call.
    ///
    /// # Errors
    /// If it was lent already.
    pub fn result_bytes(&mut self, result: usize) -> Result<&'c mut [u8], String> {
        let tensor = self.result_tensor(result);
        lend(&mut self.lent_results, "result", result)?;
        // SAFETY: as in `written`.
        Ok(unsafe { slice_mut(tensor.data.cast(), tensor.bytes) })
    }

    /// The parameters that were given.
    pub fn parameters(&self) -> Parameters<'c> {
        // SAFETY: the call has so many arguments.
        Parameters(unsafe { slice(self.raw.arguments, self.raw.argument_count) })
    }

    /// Calls `body` once with each of `0..chunks`, on any of the host's threads and in any order, and returns when all
    /// are done. Choose `chunks` by the shapes alone, so that results do.
    ///
    /// # Panics
    /// As the first body that panicked, after all others have finished.
    pub fn parallel_for(&self, chunks: usize, body: impl Fn(usize) + Sync) {
        let work = Work { body: &body, panic: Mutex::new(None) };
        // SAFETY: the host's own function and context; `work` outlives the loop, which has ended on return.
        unsafe {
            let host = &*self.raw.host;
            (host.parallel_for)(host.context, chunks, (&raw const work).cast_mut().cast(), chunk);
        }
        if let Some(payload) = work.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(payload);
        }
    }

    /// Cuts `data` into pieces of `length` elements (the last may be shorter) and calls `body` once with each piece
    /// and its index, as [`Call::parallel_for`] does.
    ///
    /// # Panics
    /// If `length` is 0, and as [`Call::parallel_for`].
    pub fn parallel_pieces<T: Send>(
        &self,
        data: &mut [T],
        length: usize,
        body: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let pieces: Vec<Mutex<&mut [T]>> = data.chunks_mut(length).map(Mutex::new).collect();
        self.parallel_for(pieces.len(), |index| {
            // Each index comes once, so no thread waits.
            let mut piece = pieces[index].lock().unwrap_or_else(PoisonError::into_inner);
            body(index, &mut piece);
        });
    }

    fn tensor(&self, operand: usize) -> &'c abi::Tensor {
        // SAFETY: the call has so many operands.
        let operands = unsafe { slice(self.raw.operands, self.raw.operand_count) };
        operands.get(operand).unwrap_or_else(|| panic!("operand {operand} of {}", operands.len()))
    }

    fn result_tensor(&self, result: usize) -> &'c abi::Tensor {
        // SAFETY: the call has so many results, which do not change while the op runs.
        let results = unsafe { slice(self.raw.results.cast_const(), self.raw.result_count) };
        results.get(result).unwrap_or_else(|| panic!("result {result} of {}", results.len()))
    }

    fn is_written(&self, operand: usize) -> bool {
        // What comes after the declared ones repeats the last, a tensor.
        self.declared.get(operand).is_some_and(|operand| operand.0.access == abi::ACCESS_WRITE)
    }
}

impl<'c> Types<'c> {
    /// # Safety
    /// The call is as [`abi::Call`] describes it, and nothing else uses it during `'c`.
    pub(crate) unsafe fn new(raw: &'c abi::Call) -> Types<'c> {
        // SAFETY: the caller's: so many operands, results and arguments.
        unsafe {
            Types {
                operands: slice(raw.operands, raw.operand_count),
                results: slice_mut(raw.results, raw.result_count),
                parameters: Parameters(slice(raw.arguments, raw.argument_count)),
            }
        }
    }

    /// The number of operands.
    pub fn operand_count(&self) -> usize {
        self.operands.len()
    }

    /// The number of results that the graph states.
    pub fn result_count(&self) -> usize {
        self.results.len()
    }

    /// The dtype of an operand.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn dtype(&self, operand: usize) -> DType {
        DType(self.operands[operand].dtype)
    }

    /// The sizes of an operand's axes, outermost first.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn shape(&self, operand: usize) -> &'c [usize] {
        shape(&self.operands[operand])
    }

    /// The parameters that were given.
    pub fn parameters(&self) -> Parameters<'c> {
        self.parameters
    }

    /// Sets the type of a result.
    ///
    /// # Errors
    /// If there is no such result, or the shape has more than [`abi::MAX_RANK`] axes.
    pub fn set(&mut self, result: usize, dtype: DType, shape: &[usize]) -> Result<(), String> {
        let count = self.results.len();
        let tensor = self.results.get_mut(result).ok_or_else(|| format!("result {result} of {count}"))?;
        if shape.len() > abi::MAX_RANK {
            return Err(format!("result {result} has {} axes, the most are {}", shape.len(), abi::MAX_RANK));
        }
        tensor.shape = [0; abi::MAX_RANK];
        tensor.shape[..shape.len()].copy_from_slice(shape);
        (tensor.rank, tensor.dtype) = (shape.len() as u32, dtype.0);
        Ok(())
    }

    /// Gives a result the type of an operand.
    ///
    /// # Errors
    /// If there is no such result.
    ///
    /// # Panics
    /// If there is no such operand.
    pub fn set_like(&mut self, result: usize, operand: usize) -> Result<(), String> {
        self.set(result, self.dtype(operand), self.shape(operand))
    }
}

impl<'c> Parameters<'c> {
    /// A truth value, if given.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.find(name, abi::KIND_BOOL).map(|argument| argument.int != 0)
    }

    /// A whole number, if given.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.find(name, abi::KIND_INT).map(|argument| argument.int)
    }

    /// A number, if given.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.find(name, abi::KIND_FLOAT).map(|argument| argument.float)
    }

    /// Text, if given.
    pub fn text(&self, name: &str) -> Option<&'c str> {
        self.find(name, abi::KIND_TEXT).and_then(|argument| read(&argument.text))
    }

    /// A dtype, if given.
    pub fn dtype(&self, name: &str) -> Option<DType> {
        self.find(name, abi::KIND_DTYPE).map(|argument| DType(argument.int as u32))
    }

    /// Whole numbers, if given.
    pub fn ints(&self, name: &str) -> Option<&'c [i64]> {
        let argument = self.find(name, abi::KIND_INTS)?;
        // SAFETY: the argument has so many numbers.
        Some(unsafe { slice(argument.ints, argument.int_count) })
    }

    fn find(&self, name: &str, kind: u32) -> Option<&'c abi::Argument> {
        self.0.iter().find(|argument| argument.kind == kind && read(&argument.name) == Some(name))
    }
}

/// What the threads of a parallel loop share.
struct Work<'b> {
    body: &'b (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// # Safety
/// `work` is that of a loop that has not ended.
unsafe extern "C" fn chunk(work: *mut c_void, index: usize) {
    // SAFETY: the caller's.
    let work = unsafe { &*work.cast_const().cast::<Work<'_>>() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (work.body)(index))) {
        let mut first = work.panic.lock().unwrap_or_else(PoisonError::into_inner);
        match &*first {
            None => *first = Some(payload),
            // What panics carry may panic when it is dropped.
            Some(_) => std::mem::forget(payload),
        }
    }
}

fn check<T: Element>(what: &str, tensor: &abi::Tensor) -> Result<(), String> {
    let dtype = DType(tensor.dtype);
    if dtype != T::DTYPE && (dtype, T::DTYPE) != (DType::BOOL, DType::U8) {
        return Err(format!("{what} is {dtype}, expected {}", T::DTYPE));
    }
    if !tensor.data.cast::<T>().is_aligned() || !tensor.bytes.is_multiple_of(size_of::<T>()) {
        return Err(format!("{what} is no array of aligned {dtype}"));
    }
    Ok(())
}

fn lend(lent: &mut Vec<usize>, what: &str, position: usize) -> Result<(), String> {
    if lent.contains(&position) {
        return Err(format!("{what} {position} was lent already"));
    }
    lent.push(position);
    Ok(())
}

fn shape(tensor: &abi::Tensor) -> &[usize] {
    &tensor.shape[..tensor.rank as usize]
}

fn read(text: &abi::Text) -> Option<&str> {
    // SAFETY: texts of a call have so many bytes, and live as long as the call.
    std::str::from_utf8(unsafe { slice(text.data, text.len) }).ok()
}

/// # Safety
/// `data` holds `len` values of `T`, or `len` is 0; nothing writes them during `'a`.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: the caller's.
    if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, len) } }
}

/// # Safety
/// `data` holds `len` values of `T`, or `len` is 0; nothing else uses them during `'a`.
unsafe fn slice_mut<'a, T>(data: *mut T, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's.
    if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(data, len) } }
}
