//! Kernels on an adapter: the problems of every op, and what these do not reach.

mod adapter;
mod functions;
mod linear;
mod problems;
mod rows;
mod sizes;
