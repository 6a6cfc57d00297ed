//! A pickle machine that builds values and runs nothing: opcodes in, a graph of plain values out.
//!
//! Python's pickle is a program for a stack machine, and `REDUCE` calls any function it names. Here a name must be
//! on the allow-list, and a call is only written down. Values live in one flat list and refer to each other by
//! index, so depth costs no stack, sharing costs no copy, and cycles do no harm. Memory is bounded by the length
//! of the pickle: see the limits of the machine.
//!
//! Opcodes after CPython's `Lib/pickletools.py`: those that `torch.save` writes, in protocols 2 to 5.

mod machine;
#[cfg(test)]
mod tests;

use self::machine::Machine;
use crate::allowed::Global;
use crate::error::Problem;

/// The longest pickle: far above the names and shapes of any model.
const MAX_BYTES: usize = 1 << 28;

/// One value. A container is a reference into the pickle that it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i32),
    Global(Global),
    Node(u32),
}

/// A value with contents.
#[derive(Debug)]
enum Node {
    Integer(i64),
    Float(f64),
    /// UTF-8 in the source.
    Text(Span),
    /// Other bytes of the source: byte strings, and integers of more than 64 bits.
    Bytes(Span),
    /// A part of `items`.
    Tuple(Span),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    /// A reference to something outside the pickle, such as a storage.
    Persistent(Value),
    /// A call, not made.
    Call {
        function: Global,
        arguments: Value,
    },
}

/// A range in half the space.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn new(start: usize, len: usize) -> Span {
        let narrow = |size: usize| u32::try_from(size).expect("a pickle is shorter than 4 GiB");
        Span { start: narrow(start), len: narrow(len) }
    }

    fn of<T>(self, whole: &[T]) -> &[T] {
        &whole[self.start as usize..][..self.len as usize]
    }
}

/// The values of one pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    /// The value of the whole pickle.
    pub(crate) root: Value,
    /// How many bytes it took.
    pub(crate) len: usize,
    source: &'a [u8],
    nodes: Vec<Node>,
    items: Vec<Value>,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle that `source` starts with.
    pub(crate) fn read(source: &'a [u8]) -> Result<Pickle<'a>, Problem> {
        let source = &source[..source.len().min(MAX_BYTES)];
        let empty = Pickle { root: Value::None, len: 0, source, nodes: Vec::new(), items: Vec::new() };
        Machine::new(empty).run()
    }

    pub(crate) fn integer(&self, value: Value) -> Option<i64> {
        match (value, self.node(value)) {
            (Value::Int(integer), _) => Some(integer.into()),
            (_, Some(&Node::Integer(integer))) => Some(integer),
            _ => None,
        }
    }

    pub(crate) fn float(&self, value: Value) -> Option<f64> {
        match self.node(value)? {
            Node::Float(float) => Some(*float),
            _ => None,
        }
    }

    pub(crate) fn text(&self, value: Value) -> Option<&'a str> {
        match self.node(value)? {
            Node::Text(span) => std::str::from_utf8(span.of(self.source)).ok(),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, value: Value) -> Option<&'a [u8]> {
        match self.node(value)? {
            Node::Bytes(span) => Some(span.of(self.source)),
            _ => None,
        }
    }

    pub(crate) fn tuple(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::Tuple(span) => Some(span.of(&self.items)),
            _ => None,
        }
    }

    pub(crate) fn list(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::List(values) => Some(values),
            _ => None,
        }
    }

    pub(crate) fn dict(&self, value: Value) -> Option<&[(Value, Value)]> {
        match self.node(value)? {
            Node::Dict(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(crate) fn persistent(&self, value: Value) -> Option<Value> {
        match self.node(value)? {
            Node::Persistent(id) => Some(*id),
            _ => None,
        }
    }

    /// The function and the arguments of a call.
    pub(crate) fn call(&self, value: Value) -> Option<(Global, &[Value])> {
        match self.node(value)? {
            Node::Call { function, arguments } => Some((*function, self.tuple(*arguments)?)),
            _ => None,
        }
    }

    /// Every reference to something outside the pickle.
    pub(crate) fn persistents(&self) -> impl Iterator<Item = Value> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Persistent(id) => Some(*id),
            _ => None,
        })
    }

    fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(index) => self.nodes.get(index as usize),
            _ => None,
        }
    }
}
