//! Ragged batches, rotary embedding, and attention over the paged cache.

use graph::ops::{KvStore, PagedAttention, RaggedAttention, RaggedPositions, Rope, RopeStyle, RopeTable};
use tensor::{DType, Tensor};

use crate::problem::{Tolerance, check, check_refused, reference, solve_each, tame, wild};

fn list(values: &[u32]) -> Tensor {
    Tensor::from_slice([values.len()], values)
}

#[test]
fn ragged_positions() {
    let ids = |count: usize| Tensor::from_slice([count], &vec![0i32; count]);
    check(RaggedPositions, &[ids(6), list(&[0, 1, 1, 6]), list(&[9, 3, 0])], Tolerance::Exact);
    check(RaggedPositions, &[ids(0), list(&[0]), list(&[])], Tolerance::Exact);
    check(RaggedPositions, &[ids(2), list(&[0, 2]), list(&[u32::MAX - 1])], Tolerance::Exact);
    check_refused(
        RaggedPositions,
        &[ids(6), list(&[0, 5]), list(&[0])],
        &["operand 1", "0 to 5", "6 tokens"],
    );
    check_refused(
        RaggedPositions,
        &[ids(6), list(&[0, 7, 6]), list(&[0, 0])],
        &["operand 1", "from 7 to 6", "[2]"],
    );
    check_refused(
        RaggedPositions,
        &[ids(2), list(&[0, 2]), list(&[u32::MAX])],
        &["operand 2", "[0]", "2^32"],
    );
}

#[test]
fn ragged_attention() {
    let op = RaggedAttention { scale: 0.2 };
    let rows = |tokens: usize, seed: u64| tame(DType::F32, &[tokens, 3, 24], seed);
    // Sums of up to 300 values in f32.
    let tolerance = Tolerance::Near { relative: 2e-5, absolute: 2e-5 };
    for offsets in [&[0, 1, 1, 18, 318][..], &[0, 300], &[0, 5, 5]] {
        let tokens = offsets[offsets.len() - 1] as usize;
        let inputs = vec![rows(tokens, 1), rows(tokens, 2), rows(tokens, 3), list(offsets)];
        check(op, &inputs, tolerance);
        for reach in [0, 16, 1000] {
            let bias = tame(DType::F32, &[3, 2 * reach + 1], 4);
            check(op, &[&inputs[..], &[bias]].concat(), tolerance);
        }
    }
    let inputs = |offsets: &[u32]| [rows(6, 1), rows(6, 2), rows(6, 3), list(offsets)];
    check_refused(op, &inputs(&[0, 5]), &["operand 3", "0 to 5", "6 tokens"]);
    check_refused(op, &inputs(&[0, 7, 6]), &["operand 3", "from 7 to 6", "[2]"]);
    check_refused(op, &inputs(&[]), &["operand 3", "empty", "6 tokens"]);
}

/// A sequence has the same bits alone as among others.
#[test]
fn sequences_are_alone_in_a_batch() {
    let op = RaggedAttention { scale: 0.2 };
    let lengths = [17u32, 1, 130, 64];
    let tokens: u32 = lengths.iter().sum();
    let rows: Vec<Tensor> = (0..3).map(|seed| tame(DType::F32, &[tokens as usize, 2, 32], seed)).collect();
    let bias = tame(DType::F32, &[2, 21], 9);
    let solve = |rows: Vec<Tensor>, offsets: &[u32]| {
        let inputs: Vec<Tensor> = rows.into_iter().chain([list(offsets), bias.clone()]).collect();
        solve_each(op, &inputs).into_iter().map(|results| results[0].to_vec::<f32>()).collect::<Vec<_>>()
    };
    let offsets: Vec<u32> = (0..=lengths.len()).map(|n| lengths[..n].iter().sum()).collect();
    let together = solve(rows.clone(), &offsets);
    for pair in offsets.windows(2) {
        let range = pair[0] as usize..pair[1] as usize;
        let own = rows.iter().map(|rows| rows.narrow(0, range.clone()).contiguous()).collect();
        for (alone, together) in solve(own, &[0, pair[1] - pair[0]]).iter().zip(&together) {
            assert_eq!(alone[..], together[range.start * 64..range.end * 64]);
        }
    }
}

#[test]
fn rope() {
    let frequencies: Vec<f32> = (0..17).map(|i| 10_000f32.powf(-i as f32 / 17.0)).collect();
    let positions = list(&(0..37).map(|i| i * i * 100).collect::<Vec<_>>());
    for (pairs, head_dim) in [(1, 2), (8, 16), (17, 34), (5, 16), (0, 3)] {
        let frequencies = Tensor::from_slice([pairs], &frequencies[..pairs]);
        let scaled = RopeTable { scale: 1.25 };
        // The system's f64 sine and cosine, rounded.
        let tolerance = Tolerance::Near { relative: 1.2e-7, absolute: 1e-12 };
        check(scaled, &[positions.clone(), frequencies.clone()], tolerance);
        let table = reference(RopeTable::default(), &[positions.clone(), frequencies]).remove(0);
        for style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
            // Two products and a difference that may cancel.
            let tolerance = Tolerance::Near { relative: 1e-6, absolute: 1e-6 };
            check(Rope { style }, &[tame(DType::F32, &[37, 3, head_dim], 1), table.clone()], tolerance);
        }
    }
}

/// Three sequences: a prefill, a decode, and a prefill after what is cached.
struct Batch {
    /// Of the cache.
    dtype: DType,
    page_size: usize,
    head_dim: usize,
    kv_heads: usize,
}

impl Batch {
    const TOKENS: usize = 9 + 1 + 20;
    const LAYERS: usize = 2;

    fn lists(&self) -> [Tensor; 3] {
        let pages: Vec<u32> =
            (0..3 * self.pages() as u32).map(|i| (i * 7 + 2) % (3 * self.pages() as u32)).collect();
        let table = Tensor::from_slice([3, self.pages()], &pages);
        [list(&[0, 9, 10, 30]), list(&[0, 300, 25]), table]
    }

    /// Of each sequence.
    fn pages(&self) -> usize {
        // Enough for 301 tokens, and such that 7 and the number of all pages have no common divisor.
        let needed = 301usize.div_ceil(self.page_size);
        (needed..).find(|pages| pages * 3 % 7 != 0).expect("every other number")
    }

    fn cache(&self) -> Tensor {
        let shape = [3 * self.pages(), Batch::LAYERS, 2, self.kv_heads, self.page_size * self.head_dim];
        tame(self.dtype, &shape, 5)
    }

    fn new_rows(&self, heads: usize, seed: u64) -> Tensor {
        tame(DType::F32, &[Batch::TOKENS, heads, self.head_dim], seed)
    }

    fn store_inputs(&self) -> Vec<Tensor> {
        let rows = [self.cache(), self.new_rows(self.kv_heads, 6), self.new_rows(self.kv_heads, 7)];
        rows.into_iter().chain(self.lists()).collect()
    }
}

/// A page of sixteen positions is one tile of the kernels, whose layout is then that of the op's definition.
const DEFINED: Batch = Batch { dtype: DType::F32, page_size: 16, head_dim: 24, kv_heads: 2 };

/// What a cache may keep.
const KEPT: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

#[test]
fn kv_store() {
    for dtype in KEPT {
        check(KvStore { layer: 1 }, &Batch { dtype, ..DEFINED }.store_inputs(), Tolerance::Exact);
        // Values of every size, those that no half has among them, and NaN.
        let mut inputs = Batch { dtype, ..DEFINED }.store_inputs();
        inputs[1] = wild(DType::F32, inputs[1].shape(), 8);
        inputs[2] = wild(DType::F32, inputs[2].shape(), 9);
        check(KvStore { layer: 0 }, &inputs, Tolerance::Exact);
    }
}

#[test]
fn paged_attention() {
    for (heads, window, chunk, softcap) in [
        (2, None, None, None),
        (6, Some(40), None, None),
        (4, None, None, Some(3.0)),
        (2, Some(1), None, None),
        (4, None, Some(50), None),
    ] {
        let op = PagedAttention { layer: 1, scale: 0.2, window, chunk, softcap, values: None };
        for dtype in KEPT {
            let batch = Batch { dtype, ..DEFINED };
            let inputs = [batch.new_rows(heads, 8), batch.cache()].into_iter().chain(batch.lists());
            let mut inputs: Vec<Tensor> = inputs.collect();
            // Weighted means of 300 values in f32.
            check(op, &inputs, Tolerance::Near { relative: 2e-5, absolute: 2e-5 });
            for more in [tame(DType::F32, &[heads], 9), tame(DType::F32, &[heads, 400], 9)] {
                inputs.truncate(5);
                inputs.push(more);
                check(op, &inputs, Tolerance::Near { relative: 2e-5, absolute: 2e-5 });
            }
        }
    }
}

/// Larger pages hold several tiles, and only what is stored and read back counts.
#[test]
fn what_is_stored_is_attended_to() {
    for dtype in KEPT {
        store_and_attend(&Batch { dtype, page_size: 64, head_dim: 16, kv_heads: 1 });
    }
}

fn store_and_attend(batch: &Batch) {
    let empty = Tensor::zeros(batch.dtype, *batch.cache().shape());
    let (store, attend) = (
        KvStore { layer: 0 },
        PagedAttention { layer: 0, scale: 0.25, window: None, chunk: None, softcap: None, values: None },
    );
    let [row_offsets, _, table] = batch.lists();
    let fresh = [row_offsets, list(&[0, 0, 0]), table];
    let rows = [batch.new_rows(1, 1), batch.new_rows(1, 2), batch.new_rows(3, 3)];
    let store_inputs = |cache: Tensor| -> Vec<Tensor> {
        [cache, rows[0].clone(), rows[1].clone()].into_iter().chain(fresh.clone()).collect()
    };
    let attend_inputs = |cache: Tensor| -> Vec<Tensor> {
        [rows[2].clone(), cache].into_iter().chain(fresh.clone()).collect()
    };
    let expected = reference(store, &store_inputs(empty.clone())).remove(0);
    let expected = reference(attend, &attend_inputs(expected)).remove(0).to_f64_vec();
    for stored in solve_each(store, &store_inputs(empty)) {
        for attended in solve_each(attend, &attend_inputs(stored[0].clone())) {
            for (got, want) in attended[0].to_f64_vec().into_iter().zip(&expected) {
                assert!((got - want).abs() < 2e-5, "{got} for {want}");
            }
        }
    }
}

#[test]
fn pages_out_of_range_are_refused() {
    let mut inputs = DEFINED.store_inputs();
    let [_, _, table] = DEFINED.lists();
    let mut pages = table.to_vec::<u32>();
    pages[0] = 1000;
    inputs[5] = Tensor::from_slice(*table.shape(), &pages);
    check_refused(KvStore { layer: 0 }, &inputs, &["page 1000", "sequence 0", "pages"]);
    inputs[5] = table;
    inputs[4] = list(&[0, 100_000, 25]);
    check_refused(KvStore { layer: 0 }, &inputs, &["sequence 1", "100000"]);
}
