//! How tokens are chosen: the parameters of a request, and the defaults of those that it leaves open.

mod options;
mod params;

pub use self::options::SamplingOptions;
pub use self::params::{
    LARGEST_BIAS, LARGEST_PENALTY, LARGEST_REPETITION_PENALTY, LogprobsMode, MAX_LOGIT_BIAS, MAX_LOGPROBS,
    SamplingParams,
};
