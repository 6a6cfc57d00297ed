//! The bits of logits, which every processor must give: each instruction set of the machine that runs the test, on 1 and
//! 4 threads, alone and in a batch, with the cache that each encoding has by default. `tools/test_arm` runs this test on
//! emulated ARM processors.

use std::path::Path;
use std::sync::Arc;

use perihelion::driver::{Cpu, Device, InstructionSet};
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{Machine, PipelineConfig, machine};
use perihelion::pipelines::{Batch, Page, SequenceId, Slice, TextModel};

/// Tokens of the prompt, then of single steps.
const STEPS: [usize; 5] = [8, 1, 1, 1, 1];

#[test]
fn the_storyteller_has_golden_bits() {
    check("storyteller", &testdata::asset("storyteller/model.gguf"));
}

#[test]
fn five_encodings_have_golden_bits() {
    let Some(folder) = testdata::shared("stories260k/gguf") else { return };
    for encoding in ["F32", "F16", "BF16", "Q8_0", "Q5_1"] {
        let name = format!("stories260K-{encoding}");
        check(&name, &folder.join(format!("{name}.gguf")));
    }
}

fn check(name: &str, path: &Path) {
    // Each line has a model, a position, a hash of the logits there, and the first of them.
    let golden = testdata::repository().join("crates/perihelion/tests/golden_bits.txt");
    let golden = std::fs::read_to_string(golden).unwrap();
    let prefix = format!("{name} ");
    let golden: Vec<&str> = golden.lines().filter(|line| line.starts_with(&prefix)).collect();
    for &set in InstructionSet::ALL {
        for threads in [1, 4] {
            let model = load(path, set, threads);
            for others in [0, 5] {
                let lines = run(&model, name, others);
                assert!(
                    lines == golden,
                    "{name}, {set:?}, {threads} threads, among {others} others: the bits of logits are\n{}\nnot\n{}",
                    lines.join("\n"),
                    golden.join("\n")
                );
            }
        }
    }
}

fn load(path: &Path, set: InstructionSet, threads: usize) -> TextModel {
    let device: Arc<dyn Device> = Arc::new(Cpu::with_instruction_set(threads, set));
    let session = InferenceSession::builder().device(device).compile_cache(None).build().unwrap();
    let config = PipelineConfig { kv_cache_page_size: 16, ..PipelineConfig::new(path.display().to_string()) };
    let plan = config.plan(Machine { free_memory: None, ..machine() }).unwrap();
    TextModel::from_plan(&session, plan).unwrap()
}

/// The golden lines of a sequence that runs together with some others.
fn run(model: &TextModel, name: &str, others: u64) -> Vec<String> {
    let vocab = model.vocab();
    let token = |seed: usize, i: usize| ((seed * 31 + i * i * 7 + i * 13 + 3) % vocab) as u32;
    let slice = |id: u64, cached: usize, tokens: Vec<u32>| Slice {
        id: SequenceId(id),
        cached,
        outputs: tokens.len(),
        tokens,
        pages: vec![id as Page],
        predicts: true,
        ..Slice::default()
    };
    let mut runner = model.runner(1 + others as usize).unwrap();
    let (mut lines, mut done) = (Vec::new(), 0);
    for step in STEPS {
        let mut slices = vec![slice(0, done, (done..done + step).map(|i| token(1, i)).collect())];
        slices.extend((1..=others).map(|id| slice(id, 0, (0..id as usize).map(|i| token(2, i)).collect())));
        let logits = runner.run(&Batch { slices, ..Batch::default() }).unwrap();
        lines.extend((0..step).map(|row| line(name, done + row, logits.row(row))));
        done += step;
    }
    lines
}

fn line(name: &str, position: usize, logits: &[f32]) -> String {
    // FNV-1a of the bytes.
    let bytes = logits.iter().flat_map(|logit| logit.to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let first: Vec<String> = logits[..3].iter().map(f32::to_string).collect();
    format!("{name} {position} {hash:016x} {}", first.join(" "))
}
