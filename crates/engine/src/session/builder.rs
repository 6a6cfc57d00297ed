//! A session made in steps.

use std::sync::{Arc, Mutex};

use super::{InferenceSession, setters};
use crate::cache::CompileCache;
use crate::custom::Extensions;
use crate::instruments::Instruments;
use crate::{Device, Error};

/// The environment variable that names the largest instruction set to use.
const INSTRUCTION_SET: &str = "PERIHELION_INSTRUCTION_SET";

impl InferenceSession {
    /// A session on devices, the preferred first. Doubled ones count once.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<InferenceSession, Error> {
        InferenceSession::builder().devices(devices).build()
    }

    /// A session made in steps.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// The parts of a session to be.
#[derive(Default)]
pub struct Builder {
    devices: Vec<Arc<dyn Device>>,
    cache: Option<CompileCache>,
    extensions: Extensions,
    num_threads: usize,
    host: Option<HostFactory>,
}

/// Makes the host's device with so many threads; 0 means as many as it thinks best.
type HostFactory = Box<dyn FnOnce(usize) -> Arc<dyn Device>>;

impl Builder {
    /// Adds a device behind those given before.
    pub fn device(mut self, device: Arc<dyn Device>) -> Builder {
        if !self.devices.iter().any(|other| is_same(other, &device)) {
            self.devices.push(device);
        }
        self
    }

    /// Adds devices behind those given before.
    pub fn devices(self, devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Builder {
        devices.into_iter().fold(self, Builder::device)
    }

    /// Compiles all graphs with libraries of custom ops.
    pub fn custom_extensions(mut self, extensions: Extensions) -> Builder {
        self.extensions = extensions;
        self
    }

    /// How many threads the host computes with; 0 lets it choose.
    pub fn num_threads(mut self, threads: usize) -> Builder {
        self.num_threads = threads;
        self
    }

    /// How to make the host's device, which becomes the last if none of those given is one.
    pub fn host(mut self, make: impl FnOnce(usize) -> Arc<dyn Device> + 'static) -> Builder {
        self.host = Some(Box::new(make));
        self
    }

    /// Keeps what is compiled in a cache. Without one, which is what a session starts with, nothing is written.
    pub fn compile_cache(mut self, cache: impl Into<Option<CompileCache>>) -> Builder {
        self.cache = cache.into();
        self
    }

    /// The session.
    ///
    /// # Errors
    /// If there are no devices, or the environment holds settings that cannot be.
    pub fn build(self) -> Result<InferenceSession, Error> {
        let Builder { mut devices, cache, extensions, num_threads, host } = self;
        for device in devices.iter_mut().filter(|device| num_threads > 0 && device.is_host()) {
            if let Some(other) = device.with_threads(num_threads) {
                *device = other;
            }
        }
        if let Some(make) = host.filter(|_| !devices.iter().any(|device| device.is_host())) {
            devices.push(make(num_threads));
        }
        if devices.is_empty() {
            return Err(Error::NoDevice);
        }
        limit(&mut devices)?;
        let settings = Mutex::new(setters::from_environment(&|name| std::env::var(name).ok())?);
        let instruments = Arc::new(Instruments::new()?);
        Ok(InferenceSession { devices, cache, extensions, num_threads, settings, instruments })
    }
}

/// Keeps the host's kernels to the instruction set that the environment names, if it does.
fn limit(devices: &mut [Arc<dyn Device>]) -> Result<(), Error> {
    let Some(name) = std::env::var(INSTRUCTION_SET).ok().filter(|name| !name.is_empty()) else {
        return Ok(());
    };
    for device in devices.iter_mut().filter(|device| device.is_host()) {
        let known = |names: String| Error::setting(INSTRUCTION_SET, &name, &format!("one of {names}"));
        if let Some(limited) = device.limited_to(&name).map_err(known)? {
            *device = limited;
        }
    }
    Ok(())
}

/// Whether two handles are one device. A machine has one host, whatever its threads.
fn is_same(a: &Arc<dyn Device>, b: &Arc<dyn Device>) -> bool {
    Arc::ptr_eq(a, b) || (a.is_host() && b.is_host() && a.name() == b.name() && a.target() == b.target())
}
