//! Which boxes to keep: the best of those that overlap.

use super::prelude::*;

/// Greedy non-maximum suppression, as ONNX's `NonMaxSuppression`.
///
/// Operands: `boxes: f32[batch, n, 4]`; `scores: f32[batch, classes, n]`; `most: i64[]`, boxes kept of each class of an
/// image at most; `overlap: f32[]`, the intersection over union above which the lesser box goes; `least: f32[]`, the
/// score that a box must be above (`-inf` where there is no such limit). Result: `i64[count, 3]`, image, class and box,
/// by image, then class, then descending score. `count` is found in the data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NonMaximumSuppression {
    /// The symbol for how many are kept; new in the graph.
    pub count: String,
    /// Whether boxes are x and y of the center, width and height, rather than y and x of two opposite corners.
    pub centered: bool,
}

impl Define for NonMaximumSuppression {
    declare!("non_maximum_suppression" { count, centered });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [boxes, scores, most, overlap, least] =
            operands(inputs, ["boxes", "scores", "most", "overlap", "least"])?;
        expect_rank("boxes", boxes, 3)?;
        expect_rank("scores", scores, 3)?;
        let [batch, count, _] = &boxes.shape[..] else { unreachable!("checked: 3 axes") };
        expect_type("boxes", boxes, DType::F32, &[batch, count, &Dim::from(4)])?;
        expect_type("scores", scores, DType::F32, &[batch, &scores.shape[1], count])?;
        expect_type("most", most, DType::I64, &[])?;
        expect_type("overlap", overlap, DType::F32, &[])?;
        expect_type("least", least, DType::F32, &[])?;
        refuse_if!(!Dim::is_identifier(&self.count), "count is {:?}, which is no identifier", self.count);
        Ok(vec![boxes.with_shape([Dim::symbol(&self.count), Dim::from(3)]).with_dtype(DType::I64)])
    }

    fn defines(&self) -> Vec<&str> {
        vec![&self.count]
    }

    fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
        Ok(vec![self.kept(inputs).len()])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        Ok(vec![Tensor::from_slice(outputs[0], self.kept(inputs).as_flattened())])
    }
}

impl NonMaximumSuppression {
    fn kept(&self, inputs: &[&Tensor]) -> Vec<[i64; 3]> {
        let (boxes, scores) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let most = usize::try_from(inputs[2].to_vec::<i64>()[0]).unwrap_or(0);
        let [overlap, least] = [3, 4].map(|i| inputs[i].to_f64_vec()[0]);
        let [batch, classes, count] = [0, 1, 2].map(|axis| inputs[1].shape()[axis]);
        let boxes: Vec<Corners> =
            boxes.as_chunks().0.iter().map(|&b| Corners::new(b, self.centered)).collect();
        let mut kept = Vec::new();
        for (image, class) in (0..batch).flat_map(|image| (0..classes).map(move |class| (image, class))) {
            let scores = &scores[(image * classes + class) * count..][..count];
            let boxes = &boxes[image * count..][..count];
            let mut candidates: Vec<usize> = (0..count).filter(|&i| scores[i] > least).collect();
            candidates.sort_by(|&i, &j| scores[j].total_cmp(&scores[i])); // stable
            let first = kept.len();
            for i in candidates {
                if kept.len() - first >= most {
                    break;
                }
                let overlaps = |&[_, _, other]: &[i64; 3]| boxes[i].overlap(&boxes[other as usize]) > overlap;
                if !kept[first..].iter().any(overlaps) {
                    kept.push([image as i64, class as i64, i as i64]);
                }
            }
        }
        kept
    }
}

/// The sides of a box.
#[derive(Debug, Clone, Copy)]
struct Corners {
    least: [f64; 2],
    most: [f64; 2],
}

impl Corners {
    fn new([a, b, c, d]: [f64; 4], centered: bool) -> Corners {
        if centered {
            Corners { least: [a - c / 2.0, b - d / 2.0], most: [a + c / 2.0, b + d / 2.0] }
        } else {
            Corners { least: [a.min(c), b.min(d)], most: [a.max(c), b.max(d)] }
        }
    }

    fn area(&self) -> f64 {
        (0..2).map(|axis| (self.most[axis] - self.least[axis]).max(0.0)).product()
    }

    /// Intersection over union; 0 or NaN where there is none.
    fn overlap(&self, other: &Corners) -> f64 {
        let least = [0, 1].map(|axis| self.least[axis].max(other.least[axis]));
        let most = [0, 1].map(|axis| self.most[axis].min(other.most[axis]));
        let common = Corners { least, most }.area();
        common / (self.area() + other.area() - common)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::check_types;
    use super::*;
    use crate::Graph;

    #[test]
    fn types() {
        let op = NonMaximumSuppression { count: "kept".to_string(), centered: false };
        check_types(
            op,
            &[
                (&["f32[b, n, 4]", "f32[b, 2, n]", "i64[]", "f32[]", "f32[]"], "i64[kept, 3]"),
                (
                    &["f32[b, n, 4]", "f32[b, 2, m]", "i64[]", "f32[]", "f32[]"],
                    "non_maximum_suppression: scores is f32[b, 2, m], expected f32[b, 2, n]",
                ),
                (
                    &["f32[b, n, 5]", "f32[b, 2, n]", "i64[]", "f32[]", "f32[]"],
                    "non_maximum_suppression: boxes is f32[b, n, 5], expected f32[b, n, 4]",
                ),
            ],
        );
    }

    fn evaluate(boxes: &[f32], scores: &[f32], classes: usize, settings: (i64, f32, f32)) -> Vec<i64> {
        let text = "graph g(%b: f32[1, n, 4], %s: f32[1, c, n], %m: i64[], %o: f32[], %l: f32[]) {
                      %0 = non_maximum_suppression(%b, %s, %m, %o, %l) {count = kept}
                      return %0
                    }";
        let count = boxes.len() / 4;
        let inputs = [
            Tensor::from_slice([1, count, 4], boxes),
            Tensor::from_slice([1, classes, count], scores),
            Tensor::scalar(settings.0),
            Tensor::scalar(settings.1),
            Tensor::scalar(settings.2),
        ];
        let evaluation = Graph::parse(text).unwrap().evaluate(&inputs, &|_| None).unwrap();
        assert_eq!(evaluation.outputs[0].shape()[1], 3);
        evaluation.outputs[0].to_vec()
    }

    /// The example of ONNX's specification, `nonmaxsuppression_suppress_by_IOU`, and variations.
    #[test]
    fn the_best_of_overlapping_boxes_are_kept() {
        let boxes = [
            [0.0, 0.0, 1.0, 1.0],
            [0.0, 0.1, 1.0, 1.1],
            [0.0, -0.1, 1.0, 0.9],
            [0.0, 10.0, 1.0, 11.0],
            [1.0, 11.1, 0.0, 10.1],
            [0.0, 100.0, 1.0, 101.0],
        ];
        let (boxes, scores) = (boxes.concat(), [0.9, 0.75, 0.6, 0.95, 0.5, 0.3]);
        let all = f32::NEG_INFINITY;
        assert_eq!(evaluate(&boxes, &scores, 1, (3, 0.5, all)), [0, 0, 3, 0, 0, 0, 0, 0, 5]);
        assert_eq!(evaluate(&boxes, &scores, 1, (2, 0.5, all)), [0, 0, 3, 0, 0, 0]);
        assert_eq!(evaluate(&boxes, &scores, 1, (3, 0.5, 0.4)), [0, 0, 3, 0, 0, 0]);
        assert_eq!(evaluate(&boxes, &scores, 1, (0, 0.5, 0.4)), [0i64; 0]);
        let twice = [scores, scores].concat();
        assert_eq!(evaluate(&boxes, &twice, 2, (1, 0.5, all)), [0, 0, 3, 0, 1, 3]);
        let unknown = [f32::NAN, 0.75, 0.6, 0.95, 0.95, 0.3];
        assert_eq!(evaluate(&boxes, &unknown, 1, (9, 1.0, all))[..6], [0, 0, 3, 0, 0, 4]);
    }
}
