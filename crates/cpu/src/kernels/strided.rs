//! Reading an array through strides, in runs: what broadcasting, slicing and transposing share.

use tensor::{MAX_RANK, Shape};

/// A row-major walk over an array that is not row-major itself. Axes that can be walked as one are merged, so
/// a plain array has one axis and a broadcast row two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strided {
    /// Never of size 1; the last is the innermost. Past `rank`: unused.
    dims: [usize; MAX_RANK],
    /// In elements.
    strides: [isize; MAX_RANK],
    rank: usize,
    /// Of the first element.
    offset: usize,
}

impl Strided {
    /// A walk over `dims` with these strides, in elements, that starts at `offset`.
    pub(crate) fn new(dims: &[usize], strides: &[isize], offset: usize) -> Strided {
        let mut walk = Strided { dims: [0; MAX_RANK], strides: [0; MAX_RANK], rank: 0, offset };
        for (&dim, &stride) in dims.iter().zip(strides).filter(|&(&dim, _)| dim != 1) {
            let outer = walk.rank.wrapping_sub(1);
            if walk.rank > 0 && walk.strides[outer] == stride * dim as isize {
                walk.dims[outer] *= dim;
                walk.strides[outer] = stride;
            } else {
                (walk.dims[walk.rank], walk.strides[walk.rank]) = (dim, stride);
                walk.rank += 1;
            }
        }
        walk
    }

    /// A row-major array of shape `from`, repeated to fill `to`.
    ///
    /// # Panics
    /// If `from` does not broadcast to `to`.
    pub(crate) fn broadcast(from: &Shape, to: &Shape) -> Strided {
        assert!(from.rank() <= to.rank(), "{from} does not broadcast to {to}");
        let missing = to.rank() - from.rank();
        let own = from.row_major_strides();
        let mut strides = [0; MAX_RANK];
        for (axis, &dim) in from.iter().enumerate() {
            assert!(dim == to[missing + axis] || dim == 1, "{from} does not broadcast to {to}");
            strides[missing + axis] = if dim == 1 { 0 } else { own[axis] };
        }
        Strided::new(to.dims(), &strides[..to.rank()], 0)
    }

    /// The merged axes: size and stride, outermost first.
    pub(crate) fn axes(&self) -> impl DoubleEndedIterator<Item = (usize, isize)> + '_ {
        self.dims[..self.rank].iter().copied().zip(self.strides[..self.rank].iter().copied())
    }

    /// The position of the first element.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the walk goes straight through memory.
    pub(crate) fn is_contiguous(&self) -> bool {
        match self.rank {
            0 => true,
            1 => self.strides[0] == 1,
            _ => false,
        }
    }

    /// Where the elements `start..start + len` of the walk lie, if side by side.
    pub(crate) fn run(&self, start: usize, len: usize) -> Option<usize> {
        if self.is_contiguous() {
            return Some(self.offset + start);
        }
        let inner = self.rank - 1;
        let (index, position) = self.locate(start);
        let inside = self.strides[inner] == 1 && index[inner] + len <= self.dims[inner];
        inside.then_some(position as usize)
    }

    /// Copies the elements `start..start + out.len()` of the walk.
    pub(crate) fn copy<T: Copy>(&self, source: &[T], start: usize, out: &mut [T]) {
        if self.is_contiguous() {
            out.copy_from_slice(&source[self.offset + start..][..out.len()]);
            return;
        }
        let inner = self.rank - 1;
        let (mut index, mut position) = self.locate(start);
        let mut rest = out;
        while !rest.is_empty() {
            let run = (self.dims[inner] - index[inner]).min(rest.len());
            let (now, later) = rest.split_at_mut(run);
            copy_run(source, position as usize, self.strides[inner], now);
            rest = later;
            index[inner] += run;
            position += run as isize * self.strides[inner];
            self.carry(&mut index, &mut position);
        }
    }

    /// The index along each axis, and the position in memory, of an element of the walk.
    fn locate(&self, element: usize) -> ([usize; MAX_RANK], isize) {
        let mut index = [0; MAX_RANK];
        let mut position = self.offset as isize;
        let mut rest = element;
        for axis in (0..self.rank).rev() {
            index[axis] = rest % self.dims[axis].max(1);
            rest /= self.dims[axis].max(1);
            position += index[axis] as isize * self.strides[axis];
        }
        (index, position)
    }

    /// Moves on to the next row of each axis that has come to its end.
    fn carry(&self, index: &mut [usize; MAX_RANK], position: &mut isize) {
        for axis in (1..self.rank).rev() {
            if index[axis] < self.dims[axis] {
                return;
            }
            index[axis] = 0;
            index[axis - 1] += 1;
            *position += self.strides[axis - 1] - self.dims[axis] as isize * self.strides[axis];
        }
    }
}

fn copy_run<T: Copy>(source: &[T], position: usize, stride: isize, out: &mut [T]) {
    match stride {
        0 => out.fill(source[position]),
        1 => out.copy_from_slice(&source[position..][..out.len()]),
        _ => {
            for (i, slot) in out.iter_mut().enumerate() {
                *slot = source[position.wrapping_add_signed(i as isize * stride)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every start and length of a walk gives what the walk as a whole gives.
    fn check(walk: Strided, source: &[u32], expected: &[u32]) {
        for start in 0..expected.len() {
            for end in start..=expected.len() {
                let mut out = vec![u32::MAX; end - start];
                walk.copy(source, start, &mut out);
                assert_eq!(out, expected[start..end], "{start}..{end} of {walk:?}");
                if let Some(position) = walk.run(start, end - start).filter(|_| end > start) {
                    assert_eq!(source[position..][..end - start], expected[start..end], "{walk:?}");
                }
            }
        }
    }

    #[test]
    fn walks_read_what_they_should() {
        let source: Vec<u32> = (0..24).collect();
        check(Strided::new(&[2, 3, 4], &[12, 4, 1], 0), &source, &source);
        check(Strided::new(&[3, 2], &[1, 3], 0), &source, &[0, 3, 1, 4, 2, 5]);
        check(Strided::new(&[2, 2, 2], &[0, 1, 0], 3), &source, &[3, 3, 4, 4, 3, 3, 4, 4]);
        check(Strided::new(&[2, 3], &[12, 2], 1), &source, &[1, 3, 5, 13, 15, 17]);
        check(Strided::new(&[], &[], 7), &source, &[7]);
        check(
            Strided::broadcast(&[3, 1].into(), &[2, 3, 2].into()),
            &source,
            &[0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2],
        );
    }

    #[test]
    fn runs_end_with_a_row() {
        let walk = Strided::broadcast(&[4].into(), &[2, 3, 4].into());
        assert_eq!([walk.run(4, 4), walk.run(9, 3), walk.run(9, 4)], [Some(0), Some(1), None]);
        assert_eq!(Strided::broadcast(&[3, 1].into(), &[3, 4].into()).run(0, 4), None);
        assert_eq!(Strided::new(&[2, 3], &[3, 1], 5).run(1, 5), Some(6));
    }

    #[test]
    fn axes_merge() {
        let axes = |walk: Strided| walk.axes().collect::<Vec<_>>();
        assert_eq!(axes(Strided::new(&[2, 3, 4], &[12, 4, 1], 0)), [(24, 1)]);
        assert_eq!(axes(Strided::broadcast(&[4].into(), &[2, 3, 4].into())), [(6, 0), (4, 1)]);
        assert_eq!(axes(Strided::broadcast(&[1, 1].into(), &[5, 7].into())), [(35, 0)]);
        assert!(Strided::broadcast(&[5, 7].into(), &[1, 5, 7].into()).is_contiguous());
    }
}
