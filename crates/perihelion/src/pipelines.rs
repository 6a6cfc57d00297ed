//! Language models: from a configuration to text, on the devices of this build.
//!
//! A configuration names a model and its limits. Its plan decides every field that is left open, and finds all that is
//! wrong, before any weight is read or fetched. From a plan, a text generator is loaded:
//!
//! ```
//! use perihelion::engine::InferenceSession;
//! use perihelion::pipelines::TextGenerator;
//! use perihelion::pipelines::config::{Devices, KVCacheStrategy, PipelineConfig, machine};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
//! let config = PipelineConfig::new(path) // Or "org/name", or a folder.
//!     .cache_strategy(KVCacheStrategy::Paged)
//!     .kv_cache_page_size(64_usize)
//!     .enable_prefix_caching(true)
//!     .max_cache_batch_size(4);
//! let plan = config.plan(machine())?;
//! println!("{}", plan.memory()?);
//! let session = InferenceSession::new(plan.config().devices()?)?;
//! let generator = TextGenerator::from_plan(&session, plan)?;
//! let answer = generator.generate("Once upon a time")?;
//! println!("{} ({} tokens)", answer.text, answer.usage.generated_tokens);
//! # assert!(!answer.text.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! An answer is read as it is made, by a thread or a task; dropping the stream cancels it:
//!
//! ```
//! use perihelion::pipelines::{EventKind, TextRequest};
//! # use perihelion::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
//! # let generator = TextGenerator::open(path)?;
//! let mut request = TextRequest::from("The fox");
//! request.parameters.max_new_tokens = Some(24);
//! request.parameters.sampling.temperature = Some(0.8);
//! request.parameters.seed = 7;
//! # let mut text = String::new();
//! for event in generator.stream(request)? {
//!     if let EventKind::Token { text: piece, .. } | EventKind::Finished { text: piece, .. } = event? {
//!         print!("{piece}");
//! #       text.push_str(&piece);
//!     }
//! }
//! # assert!(!text.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! Texts become vectors, those of several callers together; a task awaits them with `embed_async`:
//!
//! ```
//! use perihelion::engine::InferenceSession;
//! use perihelion::pipelines::config::{Devices, PipelineConfig, machine};
//! use perihelion::pipelines::{Embedder, EmbeddingModel, EmbeddingParameters, Pooling};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
//! # let config = PipelineConfig::new(path).max_cache_batch_size(16);
//! let plan = config.plan(machine())?;
//! let session = InferenceSession::new(plan.config().devices()?)?;
//! // What the files of an embedding model say need not be said: Embedder::from_plan(&session, plan)?
//! let parameters = EmbeddingParameters { pooling: Some(Pooling::Mean), ..EmbeddingParameters::default() };
//! let model = EmbeddingModel::from_plan(&session, plan, &mut |_| ())?;
//! let embedder = Embedder::new(model.into(), &parameters)?;
//! let embeddings = embedder.embed(["The fox", "The raven"])?;
//! assert_eq!((embeddings.len(), embeddings[0].vector.len()), (2, embedder.dimensions()));
//! # Ok(())
//! # }
//! ```
//!
//! An encoder with a classification head scores texts, and ranks documents by how well they answer a query:
//!
//! ```
//! use perihelion::engine::InferenceSession;
//! use perihelion::pipelines::config::{Devices, PipelineConfig, machine};
//! use perihelion::pipelines::{Classifier, RerankRequest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/encoders/roberta_classifier");
//! # let config = PipelineConfig::new(path);
//! let plan = config.plan(machine())?;
//! let session = InferenceSession::new(plan.config().devices()?)?;
//! let classifier = Classifier::from_plan(&session, plan)?;
//! let documents = ["dogs run", "the cat sat on a mat"];
//! let ranking = classifier.rerank(RerankRequest::new("is a cat here", documents).top(1))?;
//! assert_eq!(documents[ranking.documents[0].index], "the cat sat on a mat");
//! let scores = &classifier.classify(["a cat sat"])?[0].scores;
//! assert_eq!(scores.len(), classifier.labels().len());
//! # Ok(())
//! # }
//! ```
//!
//! A repository of a hub, a folder and a file answer the same questions:
//!
//! ```
//! use perihelion::pipelines::config::{HuggingFaceRepo, SupportedEncoding, WeightsFormat};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
//! let repo = HuggingFaceRepo::new(path)?; // Or "org/name": from the cache, or else the hub.
//! assert_eq!(repo.formats_available()?, [WeightsFormat::Gguf]);
//! assert_eq!(repo.encoding_for_file("model.gguf")?, SupportedEncoding::Q4K);
//! let files = repo.files_for_encoding(SupportedEncoding::Q4K, None, None)?;
//! assert_eq!(files[&WeightsFormat::Gguf], [std::path::Path::new("model.gguf")]);
//! # Ok(())
//! # }
//! ```

pub use ::pipelines::*;

/// What a pipeline is configured with, and the devices that a configuration opens.
pub mod config {
    use std::sync::Arc;

    pub use ::pipelines::config::*;
    pub use ::pipelines::{Machine, Plan};

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
