//! Language models: from a configuration to text, on the devices of this build.
//!
//! ```
//! use std::sync::Arc;
//!
//! use perihelion::engine::InferenceSession;
//! use perihelion::pipelines::config::{Devices, KVCacheStrategy, PipelineConfig, machine};
//! use perihelion::pipelines::{Generator, GeneratorOptions, TextModel};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/storyteller/model.gguf");
//! let config = PipelineConfig::new(path).cache_strategy(KVCacheStrategy::Paged).max_length(256);
//! let resolved = config.resolve(machine())?;
//! println!("{}", resolved.memory());
//! let session = InferenceSession::new(resolved.config().devices()?)?;
//! let options = GeneratorOptions::from(&resolved);
//! let model = Arc::new(TextModel::from_config(&session, resolved)?);
//! let generator = Generator::new(model, &options)?;
//! # assert!(generator.is_idle());
//! # Ok(())
//! # }
//! ```

pub use ::pipelines::*;

/// What a pipeline is configured with, and the devices that a configuration opens.
pub mod config {
    use std::sync::Arc;

    pub use ::pipelines::config::*;

    use crate::driver::{Device, PLATFORM};
    use crate::pipelines::Error;

    /// The devices that a configuration names.
    pub trait Devices {
        /// Opens the one device of `device_specs`, or that there is.
        ///
        /// # Errors
        /// If it is not there, with the number of those that are; or there are several.
        fn device(&self) -> Result<Arc<dyn Device>, Error>;

        /// Opens the devices of `device_specs`, or those that there are; once.
        ///
        /// # Errors
        /// If one is not there, with the number of those that are.
        fn devices(&self) -> Result<Vec<Arc<dyn Device>>, Error>;
    }

    impl Devices for PipelineConfig {
        fn device(&self) -> Result<Arc<dyn Device>, Error> {
            self.device_of(&PLATFORM)
        }

        fn devices(&self) -> Result<Vec<Arc<dyn Device>>, Error> {
            self.devices_of(&PLATFORM)
        }
    }

    /// This machine: its devices, and the memory that is free.
    pub fn machine() -> Machine<'static> {
        Machine::new(&PLATFORM)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::driver::DeviceSpec;

        #[test]
        fn a_configuration_opens_its_devices_once() {
            let config = PipelineConfig::default();
            let (first, second) = (config.device().unwrap(), config.devices().unwrap().remove(0));
            assert!(first.is_host() && Arc::ptr_eq(&first, &second));
            let gpu = config.device_specs(vec![DeviceSpec::accelerator(9).unwrap()]);
            assert!(gpu.devices().err().unwrap().to_string().starts_with("gpu:9 is not available: found "));
        }
    }
}
