//! `y_t = 1/n Σ_k X_k e^(2πikt/n)`: the real signal of half a spectrum.

use std::f64::consts::PI;

use super::field::words;
use super::prelude::*;

/// What the sum is multiplied by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FftNorm {
    /// `1 / n`: the inverse of a transform without factor.
    #[default]
    Backward,
    /// `1 / √n`: in both directions.
    Ortho,
    /// 1.
    Forward,
}

words!(FftNorm: Backward = "backward", Ortho = "ortho", Forward = "forward");

/// The inverse of the Fourier transform of a real signal, as `numpy.fft.irfft`: `x: f32[.., bins, .., 2]`, where the last
/// axis holds real and imaginary parts → `f32[.., length, ..]`. Of the spectrum `length / 2 + 1` bins count; missing ones
/// are 0, and so are the imaginary parts of the first and, for an even length, the last.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Irfft {
    /// Along which axis; not the last of `x`.
    pub axis: usize,
    /// How many elements the signal has.
    pub length: Dim,
    /// The factor.
    pub norm: FftNorm,
}

impl FftNorm {
    /// The factor for a signal of `length` elements.
    pub fn factor(self, length: usize) -> f64 {
        match self {
            FftNorm::Backward => 1.0 / length as f64,
            FftNorm::Ortho => 1.0 / (length as f64).sqrt(),
            FftNorm::Forward => 1.0,
        }
    }
}

impl Define for Irfft {
    declare!("irfft" { axis, length, norm = FftNorm::Backward });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, &[DType::F32])?;
        expect_axis("x", x, self.axis)?;
        let Some((pair, shape)) = x.shape.split_last().filter(|(_, shape)| self.axis < shape.len()) else {
            return Err(type_error!("axis {} of x {x} is that of the two parts", self.axis));
        };
        refuse_if!(
            pair.as_static() != Some(2),
            "x is {x}, expected a last axis of 2: real and imaginary part"
        );
        refuse_if!(
            self.length.as_static().map_or(self.length.as_integer().is_some(), |length| length == 0),
            "length is {}, expected at least 1",
            self.length
        );
        let mut shape = shape.to_vec();
        shape[self.axis] = self.length.clone();
        Ok(vec![x.with_shape(shape)])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, shape) = (inputs[0].to_f64_vec(), inputs[0].shape());
        let spectra = Lanes::of(&Shape::new(&shape[..shape.rank() - 1]), self.axis);
        let signals = Lanes::of(&outputs[0], self.axis);
        let length = signals.len;
        let mut y = vec![0.0; outputs[0].elements()];
        for (spectrum, signal) in spectra.all().zip(signals.iter()) {
            let bins: Vec<[f64; 2]> =
                spectrum.take(length / 2 + 1).map(|i| [x[2 * i], x[2 * i + 1]]).collect();
            for (t, i) in signal.enumerate() {
                let term = |(k, [real, imaginary]): (usize, &[f64; 2])| {
                    // The angle is taken modulo a turn first, which is exact.
                    let angle = 2.0 * PI * (k * t % length) as f64 / length as f64;
                    if k == 0 || 2 * k == length {
                        real * angle.cos()
                    } else {
                        2.0 * (real * angle.cos() - imaginary * angle.sin())
                    }
                };
                y[i] = bins.iter().enumerate().map(term).sum::<f64>() * self.norm.factor(length);
            }
        }
        Ok(vec![from_f64(DType::F32, outputs[0], &y)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    fn irfft(axis: usize, length: usize) -> Irfft {
        Irfft { axis, length: length.into(), norm: FftNorm::Backward }
    }

    #[test]
    fn types() {
        check_types(
            Irfft { length: "t".into(), ..irfft(1, 1) },
            &[
                (&["f32[n, 9, 3, 2]"], "f32[n, t, 3]"),
                (&["f32[n, 2]"], "irfft: axis 1 of x f32[n, 2] is that of the two parts"),
                (
                    &["f32[n, 9, 3]"],
                    "irfft: x is f32[n, 9, 3], expected a last axis of 2: real and imaginary part",
                ),
            ],
        );
        check_types(irfft(0, 0), &[(&["f32[9, 2]"], "irfft: length is 0, expected at least 1")]);
    }

    #[test]
    fn values() {
        // Of `numpy.fft.irfft([1+2j, 3+4j, 5+6j], n)`.
        let x = Tensor::from_slice([3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_close(&numbers(irfft(0, 4), &[&x]), &[3.0, -3.0, 0.0, 1.0], 1e-6);
        let five = [3.4, -3.979_588_63, 1.189_292_83, -1.494_865_64, 1.885_161_44];
        assert_close(&numbers(irfft(0, 5), &[&x]), &five, 1e-6);
        assert_eq!(numbers(irfft(0, 1), &[&x]), [1.0]);
        assert_close(&numbers(irfft(0, 2), &[&x]), &[2.0, -1.0], 1e-6);
        let ortho = Irfft { norm: FftNorm::Ortho, ..irfft(0, 4) };
        assert_close(&numbers(ortho, &[&x]), &[6.0, -6.0, 0.0, 2.0], 1e-6);
    }
}
