//! Compiling and executing graphs, on sessions that always have the CPU.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub use ::engine::*;

/// A session whose last device is the CPU, unless one of those given is. All it can do is what
/// [`engine::InferenceSession`](::engine::InferenceSession) can.
pub struct InferenceSession(::engine::InferenceSession);

impl InferenceSession {
    /// A session on devices, the preferred first. Doubled ones count once; the CPU comes last if it is not among them.
    ///
    /// # Errors
    /// If the environment holds settings that cannot be.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<InferenceSession, Error> {
        InferenceSession::builder().devices(devices).build()
    }

    /// A session made in steps.
    pub fn builder() -> SessionBuilder {
        let builder = ::engine::InferenceSession::builder();
        SessionBuilder(builder.host(|threads| Arc::new(cpu::Cpu::new(threads))))
    }
}

/// The parts of a session to be, as [`engine::Builder`](::engine::Builder).
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

    /// Keeps what is compiled in a cache.
    pub fn compile_cache(self, cache: impl Into<Option<CompileCache>>) -> SessionBuilder {
        SessionBuilder(self.0.compile_cache(cache))
    }

    /// The session.
    ///
    /// # Errors
    /// If the environment holds settings that cannot be.
    pub fn build(self) -> Result<InferenceSession, Error> {
        self.0.build().map(InferenceSession)
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

    #[test]
    fn the_cpu_is_always_there_and_last() {
        let session = InferenceSession::new([]).unwrap();
        assert_eq!(session.devices().len(), 1);
        assert!(session.devices()[0].is_host());
        assert_eq!(format!("{session:?}"), "InferenceSession(cpu)");
        let given: Arc<dyn Device> = Arc::new(cpu::Cpu::new(1));
        let session = InferenceSession::new([Arc::clone(&given), given]).unwrap();
        assert_eq!(session.devices().len(), 1);
    }

    #[test]
    fn the_number_of_threads_holds_for_given_cpus_too() {
        let given: Arc<dyn Device> = Arc::new(cpu::Cpu::new(1));
        for builder in [InferenceSession::builder(), InferenceSession::builder().device(given)] {
            let session = builder.num_threads(3).build().unwrap();
            assert_eq!((session.num_threads(), session.devices()[0].threads()), (3, 3));
        }
        assert_eq!(InferenceSession::builder().num_threads(None).build().unwrap().num_threads(), 0);
    }
}
