//! Brackets around the axes of an array, with commas, line breaks and dots where axes are cut short.

/// How an array is laid out as text.
pub(super) struct Nest<'a> {
    /// The sizes of the axes.
    pub(super) dims: &'a [usize],
    /// Between elements.
    pub(super) separator: &'static str,
    /// How many elements are shown at either end of a longer axis.
    pub(super) edge: Option<usize>,
    pub(super) lines: Lines,
}

/// Where lines break.
pub(super) enum Lines {
    /// Nowhere.
    One,
    /// Between rows, with an empty line more for each further axis.
    Rows { indent: usize },
    /// Between rows, and within a row where a line would be wider than `width`.
    Wrapped { indent: usize, width: usize },
}

/// What stands at a place along an axis.
enum Entry {
    Position(usize),
    Dots,
}

impl Nest<'_> {
    /// The text, with each element shown as `element` says.
    pub(super) fn write(&self, element: &mut dyn FnMut(&[usize]) -> String) -> String {
        let empty = self.dims.contains(&0);
        if empty && !matches!(self.lines, Lines::One) {
            return "[".repeat(self.outer_ones()) + "]".repeat(self.outer_ones()).as_str();
        }
        let mut text = String::new();
        self.axis(&mut Vec::with_capacity(self.dims.len()), element, &mut text);
        text
    }

    /// The indices of the elements shown, in order.
    pub(super) fn visit(&self, element: &mut dyn FnMut(&[usize])) {
        if !self.dims.contains(&0) {
            self.write(&mut |index| {
                element(index);
                String::new()
            });
        }
    }

    /// The brackets of an array without elements: axes of one in front, and one more.
    fn outer_ones(&self) -> usize {
        1 + self.dims.iter().take_while(|&&dim| dim == 1).count()
    }

    fn axis(&self, index: &mut Vec<usize>, element: &mut dyn FnMut(&[usize]) -> String, text: &mut String) {
        let Some(&dim) = self.dims.get(index.len()) else {
            text.push_str(&element(index));
            return;
        };
        text.push('[');
        let innermost = index.len() + 1 == self.dims.len();
        for (i, entry) in self.entries(dim).enumerate() {
            let start = text.len();
            match entry {
                Entry::Dots => text.push_str("..."),
                Entry::Position(position) => {
                    index.push(position);
                    self.axis(index, element, text);
                    index.pop();
                }
            }
            if i > 0 {
                let entry = text.split_off(start);
                self.separate(index.len(), innermost, entry.len(), text);
                text.push_str(&entry);
            }
        }
        text.push(']');
    }

    fn entries(&self, dim: usize) -> impl Iterator<Item = Entry> {
        let edge = self.edge.filter(|edge| dim > 2 * edge);
        let (head, tail) = edge.map_or((dim, dim), |edge| (edge, dim - edge));
        let dots = edge.map(|_| Entry::Dots);
        (0..head).map(Entry::Position).chain(dots).chain((tail..dim).map(Entry::Position))
    }

    /// What stands before an entry that is not the first: `depth` axes are open around its own.
    fn separate(&self, depth: usize, innermost: bool, width: usize, text: &mut String) {
        let broken = match self.lines {
            Lines::One => None,
            Lines::Rows { indent } => (!innermost).then_some(indent),
            Lines::Wrapped { indent, width: limit } => {
                let line = text.len() - text.rfind('\n').map_or(0, |at| at + 1);
                let indent_of_first = if text.contains('\n') { 0 } else { indent };
                // One more for the bracket that may follow.
                let full = indent_of_first + line + self.separator.len() + width + 1 > limit;
                (!innermost || full).then_some(indent)
            }
        };
        let Some(indent) = broken else {
            text.push_str(self.separator);
            return;
        };
        text.push_str(self.separator.trim_end());
        let breaks = if innermost { 1 } else { self.dims.len() - 1 - depth };
        text.push_str(&"\n".repeat(breaks));
        text.push_str(&" ".repeat(indent + depth + 1));
    }
}

/// The texts, all as wide as the widest.
pub(super) fn right_aligned(texts: Vec<String>) -> Vec<String> {
    let width = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    texts.into_iter().map(|text| format!("{text:>width$}")).collect()
}
