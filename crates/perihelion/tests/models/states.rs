//! Decoders whose layers keep keys and values of different shapes, in several caches, or states of sequences.

use std::collections::HashMap;
use std::sync::Arc;

use perihelion::driver::{DType, Tensor};
use perihelion::models::{Decoder, Mixer, Model, Output};
use perihelion::pipelines::config::{KVCacheStrategy, Machine, PipelineConfig, machine};
use perihelion::pipelines::{
    Batch, Embedder, EmbeddingModel, EmbeddingParameters, EmbeddingText, Error, Pooling, Runner, Slice,
    log_probabilities, measure_importance, visit_logits,
};

use crate::architectures::{Golden, PAGE_SIZE, weights};
use crate::support::{golden_with_tokenizer, load, session};

const CHUNKS: &[&[usize]] = &[&[40], &[7, 3, 20, 1, 9]];

/// The logits of all tokens, run in chunks.
fn logits(
    golden: &Golden,
    decoder: &Decoder,
    weights: &HashMap<String, Tensor>,
    chunks: &[usize],
) -> Vec<f32> {
    let whole = Model::from(decoder.clone());
    let graph = whole.graph(Output::Logits, &golden.checkpoint(), PAGE_SIZE, DType::F32).unwrap();
    let model = session(2).load(&graph, weights).unwrap();
    let mut runner = Runner::new(model, 5, decoder.vocab).unwrap();
    let (mut logits, mut done) = (Vec::new(), 0);
    for &chunk in chunks {
        let tokens = golden.tokens[done..done + chunk].to_vec();
        let pages = vec![3, 1, 4];
        let slice = Slice { cached: done, tokens, pages, predicts: true, outputs: chunk, ..Slice::default() };
        let rows = runner.run(&Batch { slices: vec![slice], ..Batch::default() }).unwrap();
        (0..chunk).for_each(|row| logits.extend_from_slice(rows.row(row)));
        done += chunk;
    }
    logits
}

/// The rows of the first of two heads, so many times.
fn first_head(matrix: &Tensor, times: usize) -> Tensor {
    let rows = matrix.shape()[0] / 2;
    let values = matrix.narrow(0, 0..rows).to_f32_vec().repeat(times);
    Tensor::from_slice([rows * times, matrix.shape()[1]], &values)
}

/// A layer with one key and value head computes what it does with two that are the same, which share a cache with the
/// other layer's.
#[test]
fn layers_with_different_heads_get_separate_caches() {
    let golden = Golden::named("qwen3");
    let checkpoint = golden.checkpoint();
    let both = checkpoint.decoder().unwrap().clone();
    let mut one = both.clone();
    let Mixer::Attention(attention) = &mut one.layers[1].mixer else { panic!("no attention") };
    assert_eq!((attention.heads, attention.kv_heads), (4, 2));
    attention.kv_heads = 1;
    let names = |decoder: &Decoder| -> Vec<String> {
        decoder.state().per_token.into_iter().map(|cache| cache.name).collect()
    };
    assert_eq!((names(&both), names(&one)), (vec!["cache".into()], vec!["cache".into(), "cache.1".into()]));
    assert_eq!(4 * one.state().bytes_per_token(DType::F32), 3 * both.state().bytes_per_token(DType::F32));
    let graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32).unwrap();
    let [mut of_both, mut of_one] = [(); 2].map(|()| weights(&checkpoint, &graph));
    for name in ["blk.1.attn_k.weight", "blk.1.attn_v.weight"] {
        let matrix = of_both[name].clone();
        of_both.insert(name.into(), first_head(&matrix, 2));
        of_one.insert(name.into(), first_head(&matrix, 1));
    }
    let expected = logits(&golden, &both, &of_both, CHUNKS[0]);
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for chunks in CHUNKS {
        let got = logits(&golden, &one, &of_one, chunks);
        let worst = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(got.len() == expected.len() && worst <= 1e-5 * largest, "{chunks:?}: off by {worst}");
    }
}

/// A latent and its rotated dims, once for each layer; and the keys of indexers.
#[test]
fn latents_are_kept_once() {
    let bytes = |name: &str| {
        let checkpoint = Golden::named(name).checkpoint();
        let state = checkpoint.decoder().unwrap().state();
        let names: Vec<String> = state.per_token.iter().map(|cache| cache.name.clone()).collect();
        (names.join(" "), state.bytes_per_token(DType::BF16))
    };
    assert_eq!(bytes("deepseek_v3"), ("cache".to_string(), 3 * (17 + 4) * 2));
    assert_eq!(bytes("deepseek_v32"), ("cache cache.1".to_string(), 2 * (17 + 4 + 6) * 2));
    // The second of three layers takes the positions that the first has chosen.
    assert_eq!(bytes("glm_moe_dsa"), ("cache cache.1".to_string(), (3 * (17 + 4) + 2 * 5) * 2));
}

/// Tokens that differ from text to text.
fn text(seed: u32, len: u32) -> Vec<u32> {
    (0..len).map(|i| 3 + (seed * 31 + i * i * 7 + i * 13) % 40).collect()
}

#[test]
fn embeddings_of_recurrent_models_do_not_depend_on_the_batch() {
    let folder = golden_with_tokenizer("lfm2");
    let config = PipelineConfig::new(folder.path().display().to_string()).max_cache_batch_size(8);
    let model = EmbeddingModel::from_plan(&session(2), config.plan(machine()).unwrap(), &mut |_| ());
    let parameters = EmbeddingParameters { pooling: Some(Pooling::Last), ..Default::default() };
    let embedder = Embedder::new(Arc::new(model.unwrap()), &parameters).unwrap();
    let texts: Vec<EmbeddingText> = (0..7).map(|i| EmbeddingText::Tokens(text(i, 1 + 9 * i))).collect();
    let together = embedder.embed(&texts).unwrap();
    for (text, embedding) in texts.iter().zip(&together) {
        let alone = embedder.embed(std::slice::from_ref(text)).unwrap().remove(0);
        assert!(alone.vector == embedding.vector && alone.vector.iter().any(|x| *x != 0.0));
    }
}

#[test]
fn windows_of_recurrent_models_start_from_nothing() {
    let folder = golden_with_tokenizer("mamba2");
    let model = load(folder.path());
    let tokens = text(1, 50);
    let logs = log_probabilities(&model, &tokens).unwrap();
    assert_eq!((logs.len(), log_probabilities(&model, &tokens).unwrap()), (49, logs.clone()));
    // Each window by itself, after others have used the same runner.
    let mut rows = Vec::new();
    visit_logits(&model, &tokens, 20, 20, |_, row| {
        rows.push(row.to_vec());
        Ok::<(), Error>(())
    })
    .unwrap();
    for (index, window) in tokens.chunks(20).enumerate().take(2) {
        let alone = crate::support::logits(&model, window);
        (0..20)
            .for_each(|row| assert!(rows[20 * index + row] == alone.row(row), "window {index}, row {row}"));
    }
}

#[test]
fn importance_of_recurrent_models_is_measured() {
    let golden = Golden::named("lfm2");
    let checkpoint = golden.checkpoint();
    let importance = measure_importance(&session(2), &checkpoint, &golden.tokens, 150, &mut |_| ()).unwrap();
    assert_eq!(importance.tokens, golden.tokens.len());
    assert!(importance.columns.values().flatten().all(|mean| mean.is_finite() && *mean >= 0.0));
}

#[test]
fn plans_count_states() {
    let folder = golden_with_tokenizer("mamba2");
    let config = PipelineConfig::new(folder.path().display().to_string());
    let config = config.cache_strategy(KVCacheStrategy::Paged).max_cache_batch_size(3).max_length(64);
    let plan = config.clone().plan(Machine { free_memory: Some(1 << 30), ..machine() }).unwrap();
    let memory = plan.memory().unwrap();
    let slot = plan.state_bytes_per_slot();
    assert_eq!((memory.state_slots, memory.states, memory.cache), (7, 7 * slot, 7 * slot));
    assert!(memory.cache_tokens >= 3 * 64 && plan.cache_bytes_per_token() == 0 && slot > 0);
    let small = Machine { free_memory: Some(memory.weights + 5 * slot), ..machine() };
    let refused = config.gpu_memory_utilization(1.0).plan(small).unwrap().memory().unwrap_err();
    assert_eq!(refused.suggestion(), "lower max_cache_batch_size to 2");
}
