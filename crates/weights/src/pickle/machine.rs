//! The machine itself: one opcode after the other.

use std::ops::ControlFlow;

use super::{Node, Pickle, Span, Value};
use crate::allowed::{self, Global};
use crate::error::{Problem, excerpt, malformed, unsupported};

/// Values on the stack. Picklers write lists and dicts in batches of a thousand.
const MAX_STACK: usize = 1 << 15;
/// Open marks, thus the depth of what is being built.
const MAX_MARKS: usize = 1 << 10;
/// Bytes of the pickle for each value with contents. A tensor takes about nine such values and a hundred bytes.
const MIN_NODE_BYTES: usize = 4;
/// Values that any pickle may have.
const FREE_NODES: usize = 1 << 12;

/// The stack machine, and the values it has made.
pub(super) struct Machine<'a> {
    values: Pickle<'a>,
    /// Of the next byte to read.
    position: usize,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
}

impl<'a> Machine<'a> {
    /// A machine that has run nothing of a pickle, which has no values yet.
    pub(super) fn new(values: Pickle<'a>) -> Machine<'a> {
        Machine { values, position: 0, stack: Vec::new(), marks: Vec::new(), memo: Vec::new() }
    }

    /// Runs the pickle to its end; gives its values.
    pub(super) fn run(mut self) -> Result<Pickle<'a>, Problem> {
        while self.step()?.is_continue() {}
        self.values.root = self.pop()?;
        self.values.len = self.position;
        Ok(self.values)
    }

    /// Executes one opcode.
    fn step(&mut self) -> Result<ControlFlow<()>, Problem> {
        let start = self.position;
        match self.array::<1>()?[0] {
            b'.' => return Ok(ControlFlow::Break(())),
            // Protocol and frames: only lengths, which the bounds of the source check anyway.
            0x80 => self.protocol()?,
            0x95 => drop(self.array::<8>()?),
            // Constants.
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            // Numbers.
            b'K' => self.sized(1)?,
            b'M' => self.sized(2)?,
            b'J' => {
                let integer = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(integer))?;
            }
            0x8a => {
                let len = self.length(1)?;
                self.long(len)?;
            }
            0x8b => {
                let len = self.length(4)?;
                self.long(len)?;
            }
            b'G' => {
                let float = f64::from_be_bytes(self.array()?);
                self.push_node(Node::Float(float))?;
            }
            // Text and bytes.
            0x8c => self.text(1)?,
            b'X' => self.text(4)?,
            0x8d => self.text(8)?,
            b'U' => self.byte_string(1)?,
            b'T' => self.byte_string(4)?,
            b'C' => self.byte_string(1)?,
            b'B' => self.byte_string(4)?,
            0x8e => self.byte_string(8)?,
            // Tuples.
            b')' => self.tuple(0)?,
            0x85 => self.tuple(1)?,
            0x86 => self.tuple(2)?,
            0x87 => self.tuple(3)?,
            b't' => {
                let len = self.marked()?;
                self.tuple(len)?;
            }
            // Lists and dicts.
            b']' => self.push_node(Node::List(Vec::new()))?,
            b'}' => self.push_node(Node::Dict(Vec::new()))?,
            b'a' => self.append(1)?,
            b'e' => {
                let len = self.marked()?;
                self.append(len)?;
            }
            b's' => self.set_items(2)?,
            b'u' => {
                let len = self.marked()?;
                self.set_items(len)?;
            }
            // The stack and the memo.
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'q' => {
                let index = self.length(1)?;
                self.remember(index)?;
            }
            b'r' => {
                let index = self.length(4)?;
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len())?,
            b'h' => {
                let index = self.length(1)?;
                self.recall(index)?;
            }
            b'j' => {
                let index = self.length(4)?;
                self.recall(index)?;
            }
            // Python objects.
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => self.stack_global()?,
            b'Q' => {
                let id = self.pop()?;
                self.push_node(Node::Persistent(id))?;
            }
            b'R' => self.reduce()?,
            b'b' => self.build()?,
            other => {
                return unsupported!(
                    "unsupported pickle opcode {other:#04x} at byte {start} (state dicts never use it)"
                );
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn protocol(&mut self) -> Result<(), Problem> {
        match self.array::<1>()?[0] {
            2..=5 => Ok(()),
            version => unsupported!("pickle protocol {version}; 2 to 5 are read"),
        }
    }

    /// An unsigned integer of `N` bytes.
    fn sized(&mut self, bytes: usize) -> Result<(), Problem> {
        let integer = self.length(bytes)?;
        self.push(Value::Int(integer as i32))
    }

    /// A signed integer of any length, least byte first.
    fn long(&mut self, len: usize) -> Result<(), Problem> {
        let start = self.position;
        let bytes = self.take(len)?;
        if len > 8 {
            return self.push_node(Node::Bytes(Span::new(start, len)));
        }
        let negative = bytes.last().is_some_and(|&last| last >= 0x80);
        let mut wide = if negative { [0xff; 8] } else { [0; 8] };
        wide[..len].copy_from_slice(bytes);
        self.push_node(Node::Integer(i64::from_le_bytes(wide)))
    }

    /// Text whose length is in `prefix` bytes before it.
    fn text(&mut self, prefix: usize) -> Result<(), Problem> {
        let len = self.length(prefix)?;
        let start = self.position;
        if std::str::from_utf8(self.take(len)?).is_err() {
            return malformed!("the text of {len} bytes at byte {start} of the pickle is not UTF-8");
        }
        self.push_node(Node::Text(Span::new(start, len)))
    }

    /// Bytes whose length is in `prefix` bytes before them. Python 2 wrote its text so.
    fn byte_string(&mut self, prefix: usize) -> Result<(), Problem> {
        let len = self.length(prefix)?;
        let start = self.position;
        let is_text = std::str::from_utf8(self.take(len)?).is_ok();
        let span = Span::new(start, len);
        self.push_node(if is_text { Node::Text(span) } else { Node::Bytes(span) })
    }

    fn tuple(&mut self, len: usize) -> Result<(), Problem> {
        let values = self.pop_many(len)?;
        let start = self.values.items.len();
        self.values.items.extend(self.stack.drain(values..));
        self.push_node(Node::Tuple(Span::new(start, len)))
    }

    /// Moves the upper `len` values into the list below them.
    fn append(&mut self, len: usize) -> Result<(), Problem> {
        let values = self.pop_many(len)?;
        let at = self.position;
        let Some(Node::List(list)) = Self::target(&self.stack[..values], &mut self.values.nodes) else {
            return malformed!("the pickle appends to something other than a list at byte {at}");
        };
        if list.is_empty() {
            list.reserve_exact(len); // Most lists come in one batch, and many are short.
        }
        list.extend(self.stack.drain(values..));
        Ok(())
    }

    /// Moves the upper `len` values, keys and values in turn, into the dict below them.
    fn set_items(&mut self, len: usize) -> Result<(), Problem> {
        let values = self.pop_many(len)?;
        let at = self.position;
        let Some(Node::Dict(dict)) = Self::target(&self.stack[..values], &mut self.values.nodes) else {
            return malformed!("the pickle sets items of something other than a dict at byte {at}");
        };
        let (pairs, rest) = self.stack[values..].as_chunks::<2>();
        if !rest.is_empty() {
            return malformed!("the pickle sets a key without a value at byte {at}");
        }
        if dict.is_empty() {
            dict.reserve_exact(pairs.len());
        }
        dict.extend(pairs.iter().map(|&[key, value]| (key, value)));
        self.stack.truncate(values);
        Ok(())
    }

    /// The node on top of the stack.
    fn target<'n>(stack: &[Value], nodes: &'n mut [Node]) -> Option<&'n mut Node> {
        match stack.last()? {
            Value::Node(index) => nodes.get_mut(*index as usize),
            _ => None,
        }
    }

    fn mark(&mut self) -> Result<(), Problem> {
        if self.marks.len() == MAX_MARKS {
            return unsupported!("the pickle is nested more than {MAX_MARKS} deep");
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Removes the last mark; the number of values above it.
    fn marked(&mut self) -> Result<usize, Problem> {
        match self.marks.pop() {
            Some(height) => Ok(self.stack.len() - height),
            None => malformed!("the pickle has no mark to go back to at byte {}", self.position),
        }
    }

    fn remember(&mut self, index: usize) -> Result<(), Problem> {
        // Picklers count up from zero, one entry per opcode.
        if index >= self.position {
            return malformed!("memo entry {index} at byte {} of the pickle", self.position);
        }
        let top = self.top()?;
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(top);
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), Problem> {
        match self.memo.get(index).copied().flatten() {
            Some(value) => self.push(value),
            None => malformed!("the pickle uses memo entry {index}, which it never made"),
        }
    }

    fn stack_global(&mut self) -> Result<(), Problem> {
        let (name, module) = (self.pop()?, self.pop()?);
        match (self.values.text(module), self.values.text(name)) {
            (Some(module), Some(name)) => self.global(module.as_bytes(), name.as_bytes()),
            _ => malformed!("the pickle names an object by something other than text"),
        }
    }

    fn global(&mut self, module: &[u8], name: &[u8]) -> Result<(), Problem> {
        let as_text = || Some((std::str::from_utf8(module).ok()?, std::str::from_utf8(name).ok()?));
        match as_text().and_then(|(module, name)| allowed::lookup(module, name)) {
            Some(global) => self.push(Value::Global(global)),
            None => Err(Problem::Refused(format!("{}.{}", excerpt(module), excerpt(name)))),
        }
    }

    /// Writes down a call; only an empty ordered dict is made on the spot, as items are set on it next.
    fn reduce(&mut self) -> Result<(), Problem> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        let (Value::Global(function), Some(tuple)) = (function, self.values.tuple(arguments)) else {
            return malformed!("the pickle calls something other than a function at byte {}", self.position);
        };
        match function {
            Global::OrderedDict if tuple.is_empty() => self.push_node(Node::Dict(Vec::new())),
            _ => self.push_node(Node::Call { function, arguments }),
        }
    }

    /// Drops the attributes that are set on a dict or a tensor: none of them is a weight.
    fn build(&mut self) -> Result<(), Problem> {
        self.pop()?;
        let top = self.top()?;
        match self.values.node(top) {
            Some(Node::Dict(_) | Node::Call { .. }) => Ok(()),
            _ => malformed!("the pickle sets attributes of a plain value at byte {}", self.position),
        }
    }

    fn push(&mut self, value: Value) -> Result<(), Problem> {
        if self.stack.len() == MAX_STACK {
            return unsupported!("the pickle holds more than {MAX_STACK} values at a time");
        }
        self.stack.push(value);
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Result<(), Problem> {
        let index = self.values.nodes.len();
        if index >= FREE_NODES + self.position / MIN_NODE_BYTES {
            return unsupported!(
                "the pickle makes {index} values from {} bytes, too many for tensors",
                self.position
            );
        }
        self.values.nodes.push(node);
        self.push(Value::Node(u32::try_from(index).expect("fewer nodes than bytes")))
    }

    fn top(&self) -> Result<Value, Problem> {
        match self.stack.last() {
            Some(&value) if self.marks.last().is_none_or(|&mark| mark < self.stack.len()) => Ok(value),
            _ => malformed!("the pickle takes a value that is not there at byte {}", self.position),
        }
    }

    fn pop(&mut self) -> Result<Value, Problem> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// The height of the stack below its upper `len` values, all of them above the last mark.
    fn pop_many(&self, len: usize) -> Result<usize, Problem> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(len) {
            Some(height) if height >= floor => Ok(height),
            _ => malformed!("the pickle takes {len} values that are not there at byte {}", self.position),
        }
    }

    /// An unsigned number of 1, 2, 4 or 8 bytes.
    fn length(&mut self, bytes: usize) -> Result<usize, Problem> {
        let mut wide = [0; 8];
        wide[..bytes].copy_from_slice(self.take(bytes)?);
        let length = u64::from_le_bytes(wide);
        match usize::try_from(length) {
            Ok(length) => Ok(length),
            Err(_) => malformed!("a length of {length} in the pickle"),
        }
    }

    /// Bytes up to the next newline, which is consumed.
    fn line(&mut self) -> Result<&'a [u8], Problem> {
        let rest = &self.values.source[self.position..];
        match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                self.position += end + 1;
                Ok(&rest[..end])
            }
            None => malformed!("the pickle ends within a name at byte {}", self.position),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        Ok(self.take(N)?.try_into().expect("as many bytes were taken"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Problem> {
        let rest = &self.values.source[self.position..];
        match rest.get(..len) {
            Some(bytes) => {
                self.position += len;
                Ok(bytes)
            }
            None => malformed!(
                "the pickle ends at byte {}, {len} bytes are wanted at {}",
                self.values.source.len(),
                self.position
            ),
        }
    }
}
