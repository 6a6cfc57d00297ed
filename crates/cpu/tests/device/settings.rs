//! What the settings of a session change on the CPU.

use std::sync::Arc;

use engine::{InferenceSession, SplitKReductionPrecision};
use graph::{Builder, Graph, Type, dims};
use perihelion_cpu::Cpu;
use tensor::{Buffer, DType, Element, bf16, f16};

fn session(threads: usize) -> InferenceSession {
    InferenceSession::new([Arc::new(Cpu::new(threads)) as Arc<dyn engine::Device>]).unwrap()
}

/// A product of halves, as people write it.
fn product(dtype: DType) -> Graph {
    let mut b = Builder::new("product");
    let x = b.input("x", Type::new(dtype, dims!["m", "k"]));
    let w = b.input("w", Type::new(dtype, dims!["k", "n"]));
    let y = b.matmul(x, w).unwrap();
    b.finish(&[y]).unwrap()
}

/// The product of two matrices of `k` positive numbers a row, and what the plan says.
fn multiply<T: Element>(session: &InferenceSession, k: usize, half: fn(f32) -> T) -> (Vec<T>, String) {
    let values = |len: usize, step: usize| -> Vec<T> {
        (0..len).map(|i| half((i * step % 1009) as f32 / 1009.0)).collect()
    };
    let (x, w) = (values(37 * k, 7919), values(k * 50, 104_729));
    let compiled = session.compile(&product(T::DTYPE)).unwrap();
    let model = session.init(&compiled, &()).unwrap();
    let outputs = model.execute(&[Buffer::from_slice([37, k], &x), Buffer::from_slice([k, 50], &w)]).unwrap();
    (outputs[0].to_vec(), compiled.to_string())
}

fn check_split<T: Element + PartialEq + std::fmt::Debug>(half: fn(f32) -> T) {
    let results = [1, 4].map(|threads| {
        let session = session(threads);
        let (usual, plan) = multiply(&session, 5000, half);
        assert!(!plan.contains("split_matmul"), "{plan}");
        session.set_split_k_reduction_precision("OUTPUT").unwrap();
        let (rounded, plan) = multiply(&session, 5000, half);
        assert!(plan.contains("split_k_reduction_precision = OUTPUT"), "{plan}");
        let kernel = format!("split_matmul[{}, 512]", T::DTYPE);
        assert!(plan.contains(&kernel), "{plan}");
        assert_ne!(rounded, usual);
        // One partial sum is the whole.
        let (short, _) = multiply(&session, 512, half);
        session.set_split_k_reduction_precision(SplitKReductionPrecision::Accum).unwrap();
        assert_eq!(multiply(&session, 512, half).0, short);
        assert_eq!(multiply(&session, 5000, half).0, usual);
        (usual, rounded)
    });
    assert_eq!(results[0], results[1], "threads change no bit");
}

#[test]
fn partial_sums_are_kept_in_the_precision_of_choice() {
    check_split(bf16::from_f32);
    check_split(f16::from_f32);
}
