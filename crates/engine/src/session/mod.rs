//! From graphs to models: compile, init, load.

mod builder;
mod compile;
mod init;
mod load;
mod setters;
mod source;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::cache::CompileCache;
use crate::custom::Extensions;
use crate::debug::DebugConfig;
use crate::instruments::Instruments;
use crate::{Device, KernelSettings};

pub use self::builder::Builder;
pub use self::compile::{CacheUse, CompileOptions};
pub use self::init::InitOptions;
pub use self::source::GraphSource;

/// Compiles graphs for its devices and makes models of them.
///
/// A session can be used from many threads. What its setters change holds for what is compiled afterwards.
pub struct InferenceSession {
    devices: Vec<Arc<dyn Device>>,
    cache: Option<CompileCache>,
    extensions: Extensions,
    num_threads: usize,
    settings: Mutex<KernelSettings>,
    pub(crate) instruments: Arc<Instruments>,
}

impl InferenceSession {
    /// The devices, the preferred first.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The device that computes whatever no other one does.
    pub fn host(&self) -> &Arc<dyn Device> {
        compile::host(&self.devices)
    }

    /// The libraries of custom ops that all graphs are compiled with.
    pub fn custom_extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// How many threads the host computes with; 0 if it chooses itself.
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// What to check, log and write while models compile and run.
    pub fn debug(&self) -> &DebugConfig {
        &self.instruments.debug
    }
}

impl fmt::Debug for InferenceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
        write!(f, "InferenceSession({}", names.join(", "))?;
        match self.num_threads {
            0 => f.write_str(")"),
            threads => write!(f, ", num_threads = {threads})"),
        }
    }
}
