//! Every architecture against PyTorch: tiny random checkpoints and the logits that `transformers` computes for
//! them, both written by `tools/tiny_checkpoints.py`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use perihelion::driver::{DType, Tensor};
use perihelion::engine::Model;
use perihelion::graph::ops::RopeStyle;
use perihelion::graph::{Graph, Op};
use perihelion::models::{ARCHITECTURES, Architecture, Checkpoint, CheckpointOptions, FRAMES, Mix, Output};
use perihelion::pipelines::{Batch, QuantizeOptions, Runner, Slice, quantize};
use perihelion::weights::{FileHeader, Weights};
use tensor::{Bytes, Shape};

/// How far a logit may be from PyTorch's, as a fraction of the largest: both round to f32, and a cache of halves rounds
/// keys and values.
const BOUNDS: [(DType, f32); 3] = [(DType::F32, 1e-4), (DType::F16, 5e-3), (DType::BF16, 4e-2)];
pub(crate) const PAGE_SIZE: usize = 16;
/// Lengths of chunks; one more takes the tokens that are left.
const CHUNKS: &[&[usize]] = &[&[1], &[39], &[16, 16], &[7, 3, 20, 1, 1], &[33, 1, 300, 15, 1]];

/// A checkpoint that travels with the repository.
pub(crate) struct Golden {
    name: String,
    pub(crate) folder: PathBuf,
    pub(crate) tokens: Vec<u32>,
    /// f32[rows, vocab], of the last tokens.
    pub(crate) logits: Vec<f32>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/goldens")
}

fn goldens() -> Vec<Golden> {
    let folders = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    folders.map(Golden::open).collect()
}

impl Golden {
    pub(crate) fn named(name: &str) -> Golden {
        Golden::open(folder().join(name))
    }

    pub(crate) fn open(folder: PathBuf) -> Golden {
        let expected = Weights::open(&folder.join("logits.safetensors")).unwrap();
        let tensor = |name: &str| expected.get(name).unwrap();
        Golden {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            tokens: tensor("tokens").to_vec::<i32>().into_iter().map(|token| token as u32).collect(),
            logits: tensor("logits").to_f32_vec(),
            folder,
        }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        self.open_file("model.safetensors")
    }

    /// The checkpoint in each format in which it is there.
    fn checkpoints(&self) -> Vec<(String, Checkpoint)> {
        let files = ["model.safetensors", "model.gguf"].into_iter();
        let files = files.filter(|file| self.folder.join(file).exists());
        files.map(|file| (format!("{}/{file}", self.name), self.open_file(file))).collect()
    }

    /// The logits are PyTorch's, and the same bits in chunks.
    fn check(&self, name: &str, checkpoint: &Checkpoint, cache_dtype: DType, bound: f32) {
        let model = load(checkpoint, cache_dtype);
        let whole = run(checkpoint, &model, &self.tokens, &[self.tokens.len()]);
        let vocab = whole.len() / self.tokens.len();
        assert_eq!(vocab, checkpoint.decoder().unwrap().vocab, "{name}");
        let last = &whole[whole.len() - self.logits.len()..];
        let largest = self.logits.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
        assert!(whole.iter().all(|logit| logit.is_finite()), "{name}");
        let rows = last.chunks(vocab).zip(self.logits.chunks(vocab));
        let difference = |(a, b): (&f32, &f32)| (a - b).abs() / largest;
        let mut rows: Vec<f32> =
            rows.map(|(a, b)| a.iter().zip(b).map(difference).fold(0.0, f32::max)).collect();
        rows.sort_by(f32::total_cmp);
        // Rounding may choose other experts for a token, whose logits may then be far off.
        let layers = &checkpoint.decoder().unwrap().layers;
        let routed = layers.iter().any(|layer| layer.channel.experts().is_some());
        let worst = rows[if routed && cache_dtype != DType::F32 { rows.len() / 2 } else { rows.len() - 1 }];
        eprintln!("{name}: with a cache of {cache_dtype}, largest relative difference {worst:.1e}");
        assert!(worst <= bound, "{name}: a logit is off by {worst} of the largest");
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        for chunks in CHUNKS.iter().filter(|chunks| chunks.iter().sum::<usize>() < self.tokens.len()) {
            let left = self.tokens.len() - chunks.iter().sum::<usize>();
            let chunked = run(checkpoint, &model, &self.tokens, &[chunks, &[left][..]].concat());
            assert!(bits(&chunked) == bits(&whole), "{name}: other bits in chunks of {chunks:?}");
        }
    }

    pub(crate) fn open_file(&self, file: &str) -> Checkpoint {
        self.open_with(file, None)
    }

    fn written_as_gguf(&self, mix: &str) -> Result<(PathBuf, BTreeMap<DType, usize>), String> {
        written_as_gguf(&self.name, &self.checkpoint(), &self.folder, mix)
    }

    fn open_with(&self, file: &str, gguf_rope: Option<RopeStyle>) -> Checkpoint {
        self.open_path(&self.folder.join(file), gguf_rope)
    }

    /// For sequences as long as that whose logits are known.
    fn open_path(&self, path: &Path, gguf_rope: Option<RopeStyle>) -> Checkpoint {
        let options =
            CheckpointOptions { gguf_rope, max_length: Some(self.tokens.len()), ..Default::default() };
        let checkpoint = Checkpoint::open_with(path, None, options);
        checkpoint.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

fn load(checkpoint: &Checkpoint, cache_dtype: DType) -> Model {
    let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, cache_dtype).unwrap();
    crate::support::session(2).load(&graph, &weights(checkpoint, &graph)).unwrap()
}

/// The weights that a graph needs.
pub(crate) fn weights(checkpoint: &Checkpoint, graph: &Graph) -> HashMap<String, Tensor> {
    let names = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Weight(weight) => Some(weight.name.clone()),
        _ => None,
    });
    names.map(|name| (name.clone(), checkpoint.tensor(&name).unwrap().unwrap())).collect()
}

/// The logits of every token, run in chunks.
pub(crate) fn run(checkpoint: &Checkpoint, model: &Model, tokens: &[u32], chunks: &[usize]) -> Vec<f32> {
    let decoder = checkpoint.decoder().unwrap();
    let num_pages = tokens.len().div_ceil(PAGE_SIZE);
    // In no order.
    let pages: Vec<u32> = (1..=num_pages as u32).map(|index| index ^ 1).collect();
    let mut runner = Runner::new(model.clone(), num_pages + 2, decoder.vocab).unwrap();
    let mut logits = Vec::new();
    let mut done = 0;
    for &chunk in chunks {
        let tokens = tokens[done..done + chunk].to_vec();
        let pages = pages.clone();
        let slice = Slice { cached: done, tokens, pages, predicts: true, outputs: chunk, ..Slice::default() };
        let rows = runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap();
        (0..chunk).for_each(|row| logits.extend_from_slice(rows.row(row)));
        done += chunk;
    }
    logits
}

#[test]
fn logits_match_pytorch() {
    for golden in goldens() {
        for (name, checkpoint) in golden.checkpoints() {
            for (cache_dtype, bound) in BOUNDS {
                golden.check(&name, &checkpoint, cache_dtype, bound);
            }
        }
    }
}

/// Devices with kernels for random ops, besides one with all.
const SUBSETS: u64 = 3;

#[test]
fn a_device_with_memory_of_its_own_gives_the_bits_of_the_cpu() {
    for (i, golden) in (0..).zip(goldens()) {
        let checkpoint = golden.checkpoint();
        let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
        let weights = weights(&checkpoint, &graph);
        let whole = golden.tokens.len();
        let bits = |model: &Model| {
            let logits = run(&checkpoint, model, &golden.tokens, &[whole - 3, 1, 2]);
            logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
        };
        let expected = bits(&crate::support::session(2).load(&graph, &weights).unwrap());
        for seed in (0..=SUBSETS).map(|subset| subset * (i + 1)) {
            let (session, options) = crate::support::far_session(seed);
            let model = session.load_with(&graph, &weights, &options).unwrap();
            assert!(bits(&model) == expected, "{}: other bits with seed {seed}", golden.name);
        }
    }
}

/// Checkpoints whose configuration has no equivalent in a GGUF file of the family.
const NOT_AS_GGUF: &[&str] = &[
    // Embeddings that are not multiplied.
    "afmoe_plain",
    // The sum of what experts compute and what the one that every token gets does, and not the average.
    "cohere2_moe_plain",
    // Pairs of latents that are half a head apart.
    "deepseek_v3_halves",
    // Biases by position: llama.cpp's Falcon rotates.
    "falcon_alibi",
    // Gates behind norms.
    "falcon_h1_norms",
    // Norms in state spaces with another `eps` than usual.
    "falcon_mamba_biases",
    // Blocks one after the other: llama.cpp's Falcon has them side by side.
    "falcon_sequential",
    // A second embedding of fewer rows than the first.
    "gemma3n_vision",
    // Scores that are not divided by the root of the head's size, but by the number of the layer.
    "gpt2_unscaled",
    // A limit of gates that is not the usual one.
    "gpt_oss_clamped",
    // Limits of steps.
    "granite_hybrid_dense",
    // Two bases of positions.
    "granite_swa_bases",
    // Layers whose tokens get different numbers of experts.
    "hunyuan_moe_layers",
    // A softcap of the router.
    "laguna_elements",
    // Chunks of another size than usual.
    "llama4_vision",
    // Limits of steps.
    "mamba2_biases",
    // Factors that are not those of the published model.
    "minicpm3_longrope",
    // Groups that are ranked by the sums of two softmaxes.
    "mistral4_vision",
    // Layers that rotate though they have no window.
    "muse_glimmer_layers",
    // Plain blocks of another width than that of experts.
    "nemotron_h_groups",
    // Experts that are chosen from further away than usual.
    "phi_moe",
    // Layers without positions that are others than usual.
    "smollm3",
    // An activation that is not the family's.
    "starcoder2_plain",
];

#[test]
fn checkpoints_written_as_gguf_compute_the_same() {
    let mut refused = Vec::new();
    for golden in goldens() {
        let path = match golden.written_as_gguf("f32") {
            Ok((path, _)) => path,
            Err(problem) if problem.contains("has no key in GGUF files") => {
                refused.push(golden.name);
                continue;
            }
            Err(problem) => {
                let name = golden.checkpoint().config.architecture;
                let known = Architecture::from_hugging_face(&name).unwrap().gguf.is_some();
                let refusal = format!("llama.cpp has no architecture for {name}: take its own files");
                assert!(!known && problem.contains(&refusal), "{}: {problem}", golden.name);
                continue;
            }
        };
        check_tensors(&golden, &path);
        let written = golden.open_path(&path, None);
        std::fs::remove_file(&path).unwrap();
        golden.check(&format!("{} as GGUF", golden.name), &written, DType::F32, BOUNDS[0].1);
    }
    refused.sort();
    assert_eq!(refused, NOT_AS_GGUF);
}

/// Decoders with layer norms, some of whose matrices are stored in another order than in GGUF files.
#[test]
fn checkpoints_written_in_8_bits_compute_nearly_the_same() {
    for name in
        ["gpt2", "gpt_neox", "starcoder2", "phi", "falcon_new", "stablelm", "cohere", "nemotron", "olmo"]
    {
        let golden = Golden::named(name);
        let folder = tempfile::tempdir().unwrap();
        widen(&golden.folder, folder.path());
        let source = golden.open_path(folder.path(), None);
        let (path, dtypes) = written_as_gguf(name, &source, folder.path(), "q8_0").unwrap();
        assert!(dtypes.contains_key(&DType::Q8_0) && !dtypes.contains_key(&DType::F16), "{name}: {dtypes:?}");
        let logits = |checkpoint: &Checkpoint| {
            run(checkpoint, &load(checkpoint, DType::F32), &golden.tokens, &[golden.tokens.len()])
        };
        let expected = logits(&source);
        let found = logits(&golden.open_path(&path, None));
        std::fs::remove_file(&path).unwrap();
        check_nearly(name, &found, &expected);
    }
}

/// The tensors of every layout, quantized as they are read, are those of the file that is written, and the graph is too.
#[test]
fn checkpoints_quantized_while_loading_have_the_bits_of_the_written_file() {
    let options = QuantizeOptions::new(Mix::find("q4_k_m").unwrap());
    let check = |golden: &Golden, name: &str, source: &Checkpoint, folder: &Path| {
        let written = written_as_gguf(&golden.name, source, folder, "q4_k_m");
        let loaded = source.quantized(&folder.join("config.json"), &options);
        let (path, dtypes) = match (written, loaded.as_ref().err()) {
            (Ok(written), None) => written,
            (Err(written), Some(loaded)) => {
                assert_eq!(written, loaded.to_string(), "{name}");
                return BTreeMap::new();
            }
            (written, loaded) => panic!("{name}: {written:?}, but {loaded:?}"),
        };
        let (loaded, file) = (loaded.unwrap(), golden.open_path(&path, None));
        std::fs::remove_file(&path).unwrap();
        let bits = |checkpoint: &Checkpoint| {
            let logits =
                run(checkpoint, &load(checkpoint, DType::F32), &golden.tokens, &[golden.tokens.len()]);
            logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>()
        };
        assert!(bits(&loaded) == bits(&file), "{name}: other bits");
        assert_eq!(loaded.bytes(), file.bytes(), "{name}");
        dtypes
    };
    for golden in goldens() {
        for (name, source) in golden.checkpoints() {
            check(&golden, &name, &source, &golden.folder);
        }
    }
    // Wide enough for blocks.
    for name in ["llama_biases", "qwen3", "phi3", "gemma2", "gpt2", "gpt_neox", "falcon_new", "olmo"] {
        let golden = Golden::named(name);
        let folder = tempfile::tempdir().unwrap();
        widen(&golden.folder, folder.path());
        let dtypes = check(&golden, name, &golden.open_path(folder.path(), None), folder.path());
        assert!(dtypes.keys().any(|dtype| dtype.is_block()), "{name}: {dtypes:?}");
    }
}

/// Of a file on a hub, there is the header alone when the model is planned.
#[test]
fn a_header_is_quantized_as_its_file() {
    let golden = Golden::named("llama_llama3");
    let config_json = golden.folder.join("config.json");
    let bytes = std::fs::read(golden.folder.join("model.safetensors")).unwrap();
    let mut header = FileHeader::new("model.safetensors", bytes.len() as u64);
    while let Some(end) = header.needs().unwrap() {
        header.push(&bytes[header.len()..end]);
    }
    let options = QuantizeOptions::new(Mix::find("q8_0").unwrap());
    let quantized = |weights: Weights| {
        let checkpoint =
            Checkpoint::from_weights(weights, &config_json, CheckpointOptions::default()).unwrap();
        checkpoint.quantized(&config_json, &options).unwrap()
    };
    let planned = quantized(Weights::from_files(vec![header.into_file().unwrap()]).unwrap());
    let whole = quantized(Weights::from_bytes("model.safetensors", Bytes::new(bytes)).unwrap());
    // With the factors of frequencies, which follow from the configuration.
    assert_eq!(planned.decoder().unwrap(), whole.decoder().unwrap());
    assert_eq!(planned.bytes(), whole.bytes());
    let matrix = "blk.0.ffn_up.weight";
    assert_eq!(planned.describe(matrix), whole.describe(matrix));
    assert!(planned.tensor(matrix).unwrap().is_none() && whole.tensor(matrix).unwrap().is_some());
}

/// Quantizing changes the numbers of a model a little; another order of rows makes them others altogether.
pub(crate) fn check_nearly(name: &str, found: &[f32], expected: &[f32]) {
    let square = |sum: f64, x: f32| sum + f64::from(x).powi(2);
    let difference = found.iter().zip(expected).map(|(a, b)| a - b).fold(0.0, square).sqrt();
    let relative = difference / expected.iter().copied().fold(0.0, square).sqrt();
    eprintln!("{name} in q8_0: relative difference {relative:.1e}");
    assert!(relative > 0.0 && relative < 0.2, "{name}: off by {relative}");
}

/// How many times as wide [`widen`] makes a model: then rows of all goldens are in blocks of 32.
const WIDER: usize = 16;

/// Writes a checkpoint of the same shape as one in `folder`, but with heads and blocks many times as wide.
pub(crate) fn widen(folder: &Path, target: &Path) {
    let config = std::fs::read_to_string(folder.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    for key in [
        "hidden_size",
        "n_embd",
        "head_dim",
        "intermediate_size",
        "n_inner",
        "ffn_hidden_size",
        "dim",
        "hidden_dim",
    ] {
        if let Some(size) = config[key].as_u64() {
            config[key] = (size * WIDER as u64).into();
        }
    }
    std::fs::write(target.join("config.json"), config.to_string()).unwrap();
    let (mut header, mut bytes) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in Weights::open(&folder.join("model.safetensors")).unwrap().tensors() {
        // Tables have as many rows as there are tokens or positions, norms of each head as many as heads.
        let rows = ["embed", "word_", "wte", "wpe", "position", "token_type", "lm_head", "q_norm", "k_norm"];
        let mut shape = tensor.shape().to_vec();
        let is_of_labels = name.starts_with("classifier.") && !name.contains("dense");
        let is_fixed = match shape.len() {
            2 => is_of_labels || rows.iter().any(|part| name.contains(part)),
            _ => is_of_labels || name.contains("lm_head"),
        };
        let fixed = usize::from(is_fixed);
        shape.iter_mut().skip(fixed).for_each(|dim| *dim *= WIDER);
        let count: usize = shape.iter().product();
        let scale = if shape.len() == 2 { 1.0 / (WIDER as f32).sqrt() } else { 1.0 };
        let start = bytes.len();
        let values = tensor.to_f32_vec();
        values.iter().cycle().take(count).for_each(|value| bytes.extend((value * scale).to_le_bytes()));
        let place = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, bytes.len()]});
        header.insert(name.to_string(), place);
    }
    let header = serde_json::Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat();
    std::fs::write(target.join("model.safetensors"), file).unwrap();
}

/// A tokenizer of fewer tokens than any model has.
const TOKENIZER: &str = r###"{
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}}
}"###;

/// Writes a checkpoint as a GGUF file; gives its path, and how many tensors have each dtype.
pub(crate) fn written_as_gguf(
    name: &str,
    checkpoint: &Checkpoint,
    folder: &Path,
    mix: &str,
) -> Result<(PathBuf, BTreeMap<DType, usize>), String> {
    let own = tempfile::tempdir().unwrap();
    std::fs::write(own.path().join("tokenizer.json"), TOKENIZER).unwrap();
    std::fs::copy(folder.join("config.json"), own.path().join("config.json")).unwrap();
    let path = std::env::temp_dir().join(format!("perihelion-{}-{name}-{mix}.gguf", std::process::id()));
    let options = QuantizeOptions::new(Mix::find(mix).unwrap());
    let written = quantize(checkpoint, own.path(), &options, &path, &mut |_, _| ());
    // Errors name the configuration, of which this one is a copy.
    let [copy, original] = [own.path(), folder].map(|folder| folder.display().to_string());
    let written = written.map_err(|error| error.to_string().replace(&copy, &original));
    Ok((path, written?.dtypes))
}

/// A file has the tensors of the one that llama.cpp's tools made of the same checkpoint, where there is one.
fn check_tensors(golden: &Golden, path: &Path) {
    let beside = golden.folder.join("model.gguf");
    if !beside.exists() {
        return;
    }
    let (expected, written) = (Weights::open(&beside).unwrap(), Weights::open(path).unwrap());
    // Old files hold experts one by one.
    if expected.get("blk.0.ffn_up.0.weight").is_some() {
        return;
    }
    // The converter has some vectors as matrices of one row, which are the same to llama.cpp.
    let shapes = |weights: &Weights| {
        let axes = |shape: &Shape| shape.iter().copied().skip_while(|&dim| dim == 1).collect::<Vec<_>>();
        let shapes = weights.tensors().map(|(name, tensor)| (name.to_string(), axes(tensor.shape())));
        shapes.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(shapes(&written), shapes(&expected), "{}", golden.name);
    for (name, tensor) in expected.tensors().filter(|(name, _)| !name.starts_with("rope_")) {
        let (found, expected) = (written.get(name).unwrap().to_f32_vec(), tensor.to_f32_vec());
        if name.ends_with(".ssm_a") {
            // Exponentials, which PyTorch computes within a unit in the last place.
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-7 * b.abs();
            assert!(found.iter().zip(&expected).all(near), "{}: {name}", golden.name);
        } else {
            assert_eq!(found, expected, "{}: {name}", golden.name);
        }
    }
}

/// Each weight of a file is used and counted, except those of vision towers, those that predict tokens further ahead and
/// the factors of frequencies.
#[test]
fn parameters_are_those_of_the_file() {
    let other = [
        "vision_tower.",
        "multi_modal_projector.",
        "vision_embedder.",
        "embed_vision.",
        "vision_model.",
        "visual.",
        "connector.",
        "vit_large_projector.",
        "vision_adapter.",
        "vision_projection.",
        "image_newline",
        "mtp.",
        "rope_freqs.",
    ];
    let counts = |name: &str| !other.iter().any(|part| name.contains(part));
    for (name, checkpoint) in goldens().iter().flat_map(Golden::checkpoints) {
        let stored = checkpoint.weights().tensors().filter(|(name, _)| counts(name));
        let stored: usize = stored.map(|(_, tensor)| tensor.elements()).sum();
        // GGUF files hold the numbers of activations in their metadata.
        let numbers: usize = checkpoint.config.lists.xielu.iter().flatten().map(|own| own.len()).sum();
        assert_eq!(checkpoint.model.parameters().unwrap().all, stored + numbers, "{name}");
        assert_eq!(checkpoint.unused(), [""; 0], "{name}");
    }
}

/// A golden with other settings and more tensors, opened, and its folder.
fn changed(
    name: &str,
    settings: &[(&str, serde_json::Value)],
    more: &[(&str, &[usize], f32)],
) -> Result<(Checkpoint, tempfile::TempDir), String> {
    let (golden, target) = (folder().join(name), tempfile::tempdir().unwrap());
    let config = std::fs::read_to_string(golden.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    settings.iter().for_each(|(key, value)| config[*key] = value.clone());
    std::fs::write(target.path().join("config.json"), config.to_string()).unwrap();
    let stored = Weights::open(&golden.join("model.safetensors")).unwrap();
    let stored = stored
        .tensors()
        .map(|(name, tensor)| (name.to_string(), tensor.shape().to_vec(), tensor.to_f32_vec()));
    let more = more
        .iter()
        .map(|&(name, shape, value)| (name.to_string(), shape.to_vec(), vec![value; shape.iter().product()]));
    let (mut header, mut bytes) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in stored.chain(more) {
        let start = bytes.len();
        values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        let place = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, bytes.len()]});
        header.insert(name, place);
    }
    let header = serde_json::Value::from(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat();
    std::fs::write(target.path().join("model.safetensors"), file).unwrap();
    let checkpoint = Checkpoint::open(target.path(), None).map_err(|error| error.to_string())?;
    Ok((checkpoint, target))
}

/// Without one, the model would compute something else in silence. One of zeros changes nothing.
#[test]
fn biases_without_a_place_are_refused() {
    let bias = "model.layers.1.mlp.shared_experts.up_proj.bias";
    let with = |value: f32| changed("ernie4_5_moe", &[], &[(bias, &[24], value)]);
    let error = with(0.5).err().unwrap();
    let expected =
        format!("weight `{bias}`: Ernie4_5_MoeForCausalLM has no place for this bias, which is not zero");
    assert_eq!(error, expected);
    assert_eq!(with(0.0).unwrap().0.unused(), [bias]);
}

/// As `transformers` does.
#[test]
fn biases_that_the_configuration_does_not_use_are_left_out() {
    let logits = |checkpoint: &Checkpoint| run(checkpoint, &load(checkpoint, DType::F32), &[5, 9, 2], &[3]);
    let off = [("attention_bias", false.into()), ("mlp_bias", false.into())];
    let (name, shape) = ("model.layers.0.self_attn.q_proj.bias", &[32][..]);
    let (plain, _folder) = changed("llama_linear", &off, &[]).unwrap();
    let (left_out, _folder) = changed("llama_linear", &off, &[(name, shape, 0.5)]).unwrap();
    assert_eq!(left_out.unused(), [name]);
    assert_eq!(logits(&left_out), logits(&plain));
    let layers = ["q_proj", "k_proj", "v_proj"]
        .map(|stem| [0, 1].map(|layer| format!("model.layers.{layer}.self_attn.{stem}.bias")));
    let sizes = [32, 16, 16];
    let biases: Vec<(&str, &[usize], f32)> = layers
        .iter()
        .zip(&sizes)
        .flat_map(|(names, size)| names.iter().map(|name| (&name[..], std::slice::from_ref(size), 0.5)))
        .collect();
    let (used, _folder) = changed("llama_linear", &[("attention_bias", true.into())], &biases).unwrap();
    assert_eq!(used.unused(), [""; 0]);
    assert_ne!(logits(&used), logits(&plain));
}

/// The pairing of dims can be set for GGUF files only.
#[test]
fn rope_style_can_be_set_for_gguf_files_only() {
    let golden = Golden::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/goldens/granite"));
    let logits = |file: &str, style: Option<RopeStyle>| {
        let checkpoint = golden.open_with(file, style);
        run(&checkpoint, &load(&checkpoint, DType::F32), &golden.tokens, &[golden.tokens.len()])
    };
    let styles = [RopeStyle::Interleaved, RopeStyle::HalfSplit];
    let [interleaved, half_split] = styles.map(|style| logits("model.gguf", Some(style)));
    assert_eq!(interleaved, logits("model.gguf", None));
    assert_ne!(half_split, interleaved);
    for style in styles {
        assert_eq!(logits("model.safetensors", Some(style)), logits("model.safetensors", None));
    }
}

#[test]
fn every_architecture_has_a_golden() {
    let found: Vec<String> = goldens().iter().map(|golden| golden.checkpoint().config.architecture).collect();
    // Llama is proven by the real models.
    let makes_text =
        |architecture: &&Architecture| architecture.gguf != Some("llama") && !architecture.classifies;
    for architecture in ARCHITECTURES.iter().filter(makes_text) {
        assert!(found.iter().any(|name| name == architecture.hugging_face), "{}", architecture.hugging_face);
    }
    for name in ["MistralForCausalLM", "MixtralForCausalLM"] {
        assert!(found.iter().any(|found| found == name), "{name}");
    }
    let configs = goldens().into_iter().map(|golden| golden.folder.join("config.json"));
    let configs: String = configs.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    for frame in FRAMES {
        assert!(configs.contains(&format!("\"{}\"", frame.hugging_face)), "{}", frame.hugging_face);
    }
}
