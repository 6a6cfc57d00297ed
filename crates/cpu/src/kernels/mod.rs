//! What the CPU can compute, one concept a file.
