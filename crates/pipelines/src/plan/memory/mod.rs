//! How much memory a model will take, and how much there is, before anything is loaded.

mod division;
mod free;

pub use self::division::MemoryPlan;
pub(crate) use self::division::{MemoryRequest, Room};
pub use self::free::{available, limit};
use crate::error::OutOfMemory;

/// Checks that weights which are not loaded yet, and a cache, fit into the memory that is free now.
///
/// # Errors
/// If they do not, with the numbers and what to change.
pub(crate) fn check(weights: u64, cache: u64, tokens: usize) -> Result<(), OutOfMemory> {
    check_within(available().unwrap_or(u64::MAX), weights, cache, tokens)
}

fn check_within(available: u64, weights: u64, cache: u64, tokens: usize) -> Result<(), OutOfMemory> {
    if weights > available {
        return Err(OutOfMemory::Weights { weights, available });
    }
    if cache > available - weights {
        return Err(OutOfMemory::Cache { weights, cache, tokens, available });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_give_the_numbers_and_what_to_change() {
        const GIB: u64 = 1 << 30;
        let refusal = |weights, cache, tokens, available| {
            check_within(available, weights, cache, tokens).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(3 * GIB, 2 * GIB, 4096, 4 * GIB),
            "the weights need 3.00 GiB, the cache for 4096 tokens 2.00 GiB, but 4.00 GiB of memory is free: \
             use fewer tokens or fewer sequences at once"
        );
        assert!(refusal(5 * GIB, 2 * GIB, 1, 4 * GIB).starts_with("the weights need 5.00 GiB, but 4.00 GiB"));
        let refused = check_within(4 * GIB, 3 * GIB, 2 * GIB, 4096).unwrap_err();
        assert_eq!((refused.needed(), refused.free()), (5 * GIB, Some(4 * GIB)));
        assert_eq!(refused.suggestion(), "use fewer tokens or fewer sequences at once");
        let text = refusal(0, 2 * GIB, 1, GIB);
        assert!(text.starts_with("the cache for 1 tokens needs "), "{text}");
        assert!(check_within(7 * GIB, 5 * GIB, 2 * GIB, 1).is_ok());
    }
}
