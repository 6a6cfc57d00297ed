//! Elements at equal distances, side by side.

/// `to[i] = join(to[i], from[i · stride])` for as many elements as both have.
#[inline(always)]
pub(super) fn join_every(stride: usize, to: &mut [f32], from: &[f32], join: impl Fn(f32, f32) -> f32) {
    match stride {
        1 => to.iter_mut().zip(from).for_each(
            #[inline(always)]
            |(to, from)| *to = join(*to, *from),
        ),
        2 => join_firsts::<2>(to, from, join),
        3 => join_firsts::<3>(to, from, join),
        4 => join_firsts::<4>(to, from, join),
        _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, from)| *to = join(*to, *from)),
    }
}

/// [`join_every`] at a distance that the compiler knows, so that it shuffles vectors.
#[inline(always)]
fn join_firsts<const N: usize>(to: &mut [f32], from: &[f32], join: impl Fn(f32, f32) -> f32) {
    let (chunks, rest) = from.as_chunks::<N>();
    for (to, chunk) in to.iter_mut().zip(chunks) {
        *to = join(*to, chunk[0]);
    }
    if let (Some(to), Some(from)) = (to.get_mut(chunks.len()), rest.first()) {
        *to = join(*to, *from);
    }
}

#[cfg(test)]
mod tests {
    use super::join_every;

    #[test]
    fn as_defined() {
        let from: Vec<f32> = (0..100u8).map(f32::from).collect();
        for stride in 1..7 {
            for len in [0, 1, 15, 16, 17, 100] {
                for room in [0, 1, 5, 6, 7, 100] {
                    let mut to = vec![0.5; room];
                    join_every(stride, &mut to, &from[..len], |a, b| a + b);
                    let joined =
                        |(i, to): (usize, &f32)| *to == 0.5 + from[..len].get(i * stride).unwrap_or(&0.0);
                    assert!(to.iter().enumerate().all(joined), "{room} elements of {len} by {stride}");
                }
            }
        }
    }
}
