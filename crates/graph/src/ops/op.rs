//! All ops as one enum: what it gets from the list of ops, and what changes an op.

use std::sync::Arc;

use super::{Attribute, Call, Op, Weight};
use crate::{Graph, Substitution};

/// Makes [`Op`] of the list of ops: a variant for each, and functions that hand on to it. The names in it are those where the list stands.
macro_rules! ops {
    ($($(#[$doc:meta])* $file:ident::$op:ident,)*) => {
        $(pub use self::$file::$op;)*

        /// An op: what a node computes. Closed, so that passes match on it and a device's list of kernels is
        /// exhaustive.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op { $($(#[$doc])* $op($op),)* }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$op(op)
            }
        })*

        impl Op {
            /// The name it prints and parses under.
            pub fn name(&self) -> &'static str {
                match self { $(Op::$op(op) => op.name(),)* }
            }

            /// The attributes, in the order they print.
            pub fn attributes(&self) -> Attributes {
                match self { $(Op::$op(op) => op.attributes(),)* }
            }

            /// The types of the results.
            ///
            /// # Errors
            /// If the operands do not fit, with the two facts that disagree.
            pub fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
                match self { $(Op::$op(op) => op.infer(inputs),)* }
            }

            /// What happens to operand `position`, if it is a buffer.
            pub fn effect(&self, position: usize) -> Effect {
                match self { $(Op::$op(op) => op.effect(position),)* }
            }

            /// The graphs that it runs.
            pub fn regions(&self) -> Vec<&Arc<Graph>> {
                match self { $(Op::$op(op) => op.regions(),)* }
            }

            /// Whether it, or a node of a graph that it runs, does something other than giving results and writing
            /// buffers; see [`Define::has_side_effect`].
            pub fn has_side_effect(&self) -> bool {
                let own = match self { $(Op::$op(op) => op.has_side_effect(),)* };
                own || self.regions().iter().any(|graph| graph.nodes().any(|(_, node)| node.op.has_side_effect()))
            }

            /// Whether it says itself where its results are; see [`Define::places_results`].
            pub fn places_results(&self) -> bool {
                match self { $(Op::$op(op) => op.places_results(),)* }
            }

            /// The symbols whose sizes it finds in its data.
            pub fn defines(&self) -> Vec<&str> {
                match self { $(Op::$op(op) => op.defines(),)* }
            }

            /// The sizes of those symbols; see [`Define::sizes`].
            ///
            /// # Errors
            /// If the data makes no sense.
            pub fn sizes(&self, inputs: &[&Tensor]) -> Result<Vec<usize>, Error> {
                match self { $(Op::$op(op) => op.sizes(inputs),)* }
            }

            /// The meaning, slow and obvious; see [`Define::reference`].
            ///
            /// # Errors
            /// If the data makes no sense.
            pub fn reference(&self, inputs: &[&Tensor], outputs: &[Shape]) -> Result<Vec<Tensor>, Error> {
                match self { $(Op::$op(op) => op.reference(inputs, outputs),)* }
            }

            /// The op with a name and attributes.
            ///
            /// # Errors
            /// If there is no such op, or an attribute is missing, of the wrong kind, or unknown.
            pub fn parse(name: &str, mut attributes: Attributes) -> Result<Op, TypeError> {
                let op = match name {
                    $(_ if $op::NAMES.contains(&name) => Op::$op($op::parse(name, &mut attributes)?),)*
                    _ => return Err(TypeError::new("there is no such op")),
                };
                attributes.expect_empty()?;
                Ok(op)
            }

            /// Every op name.
            pub fn names() -> impl Iterator<Item = &'static str> {
                [$($op::NAMES,)*].into_iter().flatten().copied()
            }
        }
    };
}

pub(super) use ops;

impl Op {
    /// This op with other graphs in place of those it runs, in the order of [`Op::regions`].
    ///
    /// # Panics
    /// If the op does not take them.
    pub fn with_regions(&self, regions: impl IntoIterator<Item = Arc<Graph>>) -> Op {
        let mut regions = regions.into_iter();
        let replaced = self.map_attributes(|attribute| match attribute {
            Attribute::Graph(_) => regions.next().map(Attribute::Graph),
            other => Some(other),
        });
        replaced.expect("a graph in place of each")
    }

    /// This op with other dims in place of symbols. The graphs it holds have symbols of their own, and the symbols
    /// it defines stay. `None` if an expression gets too large, or divides by 0.
    pub fn substitute(&self, symbols: &Substitution) -> Option<Op> {
        self.map_attributes(|attribute| match attribute {
            Attribute::Dims(dims) => {
                Some(Attribute::Dims(dims.iter().map(|dim| dim.substitute(symbols)).collect::<Option<_>>()?))
            }
            Attribute::Type(ty) => Some(Attribute::Type(ty.substitute(symbols)?)),
            Attribute::Types(types) => {
                let types = types.iter().map(|ty| ty.substitute(symbols));
                Some(Attribute::Types(types.collect::<Option<_>>()?))
            }
            other => Some(other),
        })
    }

    /// This op with a prefix before the names of all weights that it and the graphs in it name.
    pub fn with_prefix(&self, prefix: &str) -> Op {
        match self {
            _ if prefix.is_empty() => self.clone(),
            Op::Weight(weight) => {
                Weight { name: format!("{prefix}{}", weight.name), ..weight.clone() }.into()
            }
            Op::Call(call) => Call { prefix: format!("{prefix}{}", call.prefix), ..call.clone() }.into(),
            op if op.regions().is_empty() => op.clone(),
            op => {
                op.with_regions(op.regions().into_iter().map(|region| Arc::new(region.with_prefix(prefix))))
            }
        }
    }

    fn map_attributes(&self, map: impl FnMut(Attribute) -> Option<Attribute>) -> Option<Op> {
        let attributes = self.attributes();
        let mappable = |attribute: &Attribute| {
            matches!(
                attribute,
                Attribute::Dims(_) | Attribute::Type(_) | Attribute::Types(_) | Attribute::Graph(_)
            )
        };
        if !attributes.iter().any(|(_, attribute)| mappable(attribute)) {
            return Some(self.clone());
        }
        Some(Op::parse(self.name(), attributes.try_map(map)?).expect("an op parses from its attributes"))
    }
}
