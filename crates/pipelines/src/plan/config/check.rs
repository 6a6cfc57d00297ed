//! What a configuration says of itself alone: ranges, and fields that exclude each other.

use std::path::Path;

use super::auto::Auto;
use super::enums::{KVCacheStrategy, PipelineEngine};
use super::problems::Problems;
use super::{PipelineConfig, huggingface};
use crate::limits::MIN_PAGE_SIZE;

/// Checks what needs neither files nor devices.
pub(crate) fn check(config: &PipelineConfig, problems: &mut Problems) {
    let strategy = config.strategy();
    ranges(config, problems);
    let PipelineConfig { enable_prefix_caching, huggingface_repo_id, weight_path, .. } = config;
    problems.expect(
        !enable_prefix_caching || strategy == KVCacheStrategy::Paged,
        "enable_prefix_caching",
        enable_prefix_caching,
        &format!("pages are shared by the cache strategy paged only: set cache_strategy, which is {strategy}, to paged"),
    );
    if let (Some(mix), Some(dtype)) = (config.quantize, config.weights_dtype) {
        let fix = format!(
            "weights_dtype is {dtype}, and weights are either quantized or cast: give one of the two"
        );
        problems.add("quantize", mix.name, fix);
    }
    problems.expect(
        !(huggingface_repo_id.trim().is_empty() && weight_path.is_empty()),
        "huggingface_repo_id",
        "empty",
        "name a model: a repo such as org/name, a folder, or a GGUF file",
    );
    if config.engine == Some(PipelineEngine::HuggingFace) {
        return huggingface::check(config, problems);
    }
    if let Some(given) = config.architecture.as_deref().filter(|given| models::known_name(given).is_none()) {
        let names = models::nearest_names(given, native()).join(", ");
        let fix = format!("give one that runs here, such as {names}; `peri list` shows all");
        problems.add("architecture", given, fix);
    }
    problems.expect(
        config.python.is_none(),
        "python",
        config.python.as_deref().unwrap_or(Path::new("")).display(),
        "it names an interpreter for the engine huggingface: set that engine, or leave it out",
    );
}

/// The names of the architectures that have a graph here.
fn native() -> impl Iterator<Item = &'static str> {
    let encoders = models::ENCODERS.iter().map(|encoder| encoder.hugging_face);
    let frames = models::FRAMES.iter().map(|frame| frame.hugging_face);
    let decoders = models::ARCHITECTURES.iter().map(|architecture| architecture.hugging_face);
    decoders.chain(frames).chain(encoders)
}

/// Checks each field by itself.
pub(super) fn ranges(config: &PipelineConfig, problems: &mut Problems) {
    let at_least_1 = "give a whole number, at least 1";
    let sizes = [
        ("max_length", config.max_length),
        ("max_cache_batch_size", config.max_cache_batch_size),
        ("max_batch_tokens", config.max_batch_tokens),
    ];
    for (field, size) in sizes {
        problems.expect(size != Auto::At(0), field, 0, "give a whole number, at least 1, or auto");
    }
    let numbers =
        [("max_ce_batch_size", config.max_ce_batch_size), ("pad_to_multiple_of", config.pad_to_multiple_of)];
    for (field, number) in numbers {
        problems.expect(number > 0, field, number, at_least_1);
    }
    let new = config.max_new_tokens;
    problems.expect(
        new == -1 || new > 0,
        "max_new_tokens",
        new,
        "give a whole number, at least 1, or -1 for no limit of its own",
    );
    let steps = config.max_num_steps;
    problems.expect(
        steps == -1 || steps > 0,
        "max_num_steps",
        steps,
        "give a whole number, at least 1, or -1 for the device's choice",
    );
    let page = config.kv_cache_page_size;
    problems.expect(
        page.is_power_of_two() && (MIN_PAGE_SIZE..=MAX_PAGE_SIZE).contains(&page),
        "kv_cache_page_size",
        page,
        &format!("give a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}"),
    );
    let part = config.gpu_memory_utilization;
    problems.expect(
        part > 0.0 && part <= 1.0,
        "gpu_memory_utilization",
        part,
        "give a number above 0 and up to 1",
    );
    if let Some(mix) = config.quantize.filter(|mix| mix.needs_importance()) {
        let fix = "it needs the importance of columns, which loading does not measure: write a file with peri quantize \
                   --importance, or give another mix";
        problems.add("quantize", mix.name, fix);
    }
    let top_k = config.top_k;
    problems.expect(
        top_k.is_none_or(|k| k >= -1),
        "top_k",
        top_k.unwrap_or_default(),
        "give a whole number, at least 1, or 0 for all tokens; none is greedy",
    );
}

/// More than the longest context: a longer page would hold nothing more.
const MAX_PAGE_SIZE: usize = 1 << 24;
