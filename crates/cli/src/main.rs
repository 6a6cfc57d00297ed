//! The `peri` command.

fn main() {}
