//! Graphs under edits.

use super::*;
use crate::ops::{Binary, Unary};

fn sample() -> Graph {
    let text = "graph g(%x: f32[n], %b: mut f32[n]) {
                  %0 = load(%b)
                  %1 = neg(%x)
                  %2 = load(%b)
                  store(%b, %1)
                  %3 = add(%0, %2)
                  return %3
                }";
    Graph::parse(text).unwrap()
}

#[test]
fn edits_keep_the_books() {
    let mut graph = sample();
    let (x, ids) = (graph.inputs()[0].value, graph.node_ids());
    let [zero, two] = [0, 2].map(|i| graph.node(ids[i]).outputs[0]);
    let twice = graph.insert_before(ids[4], Binary::Mul.into(), &[zero, zero]).unwrap()[0];
    assert_eq!((graph.users(zero), graph.users(two)), (3, 1));
    graph.replace_uses(two, twice);
    assert_eq!((graph.users(two), graph.users(twice)), (0, 1));
    let doubled = graph.node_of(twice).unwrap();
    assert_eq!((graph.readers(zero), graph.readers(two)), (vec![ids[4], doubled], vec![]));
    assert_eq!((graph.readers(twice), graph.readers(x)), (vec![ids[4]], vec![ids[1]]));
    graph.remove(ids[2]);
    assert!(graph.readers(graph.inputs()[1].value).iter().all(|&id| id != ids[2]));
    assert!(!graph.contains(ids[2]) && graph.len() == 5);
    graph.verify().unwrap();
    let (op, operands) = graph.defined_by(graph.outputs()[0]).unwrap();
    assert_eq!((op, operands), (&Op::Binary(Binary::Add), &[zero, twice][..]));
    assert!(graph.defined_by(x).is_none());
    assert_eq!(
        graph.push(Unary::Not.into(), &[x]).unwrap_err().without_location().to_string(),
        "not: x is f32[n], expected bool"
    );
    graph.verify().unwrap();
}

#[test]
fn reads_may_change_places() {
    let mut graph = sample();
    let ids = graph.node_ids();
    graph.reorder(vec![ids[1], ids[2], ids[0], ids[3], ids[4]]);
    graph.verify().unwrap();
}

#[test]
#[should_panic(expected = "the order of reads and writes of each buffer")]
fn a_read_may_not_pass_a_write() {
    let mut graph = sample();
    let ids = graph.node_ids();
    graph.reorder(vec![ids[0], ids[1], ids[3], ids[2], ids[4]]);
}
