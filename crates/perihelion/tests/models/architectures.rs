//! Every architecture against PyTorch: tiny random checkpoints and the logits that `transformers` computes for
//! them, both written by `tools/tiny_checkpoints.py`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use perihelion::driver::{DType, Tensor};
use perihelion::engine::Model;
use perihelion::graph::ops::RopeStyle;
use perihelion::graph::{Graph, Op};
use perihelion::models::{ARCHITECTURES, Channel, Checkpoint, CheckpointOptions, Export};
use perihelion::pipelines::{Batch, Runner, Slice};
use perihelion::weights::{GgufWriter, Weights};

/// How far a logit may be from PyTorch's, as a fraction of the largest: both round to f32, and a cache of halves rounds
/// keys and values.
const BOUNDS: [(DType, f32); 3] = [(DType::F32, 1e-4), (DType::F16, 5e-3), (DType::BF16, 4e-2)];
pub(crate) const PAGE_SIZE: usize = 16;
const CHUNKS: &[&[usize]] = &[&[1, 39], &[39, 1], &[16, 16, 8], &[7, 3, 20, 1, 1, 8]];

/// A checkpoint that travels with the repository.
pub(crate) struct Golden {
    name: String,
    pub(crate) folder: PathBuf,
    pub(crate) tokens: Vec<u32>,
    /// f32[tokens, vocab]
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
        assert_eq!(whole.len(), self.logits.len(), "{name}");
        let largest = self.logits.iter().fold(0.0, |largest: f32, logit| largest.max(logit.abs()));
        assert!(whole.iter().all(|logit| logit.is_finite()), "{name}");
        let vocab = whole.len() / self.tokens.len();
        let rows = whole.chunks(vocab).zip(self.logits.chunks(vocab));
        let difference = |(a, b): (&f32, &f32)| (a - b).abs() / largest;
        let mut rows: Vec<f32> =
            rows.map(|(a, b)| a.iter().zip(b).map(difference).fold(0.0, f32::max)).collect();
        rows.sort_by(f32::total_cmp);
        // Rounding may give a token to other experts, and then there is no telling how far its logits go.
        let layers = &checkpoint.decoder().unwrap().layers;
        let routed = layers.iter().any(|layer| matches!(layer.channel, Channel::Experts(_)));
        let worst = rows[if routed && cache_dtype != DType::F32 { rows.len() / 2 } else { rows.len() - 1 }];
        eprintln!("{name}: with a cache of {cache_dtype}, largest relative difference {worst:.1e}");
        assert!(worst <= bound, "{name}: a logit is off by {worst} of the largest");
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        for chunks in CHUNKS {
            let chunked = run(checkpoint, &model, &self.tokens, chunks);
            assert!(bits(&chunked) == bits(&whole), "{name}: other bits in chunks of {chunks:?}");
        }
    }

    pub(crate) fn open_file(&self, file: &str) -> Checkpoint {
        self.open_with(file, None)
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
    let graph = checkpoint.graph(PAGE_SIZE, cache_dtype).unwrap();
    crate::support::session(2).load(&graph, &weights(checkpoint, &graph)).unwrap()
}

/// What a graph asks for.
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
    let mut runner = Runner::new(model.clone(), 5, decoder.vocab).unwrap();
    let mut logits = Vec::new();
    let mut done = 0;
    for &chunk in chunks {
        let tokens = tokens[done..done + chunk].to_vec();
        let pages = vec![3, 1, 4];
        let slice = Slice { cached: done, tokens, pages, predicts: true, outputs: chunk, ..Slice::default() };
        let rows = runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap();
        (0..chunk).for_each(|row| logits.extend_from_slice(rows.row(row)));
        done += chunk;
    }
    logits
}

#[test]
fn logits_are_those_of_pytorch() {
    for golden in goldens() {
        for (name, checkpoint) in golden.checkpoints() {
            for (cache_dtype, bound) in BOUNDS {
                golden.check(&name, &checkpoint, cache_dtype, bound);
            }
        }
    }
}

/// What checkpoints become as GGUF files has the tensors that other tools write, and computes the same.
#[test]
fn checkpoints_written_as_gguf_compute_the_same() {
    let goldens = goldens();
    let problems = goldens.iter().filter_map(|golden| {
        let path = match written_as_gguf(golden) {
            Ok(path) => path,
            Err(problem) => return Some(format!("{}: {problem}", golden.name)),
        };
        let written = golden.open_path(&path, None);
        std::fs::remove_file(&path).unwrap();
        golden.check(&format!("{} as GGUF", golden.name), &written, DType::F32, BOUNDS[0].1);
        None
    });
    // No file says which layers of a SmolLM3 have no positions, which here are others than usual.
    let said = ["has layer norms", "configuration of SmolLM3ForCausalLM has no key"];
    let is_refusal = |problem: &String| said.iter().any(|words| problem.contains(words));
    let (refused, problems): (Vec<_>, Vec<_>) = problems.partition(is_refusal);
    assert_eq!(problems, [""; 0]);
    assert!(refused.len() < goldens.len() / 2, "{refused:?}");
}

/// Writes a checkpoint in f32 as a GGUF file, and compares its tensors with those of the one beside it.
fn written_as_gguf(golden: &Golden) -> Result<PathBuf, String> {
    let checkpoint = golden.checkpoint();
    let export = Export::new(&checkpoint, &golden.folder.join("config.json"));
    let export = export.map_err(|error| error.to_string())?;
    let records = export.records(&vec![None; export.tensors.len()]);
    let mut file = GgufWriter::new(Vec::new(), &export.metadata, &records).unwrap();
    let values = export.tensors.iter().flat_map(|tensor| (0..tensor.rows()).flat_map(|row| tensor.row(row)));
    values.for_each(|value| file.write_all(&value.to_le_bytes()).unwrap());
    let path = std::env::temp_dir().join(format!("perihelion-{}-{}.gguf", std::process::id(), golden.name));
    std::fs::write(&path, file.finish().unwrap()).unwrap();
    let beside = golden.folder.join("model.gguf");
    let beside = beside.exists().then(|| Weights::open(&beside).unwrap());
    // Old files hold experts one by one.
    let is_new = |weights: &Weights| weights.get("blk.0.ffn_up.0.weight").is_none();
    let shapes = |weights: &Weights| {
        let shapes = weights.tensors().map(|(name, tensor)| (name.to_string(), *tensor.shape()));
        shapes.collect::<BTreeMap<_, _>>()
    };
    let written = shapes(&Weights::open(&path).unwrap());
    match beside.filter(is_new).map(|beside| shapes(&beside)) {
        Some(expected) if expected != written => Err(format!("tensors are {written:?}, not {expected:?}")),
        _ => Ok(path),
    }
}

/// Each weight of a file is used, and counted, but for those of the half that sees and the factors of frequencies.
#[test]
fn parameters_are_those_of_the_file() {
    let other = ["vision_tower.", "multi_modal_projector.", "rope_freqs."];
    let counts = |name: &str| !other.iter().any(|prefix| name.starts_with(prefix));
    for (name, checkpoint) in goldens().iter().flat_map(Golden::checkpoints) {
        let stored = checkpoint.weights().tensors().filter(|(name, _)| counts(name));
        let stored: usize = stored.map(|(_, tensor)| tensor.elements()).sum();
        assert_eq!(checkpoint.decoder().unwrap().parameters(), stored, "{name}");
        assert_eq!(checkpoint.unused(), [""; 0], "{name}");
    }
}

/// Which dims form a pair can be said of GGUF files, and of no others.
#[test]
fn pairs_are_chosen_in_gguf_files_alone() {
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
    for architecture in ARCHITECTURES.iter().filter(|architecture| architecture.gguf != "llama") {
        assert!(found.iter().any(|name| name == architecture.hugging_face), "{}", architecture.hugging_face);
    }
    for name in ["MistralForCausalLM", "MixtralForCausalLM"] {
        assert!(found.iter().any(|found| found == name), "{name}");
    }
}
