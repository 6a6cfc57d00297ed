//! The problems of every op on an adapter: results are those of the references within the ops' tolerances, and which ops the
//! host computes is known.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::Arc;

use conformance::Problem;
use engine::{Device, InferenceSession, Model};
use graph::{Graph, Kind};
use tensor::{Buffer, Tensor};

use crate::adapter::{adapter, cpu, is_there_alone, least_adapter, on_adapter, placed};

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
    Ok(is_there_alone(&compiled))
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
