//! Pipelines from configurations, end to end: every field has its effect, and invalid ones are refused.

mod config;
mod devices;
mod embedders;
mod fields;
mod hub;
mod models;
mod refusals;
mod repos;
mod support;
