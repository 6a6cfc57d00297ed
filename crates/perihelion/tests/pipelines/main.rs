//! Pipelines from configurations, end to end: every field changes what happens, and what cannot be is refused.

mod embedders;
mod fields;
mod hub;
mod models;
mod refusals;
mod support;
