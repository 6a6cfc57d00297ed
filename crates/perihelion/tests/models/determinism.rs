//! The same request gives the same bits: alone or in a batch, on any number of threads, prefilled whole or in
//! chunks, whatever the pages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use perihelion::driver::DType;
use perihelion::pipelines::config::{PipelineConfig, Reproducible, machine};
use perihelion::pipelines::{Batch, Page, Runner, SequenceId, Slice, TextModel};

use crate::support::{load_as, session};

/// The tokens whose logits are compared, and where they are cut when run in chunks.
const LENGTH: usize = 45;
const CHUNKS: &[&[usize]] = &[&[45], &[1, 44], &[16, 16, 13], &[7, 3, 20, 1, 1, 13], &[44, 1]];
const BATCHES: &[usize] = &[2, 3, 5, 8, 16, 17, 33, 64];

/// Tokens that differ from sequence to sequence.
fn tokens(seed: usize, len: usize, vocab: usize) -> Vec<u32> {
    (0..len).map(|i| ((seed * 31 + i * i * 7 + i * 13 + 3) % vocab) as u32).collect()
}

/// The bits of the logits of every token of a sequence, run in chunks together with others.
fn run(
    runner: &mut Runner,
    vocab: usize,
    sequence: &[u32],
    pages: &[Page],
    chunks: &[usize],
    others: &[Vec<u32>],
) -> Vec<u32> {
    let mut bits = Vec::new();
    let mut done = 0;
    for &chunk in chunks {
        let slice = |id: u64, cached: usize, tokens: &[u32], pages: &[Page]| Slice {
            id: SequenceId(id),
            cached,
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            predicts: true,
            outputs: tokens.len(),
            // Each has a slot of its own; ours is also read.
            state_to: id as u32,
            ..Slice::default()
        };
        // The others are prompts and single tokens of different lengths, some before ours and some behind.
        let mut slices: Vec<Slice> = others
            .iter()
            .enumerate()
            .map(|(i, tokens)| {
                slice(i as u64 + 1, 0, &tokens[..1 + (i * 5 + done) % tokens.len()], &[100 + i as Page])
            })
            .collect();
        let position = slices.len() / 2;
        slices.insert(position, slice(0, done, &sequence[done..done + chunk], pages));
        let first: usize = slices[..position].iter().map(|slice| slice.tokens.len()).sum();
        let logits = runner.run(&Batch { slices, ..Batch::default() }).unwrap();
        for row in first..first + chunk {
            let row = logits.row(row);
            assert_eq!(row.len(), vocab);
            bits.extend(row.iter().map(|logit| logit.to_bits()));
        }
        done += chunk;
    }
    bits
}

/// Loads a model for a number of threads, with pages of a size.
type Load<'a> = &'a dyn Fn(usize, usize) -> TextModel;

/// Pages and slots for one long sequence and 63 short ones.
fn runner(model: &TextModel) -> Runner {
    model.runner_with_slots(200, 64).unwrap()
}

fn check(path: &Path) {
    check_with(path, DType::F32);
}

fn check_with(path: &Path, cache_dtype: DType) {
    let name = path.file_name().unwrap().to_string_lossy();
    let load = |threads, page_size| load_as(path, None, threads, page_size, cache_dtype).unwrap();
    check_loaded(&name, &load, ALL);
}

/// How much is tried: numbers of threads from 1 on, and sizes of batches.
pub(crate) struct Extent {
    pub(crate) threads: usize,
    pub(crate) batches: &'static [usize],
}

const ALL: Extent = Extent { threads: 4, batches: BATCHES };

/// Checks that a text's logits have the same bits with any number of threads, any pages, any chunks and any texts beside it.
pub(crate) fn check_loaded(name: &str, load: Load, extent: Extent) {
    let load = |threads, page_size| Arc::new(load(threads, page_size));
    let reference_model = load(1, 64);
    let vocab = reference_model.vocab();
    let sequence = tokens(1, LENGTH, vocab);
    let expected = run(&mut runner(&reference_model), vocab, &sequence, &[0], &[LENGTH], &[]);
    for threads in 1..=extent.threads {
        // Three pages of 16, out of order, or one of 64 that is not the first.
        for (page_size, pages) in [(16, &[7, 2, 5][..]), (64, &[3][..])] {
            let model = load(threads, page_size);
            let mut runner = runner(&model);
            for chunks in CHUNKS {
                let bits = run(&mut runner, vocab, &sequence, pages, chunks, &[]);
                assert!(
                    bits == expected,
                    "{name}: {threads} threads, pages of {page_size}, chunks {chunks:?}"
                );
            }
            for &batch in extent.batches {
                let others: Vec<Vec<u32>> = (1..batch).map(|i| tokens(i + 1, 1 + i % 11, vocab)).collect();
                let chunks = CHUNKS[batch % CHUNKS.len()];
                let bits = run(&mut runner, vocab, &sequence, pages, chunks, &others);
                assert!(
                    bits == expected,
                    "{name}: {threads} threads, pages of {page_size}, in a batch of {batch}"
                );
            }
        }
    }
}

#[test]
fn the_storyteller_is_deterministic() {
    check(&testdata::asset("storyteller/model.gguf"));
}

#[test]
fn half_precision_caches_are_deterministic() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    check_with(&folder.join("gguf/stories260K-BF16.gguf"), DType::BF16);
    check_with(&folder.join("gguf/stories260K-F16.gguf"), DType::F16);
}

#[test]
fn bf16_products_of_the_machine_are_deterministic() {
    let Some(path) = testdata::shared("stories260k/gguf/stories260K-BF16.gguf") else { return };
    let load = |threads, page_size| {
        let config = PipelineConfig {
            kv_cache_page_size: page_size,
            reproducible: Some(Reproducible::Machine),
            ..PipelineConfig::new(path.display().to_string())
        };
        TextModel::from_plan(&session(threads), config.plan(machine()).unwrap()).unwrap()
    };
    check_loaded("with bf16 products", &load, ALL);
}

#[test]
fn every_encoding_is_deterministic() {
    let Some(folder) = testdata::shared("stories260k") else { return };
    for encoding in ["F32", "F16", "BF16", "Q8_0", "Q5_1"] {
        check(&folder.join(format!("gguf/stories260K-{encoding}.gguf")));
    }
    let shakespeare: PathBuf =
        testdata::shared("shakespeare-llama/gguf/shakespeare-llama-Q6_K.gguf").unwrap();
    check(&shakespeare);
}

#[test]
fn every_kind_of_state_is_deterministic() {
    for name in crate::mixes::KINDS {
        check(crate::support::golden_with_tokenizer(name).path());
    }
}
