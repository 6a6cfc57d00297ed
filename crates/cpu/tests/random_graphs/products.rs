//! Kinds of nodes that multiply matrices: products, linear layers, attention.

use graph::ops::*;
use graph::{Dim, Error, Value};
use tensor::blocks::random_blocks;
use tensor::{DType, Tensor};

use crate::growth::{Growth, Kindred, misfit};

pub(crate) const KINDS: &[Kindred] = &[
    matmul,
    squared,
    rounded,
    linear,
    linear,
    layer,
    several,
    gate,
    experts,
    embedding,
    dequantize,
    qmatmul,
    gptq_matmul,
    attention,
    written_attention,
    ragged_attention,
    rope,
    paged,
    recurrent,
];

/// Blocks that linear layers are often quantized to.
const BLOCKS: [DType; 6] = [DType::Q4_0, DType::Q8_0, DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Iq4Nl];

fn matmul(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2 && MatMul.infer(&[ty, ty]).is_ok() || ty.rank() == 2)?;
    g.apply(MatMul, x, 1)
}

/// `x · xᵀ`, which always fits; of halves sometimes with partial sums in halves.
fn squared(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| ty.rank() >= 2 && ty.dtype.is_float())?;
    let rank = g.b.ty(x).rank();
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(rank - 2, rank - 1);
    let transposed = g.b.transpose(x, &order)?;
    let operands = if g.number(0, 2) == 0 { [x, transposed] } else { [transposed, x] };
    let is_half = [DType::F16, DType::BF16].contains(&g.b.ty(x).dtype);
    match g.number(1, 2) {
        0 if is_half => g.b.ops(SplitMatMul { chunk: 1 + g.number(2, 3) }, &operands),
        _ => g.b.ops(MatMul, &operands),
    }
}

/// Products of operands rounded to 8 bits.
fn rounded(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let w = g.weight(DType::F32, [17.into(), g.b.dim(x, -1)?])?;
    let y = g.b.op(Fp8Product::Linear, &[x, w])?;
    let columns = g.weight(DType::F32, [17usize, 3])?;
    Ok(vec![g.b.op(Fp8Product::MatMul, &[y, columns])?])
}

/// A weight for the columns of `x`, of a block dtype where those are a multiple of 32.
fn weight(g: &mut Growth, x: Value, rows: usize) -> Result<Value, Error> {
    let columns = g.b.dim(x, -1)?;
    let is_wide = columns.as_static().is_some_and(|columns| columns % 32 == 0);
    let dtype = match g.number(1, 3) {
        0 => DType::F32,
        1 => g.choose(2, &[DType::F16, DType::BF16]),
        _ if is_wide => g.choose(2, &BLOCKS),
        _ => DType::F32,
    };
    g.weight(dtype, [rows.into(), columns])
}

fn linear(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 1)?;
    let rows = g.choose(0, &[1, 6, 17, 64]);
    let w = weight(g, x, rows)?;
    if g.number(3, 2) == 0 {
        return Ok(vec![g.b.linear(x, w)?]);
    }
    let bias = g.weight(DType::F32, [rows])?;
    Ok(vec![g.b.linear_with_bias(x, w, bias)?])
}

/// A norm, a linear layer, a bias, and what was there before: what passes make one step.
fn layer(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 1)?;
    let columns = g.b.dim(x, -1)?;
    let norm = g.weight(DType::F32, [columns.clone()])?;
    let h = g.b.rms_norm(x, norm, 1e-3)?;
    let rows = columns.as_static().ok_or_else(|| misfit("unknown columns"))?;
    let w = weight(g, h, rows)?;
    let y = g.b.linear(h, w)?;
    let bias = g.weight(DType::F32, [rows])?;
    let y = g.b.op(Binary::Add, &[y, bias])?;
    Ok(vec![g.b.op(Binary::Add, &[x, y])?])
}

/// Several layers of one operand.
fn several(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let rows = g.choose(0, &[3, 16]);
    (0..3).map(|_| weight(g, x, rows).and_then(|w| g.b.linear(x, w))).collect()
}

/// `silu(x · Aᵀ) · (x · Bᵀ)`
fn gate(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let rows = g.choose(0, &[5, 32]);
    let (a, b) = (weight(g, x, rows)?, weight(g, x, rows)?);
    let (a, b) = (g.b.linear(x, a)?, g.b.linear(x, b)?);
    let function = g.choose(4, &[Unary::Silu, Unary::Gelu, Unary::GeluTanh]);
    let a = g.b.op(function, &[a])?;
    Ok(vec![g.b.op(Binary::Mul, &[a, b])?])
}

/// Rows times the matrices of their experts, which take turns.
fn experts(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 2)?;
    let columns = g.b.dim(x, -1)?;
    let tokens = g.b.ty(x).shape[..g.b.ty(x).rank() - 1].iter().fold(Dim::from(1), |all, dim| &all * dim);
    let x = g.b.reshape(x, [tokens.clone(), columns.clone()])?;
    let turns = g.b.range_to(tokens, DType::I32)?;
    let count = g.constant(Tensor::scalar(3i32))?;
    let chosen = g.b.op(Binary::Mod, &[turns, count])?;
    let is_wide = columns.as_static().is_some_and(|columns| columns % 32 == 0);
    let blocks = if is_wide { BLOCKS } else { [DType::BF16; 6] };
    let dtype = if g.number(1, 2) == 0 { DType::F32 } else { g.choose(2, &blocks) };
    let weights = (0..2).map(|_| g.weight(dtype, [3.into(), 17.into(), columns.clone()]));
    let weights = weights.collect::<Result<Vec<Value>, Error>>()?;
    match g.number(3, 2) {
        0 => Ok(vec![g.b.expert_linear(x, chosen, weights[0])?]),
        _ => g.b.ops(ExpertLinear { gate: Some(Unary::Silu) }, &[x, chosen, weights[0], weights[1]]),
    }
}

fn embedding(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let dtype = g.choose(0, &[DType::F32, DType::F16, DType::Q8_0, DType::Q4_0]);
    let table = g.weight(dtype, [7usize, 32])?;
    let ids = g.indices([g.number(1, 18)], 7)?;
    Ok(vec![g.b.embedding(table, ids)?])
}

/// The bytes of a weight that is quantized.
fn bytes(g: &mut Growth, encoding: DType, rows: usize, columns: usize) -> Result<Value, Error> {
    let block = encoding.block();
    let blocks = columns / block.elements;
    let bytes = random_blocks(encoding, rows * blocks, g.noise().bits());
    g.constant(Tensor::from_slice([rows, blocks * block.bytes], &bytes))
}

fn dequantize(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let encoding = g.choose(0, &[DType::Q4_0, DType::Q4K, DType::Q6K, DType::Q8_0]);
    let weight = bytes(g, encoding, 3, encoding.block().elements)?;
    g.b.ops(Dequantize { encoding }, &[weight])
}

fn qmatmul(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x =
        g.find(0, |ty| ty.dtype == DType::F32 && ty.rank() > 0 && ty.shape.last() == Some(&Dim::from(64)))?;
    let encoding = g.choose(0, &BLOCKS);
    let weight = bytes(g, encoding, 17, 64)?;
    g.b.ops(QMatMul { encoding }, &[x, weight])
}

/// Weights of GPTQ, with and without permutation and zero points.
fn gptq_matmul(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| {
        let is_input = [DType::F16, DType::BF16, DType::F32].contains(&ty.dtype);
        is_input && ty.shape.last().and_then(Dim::as_static).is_some_and(|size| size > 0 && size % 32 == 0)
    })?;
    let (rows, columns) = (24, g.b.dim(x, -1)?.as_static().expect("found as such"));
    let group_size = g.choose(1, &[None, Some(32)]);
    let (desc_act, sym) = (g.number(2, 2) == 0, g.number(3, 2) == 0);
    let groups = group_size.map_or(1, |size| columns / size);
    let mut noise = g.noise();
    let codes = (0..columns / 2 * rows).map(|_| noise.bits() as u8);
    let scales: Vec<u8> =
        (0..groups * rows).flat_map(|i| tensor::f16::from_f32(i as f32 / 1e3).to_le_bytes()).collect();
    let bytes: Vec<u8> = codes.chain(scales).collect();
    let zeros: Vec<i32> = (0..groups * rows / 8).map(|_| noise.bits() as i32).collect();
    // From the last column to the first.
    let order: Vec<i32> = (0..columns).map(|j| (columns - 1 - j) as i32).collect();
    let mut weights = vec![g.constant(Tensor::from_slice([columns / 2 + 2 * groups, rows], &bytes))?];
    if desc_act {
        weights.push(g.constant(Tensor::from_slice([columns], &order))?);
    }
    if !sym {
        weights.push(g.constant(Tensor::from_slice([groups, rows / 8], &zeros))?);
    }
    Ok(vec![g.b.gptq_matmul(GptqMatMul { bits: 4, group_size, desc_act, sym }, x, &weights)?])
}

fn attention(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let q = g.rows(0, 3)?;
    g.apply(Attention { scale: 0.25 }, q, 2)
}

/// Attention as models write it, with heads moved before tokens, which a pass takes for one op.
fn written_attention(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let q = g.find(0, |ty| ty.dtype == DType::F32 && ty.rank() == 4)?;
    let (k, v) = (g.find(1, |ty| ty == g.b.ty(q))?, g.find(2, |ty| ty == g.b.ty(q))?);
    let (q, v) = (g.b.transpose(q, &[0, 2, 1, 3])?, g.b.transpose(v, &[0, 2, 1, 3])?);
    let k = g.b.transpose(k, &[0, 2, 3, 1])?;
    let scores = g.b.matmul(q, k)?;
    let scale = g.constant(Tensor::scalar(0.25f32))?;
    let scores = g.b.op(Binary::Mul, &[scores, scale])?;
    let shares = g.b.softmax(scores, -1)?;
    let mixed = g.b.matmul(shares, v)?;
    Ok(vec![g.b.transpose(mixed, &[0, 2, 1, 3])?])
}

/// The tokens of one batch item after another are one sequence, and an empty one.
fn ragged_attention(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let q = g.find(0, |ty| ty.dtype == DType::F32 && ty.rank() == 3 && ty.shape[0].as_static().is_some())?;
    let shape = g.b.ty(q).shape.clone();
    let tokens = shape[0].as_static().expect("a fixed number of tokens") as u32;
    let offsets = g.constant(Tensor::from_slice([3], &[0, tokens, tokens]))?;
    let bias = g.weight(DType::F32, [shape[1].clone(), 7.into()])?;
    let operands = [q, q, q, offsets, bias];
    let operands = if g.number(0, 2) == 0 { &operands[..4] } else { &operands[..] };
    g.b.ops(RaggedAttention { scale: 0.25 }, operands)
}

fn rope(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.rows(0, 3)?;
    let shape = g.b.ty(x).shape.clone();
    let Some(half) = shape[shape.len() - 1].as_static().filter(|&columns| columns > 1).map(|size| size / 2)
    else {
        return Err(misfit("heads without pairs"));
    };
    let tokens = shape[..shape.len() - 2].iter().fold(Dim::from(1), |product, dim| &product * dim);
    let x =
        g.b.reshape(x, [tokens.clone(), shape[shape.len() - 2].clone(), shape[shape.len() - 1].clone()])?;
    let positions = g.b.range_to(tokens, DType::U32)?;
    let powers: Vec<f32> = (0..half).map(|i| 0.1f32.powi(i as i32)).collect();
    let frequencies = g.constant(Tensor::from_slice([half], &powers))?;
    let table = g.b.rope_table(positions, frequencies, 1.0)?;
    let style = g.choose(0, &[RopeStyle::Interleaved, RopeStyle::HalfSplit]);
    Ok(vec![table, g.b.rope(style, x, table)?])
}

/// Two sequences of a ragged batch, of 3 and 1 tokens, go through a convolution, a state space and a delta rule.
fn recurrent(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| {
        ty.dtype == DType::F32 && ty.elements().as_static().is_some_and(|elements| elements >= 32)
    })?;
    let elements = g.b.ty(x).elements();
    let flat = g.b.reshape(x, [elements])?;
    let x = g.b.slice(flat, 0, 0, Some(32))?;
    let x = g.b.reshape(x, [4.into(), Dim::from(8)])?;
    let (layer, counted) = (g.number(2, 2), g.number(3, 4) as u32);
    let read = [g.number(0, 4), g.number(1, 2)].map(|slot| slot as u32);
    let [inputs, states] = g.states;
    let lists = [
        g.constant(Tensor::from_slice([3], &[0u32, 3, 4]))?,
        g.constant(Tensor::from_slice([2], &[u32::from(read[0] == 2), 9]))?,
        g.constant(Tensor::from_slice([2, 3], &[2, 2, counted.min(3), 3, read[1], 1]))?,
    ];
    let weight = g.weight(DType::F32, [Dim::from(8), 3.into()])?;
    let x = g.b.op(CausalConv { layer }, &[&[x, weight, inputs][..], &lists].concat())?;
    let heads = g.b.reshape(x, [4.into(), 2.into(), Dim::from(4)])?;
    let steps = g.b.unary(Unary::Sigmoid, heads)?;
    let rates: Vec<f32> = (0..24).map(|i| -0.1 * i as f32).collect();
    let rates = g.constant(Tensor::from_slice([2, 3, 4], &rates))?;
    let shared = g.weight(DType::F32, [Dim::from(4), 1.into(), 3.into()])?;
    let operands = [heads, steps, rates, shared, shared, states];
    let scanned = g.b.op(SelectiveScan { layer }, &[&operands[..], &lists].concat())?;
    // Between 0 and 1, where the state does not grow.
    let gates = g.b.unary(Unary::Sigmoid, x)?;
    let key = g.b.slice(gates, 1, 0, Some(3))?;
    let key = g.b.reshape(key, [4.into(), 1.into(), Dim::from(3)])?;
    let [decay, beta] = [(3, 5), (5, 7)].map(|(start, end)| g.b.slice(gates, 1, start, Some(end)));
    let rule = GatedDeltaRule { layer, tiled: g.choose(4, &[false, true]) };
    let operands = [key, key, heads, decay?, beta?, states];
    Ok(vec![x, scanned, g.b.op(rule, &[&operands[..], &lists].concat())?])
}

/// Two sequences of a ragged batch, of 3 and 1 tokens, attend to the cache.
fn paged(g: &mut Growth) -> Result<Vec<Value>, Error> {
    let x = g.find(0, |ty| {
        ty.dtype == DType::F32 && ty.elements().as_static().is_some_and(|elements| elements >= 32)
    })?;
    let elements = g.b.ty(x).elements();
    let flat = g.b.reshape(x, [elements])?;
    let heads = g.b.slice(flat, 0, 0, Some(32))?;
    let k = g.b.reshape(heads, [4.into(), 1.into(), Dim::from(8)])?;
    let lengths = [g.number(0, 20) as u32, g.number(1, 20) as u32];
    let batch = graph::RaggedBatch {
        row_offsets: g.constant(Tensor::from_slice([3], &[0u32, 3, 4]))?,
        cache_lengths: g.constant(Tensor::from_slice([2], &lengths))?,
        page_table: g.constant(Tensor::from_slice([2, 2], &[4u32, 1, 0, 5]))?,
    };
    let (layer, cache) = (g.number(2, 2), g.cache);
    g.b.kv_store(layer, cache, k, k, &batch)?;
    let q = g.b.concat(&[k, k], 1)?;
    let window = g.choose(3, &[None, Some(5)]);
    let softcap = g.choose(4, &[None, Some(3.0)]);
    let chunk = g.choose(5, &[None, Some(6)]);
    let attention = PagedAttention { layer, scale: 0.5, window, chunk, softcap, values: None };
    let sinks = Tensor::from_slice([2], &[0.5f32, -1.0]);
    let biases = [-0.25f32, 0.5].map(|slope| (0..32).map(move |position| slope * position as f32));
    let biases = Tensor::from_slice([2, 32], &biases.into_iter().flatten().collect::<Vec<_>>());
    let more = g.choose(6, &[None, Some(sinks), Some(biases)]);
    let more = more.map(|more| g.constant(more)).transpose()?;
    let y = g.b.paged_attention(attention, q, cache, &batch, more)?;
    let ids = g.indices([4], 4)?;
    let ids = g.b.cast(ids, DType::U32)?;
    Ok(vec![y, latent(g, layer, [q, k], &batch)?, g.b.ragged_positions(ids, &batch)?])
}

/// The same with rows that are keys and values at once, and perhaps with those alone that score highest.
fn latent(
    g: &mut Growth,
    layer: usize,
    [q, rows]: [Value; 2],
    batch: &graph::RaggedBatch,
) -> Result<Value, Error> {
    let (cache, lists) = (g.latents, [batch.row_offsets, batch.cache_lengths, batch.page_table]);
    g.b.ops(LatentStore { layer }, &[&[cache, rows][..], &lists].concat())?;
    let weights = g.constant(Tensor::from_slice([4, 2], &[0.5f32, 1.0, 0.25, 0.75, 1.0, 2.0, 0.5, 0.5]))?;
    let top = TopPositions { layer, k: 3, scale: 0.5 };
    let chosen = g.b.op(top, &[&[q, weights, cache][..], &lists].concat())?;
    let chosen = g.choose(5, &[None, Some(chosen)]);
    let attention =
        PagedAttention { layer, scale: 0.5, window: None, chunk: None, softcap: None, values: Some(5) };
    let operands: Vec<Value> = [q, cache].into_iter().chain(lists).chain(chosen).collect();
    g.b.op(attention, &operands)
}
