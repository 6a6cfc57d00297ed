//! Tensors at other sizes: each element a weighted sum of its neighbours, axis by axis.

use super::field::{Field, words};
use super::prelude::*;

/// Resizing, as ONNX's `Resize`: `x` of any float dtype → the same dtype and rank at another size. Axes that keep their
/// size keep their elements.
#[derive(Debug, Clone, PartialEq)]
pub struct Resize {
    /// The sizes of all axes of the result.
    pub size: Vec<Dim>,
    /// How elements between others are made.
    pub interpolation: Interpolation,
    /// Which place of `x` an element of the result stands for.
    pub coordinates: Coordinates,
    /// Whether the neighbourhood grows with the scale where an axis shrinks, so that all elements count.
    pub antialias: bool,
}

/// How elements between others are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interpolation {
    /// The nearest element.
    Nearest(Rounding),
    /// On the line between the two neighbours.
    Linear,
    /// On the cubic through four neighbours.
    Cubic {
        /// The slope at the neighbours: -0.75 in PyTorch and ONNX, -0.5 in Pillow and where PyTorch antialiases.
        a: f32,
    },
}

/// Which whole number is nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rounding {
    /// Halves down.
    #[default]
    PreferFloor,
    /// Halves up.
    PreferCeil,
    /// Down always.
    Floor,
    /// Up always.
    Ceil,
}

/// Which place an element stands for, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Coordinates {
    /// `(i + 0.5) / scale - 0.5`: pixels have an extent.
    #[default]
    HalfPixel,
    /// The same, but 0 where the result has one element.
    PytorchHalfPixel,
    /// `i · (size - 1) / (result size - 1)`: the first and last elements stay where they are.
    AlignCorners,
    /// `i / scale`.
    Asymmetric,
    /// `(i + 0.5) / scale`.
    TfHalfPixelForNn,
}

/// The elements of an axis that make one of the result, and their shares, which sum to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbors {
    /// The index of the first element.
    pub first: usize,
    /// The share of each, from the first on.
    pub weights: Vec<f64>,
}

words!(Rounding: PreferFloor = "round_prefer_floor", PreferCeil = "round_prefer_ceil", Floor = "floor", Ceil = "ceil");
words!(Coordinates: HalfPixel = "half_pixel", PytorchHalfPixel = "pytorch_half_pixel", AlignCorners = "align_corners",
    Asymmetric = "asymmetric", TfHalfPixelForNn = "tf_half_pixel_for_nn");

impl Resize {
    /// What makes each of `to` elements from an axis of `from` elements; `None` where the axis stays as it is.
    pub fn neighbors(&self, from: usize, to: usize) -> Option<Vec<Neighbors>> {
        let changes = from != to && from > 0;
        changes.then(|| (0..to).map(|index| self.neighbors_of(index, from, to)).collect())
    }

    fn neighbors_of(&self, index: usize, from: usize, to: usize) -> Neighbors {
        let place = self.coordinates.place(index, from, to);
        let last = from - 1;
        // The neighbourhood is wider by the scale where elements are averaged.
        let shrink = if self.antialias { (from as f64 / to as f64).max(1.0) } else { 1.0 };
        let (reach, kernel): (f64, &dyn Fn(f64) -> f64) = match self.interpolation {
            Interpolation::Nearest(rounding) => {
                let nearest = rounding.round(place).clamp(0.0, last as f64) as usize;
                return Neighbors { first: nearest, weights: vec![1.0] };
            }
            Interpolation::Linear => (1.0, &|distance: f64| (1.0 - distance).max(0.0)),
            Interpolation::Cubic { a } => (2.0, &move |distance: f64| cubic(f64::from(a), distance)),
        };
        let begin = (place - reach * shrink).floor() as i64;
        let end = (place + reach * shrink).ceil() as i64;
        let clamp = |i: i64| i.clamp(0, last as i64) as usize;
        let (first, beyond) = (clamp(begin), clamp(end));
        let mut weights = vec![0.0; beyond - first + 1];
        for i in begin..=end {
            let weight = kernel((i as f64 - place).abs() / shrink);
            // Averages leave out what lies beyond the edge; otherwise the edge goes on.
            if !self.antialias || (0..=last as i64).contains(&i) {
                weights[clamp(i) - first] += weight;
            }
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= sum);
        trimmed(first, weights)
    }
}

/// Without the elements at either end that have no share.
fn trimmed(first: usize, mut weights: Vec<f64>) -> Neighbors {
    while weights.len() > 1 && weights.last() == Some(&0.0) {
        weights.pop();
    }
    let zeros = weights[..weights.len() - 1].iter().take_while(|&&weight| weight == 0.0).count();
    weights.drain(..zeros);
    Neighbors { first: first + zeros, weights }
}

/// The cubic convolution kernel (Keys, "Cubic convolution interpolation for digital image processing", 1981).
fn cubic(a: f64, distance: f64) -> f64 {
    let d = distance;
    match d {
        d if d <= 1.0 => ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0,
        d if d < 2.0 => ((d - 5.0) * d + 8.0) * d * a - 4.0 * a,
        _ => 0.0,
    }
}

impl Coordinates {
    fn place(self, index: usize, from: usize, to: usize) -> f64 {
        let (i, from_size, to_size) = (index as f64, from as f64, to as f64);
        let half_pixel = (i + 0.5) * from_size / to_size - 0.5;
        match self {
            Coordinates::HalfPixel => half_pixel,
            Coordinates::PytorchHalfPixel => {
                if to > 1 {
                    half_pixel
                } else {
                    0.0
                }
            }
            Coordinates::AlignCorners if to > 1 => i * (from_size - 1.0) / (to_size - 1.0),
            Coordinates::AlignCorners => 0.0,
            Coordinates::Asymmetric => i * from_size / to_size,
            Coordinates::TfHalfPixelForNn => half_pixel + 0.5,
        }
    }
}

impl Rounding {
    fn round(self, place: f64) -> f64 {
        match self {
            Rounding::PreferFloor => (place - 0.5).ceil(),
            Rounding::PreferCeil => (place + 0.5).floor(),
            Rounding::Floor => place.floor(),
            Rounding::Ceil => place.ceil(),
        }
    }
}

const NAMES: &[&str] = &["resize_nearest", "resize_linear", "resize_cubic"];

impl Field for Interpolation {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        match self {
            Interpolation::Nearest(rounding) => rounding.write("rounding", attributes),
            Interpolation::Linear => attributes,
            Interpolation::Cubic { a } => a.write("a", attributes),
        }
    }

    fn read(op: &str, _name: &str, attributes: &mut Attributes) -> Result<Interpolation, TypeError> {
        Ok(match op {
            "resize_nearest" => Interpolation::Nearest(Field::read(op, "rounding", attributes)?),
            "resize_linear" => Interpolation::Linear,
            _ => Interpolation::Cubic { a: Field::read(op, "a", attributes)? },
        })
    }
}

impl Define for Resize {
    declare!(NAMES[|op| match op.interpolation {
        Interpolation::Nearest(_) => 0,
        Interpolation::Linear => 1,
        Interpolation::Cubic { .. } => 2,
    }] { size, coordinates, interpolation, antialias });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x] = operands(inputs, ["x"])?;
        expect_dtype("x", x, FLOATS)?;
        refuse_if!(
            self.size.len() != x.rank(),
            "size is {:?}, expected one for each axis of x {x}",
            self.size
        );
        if let Interpolation::Cubic { a } = self.interpolation {
            expect_finite("a", a)?;
        }
        if self.antialias && matches!(self.interpolation, Interpolation::Nearest(_)) {
            return Err(TypeError::new("antialias is true, but the nearest element is no average"));
        }
        let empty = |(from, to): (&Dim, &Dim)| from.as_static() == Some(0) && to.as_static() != Some(0);
        refuse_if!(
            x.shape.iter().zip(&self.size).any(empty),
            "x {x} has no elements to make {:?} of",
            self.size
        );
        Ok(vec![x.with_shape(self.size.clone())])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (mut values, mut shape) = (inputs[0].to_f64_vec(), inputs[0].shape().to_vec());
        if values.is_empty() && outputs[0].elements() > 0 {
            let message = format!("x {} has no elements to make {} of", inputs[0].shape(), outputs[0]);
            return Err(Error::evaluation(self.name(), message));
        }
        if outputs[0].contains(&0) {
            return Ok(vec![Tensor::zeros(inputs[0].dtype(), outputs[0])]);
        }
        for (axis, &to) in outputs[0].iter().enumerate() {
            let Some(neighbors) = self.neighbors(shape[axis], to) else { continue };
            let Lanes { outer, len, inner } = Lanes::of(&Shape::new(&shape), axis);
            let mut resized = Vec::new();
            let elements = outer.checked_mul(to).and_then(|lanes| lanes.checked_mul(inner));
            if elements.is_none_or(|elements| resized.try_reserve_exact(elements).is_err()) {
                let message =
                    format!("x {shape:?} with {to} elements along axis {axis} does not fit the memory");
                return Err(Error::evaluation(self.name(), message));
            }
            for o in 0..outer {
                for Neighbors { first, weights } in &neighbors {
                    resized.extend((0..inner).map(|k| {
                        let terms = weights.iter().enumerate();
                        terms
                            .map(|(i, weight)| weight * values[(o * len + first + i) * inner + k])
                            .sum::<f64>()
                    }));
                }
            }
            (values, shape[axis]) = (resized, to);
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &values)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers};
    use super::*;

    fn resize(size: [usize; 2], interpolation: Interpolation, coordinates: Coordinates) -> Resize {
        let size = crate::dims![1, 1, size[0], size[1]].to_vec();
        Resize { size, interpolation, coordinates, antialias: false }
    }

    #[test]
    fn types() {
        let nearest = Interpolation::Nearest(Rounding::default());
        let op = Resize {
            size: crate::dims!["n", 3, 8].to_vec(),
            ..resize([1, 1], nearest, Coordinates::HalfPixel)
        };
        check_types(
            op.clone(),
            &[
                (&["f16[n, 3, w]"], "f16[n, 3, 8]"),
                (
                    &["f16[n, 3]"],
                    "resize_nearest: size is [n, 3, 8], expected one for each axis of x f16[n, 3]",
                ),
                (&["f16[n, 3, 0]"], "resize_nearest: x f16[n, 3, 0] has no elements to make [n, 3, 8] of"),
            ],
        );
        check_types(
            Resize { antialias: true, ..op },
            &[(
                &["f16[n, 3, w]"],
                "resize_nearest: antialias is true, but the nearest element is no average",
            )],
        );
    }

    /// Of `torch.nn.functional.interpolate`, f64, on `x_i = sin(i)`.
    #[test]
    fn values_of_pytorch() {
        use Coordinates::*;
        let x: Vec<f64> = (0..12).map(|i| f64::from(i).sin()).collect();
        let x = Tensor::from_slice([1, 1, 3, 4], &x);
        let cubic = Interpolation::Cubic { a: -0.75 };
        let table: [(Interpolation, Coordinates, [f64; 3], [f64; 3]); 6] = [
            (
                Interpolation::Linear,
                PytorchHalfPixel,
                [-0.09243849153246211, 0.5017456827548338, 0.3270920790320865],
                [0.0, 0.30052535171710587, 0.7813659144644752],
            ),
            (
                Interpolation::Linear,
                AlignCorners,
                [0.0, 0.8753842058167891, 0.1411200080598672],
                [0.0, 0.42073549240394825, 0.8414709848078965],
            ),
            (
                cubic,
                PytorchHalfPixel,
                [-0.14870738761810742, 0.6065051550545257, 0.3686273765000816],
                [-0.03659845028470881, 0.3650997065924773, 0.9171623907194884],
            ),
            (
                cubic,
                AlignCorners,
                [0.0, 1.0262887436518247, 0.1411200080598672],
                [0.0, 0.4143767634647809, 0.8414709848078965],
            ),
            (
                Interpolation::Nearest(Rounding::Floor),
                Asymmetric,
                [0.0, 0.8414709848078965, 0.9092974268256817],
                [0.0, 0.0, 0.8414709848078965],
            ),
            (
                Interpolation::Nearest(Rounding::PreferCeil),
                HalfPixel,
                [0.0, 0.9092974268256817, 0.1411200080598672],
                [0.0, 0.0, 0.8414709848078965],
            ),
        ];
        for (interpolation, coordinates, small, large) in table {
            let small_size = numbers(resize([2, 3], interpolation, coordinates), &[&x]);
            assert_close(&small_size[..3], &small, 1e-12);
            let large_size = numbers(resize([4, 7], interpolation, coordinates), &[&x]);
            assert_close(&large_size[..3], &large, 1e-12);
        }
        let averages = |interpolation| Resize { antialias: true, ..resize([2, 3], interpolation, HalfPixel) };
        let expected = [-0.14876382626645357, 0.3149264212238561, 0.3732580096723102];
        assert_close(&numbers(averages(Interpolation::Linear), &[&x])[..3], &expected, 1e-12);
        let expected = [-0.23333869906743088, 0.35158415180597713, 0.4366318376595263];
        assert_close(&numbers(averages(Interpolation::Cubic { a: -0.5 }), &[&x])[..3], &expected, 1e-12);
    }

    /// Worked out by hand from ONNX's formulas.
    #[test]
    fn nearest_rounds_as_told() {
        let x = Tensor::from_slice([1, 1, 1, 4], &[0.0f32, 1.0, 2.0, 3.0]);
        let table = [
            (Rounding::PreferFloor, [0.0, 2.0]),
            (Rounding::PreferCeil, [1.0, 3.0]),
            (Rounding::Floor, [0.0, 2.0]),
            (Rounding::Ceil, [1.0, 3.0]),
        ];
        for (rounding, expected) in table {
            let op = resize([1, 2], Interpolation::Nearest(rounding), Coordinates::HalfPixel);
            assert_eq!(numbers(op, &[&x]), expected, "{rounding}");
        }
    }
}
