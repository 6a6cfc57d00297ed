//! `peri inspect`: facts about a model or an artifact, without running it.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use models::{Checkpoint, ClassificationHead, Model, Output, Parameters, WeightTypes};
use pipelines::{CompiledPlan, MemoryBytes, SLOTS_PER_SEQUENCE};

use crate::artifact::{self, Show};
use crate::command_profile;
use crate::exit::one_line;
use crate::model;
use crate::progress::Progress;
use crate::settings::ModelPath;

const AFTER_HELP: &str = "\
No weights are read, so large models are quick too.

JSON of a model: facts{}, parameters, context_length, weights_bytes, cache_bytes_per_token, state_bytes_per_slot, \
tensors[{name, type, shape[], bytes}]. JSON of an artifact (.mef): made_by, device, target, obstacle, models[{name, \
text_bytes, constants, constant_bytes}], weights[{name, type, layout, bytes}], bytes, sections.";

/// Arguments of `peri inspect`.
#[derive(clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelPath<command_profile::Inspect>,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Print the execution plan: steps, kernels, packed weights
    #[arg(long)]
    plan: bool,
    /// Print JSON, with all tensors
    #[arg(long, conflicts_with_all = ["tensors", "plan"])]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(path) = arguments.model.artifact() {
        let Arguments { tensors, plan, json, .. } = *arguments;
        return artifact::show(path, &Show { weights: tensors, plan, json });
    }
    // Nothing is computed, so one thread is enough.
    let session = model::session(1, [])?;
    let source = arguments.model.source()?;
    let plan = source.open(&Progress::new(true))?;
    plan.expect_graph("peri inspect")?;
    // The length that the commands that run would choose, and `peri plan` shows; all that was asked for if it does not
    // fit.
    let asked = || plan.config().max_length.given().unwrap_or(plan.context_length());
    let length = plan.max_length().unwrap_or_else(|_| asked());
    let model = model::compile(&session, plan)?;
    print(arguments, &model, length).context("cannot write to standard output")
}

fn print(arguments: &Arguments, model: &CompiledPlan, length: usize) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        return writeln!(out, "{:#}", json(model, length));
    }
    for (name, value) in facts(model, length) {
        writeln!(out, "{name:<16} {value}")?;
    }
    if arguments.tensors {
        writeln!(out, "\n{}", tensors(model))?;
    }
    if arguments.plan {
        writeln!(out, "\n{}", model.model().expect("it has a graph"))?;
    }
    out.flush()
}

/// Names and values, in the order they print; the cache is that of a sequence of `length` tokens.
fn facts(model: &CompiledPlan, length: usize) -> Vec<(&'static str, String)> {
    let config = &checkpoint(model).config;
    let tokens = if checkpoint(model).model.runs_in_steps() { length } else { 0 };
    let plan = model.plan();
    let (weights, per_token) = (checkpoint(model).bytes(), plan.cache_bytes_per_token());
    let cache = tokens.next_multiple_of(plan.config().kv_cache_page_size) as u64 * per_token;
    let types: Vec<String> =
        bytes_by_type(model).into_iter().map(|(dtype, (count, _))| format!("{count} {dtype}")).collect();
    let mut facts = vec![
        ("name", config.name.as_deref().map_or("(none)".into(), one_line)),
        ("architecture", one_line(&config.architecture)),
        ("format", checkpoint(model).weights().format().to_string()),
    ];
    facts.extend(model_facts(checkpoint(model)));
    facts.extend(plan.config().quantize.map(|mix| ("quantized to", mix.name.to_string())));
    facts.push(("tensors", types.join(", ")));
    let repacked = checkpoint(model).repacked();
    if !repacked.is_empty() {
        let repacked: Vec<String> =
            repacked.into_iter().map(|(dtype, count)| format!("{count} {dtype}")).collect();
        facts.push(("repacked", format!("run as {}", repacked.join(", "))));
    }
    facts.extend([("tokenizer", tokenizer(model)), ("weights", MemoryBytes(weights).to_string())]);
    if tokens > 0 {
        let (bytes, per_token) = (MemoryBytes(cache), MemoryBytes(per_token));
        facts.push(("cache", format!("{bytes} for {tokens} tokens, {per_token} a token")));
    }
    let (state, slots) = (plan.state_bytes_per_slot(), SLOTS_PER_SEQUENCE as u64);
    if state > 0 {
        facts.push(("state", format!("{} a sequence, in each of {slots} slots", MemoryBytes(state))));
    }
    let free = MemoryBytes(plan.free_memory().unwrap_or(u64::MAX));
    let needed = weights.saturating_add(cache).saturating_add(state.saturating_mul(slots));
    facts.push(("memory needed", format!("{} of {free} free", MemoryBytes(needed))));
    facts
}

fn model_facts(checkpoint: &Checkpoint) -> Vec<(&'static str, String)> {
    let model = &checkpoint.model;
    let is_tied = checkpoint.dtype("output.weight").is_none();
    vec![
        ("parameters", parameters(model)),
        ("layers", model.layers().len().to_string()),
        ("hidden size", model.hidden.to_string()),
        ("feed forward", kinds(model.layers().into_iter().map(|[_, block]| block), ", or ")),
        ("heads", kinds(model.layers().into_iter().map(|[heads, _]| heads), "; ")),
        ("vocabulary", model.vocab.to_string()),
        ("context", format!("{} tokens", model.context_length)),
        match &model.head {
            Some(head) => ("output", scores(head)),
            None if model.gives(Output::Logits) => {
                ("output head", if is_tied { "tied to the embedding" } else { "its own" }.into())
            }
            None => ("output", "hidden states, no text".into()),
        },
    ]
}

/// Each kind of block that layers have, once.
fn kinds(blocks: impl Iterator<Item = String>, separator: &str) -> String {
    let mut kinds: Vec<String> = Vec::new();
    for kind in blocks {
        if !kind.is_empty() && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds.join(separator)
}

/// How many labels are named.
const NAMED_LABELS: usize = 8;

/// The output of a classifier.
fn scores(head: &ClassificationHead) -> String {
    let labels: Vec<String> = head.labels.iter().take(NAMED_LABELS).map(|label| one_line(label)).collect();
    let more = if head.labels.len() > NAMED_LABELS { ", ..." } else { "" };
    format!("scores of {} labels: {}{more}", head.labels.len(), labels.join(", "))
}

/// All parameters, and those active per token; or why they cannot be counted.
fn parameters(model: &Model) -> String {
    match model.parameters() {
        Err(error) => one_line(&error.to_string()),
        Ok(Parameters { all, active }) if all == active => grouped(all),
        Ok(Parameters { all, active }) => {
            format!("{}, {} active for each token", grouped(all), grouped(active))
        }
    }
}

/// The checkpoint of a model that runs as a graph, which others are refused for not doing.
fn checkpoint(model: &CompiledPlan) -> &Checkpoint {
    model.checkpoint().expect("it has a graph")
}

/// The kind of the tokenizer, or why there is none.
fn tokenizer(model: &CompiledPlan) -> String {
    model
        .plan()
        .tokenizer()
        .map_or_else(|error| one_line(&format!("none: {error}")), |tokenizer| tokenizer.kind().to_string())
}

/// Dtype → number of tensors and their bytes.
fn bytes_by_type(model: &CompiledPlan) -> BTreeMap<&'static str, (usize, u64)> {
    let mut types: BTreeMap<&'static str, (usize, u64)> = BTreeMap::new();
    for (_, tensor) in checkpoint(model).loaded_weights().tensors() {
        let entry = types.entry(tensor.dtype().name()).or_default();
        entry.0 += 1;
        entry.1 += tensor_bytes(tensor);
    }
    types
}

fn tensor_bytes(tensor: &tensor::Tensor) -> u64 {
    tensor.dtype().bytes_for(tensor.elements()).unwrap_or(0) as u64
}

fn tensors(model: &CompiledPlan) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(["tensor", "type", "shape", "bytes"]);
    for (name, tensor) in checkpoint(model).loaded_weights().tensors() {
        let bytes = grouped(tensor_bytes(tensor) as usize);
        table.add_row([one_line(name), tensor.dtype().to_string(), tensor.shape().to_string(), bytes]);
    }
    table.column_mut(3).expect("four columns").set_cell_alignment(CellAlignment::Right);
    table
}

fn json(model: &CompiledPlan, length: usize) -> serde_json::Value {
    let own = &checkpoint(model).model;
    let tensors: Vec<serde_json::Value> = checkpoint(model)
        .loaded_weights()
        .tensors()
        .map(|(name, tensor)| {
            serde_json::json!({
                "name": name,
                "type": tensor.dtype().name(),
                "shape": tensor.shape().dims(),
                "bytes": tensor_bytes(tensor),
            })
        })
        .collect();
    let facts: serde_json::Map<String, serde_json::Value> = facts(model, length)
        .into_iter()
        .map(|(name, value)| (name.replace([' ', '-'], "_"), value.into()))
        .collect();
    serde_json::json!({
        "facts": facts,
        "parameters": own.parameters().ok().map(|count| count.all),
        "context_length": own.context_length,
        "weights_bytes": checkpoint(model).loaded_weights().bytes(),
        "cache_bytes_per_token": model.plan().cache_bytes_per_token(),
        "state_bytes_per_slot": model.plan().state_bytes_per_slot(),
        "tensors": tensors,
    })
}

/// A number with a space between groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}
