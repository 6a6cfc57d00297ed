//! The Gaussian error linear unit in lanes, in both its forms.

use super::{Simd, exp, sigmoid};

/// `Φ(-|x|)` of the normal distribution: `t·p(t)·exp(-x²/2)` with `t = 1 / (1 + c·|x|)`, a form of Hastings's; `p`
/// interpolates at Chebyshev nodes, with a relative error of 4e-8.
#[inline(always)]
pub fn normal_tail<S: Simd>(s: S, x: S::F32) -> S::F32 {
    s.call(
        x,
        #[inline(always)]
        |s: S, x: S::F32| {
            const C: f32 = 0.212_132_03;
            let p = [0.084_586_45, 0.085_477_78, 0.073_364_37, 0.110_434_58, -0.053_942_207];
            let q = [0.282_982_92, -0.263_762_18, 0.246_319_6, -0.065_461_315];
            let one = s.splat(1.0);
            let t = s.div(one, s.fma(s.abs(x), s.splat(C), one));
            let mut sum = s.splat(0.0);
            for &coefficient in p.iter().chain(&q).rev() {
                sum = s.fma(sum, t, s.splat(coefficient));
            }
            s.mul(s.mul(t, sum), exp(s, s.mul(s.mul(x, x), s.splat(-0.5))))
        },
    )
}

/// `x · Φ(x)`, where `Φ(x) = 1 - Φ(-x)` for positive `x`.
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F32) -> S::F32 {
    let tail = normal_tail(s, x);
    s.mul(x, s.select(s.less(x, s.splat(0.0)), tail, s.sub(s.splat(1.0), tail)))
}

/// `x · (1 + tanh u) / 2 = x · sigmoid(2u)` with `u = √(2/π)·(x + 0.044715·x³)`.
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F32) -> S::F32 {
    // 2·√(2/π), and that times 0.044715.
    const A: f32 = 1.595_769;
    const B: f32 = 0.071_354_82;
    let twice = s.mul(x, s.fma(s.mul(x, x), s.splat(B), s.splat(A)));
    s.mul(x, sigmoid(s, twice))
}
