//! How much each column of a model's matrices matters: the mean square of what it is multiplied with, over a text.

use engine::{InferenceSession, Model};
use graph::ops::{Binary, Reduce, ReduceKind};
use graph::{Graph, Op, Value};
use models::{Checkpoint, Importance, Output};
use tensor::{Buffer, DType};

use crate::limits::SLOTS_PER_SEQUENCE;
use crate::run::runner::GraphRunner;
use crate::tasks::compiled::CheckpointWeights;
use crate::{Batch, Error, Slice};

/// Tokens in a page of the cache.
const PAGE_SIZE: usize = 64;
/// Tokens that run at once. Of experts, each one's input is copied out.
const CHUNK: usize = 128;

/// What is summed up for some weights that share an input.
struct Probe {
    weights: Vec<String>,
    /// Experts, for weights that each token chooses some of.
    experts: usize,
    /// f64[experts · columns], or f64[columns]
    sums: Vec<f64>,
    /// Tokens of each expert, or of all.
    counts: Vec<u64>,
}

/// Runs a model that makes text over `tokens`, in windows of `window` tokens that know nothing of each other.
/// `progress` is told how many tokens are done.
///
/// The embedding and the output are left out, as llama.cpp leaves them out.
///
/// # Errors
/// If the model is an encoder, there are no tokens, or it cannot be compiled or run.
pub fn measure_importance(
    session: &InferenceSession,
    checkpoint: &Checkpoint,
    tokens: &[u32],
    window: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Importance, Error> {
    let window = window.clamp(1, checkpoint.decoder()?.context_length);
    if tokens.is_empty() {
        return Err(Error::Quantize("the text that tells importance has no tokens".into()));
    }
    let mut graph = checkpoint.graph(Output::Logits, PAGE_SIZE, DType::F32)?;
    let mut probes = probe(&mut graph)?;
    let compiled = session.compile(&graph)?;
    let registry = CheckpointWeights(checkpoint);
    let model = session.init(&compiled, &registry)?;
    let mut done = 0;
    for part in tokens.chunks(window) {
        run(&model, part, &mut probes)?;
        done += part.len();
        progress(done);
    }
    let columns = probes.iter().flat_map(|probe| {
        let means = probe.means();
        probe.weights.iter().map(move |name| (name.clone(), means.clone()))
    });
    Ok(Importance { columns: columns.collect(), tokens: done })
}

impl Probe {
    fn means(&self) -> Vec<f32> {
        let columns = self.sums.len() / self.counts.len();
        let mean = |(i, &sum): (usize, &f64)| match self.counts[i / columns] {
            // An expert that no token chose: all of its columns are alike.
            0 => 1.0,
            count => (sum / count as f64) as f32,
        };
        self.sums.iter().enumerate().map(mean).collect()
    }

    /// Adds what the model gave: the sums of squares f32[1, columns]; or, with experts, their inputs
    /// f32[tokens, columns] or f32[tokens, k, columns] and numbers [tokens, k].
    fn add(&mut self, tokens: usize, outputs: &mut dyn Iterator<Item = Buffer>) {
        let mut next = || outputs.next().expect("as many outputs as probes ask for");
        let inputs = next();
        let values = inputs.to_vec::<f32>();
        if self.experts == 0 {
            self.sums.resize(values.len(), 0.0);
            self.counts[0] += tokens as u64;
            self.sums.iter_mut().zip(&values).for_each(|(sum, &square)| *sum += f64::from(square));
            return;
        }
        let chosen = next().to_tensor().expect("nothing writes outputs").to_f32_vec();
        let columns = inputs.shape().last().copied().unwrap_or(1);
        self.sums.resize(self.experts * columns, 0.0);
        let rows = values.len() / columns;
        // Either each expert has an input of its own, or those of a token share one.
        let shared = (chosen.len() / rows.max(1)).max(1);
        for (i, &expert) in chosen.iter().enumerate() {
            let (expert, row) = (expert as usize, i / shared);
            self.counts[expert] += 1;
            let sums = &mut self.sums[expert * columns..][..columns];
            let row = &values[row * columns..][..columns];
            sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value) * f64::from(value));
        }
    }
}

/// Makes the graph give what probes sum up, in their order, and nothing else.
fn probe(graph: &mut Graph) -> Result<Vec<Probe>, Error> {
    let mut found: Vec<(Vec<Value>, Probe)> = Vec::new();
    for (_, node) in graph.nodes() {
        let (inputs, weights, experts) = match &node.op {
            Op::Linear(linear) => {
                let operands = linear.operands(&node.inputs);
                (vec![*operands.x], operands.weights, 0)
            }
            Op::ExpertLinear(_) => {
                let [x, chosen, weights @ ..] = &node.inputs[..] else { continue };
                let experts = weights.first().and_then(|&weight| graph.ty(weight).static_shape());
                (vec![*x, *chosen], weights, experts.map_or(0, |shape| shape[0]))
            }
            _ => continue,
        };
        let names = weights.iter().filter_map(|&weight| match graph.defined_by(weight) {
            Some((Op::Weight(weight), _)) => Some(weight.name.clone()),
            _ => None,
        });
        let names: Vec<String> =
            names.filter(|name| !["output.weight", "token_embd.weight"].contains(&&name[..])).collect();
        match found.iter_mut().find(|(known, _)| *known == inputs) {
            _ if names.is_empty() => {}
            Some((_, probe)) => probe.weights.extend(names),
            None => {
                let counts = vec![0; experts.max(1)];
                found.push((inputs, Probe { weights: names, experts, sums: Vec::new(), counts }));
            }
        }
    }
    let (mut outputs, mut probes) = (Vec::new(), Vec::new());
    for (inputs, probe) in found {
        if let [x] = inputs[..] {
            let squares = graph.push_one(Binary::Mul.into(), &[x, x]).map_err(models::Error::from)?;
            let sum = Reduce { kind: ReduceKind::Sum, axis: 0 };
            outputs.push(graph.push_one(sum.into(), &[squares]).map_err(models::Error::from)?);
        } else {
            outputs.extend(inputs);
        }
        probes.push(probe);
    }
    graph.set_outputs(&outputs);
    Ok(probes)
}

/// Runs a window.
fn run(model: &Model, tokens: &[u32], probes: &mut [Probe]) -> Result<(), Error> {
    let pages = tokens.len().div_ceil(PAGE_SIZE);
    let mut runner = GraphRunner::new(model.clone(), pages, SLOTS_PER_SEQUENCE, 1)?;
    for (index, chunk) in tokens.chunks(CHUNK).enumerate() {
        let slice = Slice {
            cached: index * CHUNK,
            tokens: chunk.to_vec(),
            pages: (0..pages as u32).collect(),
            ..Slice::default()
        };
        let batch = Batch { slices: vec![slice], ..Batch::default() };
        let mut outputs = runner.run_outputs(&batch)?.into_iter();
        probes.iter_mut().for_each(|probe| probe.add(chunk.len(), &mut outputs));
    }
    Ok(())
}
