//! The built-in model: a small writer of fairy tales that needs no download.

/// The name under which commands and libraries offer the model.
pub const NAME: &str = "storyteller";

/// The GGUF file, aligned as the format requires, so that its tensors are used where they lie.
pub static GGUF: &[u8] = &ALIGNED.0;

static ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!("../model.gguf"));

#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);
