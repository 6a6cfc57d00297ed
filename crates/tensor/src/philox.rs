//! Philox 4x32-10: random numbers that are a pure function of a counter and a key.
//!
//! From Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). There is no state, so
//! the draw for one position of one sequence is the same whatever else runs, in whatever order, on whatever device.

const ROUNDS: usize = 10;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// The golden ratio and the square root of 3, as 32-bit fractions: the key's steps between rounds.
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Four random words for a 128-bit `counter` under a 64-bit `key`.
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [a, b, c, d] = counter;
        let left = u64::from(MULTIPLIERS[0]) * u64::from(a);
        let right = u64::from(MULTIPLIERS[1]) * u64::from(c);
        counter =
            [(right >> 32) as u32 ^ b ^ key[0], right as u32, (left >> 32) as u32 ^ d ^ key[1], left as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A number in `[0, 1)` with 53 random bits, for one `position` of the sequence that has this `seed`.
pub fn uniform(seed: u64, position: u64) -> f64 {
    let [low, high, ..] =
        philox4x32([position as u32, (position >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known-answer vectors that the authors publish with Random123.
    #[test]
    fn known_answers() {
        assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn uniform_is_even_and_below_one() {
        let draws: Vec<f64> = (0..100_000).map(|position| uniform(7, position)).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        for tenth in 0..10 {
            let share = draws.iter().filter(|&&draw| (draw * 10.0) as usize == tenth).count();
            assert!((9_600..10_400).contains(&share), "{share} of 100000 draws fell in tenth {tenth}");
        }
        assert_ne!(uniform(7, 0), uniform(8, 0));
        assert_ne!(uniform(7, 0), uniform(7, 1 << 32));
    }
}
