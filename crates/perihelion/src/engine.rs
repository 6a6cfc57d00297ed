//! Compiling and executing graphs, on sessions that always have the CPU.
//!
//! A model is loaded from a graph, or from the path of a saved one:
//!
//! ```
//! use perihelion::driver::{self, Buffer};
//! use perihelion::engine::InferenceSession;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model_path = std::env::temp_dir().join(format!("perihelion-load-{}.graph", std::process::id()));
//! # std::fs::write(&model_path, "graph twice(%x: f32[n]) { %y = add(%x, %x) return %y }")?;
//! let session = InferenceSession::new([driver::cpu()])?;
//! let model = session.load(&model_path, &())?; // A model without weights.
//! let outputs = model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])])?;
//! assert_eq!(outputs[0].to_vec::<f32>(), [2.0, 4.0]);
//! # std::fs::remove_file(model_path)?;
//! # Ok(())
//! # }
//! ```
//!
//! Or it is compiled first, and gets its weights later:
//!
//! ```
//! # use std::collections::HashMap;
//! # use perihelion::driver::{self, Buffer, Tensor};
//! # use perihelion::engine::InferenceSession;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model_path = std::env::temp_dir().join(format!("perihelion-init-{}.graph", std::process::id()));
//! # let text = r#"graph g(%x: f32[n]) { %w = weight "w" : f32[1] %y = add(%x, %w) return %y }"#;
//! # std::fs::write(&model_path, text)?;
//! let session = InferenceSession::new([driver::cpu()])?;
//! let compiled = session.compile(&model_path)?;
//! let weights = HashMap::from([("w".to_string(), Tensor::from_slice([1], &[10f32]))]);
//! let model = session.init(&compiled, &weights)?;
//! # let outputs = model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])])?;
//! # assert_eq!(outputs[0].to_vec::<f32>(), [11.0, 12.0]);
//! # std::fs::remove_file(model_path)?;
//! # Ok(())
//! # }
//! ```
//!
//! Calls are measured on any device, once a session is told so, or the environment variable
//! `PERIHELION_ENABLE_PROFILING` says `detailed`:
//!
//! ```
//! # use perihelion::driver::Buffer;
//! # use perihelion::engine::InferenceSession;
//! # use perihelion::graph::Graph;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let my_graph = Graph::parse("graph g(%x: f32[n]) { %y = add(%x, %x) return %y }")?;
//! # let trace = std::env::temp_dir().join(format!("perihelion-profile-{}.json", std::process::id()));
//! let session = InferenceSession::new([])?; // On the CPU.
//! session.gpu_profiling("detailed")?;
//! session.set_trace_file(&trace); // For Perfetto.
//! let model = session.load(&my_graph, &())?;
//! model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])])?;
//! println!("{}", session.profile_summary());
//! # assert_eq!(session.profile_summary().iter().count(), 1);
//! # assert_eq!(session.write_trace()?, Some(trace.clone()));
//! # std::fs::remove_file(trace)?;
//! # Ok(())
//! # }
//! ```
//!
//! What a graph prints goes to standard output, or into files that are mapped again:
//!
//! ```
//! # use perihelion::driver::{Buffer, DType, MapMode, load_max_buffer};
//! # use perihelion::engine::{InferenceSession, PrintStyle};
//! # use perihelion::graph::{Builder, Type, dims};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("perihelion-print-{}", std::process::id()));
//! let mut b = Builder::new("shown");
//! let x = b.input("x", Type::new(DType::F32, dims!["n"]));
//! b.print(x, "hidden_states")?;
//! let graph = b.finish(&[x])?;
//!
//! let session = InferenceSession::new([])?;
//! let model = session.load(&graph, &())?;
//! let inputs = [Buffer::from_slice([2], &[0.5f32, 1.0])];
//!
//! // Bytes alone: the reader says what they are.
//! session.set_debug_print_options(PrintStyle::Binary, 6, Some(&folder))?;
//! model.execute(&inputs)?;
//! let bytes = Buffer::mmap(folder.join("hidden_states"), DType::F32, [2], 0, MapMode::Read)?;
//!
//! // With dtype and shape.
//! session.set_debug_print_options("BINARY_MAX_CHECKPOINT", 6, Some(&folder))?;
//! model.execute(&inputs)?;
//! let checkpoint = load_max_buffer(folder.join("hidden_states.max"))?;
//! assert_eq!(bytes.to_vec::<f32>(), checkpoint.to_vec::<f32>());
//! # assert_eq!(bytes.to_vec::<f32>(), [0.5, 1.0]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! Ops of your own are loaded with a library; a single file of Rust is compiled when it is loaded, and kept in the
//! user's cache ([`Extensions::load`]) or in a folder that you name:
//!
//! ```
//! # use perihelion::driver::Buffer;
//! use perihelion::engine::extension::Compiler;
//! use perihelion::engine::{Extensions, InferenceSession};
//! use perihelion::graph::Graph;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/extensions/leaky_relu.rs");
//! # let folder = std::env::temp_dir().join(format!("perihelion-extension-{}", std::process::id()));
//! let compiler = Compiler { cache: Some(folder.clone()), ..Compiler::from_env() };
//! let extensions = Extensions::load_all_with([source], &compiler)?; // leaky_relu.rs
//! let session = InferenceSession::builder().custom_extensions(extensions).build()?;
//! let op = "custom(%x) {op = leaky_relu, results = [f32[n]], slope = 0.5}";
//! let graph = Graph::parse(&format!("graph net(%x: f32[n]) {{ %y = {op} return %y }}"))?;
//! let model = session.load(&graph, &())?;
//! # let outputs = model.execute(&[Buffer::from_slice([2], &[-1f32, 2.0])])?;
//! # assert_eq!(outputs[0].to_vec::<f32>(), [-0.5, 2.0]);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use ::engine::*;

/// A session whose last device is the CPU, unless one of those given is. All it can do is what
/// [`engine::InferenceSession`] can.
pub struct InferenceSession(::engine::InferenceSession);

impl InferenceSession {
    /// A session on devices, the preferred first. Doubled ones count once; the CPU comes last if it is not among them.
    ///
    /// # Errors
    /// If the environment holds settings that cannot be.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<InferenceSession, Error> {
        InferenceSession::builder().devices(devices).build()
    }

    /// A session made in steps. It starts with the user's compile cache ([`CompileCache::user`]).
    pub fn builder() -> SessionBuilder {
        let builder = ::engine::InferenceSession::builder();
        let builder = builder.host(|threads| Arc::new(cpu::Cpu::new(threads)));
        SessionBuilder(builder.compile_cache(CompileCache::user()))
    }
}

/// The parts of a session to be, as [`engine::Builder`].
pub struct SessionBuilder(::engine::Builder);

impl SessionBuilder {
    /// Adds a device behind those given before.
    pub fn device(self, device: Arc<dyn Device>) -> SessionBuilder {
        SessionBuilder(self.0.device(device))
    }

    /// Adds devices behind those given before.
    pub fn devices(self, devices: impl IntoIterator<Item = Arc<dyn Device>>) -> SessionBuilder {
        SessionBuilder(self.0.devices(devices))
    }

    /// How many threads the CPU computes with; 0 or `None` lets it choose.
    pub fn num_threads(self, threads: impl Into<Option<usize>>) -> SessionBuilder {
        SessionBuilder(self.0.num_threads(threads.into().unwrap_or(0)))
    }

    /// Compiles all graphs with libraries of custom ops.
    pub fn custom_extensions(self, extensions: Extensions) -> SessionBuilder {
        SessionBuilder(self.0.custom_extensions(extensions))
    }

    /// Keeps what is compiled in another cache than the user's; `None` keeps nothing.
    pub fn compile_cache(self, cache: impl Into<Option<CompileCache>>) -> SessionBuilder {
        SessionBuilder(self.0.compile_cache(cache))
    }

    /// The session. What it logs is shown on standard error, unless the program has a subscriber of its own
    /// ([`show_logs`]).
    ///
    /// # Errors
    /// If the environment holds settings that cannot be.
    pub fn build(self) -> Result<InferenceSession, Error> {
        show_logs()?;
        self.0.build().map(InferenceSession)
    }
}

impl From<InferenceSession> for ::engine::InferenceSession {
    fn from(session: InferenceSession) -> ::engine::InferenceSession {
        session.0
    }
}

impl Deref for InferenceSession {
    type Target = ::engine::InferenceSession;

    fn deref(&self) -> &::engine::InferenceSession {
        &self.0
    }
}

impl fmt::Debug for InferenceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Is set in the child process of the test below.
    const ROLE: &str = "PERIHELION_TEST_ROLE";

    #[test]
    fn child_without_memory() {
        if std::env::var(ROLE).is_err() {
            return;
        }
        let path = std::env::temp_dir().join(format!("perihelion-sparse-{}", std::process::id()));
        let (rows, columns) = (1usize << 18, 1usize << 10);
        std::fs::File::create(&path).unwrap().set_len((rows * columns * 4) as u64).unwrap();
        let mapped = tensor::Bytes::map(&path);
        std::fs::remove_file(&path).unwrap();
        let w = tensor::Tensor::from_bytes(tensor::DType::F32, [rows, columns], mapped.unwrap()).unwrap();
        let text = format!(
            "graph g(%x: f32[n, {columns}]) {{ %w = weight \"w\" : f32[{rows}, {columns}] %y = linear(%x, %w) return %y }}"
        );
        let session = InferenceSession::builder().num_threads(1).build().unwrap();
        let weights = std::collections::HashMap::from([("w".to_string(), w)]);
        let error = session.load(&graph::Graph::parse(&text).unwrap(), &weights).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        assert!(
            error.to_string().starts_with("packing weight `w` as panel16.f32: the system refused "),
            "{error}"
        );
    }

    /// Maps a weight of 1 GiB with too little memory left for its packed copy.
    #[test]
    #[cfg(target_os = "linux")]
    fn too_little_memory_to_pack_is_an_error() {
        let limited = format!(
            "ulimit -v 1800000; exec {} engine::tests::child_without_memory --exact --nocapture --test-threads=1",
            std::env::current_exe().unwrap().display()
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &limited]).env(ROLE, "child_without_memory").env("PERIHELION_CACHE_DIR", "off");
        let output = command.output().unwrap();
        let passed = String::from_utf8_lossy(&output.stdout).contains("1 passed");
        assert!(output.status.success() && passed, "{}", String::from_utf8_lossy(&output.stderr));
    }
}
