//! For authors of custom ops: the C ABI of extensions, and Rust on top of it.
//!
//! Layer 0: knows nothing, so that one file of Rust can be compiled against it by `rustc` alone. Authors in C or C++
//! include `include/perihelion_extension.h`, which says the same as [`abi`].
//!
//! An op is a type that implements [`Op`]; [`extension!`] lists the ops of a library:
//!
//! ```
//! use perihelion_extension::{Call, Op, Operand, Parameter, ParameterKind, Types, extension};
//!
//! /// `x` where it is positive, else `slope · x`.
//! struct LeakyRelu;
//!
//! impl Op for LeakyRelu {
//!     const NAME: &'static str = "leaky_relu";
//!     const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];
//!     const PARAMETERS: &'static [Parameter] = &[Parameter::optional("slope", ParameterKind::Float)];
//!
//!     fn infer(types: &mut Types<'_>) -> Result<(), String> {
//!         types.set_like(0, 0)
//!     }
//!
//!     fn run(call: &mut Call<'_>) -> Result<(), String> {
//!         let slope = call.parameters().float("slope").unwrap_or(0.01) as f32;
//!         let (x, y) = (call.operand::<f32>(0)?, call.result::<f32>(0)?);
//!         for (y, &x) in y.iter_mut().zip(x) {
//!             *y = if x > 0.0 { x } else { slope * x };
//!         }
//!         Ok(())
//!     }
//! }
//!
//! extension! { name: "activations", version: "1.0", ops: [LeakyRelu] }
//! # fn main() {}
//! ```
//!
//! What an op may rely on and must keep:
//! - operands and results are row-major, and aligned to the size of their elements at least;
//! - the results are written whole; their contents are undefined before;
//! - a result depends on operands and parameters alone, so that equal calls may be merged and unread ones dropped;
//! - calls come from several threads at once;
//! - a panic becomes an error of the call. (Not where the library is compiled with `panic = "abort"`.)

pub mod abi;
mod call;
mod declaration;
mod dtype;
mod op;
mod trampoline;

pub use call::{Call, Parameters, Types};
pub use declaration::{Operand, Parameter, ParameterKind};
pub use dtype::{BF16, DType, Element, F16};
pub use op::Op;
#[doc(hidden)]
pub use trampoline::{declare, library};

/// The files of this crate, by their names in its `src` folder: what hosts compile single sources against.
#[doc(hidden)]
pub const SOURCES: &[(&str, &str)] = &[
    ("lib.rs", include_str!("lib.rs")),
    ("abi.rs", include_str!("abi.rs")),
    ("call.rs", include_str!("call.rs")),
    ("declaration.rs", include_str!("declaration.rs")),
    ("dtype.rs", include_str!("dtype.rs")),
    ("op.rs", include_str!("op.rs")),
    ("trampoline.rs", include_str!("trampoline.rs")),
];

/// Makes a library an extension: its name, its version, and the types that implement [`Op`].
#[macro_export]
macro_rules! extension {
    (name: $name:literal, version: $version:literal, ops: [$($op:ty),+ $(,)?] $(,)?) => {
        /// What hosts look for.
        #[unsafe(no_mangle)]
        pub extern "C" fn perihelion_extension_v1() -> *const $crate::abi::Library {
            const OPS: &[$crate::abi::Op] = &[$($crate::declare::<$op>()),+];
            static LIBRARY: $crate::abi::Library = $crate::library($name, $version, OPS);
            &LIBRARY
        }
    };
}
