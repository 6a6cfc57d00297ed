//! Random graphs give on the CPU what the references give: on 1 and 4 threads, with and without passes, from an
//! artifact, and from their text.
//!
//! The graphs are the same each time. `PERIHELION_RANDOM_GRAPHS=10000` tries that many in place of the first few, and
//! `PERIHELION_RANDOM_GRAPHS_SEED=7` tries others.

mod check;
mod controls;
mod data;
mod elements;
mod growth;
mod images;
mod moves;
mod places;
mod products;
mod tolerance;
mod walk;

use std::cell::RefCell;
use std::collections::BTreeSet;

use graph::Op;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::check::{Claims, Devices};
use crate::growth::{Pick, grow};

/// Ops that no random graph has: printing gives nothing, and libraries of ops have tests of their own.
const LEFT_OUT: &[&str] = &["print", "custom", "inplace_custom"];

/// Enough that every op comes, in a few seconds.
const CASES: u64 = 400;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => otherwise,
    }
}

/// What a node is made of. Only numbers shrink, and nodes go: what is left keeps its op and its operands.
fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let stable = (any::<usize>(), any::<u32>(), any::<[u32; 4]>()).no_shrink();
    let pick = (stable, prop::array::uniform7(0usize..1000));
    vec(pick.prop_map(|((kind, tag, operands), numbers)| Pick { kind, tag, operands, numbers }), 1..=25)
}

#[test]
fn random_graphs_compute_what_they_mean() {
    let cases = number("PERIHELION_RANDOM_GRAPHS", CASES);
    let config = Config {
        cases: u32::try_from(cases).expect("fewer graphs"),
        failure_persistence: None,
        max_shrink_iters: 2000,
        rng_seed: RngSeed::Fixed(number("PERIHELION_RANDOM_GRAPHS_SEED", 2026)),
        ..Config::default()
    };
    let devices = Devices::new();
    let seen = RefCell::new(BTreeSet::new());
    let claims = RefCell::new(Claims::default());
    let result = TestRunner::new(config).run(&(picks(), 0usize..8, 0usize..8), |(picks, n, m)| {
        let sample = grow(&picks, [n, m]);
        let ops = check::check(&devices, &sample);
        let ops = ops.map_err(|error| TestCaseError::fail(format!("{error}\n{}", sample.graph)))?;
        let (ops, claimed) = ops;
        seen.borrow_mut().extend(ops);
        claims.borrow_mut().add(claimed);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let claims = claims.into_inner();
    let is_meaningful = 10 * claims.steady >= 9 * claims.outputs && 2 * claims.exact >= claims.outputs;
    assert!(is_meaningful && claims.graphs as u64 >= cases / 2, "too little is compared: {claims:?}");
    let seen = seen.into_inner();
    let missing: Vec<&str> =
        Op::names().filter(|name| !seen.contains(name) && !LEFT_OUT.contains(name)).collect();
    assert!(missing.is_empty() || cases < CASES, "no graph has {missing:?}");
}
