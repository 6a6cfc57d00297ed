//! Configurations, generators and answers that these tests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{Devices, PipelineConfig, machine};
use perihelion::pipelines::{
    Completion, Error, Generator, SamplingOptions, TextGenerator, TextModel, TextRequest,
};

pub(crate) fn config(model: &Path) -> PipelineConfig {
    PipelineConfig::new(model.display().to_string())
}

/// The built-in model: f32, `q4_k` and `q6_k`, 512 tokens of context.
pub(crate) fn storyteller() -> PipelineConfig {
    config(&testdata::asset("storyteller/model.gguf"))
}

/// A folder for one test, empty at first. Its child processes find in it what the test wrote.
pub(crate) fn folder(test: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("pipelines_{test}"));
    if !testdata::child::is_child() {
        let _ = fs::remove_dir_all(&folder);
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Copies the files of a folder, which may be read-only.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::write(to.join(entry.file_name()), fs::read(entry.path()).unwrap()).unwrap();
    }
}

pub(crate) fn generator(config: &PipelineConfig) -> Generator {
    let plan = config.plan(machine()).unwrap();
    let session = InferenceSession::new(plan.config().devices().unwrap()).unwrap();
    Generator::new(Arc::new(TextModel::from_plan(&session, plan).unwrap())).unwrap()
}

pub(crate) fn text_generator(config: &PipelineConfig) -> Result<TextGenerator, Error> {
    let plan = config.plan(machine())?;
    let session = InferenceSession::new(plan.config().devices()?)?;
    TextGenerator::from_plan(&session, plan)
}

/// A greedy request with log-probabilities, which does not stop at the end of the text.
pub(crate) fn request(max_new_tokens: Option<usize>) -> TextRequest {
    let mut request = TextRequest::from("Once upon a time");
    request.parameters.max_new_tokens = max_new_tokens;
    request.parameters.ignore_eos = true;
    request.parameters.sampling = SamplingOptions::GREEDY;
    request.parameters.logprobs = Some(1);
    request
}

/// The answer of a configuration's model: tokens, and the bits of their log-probabilities.
pub(crate) fn answer(config: &PipelineConfig) -> Vec<(u32, u32)> {
    text(&text_generator(config).unwrap().generate(request(Some(8))).unwrap())
}

/// Tokens, and the bits of their log-probabilities.
pub(crate) fn text(completion: &Completion) -> Vec<(u32, u32)> {
    let bits = completion.logprobs.iter().map(|logprobs| logprobs.chosen.logprob.to_bits());
    completion.tokens.iter().copied().zip(bits).collect()
}

/// The fields that a configuration is refused for, and the whole message.
pub(crate) fn refused(config: &PipelineConfig) -> (Vec<&'static str>, String) {
    match config.plan(machine()).and_then(|plan| plan.fetch(&|_| ())) {
        Err(error @ Error::Config(_)) => {
            let Error::Config(fields) = &error else { unreachable!("matched above") };
            (fields.iter().map(|problem| problem.field).collect(), error.to_string())
        }
        Err(error) => (Vec::new(), error.to_string()),
        Ok(_) => panic!("{config:?} is fine"),
    }
}
