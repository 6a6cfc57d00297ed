//! Every encoder against PyTorch: tiny random checkpoints and the hidden states that `transformers` computes for them,
//! both written by `tools/tiny_checkpoints.py`. And a real one, all-MiniLM-L6-v2, from text to vector.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::driver::{Buffer, DType, Tensor};
use perihelion::engine::Model;
use perihelion::models::{Checkpoint, ENCODERS, Mix, Output, QuantizeOptions};
use perihelion::pipelines::config::{PipelineConfig, machine};
use perihelion::pipelines::{
    Batch, Embedder, EmbeddingModel, EmbeddingParameters, EmbeddingPrompt, EmbeddingRequest, EmbeddingText,
    Pooling, Runner, Slice, Truncate,
};
use perihelion::weights::Weights;

use crate::architectures::{check_nearly, widen, written_as_gguf};
use crate::support::session;

/// How far a hidden state may be from PyTorch's, as a fraction of the largest: both round to f32.
const BOUND: f32 = 1e-4;
const PAGE_SIZE: usize = 16;

/// A checkpoint that travels with the repository.
struct Golden {
    name: String,
    folder: PathBuf,
    tokens: Vec<u32>,
    /// f32[tokens, hidden]
    hidden: Vec<f32>,
    /// f32[labels] of a model with a classification head, and the types of the tokens that it is for.
    logits: Option<(Vec<f32>, Vec<u32>)>,
}

fn goldens() -> Vec<Golden> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/encoders");
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    folders.map(Golden::open).collect()
}

impl Golden {
    fn open(folder: PathBuf) -> Golden {
        let expected = Weights::open(&folder.join("hidden.safetensors")).unwrap();
        let ids = |tensor: &Tensor| tensor.to_vec::<i32>().into_iter().map(|id| id as u32).collect();
        let types = expected.get("token_types").map(ids);
        Golden {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            tokens: ids(expected.get("tokens").unwrap()),
            hidden: expected.get("hidden").unwrap().to_f32_vec(),
            logits: expected.get("logits").map(Tensor::to_f32_vec).zip(types),
            folder,
        }
    }

    /// The checkpoint in each format in which it is there.
    fn checkpoints(&self) -> Vec<(String, Checkpoint)> {
        let files = ["model.safetensors", "model.gguf"].into_iter();
        let files = files.filter(|file| self.folder.join(file).exists());
        let open = |file: &str| Checkpoint::open(&self.folder.join(file), None);
        files
            .map(|file| {
                let name = format!("{}/{file}", self.name);
                let checkpoint = open(file).unwrap_or_else(|error| panic!("{name}: {error}"));
                (name, checkpoint)
            })
            .collect()
    }
}

fn load(checkpoint: &Checkpoint, threads: usize) -> Model {
    let graph = checkpoint.graph(Output::Hidden, PAGE_SIZE, DType::F32).unwrap();
    session(threads).load(&graph, &|name: &str| checkpoint.tensor(name).unwrap()).unwrap()
}

/// The hidden states of some texts.
fn run(model: &Model, texts: &[&[u32]]) -> Vec<f32> {
    model.execute(&inputs(texts)).unwrap()[0].to_vec::<f32>()
}

fn inputs(texts: &[&[u32]]) -> Vec<Buffer> {
    let tokens = texts.concat();
    let offsets: Vec<u32> =
        (0..=texts.len()).map(|n| texts[..n].iter().map(|text| text.len() as u32).sum()).collect();
    vec![Buffer::from_slice([tokens.len()], &tokens), Buffer::from_slice([offsets.len()], &offsets)]
}

/// The logits of some texts, each the first tokens of the golden.
fn logits(checkpoint: &Checkpoint, golden: &Golden, threads: usize, lengths: &[usize]) -> Vec<f32> {
    let graph = checkpoint.graph(Output::Scores, PAGE_SIZE, DType::F32).unwrap();
    let model = session(threads).load(&graph, &|name: &str| checkpoint.tensor(name).unwrap()).unwrap();
    let firsts = |ids: &'_ [u32]| lengths.iter().flat_map(|&length| ids[..length].to_vec()).collect();
    let texts: Vec<&[u32]> = lengths.iter().map(|&length| &golden.tokens[..length]).collect();
    let mut inputs = inputs(&texts);
    if checkpoint.encoder().unwrap().reads_token_types() {
        let types: Vec<u32> = firsts(&golden.logits.as_ref().unwrap().1);
        inputs.push(Buffer::from_slice([types.len()], &types));
    }
    model.execute(&inputs).unwrap()[0].to_vec::<f32>()
}

/// The goldens of models with heads.
fn classifiers() -> Vec<Golden> {
    goldens().into_iter().filter(|golden| golden.logits.is_some()).collect()
}

fn worst(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    assert!(got.iter().all(|x| x.is_finite()));
    let largest = expected.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
    got.iter().zip(expected).map(|(a, b)| (a - b).abs() / largest).fold(0.0, f32::max)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn hidden_states_match_pytorch() {
    for golden in goldens() {
        for (name, checkpoint) in golden.checkpoints() {
            let hidden = run(&load(&checkpoint, 2), &[&golden.tokens]);
            let worst = worst(&hidden, &golden.hidden);
            eprintln!("{name}: largest relative difference {worst:.1e}");
            assert!(worst <= BOUND, "{name}: a hidden state is off by {worst} of the largest");
        }
    }
}

/// Each text has the same logits alone and among others, on one thread and on four.
#[test]
fn logits_match_pytorch_in_every_batch() {
    for golden in classifiers() {
        let (expected, _) = golden.logits.as_ref().unwrap();
        let whole = golden.tokens.len();
        for (name, checkpoint) in golden.checkpoints() {
            let labels = checkpoint.model.head.as_ref().unwrap().labels.len();
            let alone = logits(&checkpoint, &golden, 1, &[whole]);
            let worst = worst(&alone, expected);
            eprintln!("{name}: largest relative difference {worst:.1e}");
            assert!(
                worst <= BOUND && alone.len() == labels,
                "{name}: a logit is off by {worst} of the largest"
            );
            for (threads, lengths) in [(1, vec![3, whole, 1]), (4, [vec![whole], vec![40; 62]].concat())] {
                let place = lengths.iter().position(|&length| length == whole).unwrap();
                let all = logits(&checkpoint, &golden, threads, &lengths);
                assert_eq!(bits(&all[place * labels..][..labels]), bits(&alone), "{name}, {threads} threads");
            }
        }
    }
    let golden = &goldens().into_iter().find(|golden| golden.name == "bert").unwrap();
    let error =
        golden.checkpoints()[0].1.graph(Output::Scores, PAGE_SIZE, DType::F32).unwrap_err().to_string();
    assert_eq!(error, "BertModel has no classification head: it makes no scores");
}

/// Encoders that llama.cpp has become the tensors that its tools make of them, and compute the same.
#[test]
fn encoders_written_as_gguf_compute_the_same() {
    for golden in goldens() {
        let open = |path: &Path| Checkpoint::open(path, None).unwrap();
        let source = open(&golden.folder.join("model.safetensors"));
        let written = written_as_gguf(&golden.name, &source, &golden.folder, "f32");
        let refusal = match &golden.name[..] {
            name if ["mpnet", "gte", "new"].iter().any(|own| name.starts_with(own)) => {
                Some("llama.cpp has no architecture for")
            }
            "modernbert" | "modernbert_classifier_first" => Some("have no biases"),
            "nomic_bert_moe" | "nomic_bert_moe_unbiased" => {
                Some("no place for the bias of an encoder's experts")
            }
            // Activations that GGUF cannot state for the family or its head.
            "bert_masked" | "distilbert_masked" | "distilbert_classifier" => Some("has no key in GGUF files"),
            _ => None,
        };
        if let Some(refusal) = refusal {
            let problem = written.unwrap_err();
            assert!(problem.contains(refusal), "{problem}");
            continue;
        }
        let (path, _) = written.unwrap();
        let hidden = run(&load(&open(&path), 2), &[&golden.tokens]);
        let off = worst(&hidden, &golden.hidden);
        assert!(off <= BOUND, "{}: a hidden state is off by {off} of the largest", golden.name);
        if let Some((expected, _)) = &golden.logits {
            let off = worst(&logits(&open(&path), &golden, 2, &[golden.tokens.len()]), expected);
            assert!(off <= BOUND, "{}: a logit is off by {off} of the largest", golden.name);
            assert_eq!(open(&path).model.head, source.model.head);
        }
        let beside = golden.folder.join("model.gguf");
        if beside.exists() {
            let (expected, written) = (Weights::open(&beside).unwrap(), Weights::open(&path).unwrap());
            // Layers behind the pooling are no part of the encoder.
            let expected: Vec<_> =
                expected.tensors().filter(|(name, _)| !name.starts_with("dense_")).collect();
            assert_eq!(written.len(), expected.len(), "{}", golden.name);
            for (name, tensor) in expected {
                let values = |tensor: &Tensor| (*tensor.shape(), tensor.to_f32_vec());
                assert_eq!(values(written.get(name).unwrap()), values(tensor), "{}: {name}", golden.name);
            }
        }
        fs::remove_file(&path).unwrap();
        let folder = tempfile::tempdir().unwrap();
        widen(&golden.folder, folder.path());
        let source = open(folder.path());
        let (path, dtypes) = written_as_gguf(&golden.name, &source, folder.path(), "q8_0").unwrap();
        assert!(dtypes.contains_key(&DType::Q8_0) && !dtypes.contains_key(&DType::F16), "{dtypes:?}");
        let hidden = |checkpoint: &Checkpoint| run(&load(checkpoint, 2), &[&golden.tokens]);
        let file = hidden(&open(&path));
        fs::remove_file(&path).unwrap();
        check_nearly(&golden.name, &file, &hidden(&source));
        let options = QuantizeOptions::new(Mix::find("q8_0").unwrap());
        let loaded = source.quantized(&folder.path().join("config.json"), &options).unwrap();
        assert!(bits(&hidden(&loaded)) == bits(&file), "{}: other bits while loading", golden.name);
    }
}

/// A text has the same bits alone and among 63 others, on one thread and on four.
#[test]
fn texts_in_a_batch_do_not_affect_each_other() {
    for golden in goldens() {
        for (name, checkpoint) in golden.checkpoints() {
            let alone = bits(&run(&load(&checkpoint, 1), &[&golden.tokens]));
            let width = alone.len() / golden.tokens.len();
            for threads in [1, 4] {
                let model = load(&checkpoint, threads);
                for (others, place) in [(1, 0), (7, 3), (63, 40)] {
                    let mut texts: Vec<&[u32]> =
                        (0..others).map(|i| &golden.tokens[..1 + i * 13 % golden.tokens.len()]).collect();
                    let start: usize = texts[..place].iter().map(|text| text.len()).sum();
                    texts.insert(place, &golden.tokens);
                    let all = bits(&run(&model, &texts));
                    let own = &all[start * width..][..alone.len()];
                    assert!(own == alone, "{name}: other bits among {others} on {threads} threads");
                }
            }
        }
    }
}

/// Each weight of a GGUF file, which has no heads, is used and counted.
#[test]
fn parameters_are_those_of_the_file() {
    for (name, checkpoint) in goldens().iter().flat_map(Golden::checkpoints) {
        let own = checkpoint.weights().tensors().filter(|(name, _)| !name.starts_with("dense_"));
        let stored: usize = own.map(|(_, tensor)| tensor.elements()).sum();
        let counted = checkpoint.model.parameters().unwrap().all;
        match name.ends_with(".gguf") {
            true => assert_eq!(counted, stored, "{name}"),
            false => assert!(counted <= stored, "{name}: {counted} of {stored}"),
        }
    }
}

#[test]
fn every_encoder_has_a_golden() {
    let architecture = |golden: &Golden| golden.checkpoints().swap_remove(0).1.config.architecture;
    let found: Vec<String> = goldens().iter().map(architecture).collect();
    for encoder in ENCODERS {
        assert!(found.iter().any(|name| name == encoder.hugging_face), "{}", encoder.hugging_face);
    }
}

#[test]
fn encoders_make_no_text() {
    for golden in goldens().iter().filter(|golden| golden.folder.join("model.gguf").exists()) {
        for file in ["model.safetensors", "model.gguf"] {
            let path = golden.folder.join(file).display().to_string();
            let plan = PipelineConfig::new(path).plan(machine()).unwrap();
            let compiled = plan.compile(&session(1)).unwrap();
            let error = compiled.load_text(&session(1), &mut |_| ()).err().unwrap().to_string();
            assert!(
                ["is an encoder: it ", "is a classifier: it "].iter().any(|is| error.contains(is)),
                "{error}"
            );
        }
    }
}

/// Configurations that contradict the weights, or ask for what is not there.
#[test]
fn hostile_configurations_are_refused() {
    let goldens = goldens();
    let folder = std::env::temp_dir().join(format!("perihelion-encoders-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let refusal = |name: &str, from: &str, to: &str| {
        let golden = goldens.iter().find(|golden| golden.name == name).unwrap();
        fs::copy(golden.folder.join("model.safetensors"), folder.join("model.safetensors")).unwrap();
        let config = fs::read_to_string(golden.folder.join("config.json")).unwrap();
        assert!(config.contains(from), "{from} in {config}");
        fs::write(folder.join("config.json"), config.replace(from, to)).unwrap();
        Checkpoint::open(&folder, None).err().unwrap_or_else(|| panic!("{to} is taken")).to_string()
    };
    for (name, from, to, expected) in [
        ("bert", "\"num_attention_heads\": 3", "\"num_attention_heads\": 0", "`num_attention_heads` is 0"),
        ("bert", "\"num_attention_heads\": 3", "\"num_attention_heads\": 5", "is [24, 24], but"),
        (
            "bert",
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 3",
            "missing: the configuration says 3 layers",
        ),
        (
            "bert",
            "\"type_vocab_size\": 2",
            "\"type_vocab_size\": 3",
            "is [2, 24], but the configuration makes it [3, 24]",
        ),
        ("bert", "\"max_position_embeddings\": 152", "\"max_position_embeddings\": 4096", "[4096, 24]"),
        ("bert", "\"is_decoder\": false", "\"is_decoder\": true", "`is_decoder` is true"),
        (
            "roberta",
            "\"pad_token_id\": 1",
            "\"pad_token_id\": 151",
            "texts start at position 152, but there are 152",
        ),
        ("roberta", "\"pad_token_id\": 1", "\"pad_token_id\": 18446744073709551615", "positions"),
        ("nomic_bert_moe", "\"num_experts\": 5", "\"num_experts\": 7", "has 200 rows for 7 experts"),
        (
            "nomic_bert_moe",
            "\"num_experts\": 5",
            "\"num_experts\": 4",
            "is [5, 24], but the configuration makes it [4, 24]",
        ),
        (
            "nomic_bert_moe",
            "\"activation_function\": \"gelu\"",
            "\"activation_function\": \"tanh\"",
            "`activation_function` is tanh",
        ),
        (
            "jina_v3_adapters",
            "\"position_embedding_type\": \"rotary\"",
            "\"position_embedding_type\": \"alibi\"",
            "positions of the kind `alibi`",
        ),
        (
            "mpnet",
            "\"relative_attention_num_buckets\": 32",
            "\"relative_attention_num_buckets\": 64",
            "`relative_attention_num_buckets` is 64, expected 32",
        ),
    ] {
        let error = refusal(name, from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// A decoder's hidden states are those that its head makes logits of.
#[test]
fn decoders_have_hidden_states() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/goldens/qwen3");
    let checkpoint = Checkpoint::open(&folder.join("model.safetensors"), None).unwrap();
    let golden = Weights::open(&folder.join("logits.safetensors")).unwrap();
    let tokens: Vec<u32> = golden.get("tokens").unwrap().to_vec::<i32>().iter().map(|&t| t as u32).collect();
    let logits = golden.get("logits").unwrap().to_f32_vec();
    let decoder = checkpoint.decoder().unwrap();
    let mut runner = Runner::new(load(&checkpoint, 2), 3, decoder.hidden).unwrap();
    let outputs = tokens.len();
    let slice =
        Slice { tokens: tokens.clone(), pages: vec![2, 0, 1], predicts: true, outputs, ..Slice::default() };
    let hidden = runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap();
    let head = checkpoint.tensor("output.weight").unwrap().unwrap().to_f32_vec();
    let dot = |a: &[f32], b: &[f32]| {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() as f32
    };
    let got: Vec<f32> = (0..tokens.len())
        .flat_map(|row| head.chunks_exact(decoder.hidden).map(move |head| (row, head)))
        .map(|(row, head)| dot(hidden.row(row), head))
        .collect();
    assert!(worst(&got, &logits) <= BOUND);
}

fn minilm(threads: usize, parameters: &EmbeddingParameters) -> Option<Embedder> {
    let model = embedding_model(&testdata::shared("minilm-l6-v2")?, threads);
    Some(Embedder::new(model, parameters).unwrap())
}

fn embedding_model(path: &Path, threads: usize) -> Arc<EmbeddingModel> {
    let config = PipelineConfig::new(path.display().to_string()).max_cache_batch_size(256);
    let plan = config.plan(machine()).unwrap();
    Arc::new(EmbeddingModel::from_plan(&session(threads), plan, &mut |_| ()).unwrap())
}

fn truncated() -> EmbeddingParameters {
    EmbeddingParameters { truncate: Some(Truncate::Right), ..Default::default() }
}

/// An embedder with batches of other sizes.
fn with_batches(
    model: Arc<EmbeddingModel>,
    (texts, tokens): (usize, usize),
    parameters: &EmbeddingParameters,
) -> Result<Embedder, perihelion::pipelines::Error> {
    let plan = model.plan().with(|config| config.max_cache_batch_size(texts).max_batch_tokens(tokens))?;
    Embedder::with_plan(model, &plan, parameters)
}

fn vectors<T: Clone + Into<EmbeddingText>>(embedder: &Embedder, texts: &[T]) -> Vec<Vec<f32>> {
    embedder.embed(texts).unwrap().into_iter().map(|embedding| embedding.vector).collect()
}

/// The sentences of the reference.
fn sentences() -> (Vec<String>, Vec<Vec<u32>>) {
    let reference = testdata::shared("minilm-l6-v2/reference/sentences.json").unwrap();
    let reference: serde_json::Value = serde_json::from_slice(&fs::read(reference).unwrap()).unwrap();
    let list = |key: &str| reference[key].clone();
    (serde_json::from_value(list("sentences")).unwrap(), serde_json::from_value(list("input_ids")).unwrap())
}

#[test]
fn minilm_matches_sentence_transformers() {
    let Some(embedder) = minilm(2, &truncated()) else { return };
    assert_eq!((embedder.pooling(), embedder.max_length(), embedder.dimensions()), (Pooling::Mean, 256, 384));
    let (sentences, ids) = sentences();
    for (sentence, ids) in sentences.iter().zip(&ids) {
        assert_eq!(embedder.tokenize(sentence, &EmbeddingParameters::default()).unwrap(), *ids, "{sentence}");
    }
    let reference = testdata::shared("minilm-l6-v2/reference/embeddings.safetensors").unwrap();
    let reference = Weights::open(&reference).unwrap().get("embeddings").unwrap().to_f32_vec();
    let vectors = vectors(&embedder, &sentences);
    let differences = vectors.concat().into_iter().zip(&reference).map(|(a, b)| (a - b).abs());
    let worst = differences.fold(0.0, f32::max);
    eprintln!("all-MiniLM-L6-v2: largest difference {worst:.1e}");
    assert!(worst <= 1e-5, "off by {worst}");
}

/// Batches, threads and the number of texts change no bit.
#[test]
fn minilm_is_deterministic() {
    let Some(reference) = minilm(1, &truncated()) else { return };
    let (sentences, _) = sentences();
    let alone: Vec<Vec<f32>> =
        sentences.iter().map(|text| vectors(&reference, &[text]).swap_remove(0)).collect();
    for (threads, max_batch_size, max_batch_tokens) in [(1, 256, 4096), (2, 256, 40), (4, 3, 300), (4, 1, 1)]
    {
        let model = embedding_model(&testdata::shared("minilm-l6-v2").unwrap(), threads);
        let embedder = with_batches(model, (max_batch_size, max_batch_tokens), &truncated()).unwrap();
        let together: Vec<&String> = sentences.iter().cycle().take(64).collect();
        for (vector, expected) in vectors(&embedder, &together).iter().zip(alone.iter().cycle()) {
            assert_eq!(bits(vector), bits(expected), "{threads} threads, {max_batch_tokens} tokens");
        }
    }
}

#[test]
fn requests_override_the_files() {
    let Some(embedder) = minilm(1, &EmbeddingParameters::default()) else { return };
    let embed = |text: &str, parameters: EmbeddingParameters| {
        embedder.embed(EmbeddingRequest::new([text]).with(parameters)).unwrap().swap_remove(0).vector
    };
    let text = "A feline is resting on a rug.";
    let full = embed(text, EmbeddingParameters::default());
    let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    assert!((length(&full) - 1.0).abs() < 1e-6);
    let short = embed(text, EmbeddingParameters { dimensions: Some(64), ..Default::default() });
    let rest = length(&full[..64]);
    assert!(short.len() == 64 && short.iter().zip(&full).all(|(a, b)| (a - b / rest).abs() < 1e-6));
    let plain = embed(text, EmbeddingParameters { normalize: Some(false), ..Default::default() });
    let factor = length(&plain);
    assert!(factor > 1.5 && plain.iter().zip(&full).all(|(a, b)| (a / factor - b).abs() < 1e-6));
    let first = EmbeddingParameters { pooling: Some(Pooling::Cls), ..Default::default() };
    assert_ne!(embed(text, first.clone()), full);
    assert_eq!(vectors(&minilm(1, &first).unwrap(), &[text])[0], embed(text, first));
    let prompt = Some(EmbeddingPrompt::Text("A feline ".into()));
    assert_eq!(embed("is resting on a rug.", EmbeddingParameters { prompt, ..Default::default() }), full);
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let Some(embedder) = minilm(1, &EmbeddingParameters::default()) else { return };
    let long = "word ".repeat(300);
    let refusal = |texts: &[&str]| embedder.embed(texts).unwrap_err().to_string();
    let expected =
        "text 1 (counted from 0) has 302 tokens, but the model takes at most 256: shorten or truncate it";
    assert_eq!(refusal(&["short", &long]), expected);
    assert!(embedder.embed(Vec::<&str>::new()).unwrap().is_empty());
    let refusal = embedder.embed([vec![101, 99_999, 102]]).unwrap_err().to_string();
    assert_eq!(refusal, "token 99999 is beyond the model's vocabulary of 30522");
    assert!(embedder.embed([vec![]]).unwrap_err().to_string().contains("has no tokens"));
    let usual = EmbeddingParameters::default();
    let parameters = EmbeddingParameters { dimensions: Some(385), ..usual.clone() };
    let refusal = Embedder::new(Arc::clone(embedder.model()), &parameters).err().unwrap().to_string();
    assert_eq!(refusal, "dimensions is 385: give 1 to 384, which is what the model has");
    let plan = |length: usize| embedder.model().plan().with(|config| config.max_length(length));
    assert!(plan(0).unwrap_err().to_string().contains("max_length is 0: give a whole number, at least 1"));
    assert!(plan(513).unwrap_err().to_string().contains("max_length is 513: give at most 512"));
    // The files say 256, and the model has positions for more.
    let longer = Embedder::with_plan(Arc::clone(embedder.model()), &plan(302).unwrap(), &usual).unwrap();
    assert_eq!(longer.embed(&[long]).unwrap()[0].tokens, 302);
}

/// A decoder embeds by its last token, the same bits in every batch; what files do not say must be given.
#[test]
fn decoders_embed_by_their_last_token() {
    let Some(folder) = testdata::shared("stories260k/hf") else { return };
    let load = |threads: usize, (parameters, tokens): (EmbeddingParameters, usize)| {
        with_batches(embedding_model(&folder, threads), (256, tokens), &parameters)
    };
    let error = load(1, (EmbeddingParameters::default(), 4096)).err().unwrap().to_string();
    assert!(error.contains("files name no pooling for embeddings"), "{error}");
    let options = |pooling, max_batch_tokens| {
        (EmbeddingParameters { pooling: Some(pooling), ..Default::default() }, max_batch_tokens)
    };
    let texts = ["Once upon a time", "The cat", "Lily and Ben went to the park and played with a ball."];
    for pooling in [Pooling::Last, Pooling::Mean] {
        let embedder = load(1, options(pooling, 4096)).unwrap();
        let alone: Vec<Vec<f32>> = texts.iter().flat_map(|&text| vectors(&embedder, &[text])).collect();
        for (threads, tokens) in [(1, 4096), (4, 4096), (3, 9)] {
            assert_eq!(vectors(&load(threads, options(pooling, tokens)).unwrap(), &texts), alone);
        }
        // The vector of the last token is a hidden state of unit length; of a mean, the last is a part.
        let tokens = embedder.tokenize(texts[0], &EmbeddingParameters::default()).unwrap();
        let model = load(2, options(Pooling::Last, 4096)).unwrap();
        let last = vectors(&model, &[tokens]).swap_remove(0);
        assert_eq!(last == alone[0], pooling == Pooling::Last);
    }
}
