//! Graphs as those who build them see them, in one binary.

mod captures;
mod foreign_values;
mod locations;
