//! Every op on the CPU against its reference: each instruction set, 1 and 4 threads, in place and not.
//!
//! Sizes and values are awkward on purpose: lengths around the sixteen lanes of a vector and around the chunks that
//! threads take, NaN, infinities, zeros of both signs, subnormal and huge numbers.

mod attend;
mod elementwise;
mod every_device;
mod images;
mod moves;
mod picks;
mod problem;
mod products;
mod reductions;
mod same_bits;
mod states;
