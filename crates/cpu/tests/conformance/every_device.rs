//! The problems that every device must solve, compiled and run as a user's graph would be.

use std::sync::Arc;

use conformance::{Problem, problems};
use engine::{Device, InferenceSession};
use graph::Kind;
use perihelion_cpu::{Cpu, InstructionSet};
use tensor::{Buffer, Tensor};

/// Compiles the problem's graph, runs it, and compares what comes out with the reference.
fn solve(session: &InferenceSession, problem: &Problem) -> Result<(), String> {
    let graph = problem.graph();
    let model =
        session.load(&graph, &|name: &str| problem.weight(name)).map_err(|error| error.to_string())?;
    let inputs: Vec<Buffer> = problem.arguments().iter().map(Buffer::from_tensor).collect();
    let outputs = model.execute(&inputs).map_err(|error| error.to_string())?;
    let tensors = |buffers: &[Buffer]| -> Vec<Tensor> {
        buffers.iter().map(|buffer| buffer.to_tensor().expect("the call is over")).collect()
    };
    let is_buffer = |position: &usize| graph.ty(graph.inputs()[*position].value).kind == Kind::Buffer;
    let buffers: Vec<Buffer> =
        (0..inputs.len()).filter(is_buffer).map(|position| inputs[position].clone()).collect();
    problem.check(&tensors(&outputs), &tensors(&buffers))
}

#[test]
fn every_problem_is_solved() {
    let problems = problems();
    for &set in InstructionSet::ALL {
        let session =
            InferenceSession::new([Arc::new(Cpu::with_instruction_set(2, set)) as Arc<dyn Device>]).unwrap();
        let failures: Vec<String> = problems
            .iter()
            .filter_map(|problem| Some(format!("{}: {}", problem.name, solve(&session, problem).err()?)))
            .collect();
        assert!(
            failures.is_empty(),
            "{set:?}: {} of {} fail:\n{}",
            failures.len(),
            problems.len(),
            failures.join("\n")
        );
    }
}
