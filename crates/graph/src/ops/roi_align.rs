//! Regions of images at one size, by samples between their elements.

use super::field::words;
use super::prelude::*;
use super::window::{ImageLayout, Images, expect_extents, indices};

/// What becomes of the samples of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RoiMode {
    /// Their mean.
    #[default]
    Average,
    /// The largest.
    Max,
}

words!(RoiMode: Average = "avg", Max = "max");

/// Region of interest alignment (He and others, "Mask R-CNN", 2017), as torchvision's `roi_align`: `x`, images of any
/// float dtype, and `regions` [count, 5] of the same, each the number of an image and x and y of two corners → [count,
/// size.., channels] or [count, channels, size..]. Samples outside of the image by more than one element are 0.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiAlign {
    /// Height and width of the result.
    pub size: Vec<usize>,
    /// From the regions' coordinates to those of `x`.
    pub scale: f32,
    /// Samples along each side of a bin; 0 takes as many as it has elements.
    pub samples: usize,
    /// Whether coordinates mean the centers of elements; otherwise regions are at least one element large.
    pub aligned: bool,
    /// Mean or largest.
    pub mode: RoiMode,
    /// Of `x` and of the result.
    pub layout: ImageLayout,
}

/// A region of an image in its coordinates, cut into bins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roi {
    /// Which image.
    pub image: usize,
    /// Top and left.
    pub corner: [f64; 2],
    /// Height and width of a bin.
    pub bin: [f64; 2],
    /// Samples down and across a bin.
    pub samples: [usize; 2],
}

/// More samples than this along a side of a bin are refused: regions can be as large as numbers are.
const MAX_SAMPLES: f64 = 1024.0;

impl RoiAlign {
    /// A region from its row of numbers.
    ///
    /// # Errors
    /// If there is no such image, or the numbers make no region.
    pub fn region(&self, row: [f64; 5], images: usize) -> Result<Roi, String> {
        let [image, left, top, right, bottom] = row;
        if image.fract() != 0.0 || !(0.0..images as f64).contains(&image) {
            return Err(format!("a region of image {image}, of which there are {images}"));
        }
        let (scale, offset) = (f64::from(self.scale), if self.aligned { 0.5 } else { 0.0 });
        let [left, top, right, bottom] = [left, top, right, bottom].map(|x| x * scale - offset);
        let side = |first: f64, last: f64| if self.aligned { last - first } else { (last - first).max(1.0) };
        let bin = [side(top, bottom) / self.size[0] as f64, side(left, right) / self.size[1] as f64];
        let samples = bin.map(|bin| if self.samples > 0 { self.samples as f64 } else { bin.ceil().max(0.0) });
        if bin.iter().all(|bin| bin.is_finite()) && samples.iter().all(|&count| count <= MAX_SAMPLES) {
            Ok(Roi {
                image: image as usize,
                corner: [top, left],
                bin,
                samples: samples.map(|count| count as usize),
            })
        } else {
            Err(format!("the region {row:?} makes bins of {} by {} elements", bin[0], bin[1]))
        }
    }
}

impl Roi {
    /// Where sample `sample` of bin `bin` falls along an axis of `size` elements: two neighbours and the share of the
    /// second; `None` outside of the image.
    pub fn neighbors(
        &self,
        axis: usize,
        bin: usize,
        sample: usize,
        size: usize,
    ) -> Option<(usize, usize, f64)> {
        let within = (sample as f64 + 0.5) / self.samples[axis] as f64;
        let place = self.corner[axis] + (bin as f64 + within) * self.bin[axis];
        if size == 0 || !(-1.0..=size as f64).contains(&place) {
            return None;
        }
        let place = place.clamp(0.0, (size - 1) as f64);
        let first = place as usize;
        Some((first, (first + 1).min(size - 1), place - first as f64))
    }
}

impl Define for RoiAlign {
    declare!("roi_align" {
        size, scale = 1.0, samples = 0, aligned, mode = RoiMode::Average, layout = ImageLayout::default()
    });

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, regions] = operands(inputs, ["x", "regions"])?;
        expect_dtype("x", x, FLOATS)?;
        expect_same_dtype(("x", x), ("regions", regions))?;
        expect_rank("x", x, 4)?;
        expect_rank("regions", regions, 2)?;
        expect_extents("size", &self.size, 2, 1)?;
        expect_finite("scale", self.scale)?;
        refuse_if!(
            self.samples as f64 > MAX_SAMPLES,
            "samples is {}, expected at most {MAX_SAMPLES}",
            self.samples
        );
        refuse_if!(
            regions.shape[1].as_static() != Some(5),
            "regions is {regions}, expected 5 columns: image, x, y, x, y"
        );
        let channels = x.shape[self.layout.channel_axis(4)].clone();
        let size = self.size.iter().map(|&size| Dim::from(size)).collect();
        Ok(vec![x.with_shape(self.layout.shape(regions.shape[0].clone(), channels, size))])
    }

    fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
        let (x, rows) = (inputs[0].to_f64_vec(), inputs[1].to_f64_vec());
        let from = Images::new(self.layout, inputs[0].shape());
        let to = Images::new(self.layout, &outputs[0]);
        let mut y = vec![0.0; outputs[0].elements()];
        for (number, row) in rows.as_chunks().0.iter().enumerate() {
            let region =
                self.region(*row, from.batch).map_err(|error| Error::evaluation("roi_align", error))?;
            for (bin, channel) in
                indices(&to.spatial).flat_map(|bin| (0..to.channels).map(move |c| (bin.clone(), c)))
            {
                let samples = indices(&region.samples).map(|sample| {
                    let along =
                        |axis: usize| region.neighbors(axis, bin[axis], sample[axis], from.spatial[axis]);
                    let (Some((top, bottom, down)), Some((left, right, across))) = (along(0), along(1))
                    else {
                        return 0.0;
                    };
                    let at =
                        |row: usize, column: usize| x[from.position(region.image, channel, &[row, column])];
                    let above = at(top, left) * (1.0 - across) + at(top, right) * across;
                    let below = at(bottom, left) * (1.0 - across) + at(bottom, right) * across;
                    above * (1.0 - down) + below * down
                });
                let samples: Vec<f64> = samples.collect();
                y[to.position(number, channel, &bin)] = match self.mode {
                    _ if samples.is_empty() => 0.0,
                    RoiMode::Average => samples.iter().sum::<f64>() / samples.len() as f64,
                    RoiMode::Max => samples.into_iter().fold(f64::NEG_INFINITY, f64::max),
                };
            }
        }
        Ok(vec![from_f64(inputs[0].dtype(), outputs[0], &y)])
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assert_close, check_types, numbers, run};
    use super::*;

    fn align(mode: RoiMode) -> RoiAlign {
        let layout = ImageLayout::ChannelsFirst;
        RoiAlign { size: vec![2, 2], scale: 0.5, samples: 2, aligned: true, mode, layout }
    }

    #[test]
    fn types() {
        check_types(
            align(RoiMode::Max),
            &[
                (&["f32[n, c, h, w]", "f32[k, 5]"], "f32[k, c, 2, 2]"),
                (
                    &["f32[n, c, h, w]", "f32[k, 4]"],
                    "roi_align: regions is f32[k, 4], expected 5 columns: image, x, y, x, y",
                ),
                (
                    &["f32[n, c, h, w]", "f16[k, 5]"],
                    "roi_align: dtypes differ: x f32[n, c, h, w], regions f16[k, 5]",
                ),
            ],
        );
    }

    /// On a plane `10 · row + column` a sample is exact, and a bin's mean the value at its center.
    #[test]
    fn values() {
        let x: Vec<f64> = (0..80).map(|i| f64::from(i / 10 * 10 + i % 10)).collect();
        let x = Tensor::from_slice([1, 1, 8, 10], &x);
        let regions = Tensor::from_slice([1, 5], &[0.0, 4.0, 6.0, 12.0, 10.0]);
        // In elements: columns 1.5 to 5.5, rows 2.5 to 4.5; bins of 1 by 2.
        let means = numbers(align(RoiMode::Average), &[&x, &regions]);
        assert_close(&means, &[32.5, 34.5, 42.5, 44.5], 1e-12);
        // The last sample of a bin is a quarter of it away from its center's sides.
        let largest = numbers(align(RoiMode::Max), &[&x, &regions]);
        assert_close(&largest, &[35.5, 37.5, 45.5, 47.5], 1e-12);
        let far = Tensor::from_slice([1, 5], &[0.0, 100.0, 100.0, 110.0, 110.0]);
        assert_eq!(numbers(align(RoiMode::Average), &[&x, &far]), [0.0; 4]);
        let wrong = Tensor::from_slice([1, 5], &[1.0, 0.0, 0.0, 1.0, 1.0]);
        let error = run(align(RoiMode::Average), &[&x, &wrong]).unwrap_err();
        assert_eq!(error.to_string(), "roi_align: a region of image 1, of which there are 1");
    }
}
