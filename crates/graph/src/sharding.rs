//! How a weight is shared among devices: which parts of an axis each holds.
//!
//! Where a size does not divide evenly, the first devices take one more.

use std::ops::Range;

use thiserror::Error;

/// How the shards of a weight are cut.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// All of it, on every device.
    Replicate,
    /// Runs of an axis: 0 for a layer whose results are shared, 1 for one whose operand is.
    Axiswise(usize),
    /// Queries, keys and values stacked along axis 0, each shared by heads. Fewer key and value heads than devices are
    /// repeated.
    StackedQkv {
        /// Query heads.
        heads: usize,
        /// Key and value heads.
        kv_heads: usize,
        /// Rows of a head.
        head_dim: usize,
    },
    /// Runs of an axis in whole heads.
    HeadAware {
        /// Along which axis.
        axis: usize,
        /// How many heads.
        heads: usize,
        /// Elements of a head.
        head_dim: usize,
    },
    /// Gate and up projections stacked along an axis, each shared.
    GateUp {
        /// Along which axis.
        axis: usize,
    },
    /// Segments stacked along an axis, each shared.
    Segmented {
        /// Along which axis.
        axis: usize,
        /// How many units each has, and the elements of a unit: those of a head, or 1.
        segments: Vec<[usize; 2]>,
    },
}

/// What one device holds of a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shard {
    /// All of it.
    Whole,
    /// Runs of an axis, one after another.
    Runs {
        /// Along which axis.
        axis: usize,
        /// The elements.
        ranges: Vec<Range<usize>>,
    },
}

/// A weight that cannot be shared as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ShardingError {
    /// There is nothing to share with.
    #[error("a weight of shape {shape:?} for 0 devices")]
    NoDevices {
        /// Of the weight.
        shape: Vec<usize>,
    },
    /// The weight has no such axis.
    #[error("a weight of shape {shape:?} has no axis {axis}")]
    Axis {
        /// Of the weight.
        shape: Vec<usize>,
        /// What was asked for.
        axis: usize,
    },
    /// What is stacked does not fill the axis.
    #[error("axis {axis} of a weight of shape {shape:?} is {what}, which takes {expected}")]
    Size {
        /// Of the weight.
        shape: Vec<usize>,
        /// Along which axis.
        axis: usize,
        /// What should be there.
        what: String,
        /// How large it is.
        expected: usize,
    },
}

impl Sharding {
    /// Runs of rows.
    pub fn rowwise() -> Sharding {
        Sharding::Axiswise(0)
    }

    /// Runs of columns.
    pub fn columnwise() -> Sharding {
        Sharding::Axiswise(1)
    }

    /// What each of `devices` holds of a weight of a shape.
    ///
    /// # Errors
    /// If the shape is not what is to be shared, or there are no devices.
    pub fn shards(&self, shape: &[usize], devices: usize) -> Result<Vec<Shard>, ShardingError> {
        if devices == 0 {
            return Err(ShardingError::NoDevices { shape: shape.to_vec() });
        }
        let segments = match self {
            Sharding::Replicate => return Ok(vec![Shard::Whole; devices]),
            &Sharding::Axiswise(axis) => vec![Segment::of(size(shape, axis)?)],
            &Sharding::GateUp { axis } => {
                let all = size(shape, axis)?;
                self.expect(shape, axis, "a gate and an equal part", all / 2 * 2)?;
                vec![Segment::of(all / 2); 2]
            }
            Sharding::Segmented { axis, segments } => {
                let sizes: Vec<usize> =
                    segments.iter().map(|&[units, unit]| units.saturating_mul(unit)).collect();
                let all = sizes.iter().fold(0, |sum: usize, &size| sum.saturating_add(size));
                self.expect(shape, *axis, &format!("segments of {sizes:?}"), all)?;
                segments.iter().map(|&[units, unit]| Segment { units, unit, repeat: false }).collect()
            }
            &Sharding::HeadAware { axis, heads, head_dim } => {
                let what = format!("{heads} heads of {head_dim}");
                self.expect(shape, axis, &what, heads.saturating_mul(head_dim))?;
                vec![Segment { units: heads, unit: head_dim, repeat: false }]
            }
            &Sharding::StackedQkv { heads, kv_heads, head_dim } => {
                let what = format!("{heads} query heads and twice {kv_heads} of {head_dim}");
                let all = kv_heads.saturating_mul(2).saturating_add(heads).saturating_mul(head_dim);
                self.expect(shape, 0, &what, all)?;
                let kv = Segment { units: kv_heads, unit: head_dim, repeat: true };
                vec![Segment { units: heads, unit: head_dim, repeat: false }, kv, kv]
            }
        };
        let axis = self.axis();
        Ok((0..devices).map(|device| shard(axis, &segments, device, devices)).collect())
    }

    fn axis(&self) -> usize {
        match *self {
            Sharding::Replicate | Sharding::StackedQkv { .. } => 0,
            Sharding::Axiswise(axis)
            | Sharding::HeadAware { axis, .. }
            | Sharding::GateUp { axis }
            | Sharding::Segmented { axis, .. } => axis,
        }
    }

    fn expect(&self, shape: &[usize], axis: usize, what: &str, expected: usize) -> Result<(), ShardingError> {
        if size(shape, axis)? == expected {
            Ok(())
        } else {
            let (shape, what) = (shape.to_vec(), what.to_string());
            Err(ShardingError::Size { shape, axis, what, expected })
        }
    }
}

/// A part of an axis that is shared in units.
#[derive(Debug, Clone, Copy)]
struct Segment {
    units: usize,
    /// Elements of each.
    unit: usize,
    /// Whether more devices than units hold some twice.
    repeat: bool,
}

impl Segment {
    fn of(units: usize) -> Segment {
        Segment { units, unit: 1, repeat: false }
    }

    /// The elements of a device, from the start of the segment.
    fn range(&self, device: usize, devices: usize) -> Range<usize> {
        if self.repeat && self.units > 0 && self.units < devices {
            let unit = device * self.units / devices;
            return unit * self.unit..(unit + 1) * self.unit;
        }
        let start = |device: usize| {
            let (each, more) = (self.units / devices, self.units % devices);
            (device * each + device.min(more)) * self.unit
        };
        start(device)..start(device + 1)
    }
}

fn shard(axis: usize, segments: &[Segment], device: usize, devices: usize) -> Shard {
    let mut start = 0;
    let mut ranges = Vec::new();
    for segment in segments {
        let range = segment.range(device, devices);
        ranges.push(start + range.start..start + range.end);
        start += segment.units * segment.unit;
    }
    Shard::Runs { axis, ranges }
}

fn size(shape: &[usize], axis: usize) -> Result<usize, ShardingError> {
    shape.get(axis).copied().ok_or_else(|| ShardingError::Axis { shape: shape.to_vec(), axis })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ranges of each device, as text.
    fn check(sharding: Sharding, shape: &[usize], devices: usize) -> String {
        let text = |shard: Shard| match shard {
            Shard::Whole => "whole".to_string(),
            Shard::Runs { axis, ranges } => format!("{axis}: {ranges:?}"),
        };
        match sharding.shards(shape, devices) {
            Ok(shards) => shards.into_iter().map(text).collect::<Vec<_>>().join("; "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_first_devices_take_one_more() {
        assert_eq!(check(Sharding::rowwise(), &[10, 4], 4), "0: [0..3]; 0: [3..6]; 0: [6..8]; 0: [8..10]");
        assert_eq!(check(Sharding::columnwise(), &[10, 4], 2), "1: [0..2]; 1: [2..4]");
        assert_eq!(check(Sharding::Axiswise(0), &[2], 3), "0: [0..1]; 0: [1..2]; 0: [2..2]");
        assert_eq!(check(Sharding::Replicate, &[10, 4], 2), "whole; whole");
    }

    #[test]
    fn heads_stay_whole() {
        let heads = Sharding::HeadAware { axis: 1, heads: 3, head_dim: 4 };
        assert_eq!(check(heads.clone(), &[5, 12], 2), "1: [0..8]; 1: [8..12]");
        let message = "axis 1 of a weight of shape [5, 13] is 3 heads of 4, which takes 12";
        assert_eq!(check(heads, &[5, 13], 2), message);
        let qkv = |kv_heads| Sharding::StackedQkv { heads: 4, kv_heads, head_dim: 2 };
        assert_eq!(check(qkv(2), &[16, 8], 2), "0: [0..4, 8..10, 12..14]; 0: [4..8, 10..12, 14..16]");
        assert_eq!(check(qkv(1), &[12, 8], 2), "0: [0..4, 8..10, 10..12]; 0: [4..8, 8..10, 10..12]");
    }

    #[test]
    fn stacked_parts_are_shared_each() {
        assert_eq!(check(Sharding::GateUp { axis: 0 }, &[6, 1], 2), "0: [0..2, 3..5]; 0: [2..3, 5..6]");
        let heads = Sharding::Segmented { axis: 0, segments: vec![[3, 2], [3, 1]] };
        assert_eq!(check(heads, &[9], 2), "0: [0..4, 6..8]; 0: [4..6, 8..9]");
        let segments = Sharding::Segmented { axis: 0, segments: vec![[4, 1], [2, 1]] };
        assert_eq!(check(segments.clone(), &[6], 2), "0: [0..2, 4..5]; 0: [2..4, 5..6]");
        let message = "axis 0 of a weight of shape [7] is segments of [4, 2], which takes 6";
        assert_eq!(check(segments, &[7], 2), message);
        let message = "axis 0 of a weight of shape [7] is a gate and an equal part, which takes 6";
        assert_eq!(check(Sharding::GateUp { axis: 0 }, &[7], 2), message);
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert_eq!(check(Sharding::columnwise(), &[10], 2), "a weight of shape [10] has no axis 1");
        assert_eq!(check(Sharding::rowwise(), &[10], 0), "a weight of shape [10] for 0 devices");
    }
}
