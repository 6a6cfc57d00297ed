//! Custom ops about rows: several results, operands of any number, a buffer that is changed, threads.
//!
//! `cargo build --release` makes the shared library.

use perihelion_extension::{Call, DType, Op, Operand, Parameter, ParameterKind, Types, extension};

/// `x / sqrt(Σ x² + eps)` over the last axis: `f32[.., n]` → `f32[.., n]`.
struct L2Normalize;

impl Op for L2Normalize {
    const NAME: &'static str = "l2_normalize";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];
    const PARAMETERS: &'static [Parameter] = &[Parameter::required("eps", ParameterKind::Float)];

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        types.set_like(0, 0)
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let eps = call.parameters().float("eps").ok_or("`eps` is missing")?;
        let Some(&columns) = call.shape(0).last() else { return Err("x has no axes".to_string()) };
        let (x, y) = (call.operand::<f32>(0)?, call.result::<f32>(0)?);
        // Rows are computed one by one, so that how they are shared among threads changes nothing.
        call.parallel_pieces(y, columns.max(1), |row, y| {
            let x = &x[row * columns..][..columns];
            let sum: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
            let scale = 1.0 / (sum + eps).sqrt();
            y.iter_mut().zip(x).for_each(|(y, &x)| *y = (f64::from(x) * scale) as f32);
        });
        Ok(())
    }
}

/// The least and the greatest element of each row, and where the greatest is: `f32[m, n]` → `f32[m]`, `f32[m]`,
/// `i64[m]`.
struct Range;

impl Op for Range {
    const NAME: &'static str = "row_range";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("x")];
    const RESULTS: std::ops::RangeInclusive<u32> = 3..=3;

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        let &[rows, columns] = types.shape(0) else {
            return Err(format!("x has the shape {:?}, expected two axes", types.shape(0)));
        };
        if columns == 0 {
            return Err("rows of x are empty, so they have no extremes".to_string());
        }
        types.set(0, types.dtype(0), &[rows])?;
        types.set(1, types.dtype(0), &[rows])?;
        types.set(2, DType::I64, &[rows])
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let columns = call.shape(0)[1];
        let x = call.operand::<f32>(0)?;
        let (least, greatest, places) =
            (call.result::<f32>(0)?, call.result::<f32>(1)?, call.result::<i64>(2)?);
        for (row, x) in x.chunks_exact(columns).enumerate() {
            least[row] = x.iter().copied().fold(f32::INFINITY, f32::min);
            greatest[row] = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            places[row] = x.iter().position(|&x| x == greatest[row]).unwrap_or(0) as i64;
        }
        Ok(())
    }
}

/// `mean ← mean + rate · (x - mean)`: `mut f32[n]`, `f32[n]` → nothing.
struct MovingMean;

impl Op for MovingMean {
    const NAME: &'static str = "moving_mean";
    const OPERANDS: &'static [Operand] = &[Operand::written("mean"), Operand::tensor("x")];
    const RESULTS: std::ops::RangeInclusive<u32> = 0..=0;
    const PARAMETERS: &'static [Parameter] = &[Parameter::required("rate", ParameterKind::Float)];

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        match types.shape(0) == types.shape(1) {
            true => Ok(()),
            false => Err(format!("shapes differ: mean {:?}, x {:?}", types.shape(0), types.shape(1))),
        }
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let rate = call.parameters().float("rate").ok_or("`rate` is missing")? as f32;
        let (mean, x) = (call.written::<f32>(0)?, call.operand::<f32>(1)?);
        mean.iter_mut().zip(x).for_each(|(mean, &x)| *mean += rate * (x - *mean));
        Ok(())
    }
}

/// The mean of any number of tensors of one shape: `f32[..]`, ... → `f32[..]`.
struct MeanOf;

impl Op for MeanOf {
    const NAME: &'static str = "mean_of";
    const OPERANDS: &'static [Operand] = &[Operand::tensor("first"), Operand::tensor("more")];
    const VARIADIC: bool = true;

    fn infer(types: &mut Types<'_>) -> Result<(), String> {
        match (1..types.operand_count()).find(|&i| types.shape(i) != types.shape(0)) {
            None => types.set_like(0, 0),
            Some(i) => Err(format!("shapes differ: {:?}, operand {i} {:?}", types.shape(0), types.shape(i))),
        }
    }

    fn run(call: &mut Call<'_>) -> Result<(), String> {
        let y = call.result::<f32>(0)?;
        y.fill(0.0);
        for operand in 0..call.operand_count() {
            let x = call.operand::<f32>(operand)?;
            y.iter_mut().zip(x).for_each(|(y, &x)| *y += x);
        }
        let count = call.operand_count() as f32;
        y.iter_mut().for_each(|y| *y /= count);
        Ok(())
    }
}

extension! { name: "statistics", version: "1.0", ops: [L2Normalize, Range, MovingMean, MeanOf] }
