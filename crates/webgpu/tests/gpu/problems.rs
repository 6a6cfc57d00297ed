//! The problems of every op on an adapter: results are those of the references within the ops' tolerances, on a software
//! adapter also the CPU's to the bit, and which ops the host computes is known.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::Arc;

use conformance::Problem;
use engine::{Device, InferenceSession, Model};
use graph::{Graph, Kind};
use tensor::{Buffer, Tensor};

use crate::adapter::{adapter, cpu, difference, is_there_alone, least_adapter, on_adapter, placed};

/// The ops whose results are not the CPU's to the bit, and why.
const OTHER_BITS: &[(&str, &str)] = &[
    ("attention", "the CPU divides weights by their sum before it adds values, the GPU afterwards"),
    ("ragged_attention", "as attention"),
    ("log", "the CPU computes it in f64"),
    ("log1p", "the CPU computes it in f64"),
    ("log_softmax", "the CPU takes the logarithm in f64"),
];

/// The outputs of a model, and what its buffers hold then.
fn run(
    model: &Model,
    graph: &Graph,
    inputs: &[Tensor],
    device: &dyn Device,
) -> Result<(Vec<Tensor>, Vec<Tensor>), String> {
    let buffers = placed(model, inputs, device);
    let outputs = model.execute(&buffers).map_err(|error| error.to_string())?;
    let is_buffer = |(_, input): &(&Buffer, &graph::Input)| graph.ty(input.value).kind == Kind::Buffer;
    let written = buffers.iter().zip(graph.inputs()).filter(is_buffer);
    let tensors = |buffer: &Buffer| buffer.to_tensor().map_err(|error| error.to_string());
    let written = written.map(|(buffer, _)| tensors(buffer)).collect::<Result<Vec<_>, _>>()?;
    Ok((outputs.iter().map(tensors).collect::<Result<Vec<_>, _>>()?, written))
}

/// Runs a problem; the error says what is wrong. Gives whether no step of it ran on the host.
fn solve(problem: &Problem, session: &InferenceSession, device: &dyn Device) -> Result<bool, String> {
    let (graph, weights) = (problem.graph(), |name: &str| problem.weight(name));
    let compiled = session.compile_with(&graph, &on_adapter()).map_err(|error| error.to_string())?;
    let model = session.init(&compiled, &weights).map_err(|error| error.to_string())?;
    let (outputs, buffers) = run(&model, &graph, &problem.arguments(), device)?;
    problem.check(&outputs, &buffers)?;
    let is_there = is_there_alone(&compiled);
    if is_there && testdata::is_gpu_software() && !OTHER_BITS.iter().any(|(op, _)| *op == problem.op.name()) {
        let host = cpu();
        let here = InferenceSession::new([Arc::clone(&host)]).unwrap();
        let model = here.load(&graph, &weights).map_err(|error| error.to_string())?;
        let expected = run(&model, &graph, &problem.arguments(), &*host)?;
        let pairs = outputs.iter().chain(&buffers).zip(expected.0.iter().chain(&expected.1));
        if let Some(difference) = pairs.filter_map(|(got, expected)| difference(got, expected)).next() {
            return Err(format!("{}: {difference}", problem.name));
        }
    }
    Ok(is_there)
}

/// Runs the problems, or those of the ops that the variable `PROBLEMS` lists, and gives for each op how many ran on the
/// device alone, and of how many.
fn solve_all(device: &Arc<dyn Device>) -> BTreeMap<String, (usize, usize)> {
    let session = InferenceSession::new([Arc::clone(device), cpu()]).unwrap();
    let wanted: Option<BTreeSet<String>> =
        env::var("PROBLEMS").ok().map(|list| list.split(',').map(str::to_string).collect());
    let mut ran: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for problem in conformance::problems() {
        let op = problem.op.name().to_string();
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&op)) {
            continue;
        }
        let (there, all) = ran.entry(op).or_default();
        *all += 1;
        match solve(&problem, &session, &**device) {
            Ok(is_there) => *there += usize::from(is_there),
            Err(message) => wrong.push(format!("{}: {message}", problem.name)),
        }
    }
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    ran
}

#[test]
fn every_problem_is_solved() {
    let Some(device) = adapter() else { return };
    for (op, (there, all)) in solve_all(&device) {
        println!("{op}: {there} of {all} on the device alone");
    }
}

#[test]
fn every_problem_is_solved_with_the_least_limits() {
    let Some(device) = least_adapter() else { return };
    solve_all(&device);
}
