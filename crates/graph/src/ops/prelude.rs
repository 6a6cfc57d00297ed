//! What the files of ops have in common.

pub(super) use tensor::{DType, Shape, Tensor};

pub(super) use super::attributes::Attributes;
pub(super) use super::check::*;
pub(super) use super::define::Define;
pub(super) use super::elements::*;
pub(super) use super::field::declare;
pub(super) use crate::{Dim, Error, Type, TypeError};
