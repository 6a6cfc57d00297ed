//! Models, greedy texts and reference data that these tests share.

use std::path::Path;
use std::sync::Arc;

use far::FarDevice;
use perihelion::driver::{Cpu, DType, Device, Tensor};
use perihelion::engine::{CompileOptions, InferenceSession, Placement};
use perihelion::graph::Op;
use perihelion::models::Checkpoint;
use perihelion::pipelines::config::{FloatType, Machine, PipelineConfig, machine};
use perihelion::pipelines::{
    AddSpecial, Batch, Error, EventKind, Generator, Logits, ParseSpecial, Request, SamplingOptions,
    SequenceId, Slice, TextModel,
};
use perihelion::weights::Weights;
use serde::Deserialize;
use serde_json::Value;

pub(crate) fn session(threads: usize) -> InferenceSession {
    InferenceSession::new([Arc::new(Cpu::new(threads)) as Arc<dyn Device>]).unwrap()
}

/// A device with memory of its own, which has kernels for some ops as a seed says, and the CPU.
pub(crate) fn far_session(seed: u64) -> (InferenceSession, CompileOptions) {
    let cpu = || Arc::new(Cpu::new(2)) as Arc<dyn Device>;
    let device = FarDevice::new(0, cpu(), seed).unwrap();
    let some = Op::names().enumerate().filter(|(i, _)| seed == 0 || !hash(seed, *i).is_multiple_of(4));
    let device: Arc<dyn Device> = Arc::new(device.only(some.map(|(_, name)| name)));
    let options = CompileOptions { placement: Placement::On(device.spec()), ..CompileOptions::default() };
    (InferenceSession::new([device, cpu()]).unwrap(), options)
}

/// A number without pattern (SplitMix64's mixing).
fn hash(seed: u64, i: usize) -> u64 {
    let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33
}

pub(crate) fn load(path: &Path) -> Arc<TextModel> {
    load_with(path, None, DType::F32)
}

pub(crate) fn load_with(path: &Path, weights: Option<&Path>, cache_dtype: DType) -> Arc<TextModel> {
    let model = load_as(path, weights, 2, 64, cache_dtype);
    Arc::new(model.unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The model at a path, with pages and a cache of any kind.
pub(crate) fn load_as(
    path: &Path,
    weights: Option<&Path>,
    threads: usize,
    page_size: usize,
    cache_dtype: DType,
) -> Result<TextModel, Error> {
    let cache_dtype = FloatType::ALL.iter().copied().find(|dtype| dtype.dtype() == cache_dtype);
    let config = PipelineConfig {
        weight_path: weights.map(Path::to_path_buf).into_iter().collect(),
        kv_cache_page_size: page_size,
        cache_dtype,
        ..PipelineConfig::new(path.display().to_string())
    };
    let plan = config.plan(Machine { free_memory: None, ..machine() })?;
    TextModel::from_plan(&session(threads), plan)
}

pub(crate) fn encode(model: &TextModel, prompt: &str) -> Vec<u32> {
    model.tokenizer().encode(prompt, AddSpecial::Yes, ParseSpecial::Yes).unwrap()
}

/// The logits after each token.
pub(crate) fn logits(model: &TextModel, tokens: &[u32]) -> Logits {
    let pages = tokens.len().div_ceil(model.page_size());
    let mut runner = model.runner(pages).unwrap();
    let slice = Slice {
        id: SequenceId(0),
        cached: 0,
        tokens: tokens.to_vec(),
        pages: (0..pages as u32).collect(),
        predicts: true,
        outputs: tokens.len(),
        ..Slice::default()
    };
    runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap()
}

/// The logits after the last token of a prompt.
pub(crate) fn last_logits(model: &TextModel, prompt: &[u32]) -> Vec<f32> {
    logits(model, prompt).row(prompt.len() - 1).to_vec()
}

/// The likeliest continuation, of exactly `count` tokens.
pub(crate) fn greedy(model: &Arc<TextModel>, prompt: &[u32], count: usize) -> Vec<u32> {
    let plan = model.plan().with(|config| config.max_length(prompt.len() + count)).unwrap();
    let mut generator = Generator::with_plan(Arc::clone(model), &plan).unwrap();
    let request = Request {
        prompt: prompt.to_vec(),
        sampling: SamplingOptions::GREEDY,
        max_new_tokens: Some(count),
        ignore_eos: true,
        ..Request::default()
    };
    generator.add(request).unwrap();
    let mut tokens = Vec::new();
    while !generator.is_idle() {
        for event in generator.step().unwrap() {
            if let EventKind::Token { token, .. } = event.kind {
                tokens.push(token);
            }
        }
    }
    tokens
}

/// Reference texts and logits of a model.
pub(crate) struct Reference {
    json: Value,
    logits: Weights,
}

/// A prompt and its likeliest continuation.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Case {
    pub(crate) prompt: String,
    #[serde(default)]
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) greedy_ids: Vec<u32>,
    pub(crate) logits_key: Option<String>,
}

impl Reference {
    pub(crate) fn open(greedy: &Path, logits: &Path) -> Reference {
        let json = serde_json::from_str(&std::fs::read_to_string(greedy).unwrap()).unwrap();
        Reference { json, logits: Weights::open(logits).unwrap() }
    }

    /// The cases under a path of keys.
    pub(crate) fn cases(&self, path: &[&str]) -> Vec<Case> {
        let section = path.iter().fold(&self.json, |value, key| &value[key]);
        serde_json::from_value(section["cases"].clone()).unwrap()
    }

    /// The ids of a prompt, which only the main cases list.
    pub(crate) fn prompt_ids(&self, prompt: &str) -> Vec<u32> {
        self.cases(&[]).into_iter().find(|case| case.prompt == prompt).expect("a main case").prompt_ids
    }

    /// Compares logits with a reference row.
    pub(crate) fn check(&self, key: &str, logits: &[f32], bound: f32) {
        self.compare(key, self.tensor(key).to_f32_vec(), logits, bound);
    }

    /// Compares logits with the last row of a reference.
    pub(crate) fn check_last(&self, key: &str, logits: &[f32], bound: f32) {
        let all = self.tensor(key).to_f32_vec();
        self.compare(key, all[all.len() - logits.len()..].to_vec(), logits, bound);
    }

    fn tensor(&self, key: &str) -> &Tensor {
        self.logits.get(key).unwrap_or_else(|| panic!("no reference logits {key}"))
    }

    fn compare(&self, key: &str, expected: Vec<f32>, logits: &[f32], bound: f32) {
        assert_eq!(expected.len(), logits.len(), "{key}: vocabulary");
        let worst = expected.iter().zip(logits).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        eprintln!("{key}: largest difference {worst:.6} (bound {bound})");
        assert!(worst <= bound, "{key}: a logit is off by {worst}, allowed are {bound}");
        let divergence = divergence(&expected, logits);
        assert!(divergence <= 1e-3, "{key}: the distributions diverge by {divergence} nats");
    }
}

/// The Kullback-Leibler divergence of the distribution of `logits` from that of `expected`, in nats.
fn divergence(expected: &[f32], logits: &[f32]) -> f64 {
    let log_probabilities = |logits: &[f32]| {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mass: f64 = logits.iter().map(|&logit| f64::from(logit - largest).exp()).sum();
        logits.iter().map(|&logit| f64::from(logit - largest) - mass.ln()).collect::<Vec<f64>>()
    };
    let (p, q) = (log_probabilities(expected), log_probabilities(logits));
    p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum()
}

impl Case {
    /// The text is the reference's wherever the two likeliest tokens are further apart than rounding can turn.
    pub(crate) fn check_greedy_until_near_tie(&self, model: &Arc<TextModel>, bound: f32) {
        let mut context = self.prompt_ids.clone();
        for (step, &expected) in self.greedy_ids.iter().enumerate() {
            let logits = last_logits(model, &context);
            let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
            let margin = logits[best] - logits[expected as usize];
            assert!(
                margin <= 2.0 * bound,
                "{:?}, step {step}: {best} is {margin} above {expected}",
                self.prompt
            );
            context.push(expected);
        }
    }
}

/// A checkpoint that travels with the repository, with a tokenizer of single letters.
pub(crate) fn golden_with_tokenizer(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/goldens").join(name);
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(golden.join(file), folder.path().join(file)).unwrap();
    }
    let tokens = Checkpoint::open(folder.path(), None).unwrap().model.vocab;
    let special = ["<unk>", "<s>", "</s>"].map(str::to_string);
    let letters = ('a'..).map(String::from);
    let vocab = special.into_iter().chain(letters).take(tokens).enumerate();
    let vocab: serde_json::Map<_, _> = vocab.map(|(id, text)| (text, id.into())).collect();
    let model = serde_json::json!({"type": "BPE", "vocab": vocab, "merges": [], "unk_token": "<unk>"});
    let tokenizer = serde_json::json!({"version": "1.0", "added_tokens": [], "model": model});
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder
}
