//! From the name of a model to something that runs it, on the devices of this build.

use crate::engine::InferenceSession;
use crate::pipelines::config::{Devices, PipelineConfig, machine};
use crate::pipelines::{Embedder, Error, TextGenerator};

/// What a model is opened as.
pub trait Open: Sized {
    /// Opens a model by name: a path, or a repository of the hub, fetched if it is not on this machine. All settings are
    /// the defaults of [`PipelineConfig`].
    ///
    /// ```
    /// use perihelion::prelude::*;
    ///
    /// # fn main() -> Result<(), perihelion::pipelines::Error> {
    /// # let name = concat!(env!("CARGO_MANIFEST_DIR"), "/../storyteller/model.gguf");
    /// let generator = TextGenerator::open(name)?; // Or "org/name", or "org/name:Q4_K_M".
    /// for piece in generator.stream("Once upon a time")?.text() {
    ///     print!("{}", piece?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If there is no such model, or it cannot be fetched, does not fit into memory, or is of another kind.
    fn open(model: impl Into<String>) -> Result<Self, Error> {
        Self::open_with(PipelineConfig::new(model))
    }

    /// As [`Open::open`], of a configuration.
    ///
    /// # Errors
    /// As [`Open::open`], and if the configuration contradicts itself, the model or the machine.
    fn open_with(config: PipelineConfig) -> Result<Self, Error>;
}

impl Open for TextGenerator {
    fn open_with(config: PipelineConfig) -> Result<TextGenerator, Error> {
        let plan = config.plan(machine())?;
        let session = InferenceSession::new(plan.config().devices()?)?;
        TextGenerator::from_plan(&session, plan)
    }
}

impl Open for Embedder {
    fn open_with(config: PipelineConfig) -> Result<Embedder, Error> {
        let plan = config.plan(machine())?;
        let session = InferenceSession::new(plan.config().devices()?)?;
        Embedder::from_plan(&session, plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_print_their_messages_from_main() {
        let error = TextGenerator::open("nowhere.gguf").unwrap_err();
        assert_eq!(format!("{error:?}"), error.to_string());
        let expected = format!("nowhere.gguf: {}", testdata::NO_SUCH_FILE);
        assert!(error.to_string().contains(&expected), "{error}");
    }

    #[test]
    fn a_model_is_opened_by_name_and_its_text_is_read() {
        let name = testdata::asset("storyteller/model.gguf").display().to_string();
        let generator = TextGenerator::open(name).unwrap();
        let pieces: Vec<String> = generator.stream("Once").unwrap().text().map(Result::unwrap).collect();
        let answer = generator.generate("Once").unwrap();
        assert_eq!(pieces.concat(), answer.text);
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| !piece.is_empty()));
    }
}
