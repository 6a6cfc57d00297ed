//! From the author's trait to the functions and tables of the ABI.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Call, Op, Types, abi};

/// The table entry of an op.
pub const fn declare<O: Op>() -> abi::Op {
    abi::Op {
        name: abi::Text::new(O::NAME),
        operands: O::OPERANDS.as_ptr().cast(),
        operand_count: O::OPERANDS.len(),
        parameters: O::PARAMETERS.as_ptr().cast(),
        parameter_count: O::PARAMETERS.len(),
        min_results: *O::RESULTS.start(),
        max_results: *O::RESULTS.end(),
        variadic: O::VARIADIC as u32,
        reserved: 0,
        infer: Some(infer::<O>),
        run: Some(run::<O>),
    }
}

/// The table of a library.
pub const fn library(name: &'static str, version: &'static str, ops: &'static [abi::Op]) -> abi::Library {
    abi::Library {
        abi_version: abi::VERSION,
        struct_size: size_of::<abi::Library>() as u32,
        op_size: size_of::<abi::Op>() as u32,
        reserved: 0,
        name: abi::Text::new(name),
        version: abi::Text::new(version),
        ops: ops.as_ptr(),
        op_count: ops.len(),
    }
}

/// # Safety
/// `call` is a call of a type rule as [`abi::Call`] describes it, and nothing else uses it meanwhile.
unsafe extern "C" fn infer<O: Op>(call: *const abi::Call) -> u32 {
    // SAFETY: the caller's.
    let call = unsafe { &*call };
    // SAFETY: as above.
    finish(call, || O::infer(&mut unsafe { Types::new(call) }))
}

/// # Safety
/// `call` is a call as [`abi::Call`] describes it, and nothing else uses it meanwhile.
unsafe extern "C" fn run<O: Op>(call: *const abi::Call) -> u32 {
    // SAFETY: the caller's.
    let call = unsafe { &*call };
    // SAFETY: as above.
    finish(call, || O::run(&mut unsafe { Call::new(call, O::OPERANDS) }))
}

/// The status of what `body` does. Nothing unwinds out of it.
fn finish(call: &abi::Call, body: impl FnOnce() -> Result<(), String>) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => abi::OK,
        Ok(Err(message)) => {
            write(call, &message);
            abi::ERROR
        }
        Err(payload) => {
            write(call, text(&*payload));
            // What panics carry may panic when it is dropped, which nothing would catch.
            std::mem::forget(payload);
            abi::PANIC
        }
    }
}

fn text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("something that is no text")
}

/// Leaves a message with the host, as much as there is room for.
fn write(call: &abi::Call, text: &str) {
    // SAFETY: the host's room for a message, `capacity` bytes, which nothing else uses during a call.
    unsafe {
        let Some(message) = call.message.as_mut() else { return };
        message.len = text.len().min(message.capacity);
        std::ptr::copy_nonoverlapping(text.as_ptr(), message.data, message.len);
    }
}
