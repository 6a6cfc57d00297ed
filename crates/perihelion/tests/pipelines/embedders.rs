//! Embedders from configurations: fields have their effect, and models of the wrong kind are refused.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use perihelion::driver::{Cpu, Device};
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{Devices, PipelineConfig, machine};
use perihelion::pipelines::{Embedder, EmbeddingModel, EmbeddingParameters, Error, Pooling, TextGenerator};

use crate::support::{config, folder, storyteller};

const TEXTS: [&str; 5] = ["The cat sits on the mat.", "naïve café", "", "a kitten", "stock markets fell"];

fn embedder(config: &PipelineConfig) -> Result<Embedder, Error> {
    let plan = config.plan(machine())?;
    let session = InferenceSession::new(plan.config().devices()?)?;
    Embedder::from_plan(&session, plan)
}

fn vectors(embedder: &Embedder) -> Vec<Vec<f32>> {
    embedder.embed(TEXTS).unwrap().into_iter().map(|embedding| embedding.vector).collect()
}

/// The vectors of a model with default options.
fn expected(model: &Path) -> Vec<Vec<f32>> {
    let session = InferenceSession::new([Arc::new(Cpu::new(3)) as Arc<dyn Device>]).unwrap();
    let plan = config(model).max_cache_batch_size(256).plan(machine()).unwrap();
    let model = EmbeddingModel::from_plan(&session, plan, &mut |_| ()).unwrap();
    vectors(&Embedder::new(Arc::new(model), &EmbeddingParameters::default()).unwrap())
}

#[test]
fn fields_configure_embedders() {
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let expected = expected(&model);
    let usual = embedder(&config(&model)).unwrap();
    assert_eq!((usual.pooling(), usual.max_length()), (Pooling::Mean, 256), "as the files say");
    assert_eq!(vectors(&usual), expected);
    let two = embedder(&config(&model).max_cache_batch_size(2)).unwrap();
    assert_eq!(vectors(&two), expected);
    let batches = (0..2000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        let status = two.status().unwrap();
        (status.texts == 5).then_some(status.batches)
    });
    assert_eq!(batches, Some(3), "five texts, two at a time");
    let long = "word ".repeat(298);
    assert!(matches!(usual.embed(&long[..]), Err(Error::TextTooLong { tokens: 300, limit: 256, .. })));
    let longer = embedder(&config(&model).max_length(300)).unwrap();
    assert_eq!(longer.embed(&long[..]).unwrap()[0].tokens, 300);
    let shorter = embedder(&config(&model).max_length(4)).unwrap();
    assert!(matches!(shorter.embed(TEXTS), Err(Error::TextTooLong { index: 0, limit: 4, .. })));
    // The weights may be elsewhere.
    let bare = folder("embedder_weights");
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        fs::write(bare.join(file), fs::read(model.join(file)).unwrap()).unwrap();
    }
    let elsewhere = config(&bare).weight_path(vec![model.join("model.safetensors")]);
    assert_eq!(vectors(&embedder(&elsewhere).unwrap()), expected);
}

#[test]
fn saved_embedders_load_and_refuse_another_model() {
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let expected = expected(&model);
    let file = folder("embedder_saved").join("model.mef");
    let saving = config(&model).save_to_serialized_model_path(file.clone());
    assert_eq!(vectors(&embedder(&saving).unwrap()), expected);
    let saved = config(&model).serialized_model_path(file.clone());
    assert_eq!(vectors(&embedder(&saved).unwrap()), expected);
    // An encoder has no cache, so it fits pages of any size.
    assert_eq!(vectors(&embedder(&saved.kv_cache_page_size(64_usize)).unwrap()), expected);
    let other = storyteller().serialized_model_path(file);
    let message = embedder(&other).unwrap_err().to_string();
    assert!(message.contains("the architecture BertModel instead of llama"), "{message}");
}

#[test]
fn wrong_kinds_of_models_are_refused() {
    let error = embedder(&storyteller()).unwrap_err();
    assert!(matches!(error, Error::NoPooling { .. }), "{error}");
    assert!(error.to_string().contains("or use a text generator"), "{error}");
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let plan = config(&model).top_k(3).plan(machine()).unwrap();
    let idle = "top_k has no effect: BertModel is an encoder, which writes nothing and has no cache";
    assert!(plan.warnings().iter().any(|warning| warning == idle), "{:?}", plan.warnings());
    let session = InferenceSession::new(plan.config().devices().unwrap()).unwrap();
    let error = TextGenerator::from_plan(&session, plan).unwrap_err();
    assert_eq!(error.to_string(), "BertModel is an encoder: it makes embeddings, not text; use an embedder");
}
