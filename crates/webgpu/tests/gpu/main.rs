//! Kernels on an adapter: the problems of every op, and what these do not reach.

mod adapter;
mod attention;
mod functions;
mod linear;
mod problems;
mod rows;
mod sizes;
