//! How the fields of an op's struct become attributes of the text, and come back.
//!
//! An op declares its name and fields once, in its `impl Define`:
//!
//! ```text
//! declare!("slice" { axis, start, stop, step = 1 });
//! ```
//!
//! A field is the attribute of its name. It must be there, unless its type has a way to be absent (`Option`, `bool`) or
//! the declaration gives a default, which is not printed. `ty as "type"` has another name in text. An op with several
//! names tells them apart by a field: `declare!(NAMES[kind in ReduceKind::ALL] { axis })`.

use std::sync::Arc;

use tensor::DType;

use super::attributes::{TensorData, required};
use super::{Attribute, Attributes};
use crate::{Dim, Graph, Type, TypeError};

/// A type whose values are attributes.
pub(super) trait AttributeType: Sized {
    /// The value as text holds it.
    fn to_attribute(&self) -> Attribute;

    /// Takes a value out, if it is there.
    ///
    /// # Errors
    /// If it is something else.
    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Self>, TypeError>;
}

/// A field of an op: one attribute, or those that its type makes of it.
pub(super) trait Field: Sized {
    /// Adds what text says of the field.
    fn write(&self, name: &str, attributes: Attributes) -> Attributes;

    /// Takes the field out of what text says.
    ///
    /// # Errors
    /// If it is missing, or something else.
    fn read(name: &str, attributes: &mut Attributes) -> Result<Self, TypeError>;
}

impl<T: AttributeType> Field for T {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with(name, self.to_attribute())
    }

    fn read(name: &str, attributes: &mut Attributes) -> Result<T, TypeError> {
        required(name, T::take(name, attributes)?)
    }
}

impl<T: AttributeType> Field for Option<T> {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with_some(name, self.as_ref().map(T::to_attribute))
    }

    fn read(name: &str, attributes: &mut Attributes) -> Result<Option<T>, TypeError> {
        T::take(name, attributes)
    }
}

/// Absent means false.
impl Field for bool {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with_some(name, self.then_some(Attribute::Bool(true)))
    }

    fn read(name: &str, attributes: &mut Attributes) -> Result<bool, TypeError> {
        attributes.flag(name)
    }
}

macro_rules! attribute_types {
    ($($type:ty: $take:ident, |$value:ident| $attribute:expr;)*) => { $(
        impl AttributeType for $type {
            fn to_attribute(&self) -> Attribute {
                let $value = self;
                $attribute
            }

            fn take(name: &str, attributes: &mut Attributes) -> Result<Option<$type>, TypeError> {
                attributes.$take(name)
            }
        }
    )* };
}

attribute_types! {
    usize: int, |value| Attribute::index(*value);
    i64: int, |value| Attribute::Int(*value);
    f32: float, |value| Attribute::f32(*value);
    String: text, |value| Attribute::Text(value.clone());
    DType: dtype, |value| Attribute::DType(*value);
    Type: ty, |value| Attribute::Type(value.clone());
    Vec<usize>: sizes, |values| Attribute::indices(values);
    Vec<Dim>: dims, |dims| Attribute::Dims(dims.clone());
    TensorData: tensor, |value| Attribute::Tensor(value.clone());
    Arc<Graph>: graph, |graph| Attribute::Graph(Arc::clone(graph));
}

impl AttributeType for Dim {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dims(vec![self.clone()])
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Dim>, TypeError> {
        let one = |dims| {
            let [dim] = <[Dim; 1]>::try_from(dims)
                .map_err(|dims| TypeError::new(format!("{name} is {dims:?}, expected one number")))?;
            Ok(dim)
        };
        attributes.dims(name)?.map(one).transpose()
    }
}

impl Attributes {
    /// Adds a value that is not the default.
    pub(super) fn with_unless<T: AttributeType + PartialEq>(
        self,
        name: &str,
        value: &T,
        default: T,
    ) -> Attributes {
        self.with_some(name, (*value != default).then(|| value.to_attribute()))
    }

    /// Takes a value out; absent means the default.
    pub(super) fn or<T: AttributeType>(&mut self, name: &str, default: T) -> Result<T, TypeError> {
        Ok(T::take(name, self)?.unwrap_or(default))
    }
}

/// Gives the members of an enum their words, and makes it an attribute. Further words say the same when they are read.
macro_rules! words {
    ($type:ident: $($member:ident = $word:literal $(| $other:literal)*),*) => {
        impl $type {
            /// Every member.
            pub const ALL: &[$type] = &[$($type::$member),*];

            /// The word for it in text.
            pub fn name(self) -> &'static str {
                match self { $($type::$member => $word,)* }
            }

            /// What a word says.
            pub fn with_name(word: &str) -> Option<$type> {
                match word { $($word $(| $other)* => Some($type::$member),)* _ => None }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::ops::field::AttributeType for $type {
            fn to_attribute(&self) -> $crate::ops::Attribute {
                $crate::ops::Attribute::Text(self.name().to_string())
            }

            fn take(
                name: &str,
                attributes: &mut $crate::ops::Attributes,
            ) -> Result<Option<$type>, $crate::TypeError> {
                let word = attributes.text(name)?;
                #[cfg(test)]
                $crate::ops::asked::note(name, concat!("one of" $(, " `", $word, "`")*));
                let Some(word) = word else { return Ok(None) };
                match $type::with_name(&word) {
                    Some(member) => Ok(Some(member)),
                    None => Err($crate::ops::field::unknown_word(name, &word, &[$($word),*])),
                }
            }
        }
    };
}

/// `norm is twice, expected backward, ortho or forward`
pub(super) fn unknown_word(name: &str, word: &str, words: &[&str]) -> TypeError {
    let expected = match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        words => words.concat(),
    };
    TypeError::new(format!("{name} is {word}, expected {expected}"))
}

/// The name and the attributes of an op: see the head of this file.
macro_rules! declare {
    ($name:literal) => {
        const NAMES: &[&str] = &[$name];

        fn name(&self) -> &'static str {
            $name
        }

        fn parse(_name: &str, _attributes: &mut Attributes) -> Result<Self, TypeError> {
            Ok(Self {})
        }
    };
    ($name:literal { $($field:ident $(as $text:literal)? $(= $default:expr)?),+ }) => {
        const NAMES: &[&str] = &[$name];

        fn name(&self) -> &'static str {
            $name
        }

        declare!(@write $($field $(as $text)? $(= $default)?),+);

        fn parse(_name: &str, attributes: &mut Attributes) -> Result<Self, TypeError> {
            $(let $field = declare!(@read attributes, declare!(@text $field $($text)?) $(, $default)?);)+
            Ok(Self { $($field),+ })
        }
    };
    ($names:ident[$kind:ident in $members:expr] { $($field:ident $(= $default:expr)?),+ }) => {
        const NAMES: &[&str] = $names;

        fn name(&self) -> &'static str {
            $names[self.$kind as usize]
        }

        declare!(@write $($field $(= $default)?),+);

        fn parse(name: &str, attributes: &mut Attributes) -> Result<Self, TypeError> {
            let $kind = $crate::ops::field::member($names, name, $members);
            $(let $field = declare!(@read attributes, stringify!($field) $(, $default)?);)+
            Ok(Self { $kind, $($field),+ })
        }
    };
    (@write $($field:ident $(as $text:literal)? $(= $default:expr)?),+) => {
        fn attributes(&self) -> Attributes {
            let attributes = Attributes::default();
            $(let attributes =
                declare!(@with attributes, declare!(@text $field $($text)?), &self.$field $(, $default)?);)+
            attributes
        }
    };
    (@text $field:ident) => { stringify!($field) };
    (@text $field:ident $text:literal) => { $text };
    (@with $attributes:ident, $name:expr, $value:expr) => {
        $crate::ops::field::Field::write($value, $name, $attributes)
    };
    (@with $attributes:ident, $name:expr, $value:expr, $default:expr) => {
        $attributes.with_unless($name, $value, $default)
    };
    (@read $attributes:ident, $name:expr) => { $crate::ops::field::Field::read($name, $attributes)? };
    (@read $attributes:ident, $name:expr, $default:expr) => { $attributes.or($name, $default)? };
}

/// The member of a family with one of its names.
///
/// # Panics
/// If the family has no such name; [`super::Op::parse`] asks the one that has it.
pub(super) fn member<T: Copy>(names: &[&str], name: &str, members: &[T]) -> T {
    let position = names.iter().position(|&other| other == name).expect("a name of the family");
    members[position]
}

pub(super) use {declare, words};
