//! Which boxes to keep: the best of those that overlap. One sort for each class of an image, then each box against those
//! kept before it. Bound by arithmetic, in f64 as decisions near the limit must be those of the reference.

use std::sync::Arc;

use engine::{Kernel, KernelCall, View};

use super::operands::{elements, elements_mut, view};
use crate::Pool;

/// Keeps boxes, class by class on all threads.
pub(crate) struct NonMaximumSuppressionKernel {
    /// Whether boxes are x and y of the center, width and height.
    pub(crate) centered: bool,
    /// Shares the classes of the images.
    pub(crate) pool: Arc<Pool>,
}

impl NonMaximumSuppressionKernel {
    /// The boxes kept of each class of each image, best first.
    fn kept(&self, inputs: &[View<'_>]) -> Vec<Vec<usize>> {
        let [batch, classes, count] = [0, 1, 2].map(|axis| inputs[1].shape[axis]);
        if count == 0 {
            return Vec::new();
        }
        let most = usize::try_from(elements::<i64>(inputs[2].bytes)[0]).unwrap_or(0);
        let [overlap, least] = [3, 4].map(|i| elements::<f32>(inputs[i].bytes)[0]);
        let (corners, scores) = (elements::<f32>(inputs[0].bytes), elements::<f32>(inputs[1].bytes));
        let boxes: Vec<Sides> =
            corners.as_chunks().0.iter().map(|corners| Sides::new(corners, self.centered)).collect();
        let mut kept = vec![Vec::new(); batch * classes];
        self.pool.run_on_pieces(&mut kept, 1, &|index, kept| {
            let scores = &scores[index * count..][..count];
            let boxes = &boxes[index / classes * count..][..count];
            let mut candidates: Vec<usize> = (0..count).filter(|&i| scores[i] > least).collect();
            candidates.sort_by(|&i, &j| scores[j].total_cmp(&scores[i]));
            kept[0] = keep(boxes, &candidates, most, overlap.into());
        });
        kept
    }
}

impl Kernel for NonMaximumSuppressionKernel {
    fn name(&self) -> String {
        "non_maximum_suppression".to_string()
    }

    fn sizes(&self, inputs: &[View<'_>]) -> Result<Option<Vec<usize>>, String> {
        Ok(Some(vec![self.kept(inputs).iter().map(Vec::len).sum()]))
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let inputs: Vec<View<'_>> = (0..5).map(|position| view(&call, position)).collect();
        let classes = inputs[1].shape[1];
        let kept = self.kept(&inputs);
        let rows = kept.iter().enumerate().flat_map(|(index, boxes)| boxes.iter().map(move |&i| (index, i)));
        let result = elements_mut::<i64>(call.outputs[0].bytes).as_chunks_mut::<3>().0;
        for (row, (index, i)) in result.iter_mut().zip(rows) {
            *row = [index / classes, index % classes, i].map(|index| index as i64);
        }
        Ok(())
    }
}

/// Of the candidates, in their order, those that overlap with none kept before by more than `overlap`.
fn keep(boxes: &[Sides], candidates: &[usize], most: usize, overlap: f64) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    let mut sides: Vec<Sides> = Vec::new();
    for &candidate in candidates {
        if kept.len() >= most {
            break;
        }
        let this = boxes[candidate];
        if !sides.iter().any(|other| this.overlap(other) > overlap) {
            kept.push(candidate);
            sides.push(this);
        }
    }
    kept
}

/// The sides of a box, and its area.
#[derive(Debug, Clone, Copy)]
struct Sides {
    low: [f64; 2],
    high: [f64; 2],
    area: f64,
}

impl Sides {
    fn new(corners: &[f32; 4], centered: bool) -> Sides {
        let [a, b, c, d] = corners.map(f64::from);
        let (low, high) = match centered {
            true => ([a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]),
            false => ([a.min(c), b.min(d)], [a.max(c), b.max(d)]),
        };
        Sides { low, high, area: area(low, high) }
    }

    /// Intersection over union; 0 or NaN where there is none.
    #[inline]
    fn overlap(&self, other: &Sides) -> f64 {
        let low = [self.low[0].max(other.low[0]), self.low[1].max(other.low[1])];
        let high = [self.high[0].min(other.high[0]), self.high[1].min(other.high[1])];
        let common = area(low, high);
        common / (self.area + other.area - common)
    }
}

#[inline]
fn area(low: [f64; 2], high: [f64; 2]) -> f64 {
    (high[0] - low[0]).max(0.0) * (high[1] - low[1]).max(0.0)
}
