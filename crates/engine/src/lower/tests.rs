//! Plans as they print: kernels and references, memory taken over, views.

use graph::Type;
use graph::ops::Unary;
use tensor::DType;

use super::*;
use crate::Placement;
use crate::Program;
use crate::testing::{TestDevice, build, f32};

fn devices() -> Devices {
    Devices { host: Arc::new(TestDevice), far: Vec::new(), placement: Placement::AsWritten }
}

fn check(graph: &Graph, expected: &str) {
    let printed = Program::new(graph, devices(), &crate::KernelSettings::default()).unwrap().to_string();
    let lines = |text: &str| text.lines().map(|line| line.trim().to_string()).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(&printed).trim(), lines(expected).trim());
}

#[test]
fn kernels_and_references_mix() {
    let graph = build("mixed", |b| {
        let x = b.input("x", f32(&["n", "4"]));
        let w = b.weight("w", f32(&["4", "4"]))?;
        let y = b.linear(x, w)?;
        let y = b.silu(y)?;
        Ok(vec![b.linear(y, w)?])
    });
    check(
        &graph,
        "plan mixed on test
         input 0 'x' f32[n, 4]
         w0 = weight \"w\" f32[4, 4] as columns
         0: %0 = linear.test('x', w0): f32[n, 4]
         1: %1 = silu (reference)(%0): f32[n, 4]
         2: output 0 = linear.test(%1, w0): f32[n, 4]
         output 0 f32[n, 4]
         arena 192 bytes where n = 1, 512 bytes where n = 16, 8192 bytes where n = 256",
    );
}

#[test]
fn results_reuse_memory_that_is_not_read_again() {
    let graph = build("chain", |b| {
        let x = b.input("x", f32(&["4"]));
        let a = b.unary(Unary::Neg, x)?;
        let kept = b.add(a, x)?; // a is read again
        let b1 = b.add(kept, a)?;
        let twice = b.add(b1, b1)?; // two operands in one memory
        let view = b.reshape(twice, [2.into(), 2.into()])?;
        let y = b.add(view, view)?;
        let z = b.input("z", f32(&["2", "2"]));
        Ok(vec![b.add(y, z)?, kept])
    });
    check(
        &graph,
        "plan chain on test
         input 0 'x' f32[4]
         input 1 'z' f32[2, 2]
         0: %0 = neg (reference)('x'): f32[4]
         1: output 1 = add.test(%0, 'x'): f32[4]
         2: %2 = add.test(output 1, %0): f32[4]
         3: %3 = add.test(%2, %2): f32[4]
         4: output 0 = add.test(%3, %3): f32[2, 2]
         5: output 0 = add.test(output 0 in place, 'z'): f32[2, 2]
         output 0 f32[2, 2]
         output 1 f32[4]
         arena 128 bytes",
    );
}

#[test]
fn views_cost_nothing() {
    let graph = build("views", |b| {
        let x = b.input("x", f32(&["n", "4"]));
        let y = b.unary(Unary::Neg, x)?;
        let row = b.reshape(y, [1.into(), b.dim(y, 0)?, 4.into()])?;
        let turned = b.transpose(row, &[1, 0, 2])?;
        let tail = b.slice(y, 0, 2, None)?;
        let inner = b.slice(y, 1, 2, None)?;
        let parts = b.split(x, 0, &[]).map(|_| ()).is_err();
        assert!(parts, "a symbolic axis is not split");
        let turned = b.unary(Unary::Exp, turned)?;
        let tail = b.unary(Unary::Exp, tail)?;
        Ok(vec![turned, tail, inner])
    });
    check(
        &graph,
        "plan views on test
         input 0 'x' f32[n, 4]
         0: %0 = neg (reference)('x'): f32[n, 4]
         1: output 2 = slice (reference)(%0): f32[n, 2]
         2: output 0 = exp (reference)(%0): f32[n, 1, 4]
         3: output 1 = exp (reference)(%0+8): f32[n - 2, 4]
         output 0 f32[n, 1, 4]
         output 1 f32[n - 2, 4]
         output 2 f32[n, 2]
         arena ? bytes where n = 1, 256 bytes where n = 16, 4096 bytes where n = 256",
    );
}

#[test]
fn parts_of_a_leading_axis_are_views() {
    let graph = build("parts", |b| {
        let x = b.input("x", f32(&["4", "3"]));
        let parts = b.split(x, 0, &[1, 3])?;
        let second = b.slice(parts[1], 0, -2, Some(-1))?;
        Ok(vec![b.unary(Unary::Neg, parts[1])?, b.unary(Unary::Neg, second)?])
    });
    check(
        &graph,
        "plan parts on test
         input 0 'x' f32[4, 3]
         0: output 0 = neg (reference)('x'+3): f32[3, 3]
         1: output 1 = neg (reference)('x'+6): f32[1, 3]
         output 0 f32[3, 3]
         output 1 f32[1, 3]
         arena 0 bytes",
    );
}

#[test]
fn written_buffers_are_marked() {
    let graph = build("store", |b| {
        let cache = b.input("cache", Type::buffer(DType::F32, [2]));
        let other = b.input("other", Type::buffer(DType::F32, [2]));
        let x = b.load(other)?;
        b.store(cache, x)?;
        Ok(vec![])
    });
    check(
        &graph,
        "plan store on test
         input 0 'cache' mut f32[2]
         input 1 'other' mut f32[2]
         0: %0 = load (reference)('other'): f32[2]
         1: store (reference)(mut 'cache', %0)
         arena 64 bytes",
    );
}

#[test]
fn created_buffers_share_no_memory_while_they_are_used() {
    let graph = build("created", |b| {
        let x = b.input("x", f32(&["4"]));
        let buffer = b.create_buffer(Type::buffer(DType::F32, [4]))?;
        let a = b.unary(Unary::Neg, x)?;
        b.store(buffer, a)?;
        let c = b.add(a, x)?; // in the memory of a, not of the buffer
        let d = b.add(c, x)?;
        let loaded = b.load(buffer)?;
        Ok(vec![b.add(loaded, d)?])
    });
    check(
        &graph,
        "plan created on test
         input 0 'x' f32[4]
         0: %0 = create_buffer (reference)(): mut f32[4]
         1: %1 = neg (reference)('x'): f32[4]
         2: store (reference)(mut %0, %1)
         3: %1 = add.test(%1 in place, 'x'): f32[4]
         4: %1 = add.test(%1 in place, 'x'): f32[4]
         5: output 0 = load (reference)(%0): f32[4]
         6: output 0 = add.test(output 0 in place, %1): f32[4]
         output 0 f32[4]
         arena 128 bytes",
    );
}
