//! Ops of libraries as the engine sees them: found by name, put into graphs, checked, run as kernels.

mod adopt;
mod kernel;

use std::path::Path;

use extensions::{Access, Compiler, Library};
use graph::ops::{CustomOps, CustomParameter, CustomSignature, Effect, ParameterKind};

pub(crate) use self::kernel::split_target;
use crate::Error;

/// Libraries of custom ops, for sessions, for compiles, and for the graphs that use them. Clones share them.
///
/// An op of a library shadows the built-in op of its name in graphs that are compiled with it. What passes make of a
/// graph afterwards are built-in ops.
#[derive(Debug, Clone, Default)]
pub struct Extensions {
    libraries: Vec<Library>,
}

impl Extensions {
    /// Loads a library: a shared library, a package, or a source of Rust (`.rs`), which is compiled once.
    ///
    /// This runs the library's code, which has all rights of the process.
    ///
    /// # Errors
    /// If it cannot be loaded, or what it says of itself makes no sense.
    pub fn load(path: impl AsRef<Path>) -> Result<Extensions, Error> {
        Extensions::load_all([path])
    }

    /// Loads several libraries.
    ///
    /// # Errors
    /// As [`Extensions::load`], and if two have an op of the same name.
    pub fn load_all<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Extensions, Error> {
        Extensions::load_all_with(paths, &Compiler::from_env())
    }

    /// [`Extensions::load_all`] with a compiler for sources.
    ///
    /// # Errors
    /// As [`Extensions::load_all`].
    pub fn load_all_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        compiler: &Compiler,
    ) -> Result<Extensions, Error> {
        paths.into_iter().try_fold(Extensions::default(), |all, path| {
            all.with(&Extensions { libraries: vec![Library::open(path, compiler)?] })
        })
    }

    /// These libraries and others. One that is among both counts once.
    ///
    /// # Errors
    /// If two have an op of the same name.
    pub fn with(&self, others: &Extensions) -> Result<Extensions, Error> {
        let mut all = self.clone();
        for library in &others.libraries {
            if all.libraries.iter().any(|other| other.digest() == library.digest()) {
                continue;
            }
            for op in library.ops() {
                let name = op.signature().name.clone();
                if let Some(other) = all.op(&name) {
                    let (first, second) = (other.library().to_string(), op.library().to_string());
                    return Err(Error::AmbiguousOp { name, first, second });
                }
                signature(op).check_names().map_err(|error| Error::Op { name, error })?;
            }
            all.libraries.push(library.clone());
        }
        Ok(all)
    }

    /// The libraries.
    pub fn libraries(&self) -> &[Library] {
        &self.libraries
    }

    /// Name, version and the start of the digest of each library.
    pub fn describe(&self) -> String {
        let describe = |library: &Library| {
            let digest = &library.digest()[..16];
            format!("{} {} ({digest})", library.name(), library.version())
        };
        self.libraries.iter().map(describe).collect::<Vec<_>>().join(", ")
    }

    fn op(&self, name: &str) -> Option<&extensions::Op> {
        self.libraries.iter().find_map(|library| library.op(name))
    }
}

impl CustomOps for Extensions {
    fn signature(&self, op: &str) -> Option<CustomSignature> {
        self.op(op).map(signature)
    }

    fn searched(&self) -> Vec<String> {
        self.libraries.iter().map(|library| format!("{} {}", library.name(), library.version())).collect()
    }
}

/// What an op takes and gives, as graphs know it.
fn signature(op: &extensions::Op) -> CustomSignature {
    let declared = op.signature();
    let effect = |access| match access {
        Access::Tensor => Effect::None,
        Access::Read => Effect::Read,
        Access::Write => Effect::Write,
    };
    let kind = |kind| match kind {
        extensions::ParameterKind::Bool => ParameterKind::Bool,
        extensions::ParameterKind::Int => ParameterKind::Int,
        extensions::ParameterKind::Float => ParameterKind::Float,
        extensions::ParameterKind::Text => ParameterKind::Text,
        extensions::ParameterKind::DType => ParameterKind::DType,
        extensions::ParameterKind::Ints => ParameterKind::Ints,
    };
    let operands = declared.operands.iter().map(|operand| (operand.name.clone(), effect(operand.access)));
    let parameters = declared.parameters.iter().map(|parameter| CustomParameter {
        name: parameter.name.clone(),
        kind: kind(parameter.kind),
        required: parameter.required,
    });
    CustomSignature {
        library: op.library().to_string(),
        operands: operands.collect(),
        variadic: declared.variadic,
        results: declared.min_results..=declared.max_results,
        parameters: parameters.collect(),
    }
}
