//! How the fields of an op's struct become attributes of the text, and come back.
//!
//! An op declares its name and fields once, in its `impl Define`:
//!
//! ```text
//! declare!("slice" { axis, start, stop, step = 1 });
//! ```
//!
//! A field is the attribute of its name. It must be there, unless its type has a way to be absent (`Option`, `bool`) or
//! the declaration gives a default, which is not printed. `ty as "type"` has another name in text.
//!
//! A family of ops has several names. The name follows from one field, `declare!(NAMES[kind in ReduceKind::ALL] { axis })`,
//! from the op itself, `declare!(NAMES[self in Unary::ALL])`, or from an index that a function computes,
//! `declare!(NAMES[|op| op.windows.axes() - 2] { windows })`.

use std::sync::Arc;

use tensor::DType;

use super::attributes::{Attribute, Attributes, TensorData};
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

    /// Takes the field of an op, which may be one of a family, out of what text says.
    ///
    /// # Errors
    /// If it is missing, or something else.
    fn read(op: &str, name: &str, attributes: &mut Attributes) -> Result<Self, TypeError>;
}

impl<T: AttributeType> Field for T {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with(name, self.to_attribute())
    }

    fn read(_op: &str, name: &str, attributes: &mut Attributes) -> Result<T, TypeError> {
        T::take(name, attributes)?.ok_or_else(|| type_error!("attribute `{name}` is missing"))
    }
}

impl<T: AttributeType> Field for Option<T> {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with_some(name, self.as_ref().map(T::to_attribute))
    }

    fn read(_op: &str, name: &str, attributes: &mut Attributes) -> Result<Option<T>, TypeError> {
        T::take(name, attributes)
    }
}

/// Absent means false.
impl Field for bool {
    fn write(&self, name: &str, attributes: Attributes) -> Attributes {
        attributes.with_some(name, self.then_some(Attribute::Bool(true)))
    }

    fn read(_op: &str, name: &str, attributes: &mut Attributes) -> Result<bool, TypeError> {
        match attributes.take(name) {
            None => Ok(false),
            Some(Attribute::Bool(value)) => Ok(value),
            Some(other) => Err(wrong_kind(name, "true or false", &other)),
        }
    }
}

/// Attributes that the op does not know by name: all that its other fields leave.
impl Field for Attributes {
    fn write(&self, _name: &str, attributes: Attributes) -> Attributes {
        self.iter().fold(attributes, |all, (name, value)| all.with(name, value.clone()))
    }

    fn read(_op: &str, _name: &str, attributes: &mut Attributes) -> Result<Attributes, TypeError> {
        Ok(std::mem::take(attributes))
    }
}

/// What each type is as an attribute: its kind in messages, the way there, and the ways back.
macro_rules! attribute_types {
    ($($type:ty: $kind:literal, |$value:ident| $attribute:expr, |$name:ident| {
        $($pattern:pat $(if $guard:expr)? => $back:expr),+
    })*) => { $(
        impl AttributeType for $type {
            fn to_attribute(&self) -> Attribute {
                let $value = self;
                $attribute
            }

            fn take($name: &str, attributes: &mut Attributes) -> Result<Option<$type>, TypeError> {
                let Some(attribute) = attributes.take($name) else { return Ok(None) };
                match attribute {
                    $($pattern $(if $guard)? => $back.map(Some),)+
                    other => Err(wrong_kind($name, $kind, &other)),
                }
            }
        }
    )* };
}

attribute_types! {
    usize: "a whole number", |value| Attribute::index(*value), |name| {
        Attribute::Int(value) => usize::try_from(value).map_err(|_| out_of_range(name, value))
    }
    i64: "a whole number", |value| Attribute::Int(*value), |name| { Attribute::Int(value) => Ok(value) }
    // The bits of an i64.
    u64: "a whole number", |value| Attribute::Int(*value as i64), |name| { Attribute::Int(value) => Ok(value as u64) }
    f32: "a number", |value| Attribute::f32(*value), |name| {
        Attribute::Float(value) if (value as f32).is_finite() => Ok(value as f32),
        Attribute::Int(value) => Ok(value as f32)
    }
    String: "a word", |value| Attribute::Text(value.clone()), |name| { Attribute::Text(value) => Ok(value) }
    DType: "a dtype", |value| Attribute::DType(*value), |name| { Attribute::DType(value) => Ok(value) }
    Type: "a type", |value| Attribute::Type(value.clone()), |name| { Attribute::Type(value) => Ok(value) }
    Vec<Type>: "a list of types", |types| Attribute::Types(types.clone()), |name| {
        Attribute::Types(types) => Ok(types),
        Attribute::Ints(values) if values.is_empty() => Ok(Vec::new())
    }
    Vec<usize>: "a list of whole numbers", |values| Attribute::indices(values), |name| {
        Attribute::Ints(values) => not_negative(name, &values)
    }
    Vec<Dim>: "a shape", |dims| Attribute::Dims(dims.clone()), |name| {
        Attribute::Dims(dims) => Ok(dims),
        Attribute::Ints(sizes) => Ok(not_negative(name, &sizes)?.into_iter().map(Dim::from).collect::<Vec<Dim>>())
    }
    TensorData: "data", |value| Attribute::Tensor(value.clone()), |name| { Attribute::Tensor(value) => Ok(value) }
    Arc<Graph>: "a graph", |graph| Attribute::Graph(Arc::clone(graph)), |name| { Attribute::Graph(graph) => Ok(graph) }
}

impl AttributeType for Dim {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dims(vec![self.clone()])
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Dim>, TypeError> {
        let one = |dims| {
            let [dim] = <[Dim; 1]>::try_from(dims)
                .map_err(|dims| type_error!("{name} is {dims:?}, expected one number"))?;
            Ok(dim)
        };
        Vec::take(name, attributes)?.map(one).transpose()
    }
}

/// Symbols, which text holds as a shape.
impl AttributeType for Vec<String> {
    fn to_attribute(&self) -> Attribute {
        Attribute::Dims(self.iter().map(|symbol| Dim::symbol(symbol)).collect())
    }

    fn take(name: &str, attributes: &mut Attributes) -> Result<Option<Vec<String>>, TypeError> {
        let symbol = |dim: &Dim| {
            let wrong = || type_error!("attribute `{name}` has {dim}, expected a symbol");
            dim.as_symbol().map(str::to_string).ok_or_else(wrong)
        };
        let dims = Vec::<Dim>::take(name, attributes)?;
        dims.map(|dims| dims.iter().map(symbol).collect()).transpose()
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

fn not_negative(name: &str, values: &[i64]) -> Result<Vec<usize>, TypeError> {
    let sizes: Option<Vec<usize>> = values.iter().map(|&value| usize::try_from(value).ok()).collect();
    sizes.ok_or_else(|| wrong_kind(name, "no negative number", &Attribute::Ints(values.to_vec())))
}

fn out_of_range(name: &str, value: i64) -> TypeError {
    type_error!("attribute `{name}` = {value} is out of range")
}

fn wrong_kind(name: &str, expected: &str, got: &Attribute) -> TypeError {
    type_error!("attribute `{name}` is {got}, expected {expected}")
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
                let word = <String as $crate::ops::field::AttributeType>::take(name, attributes)?;
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
    type_error!("{name} is {word}, expected {expected}")
}

/// The names and the attributes of an op: see the head of this file.
macro_rules! declare {
    ($name:literal) => {
        const NAMES: &[&str] = &[$name];

        fn name(&self) -> &'static str {
            $name
        }

        fn parse(_: &str, _: &mut Attributes) -> Result<Self, TypeError> {
            Ok(Self {})
        }
    };
    ($names:ident[self in $members:expr]) => {
        const NAMES: &[&str] = $names;

        fn name(&self) -> &'static str {
            $names[*self as usize]
        }

        fn parse(name: &str, _: &mut Attributes) -> Result<Self, TypeError> {
            Ok($crate::ops::field::member($names, name, $members))
        }
    };
    ($names:ident[$kind:ident in $members:expr]) => {
        const NAMES: &[&str] = $names;

        fn name(&self) -> &'static str {
            $names[self.$kind as usize]
        }

        fn parse(name: &str, _: &mut Attributes) -> Result<Self, TypeError> {
            Ok(Self { $kind: $crate::ops::field::member($names, name, $members) })
        }
    };
    ($name:literal { $($fields:tt)+ }) => {
        declare!(@op &[$name], |_| 0, {} $($fields)+);
    };
    ($names:ident[$kind:ident in $members:expr] { $($fields:tt)+ }) => {
        declare!(@op $names, |op| op.$kind as usize, { $kind: $members } $($fields)+);
    };
    ($names:ident[|$op:ident| $index:expr] { $($fields:tt)+ }) => {
        declare!(@op $names, |$op| $index, {} $($fields)+);
    };
    (@op $names:expr, $index:expr, { $($kind:ident: $members:expr)? }
        $($field:ident $(as $text:literal)? $(= $default:expr)?),+
    ) => {
        const NAMES: &[&str] = $names;

        fn name(&self) -> &'static str {
            let index: fn(&Self) -> usize = $index;
            Self::NAMES[index(self)]
        }

        fn attributes(&self) -> Attributes {
            let attributes = Attributes::default();
            $(let attributes =
                declare!(@with attributes, declare!(@text $field $($text)?), &self.$field $(, $default)?);)+
            attributes
        }

        fn parse(name: &str, attributes: &mut Attributes) -> Result<Self, TypeError> {
            $(let $kind = $crate::ops::field::member(Self::NAMES, name, $members);)?
            $(let $field = declare!(@read name, attributes, declare!(@text $field $($text)?) $(, $default)?);)+
            let op = Self { $($kind,)? $($field),+ };
            if op.name() == name {
                return Ok(op);
            }
            Err(type_error!("with these attributes, it is called {}", op.name()))
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
    (@read $op:expr, $attributes:ident, $name:expr) => {
        $crate::ops::field::Field::read($op, $name, $attributes)?
    };
    (@read $op:expr, $attributes:ident, $name:expr, $default:expr) => { $attributes.or($name, $default)? };
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
