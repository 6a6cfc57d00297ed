//! Sizes of axes: numbers, symbols that get their number at run time, and sums and products of both.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};
use std::sync::Arc;

use crate::Error;

/// The size of an axis, kept as a polynomial in normal form, so that equal expressions compare equal:
/// `2 * (n + 1)` and `n + n + 2` are the same dim.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// Products of atoms (sorted) and their coefficients (not 0), sorted by product.
    terms: Vec<(Vec<Atom>, i64)>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Arc<str>),
    /// A quotient, rounded down, that cannot be computed before the symbols have numbers.
    FloorDiv(Box<Dim>, Box<Dim>),
}

/// A shape of numbers, symbols and expressions: `dims!["tokens", 4, &half]`.
#[macro_export]
macro_rules! dims {
    () => { ([] as [$crate::Dim; 0]) };
    ($($dim:expr),* $(,)?) => { [$($crate::Dim::from($dim)),*] };
}

/// What an expression leaves open once some symbols have their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown<'a> {
    /// All symbols are known.
    Nothing,
    /// One symbol is unknown, and the expression is linear in it.
    Linear(&'a str),
    /// It cannot be solved.
    Entangled,
}

/// A dim in place of each symbol: how the sizes of a graph are said in the terms of its caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Substitution(BTreeMap<Arc<str>, Dim>);

impl Substitution {
    /// The dim in place of a symbol, if there is one.
    pub fn get(&self, symbol: &str) -> Option<&Dim> {
        self.0.get(symbol)
    }

    /// Puts a dim in place of a symbol.
    pub fn insert(&mut self, symbol: &str, dim: Dim) {
        self.0.insert(symbol.into(), dim);
    }

    /// Symbols and the dims in their place, in the symbols' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Dim)> {
        self.0.iter().map(|(symbol, dim)| (&**symbol, dim))
    }
}

/// The number of each symbol in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Bindings(BTreeMap<Arc<str>, usize>);

impl Bindings {
    /// The number of a symbol, if it has one.
    pub fn get(&self, symbol: &str) -> Option<usize> {
        self.0.get(symbol).copied()
    }

    /// Gives a symbol its number, and returns the number it had.
    pub fn insert(&mut self, symbol: &str, size: usize) -> Option<usize> {
        self.0.insert(symbol.into(), size)
    }

    /// Symbols and numbers, in the symbols' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(symbol, &size)| (&**symbol, size))
    }
}

impl<'s> FromIterator<(&'s str, usize)> for Bindings {
    fn from_iter<I: IntoIterator<Item = (&'s str, usize)>>(pairs: I) -> Bindings {
        Bindings(pairs.into_iter().map(|(symbol, size)| (symbol.into(), size)).collect())
    }
}

impl Dim {
    /// A size that gets its number at run time.
    ///
    /// # Panics
    /// If `name` is no identifier (letters, digits and underscores, not starting with a digit).
    pub fn symbol(name: &str) -> Dim {
        assert!(Dim::is_identifier(name), "`{name}` is no identifier");
        Dim::atom(Atom::Symbol(name.into()))
    }

    /// A symbol that no text can name.
    pub(crate) fn unchecked_symbol(name: &str) -> Dim {
        Dim::atom(Atom::Symbol(name.into()))
    }

    /// Whether a name can be a symbol.
    pub fn is_identifier(name: &str) -> bool {
        name.chars()
            .enumerate()
            .all(|(i, c)| c == '_' || c.is_ascii_alphabetic() || (i > 0 && c.is_ascii_digit()))
            && !name.is_empty()
    }

    /// The number, if it is known already.
    pub fn as_static(&self) -> Option<usize> {
        usize::try_from(self.as_integer()?).ok()
    }

    /// A number that may be negative, as part of an expression.
    pub fn integer(number: i64) -> Dim {
        Dim { terms: if number == 0 { vec![] } else { vec![(vec![], number)] } }
    }

    /// The name, if this is a lone symbol.
    pub fn as_symbol(&self) -> Option<&str> {
        match &self.terms[..] {
            [(product, 1)] => match &product[..] {
                [Atom::Symbol(name)] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The quotient, rounded down. Exact where every term divides.
    ///
    /// # Panics
    /// If the divisor is the number 0.
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if let Some(quotient) = self.exact_quotient(divisor) {
            return quotient;
        }
        if let Some(number) = divisor.as_static() {
            assert!(number != 0, "{self} // 0");
            if let Some(value) = self.as_static() {
                return Dim::from(value / number);
            }
        }
        if self == divisor {
            return Dim::from(1);
        }
        Dim::atom(Atom::FloorDiv(Box::new(self.clone()), Box::new(divisor.clone())))
    }

    /// The quotient by a product, if every term holds it.
    fn exact_quotient(&self, divisor: &Dim) -> Option<Dim> {
        let [(atoms, number)] = &divisor.terms[..] else { return None };
        let mut terms = Vec::with_capacity(self.terms.len());
        for (product, coefficient) in &self.terms {
            let mut rest = product.clone();
            for atom in atoms {
                rest.remove(rest.iter().position(|other| other == atom)?);
            }
            let is_exact = coefficient.checked_rem(*number)? == 0;
            terms.push(is_exact.then(|| (rest, coefficient / number))?);
        }
        Some(Dim::collect(terms))
    }

    /// The number once all symbols have theirs.
    ///
    /// # Errors
    /// If a symbol has none, or the result is negative or overflows.
    pub fn resolve(&self, bindings: &Bindings) -> Result<usize, Error> {
        if let Some(size) = self.as_static() {
            return Ok(size);
        }
        let value = self.evaluate(bindings)?;
        usize::try_from(value).map_err(|_| Error::Dim(format!("the dim {self} is {value}")))
    }

    /// Every symbol in this expression, in order of appearance.
    pub fn symbols(&self) -> Vec<&str> {
        self.terms.iter().flat_map(|(product, _)| product).flat_map(Atom::symbols).collect()
    }

    /// This expression with other dims in place of symbols; symbols without one stay. `None` if the result divides
    /// by 0 or has too many terms to compute with.
    pub fn substitute(&self, symbols: &Substitution) -> Option<Dim> {
        let mut sum = Dim::from(0);
        for (product, coefficient) in &self.terms {
            let mut term = Dim::integer(*coefficient);
            for atom in product {
                term = tractable(&term * &atom.substitute(symbols)?)?;
            }
            sum = tractable(&sum + &term)?;
        }
        Some(sum)
    }

    /// The dim that makes this expression, linear in `symbol`, equal to `dim`, if its terms divide.
    pub(crate) fn solve_for(&self, symbol: &str, dim: &Dim) -> Option<Dim> {
        let is_symbol = |product: &[Atom]| matches!(product, [Atom::Symbol(name)] if **name == *symbol);
        let (with, without): (Vec<_>, Vec<_>) = self
            .terms
            .iter()
            .cloned()
            .partition(|(product, _)| product.iter().any(|atom| atom.symbols().contains(&symbol)));
        let [(product, coefficient)] = &with[..] else { return None };
        if !is_symbol(product) {
            return None;
        }
        let distance = dim - &Dim { terms: without };
        let terms = distance.terms.iter().map(|(product, c)| {
            (c.checked_rem(*coefficient)? == 0)
                .then(|| Some((product.clone(), c.checked_div(*coefficient)?)))?
        });
        Some(Dim { terms: terms.collect::<Option<_>>()? })
    }

    /// What this leaves open once the symbols that `known` names have numbers.
    pub(crate) fn unknown(&self, known: &dyn Fn(&str) -> bool) -> Unknown<'_> {
        let mut unknown: Vec<&str> = self.symbols().into_iter().filter(|&symbol| !known(symbol)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let is_linear = |symbol: &str| {
            self.terms.iter().all(|(product, _)| {
                let lone = |atom: &&Atom| matches!(atom, Atom::Symbol(name) if **name == *symbol);
                let within = |atom: &&Atom| !lone(atom) && atom.symbols().contains(&symbol);
                product.iter().filter(lone).count() <= 1 && !product.iter().any(|atom| within(&atom))
            })
        };
        match unknown[..] {
            [] => Unknown::Nothing,
            [symbol] if is_linear(symbol) => Unknown::Linear(symbol),
            _ => Unknown::Entangled,
        }
    }

    /// The number that makes this expression, linear in `symbol`, equal to `size`.
    pub(crate) fn solve(&self, symbol: &str, size: usize, bindings: &Bindings) -> Option<usize> {
        let mut bindings = bindings.clone();
        let mut value_at = |number: usize| {
            bindings.insert(symbol, number);
            self.evaluate(&bindings).ok()
        };
        let (at_zero, at_one) = (value_at(0)?, value_at(1)?);
        let slope = at_one.checked_sub(at_zero)?;
        let distance = i64::try_from(size).ok()?.checked_sub(at_zero)?;
        let exact = distance.checked_rem(slope)? == 0;
        exact.then(|| usize::try_from(distance / slope).ok()).flatten()
    }

    /// How many symbols, numbers and operations a shape may have: text and ops could nest without end
    /// otherwise.
    pub(crate) const MAX_COMPLEXITY: usize = 64;

    /// How many symbols, numbers and operations this expression has.
    pub(crate) fn complexity(&self) -> usize {
        let atom = |atom: &Atom| match atom {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(a, b) => 1 + a.complexity() + b.complexity(),
        };
        self.terms.iter().map(|(product, _)| 1 + product.iter().map(atom).sum::<usize>()).sum()
    }

    /// The number, positive or not, if there are no symbols.
    pub fn as_integer(&self) -> Option<i64> {
        match &self.terms[..] {
            [] => Some(0),
            [(product, number)] if product.is_empty() => Some(*number),
            _ => None,
        }
    }

    /// The number of terms of the sum that this is.
    pub(crate) fn terms(&self) -> usize {
        self.terms.len().max(1)
    }

    fn atom(atom: Atom) -> Dim {
        Dim { terms: vec![(vec![atom], 1)] }
    }

    fn collect(terms: impl IntoIterator<Item = (Vec<Atom>, i64)>) -> Dim {
        let mut sum: BTreeMap<Vec<Atom>, i64> = BTreeMap::new();
        for (mut product, coefficient) in terms {
            product.sort();
            let total = sum.entry(product).or_default();
            *total = total.saturating_add(coefficient);
        }
        Dim { terms: sum.into_iter().filter(|&(_, coefficient)| coefficient != 0).collect() }
    }

    fn evaluate(&self, bindings: &Bindings) -> Result<i64, Error> {
        let overflow = || Error::Dim(format!("the dim {self} overflows"));
        self.terms.iter().try_fold(0i64, |sum, (product, coefficient)| {
            let term = product.iter().try_fold(*coefficient, |value, atom| {
                value.checked_mul(atom.evaluate(bindings)?).ok_or_else(overflow)
            })?;
            sum.checked_add(term).ok_or_else(overflow)
        })
    }
}

impl Atom {
    fn symbols(&self) -> Vec<&str> {
        match self {
            Atom::Symbol(name) => vec![name],
            Atom::FloorDiv(a, b) => [a.symbols(), b.symbols()].concat(),
        }
    }

    fn substitute(&self, symbols: &Substitution) -> Option<Dim> {
        match self {
            Atom::Symbol(name) => {
                Some(symbols.get(name).cloned().unwrap_or_else(|| Dim::unchecked_symbol(name)))
            }
            Atom::FloorDiv(a, b) => {
                let (a, b) = (a.substitute(symbols)?, b.substitute(symbols)?);
                let divides = b.as_integer().is_none_or(|number| number > 0);
                divides.then(|| a.floor_div(&b))
            }
        }
    }

    fn evaluate(&self, bindings: &Bindings) -> Result<i64, Error> {
        match self {
            Atom::Symbol(name) => {
                let size =
                    bindings.get(name).ok_or_else(|| Error::Dim(format!("the dim `{name}` has no size")))?;
                i64::try_from(size).map_err(|_| Error::Dim(format!("the dim `{name}` overflows")))
            }
            Atom::FloorDiv(a, b) => match (a.evaluate(bindings)?, b.evaluate(bindings)?) {
                (_, 0) => Err(Error::Dim(format!("the dim ({a}) // ({b}) divides by 0"))),
                (value, divisor) if value < 0 || divisor < 0 => {
                    Err(Error::Dim(format!("the dim ({a}) // ({b}) is {value} // {divisor}")))
                }
                (value, divisor) => Ok(value / divisor),
            },
        }
    }
}

fn tractable(dim: Dim) -> Option<Dim> {
    (dim.complexity() <= Dim::MAX_COMPLEXITY).then_some(dim)
}

impl From<usize> for Dim {
    fn from(size: usize) -> Dim {
        Dim::integer(i64::try_from(size).expect("a size below 2^63"))
    }
}

impl From<&Dim> for Dim {
    fn from(dim: &Dim) -> Dim {
        dim.clone()
    }
}

impl From<&str> for Dim {
    fn from(symbol: &str) -> Dim {
        Dim::symbol(symbol)
    }
}

impl Add for &Dim {
    type Output = Dim;

    fn add(self, other: &Dim) -> Dim {
        Dim::collect(self.terms.iter().chain(&other.terms).cloned())
    }
}

impl Sub for &Dim {
    type Output = Dim;

    fn sub(self, other: &Dim) -> Dim {
        let negated = other.terms.iter().map(|(product, c)| (product.clone(), c.saturating_neg()));
        Dim::collect(self.terms.iter().cloned().chain(negated))
    }
}

impl Mul for &Dim {
    type Output = Dim;

    fn mul(self, other: &Dim) -> Dim {
        Dim::collect(self.terms.iter().flat_map(|(p, a)| {
            other.terms.iter().map(move |(q, b)| ([&p[..], &q[..]].concat(), a.saturating_mul(*b)))
        }))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Symbols first, the constant last: `2*n + 1`.
        for (i, (product, coefficient)) in self.terms.iter().rev().enumerate() {
            let magnitude = coefficient.unsigned_abs();
            let sign = match (i, *coefficient < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            f.write_str(sign)?;
            if product.is_empty() || magnitude != 1 {
                write!(f, "{magnitude}{}", if product.is_empty() { "" } else { "*" })?;
            }
            for (j, atom) in product.iter().enumerate() {
                f.write_str(if j > 0 { "*" } else { "" })?;
                match atom {
                    Atom::Symbol(name) => f.write_str(name)?,
                    Atom::FloorDiv(a, b) => write!(f, "(({a})//({b}))")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_equal_by_value() {
        let n = Dim::symbol("n");
        let two = Dim::from(2);
        assert_eq!(&two * &(&n + &Dim::from(1)), &(&n + &n) + &two);
        assert_eq!((&(&two * &n) + &Dim::from(4)).floor_div(&two), &n + &two);
        assert_eq!((&(&two * &(&n * &n)) + &n).floor_div(&n), &(&n + &n) + &Dim::from(1));
        assert_eq!((&n - &n).floor_div(&n).as_static(), Some(0));
        assert_eq!((&(&n * &n) + &Dim::from(1)).to_string(), "n*n + 1");
        assert_eq!(n.floor_div(&two).to_string(), "((n)//(2))");
    }

    #[test]
    fn symbols_give_way_to_dims() {
        let [n, m, two] = [Dim::symbol("n"), Dim::symbol("m"), Dim::from(2)];
        let mut symbols = Substitution::default();
        symbols.insert("n", &m + &m);
        let half = n.floor_div(&two);
        assert_eq!(half.substitute(&symbols), Some(m.clone()));
        assert_eq!((&(&n * &n) + &m).substitute(&symbols), Some(&(&(&m + &m) * &(&m + &m)) + &m));
        symbols.insert("n", Dim::from(0));
        assert_eq!(two.floor_div(&n).substitute(&symbols), None);
        let offset = &(&n * &two) + &Dim::from(2);
        assert_eq!(offset.solve_for("n", &(&(&m * &two) - &Dim::from(4))), Some(&m - &Dim::from(3)));
        assert_eq!(offset.solve_for("n", &m), None);
        assert_eq!(half.solve_for("n", &m), None);
    }

    #[test]
    fn symbols_need_numbers() {
        let dim = &Dim::symbol("batch") + &Dim::from(1);
        let mut bindings = Bindings::default();
        assert_eq!(dim.resolve(&bindings).unwrap_err().to_string(), "the dim `batch` has no size");
        bindings.insert("batch", 3);
        assert_eq!(dim.resolve(&bindings), Ok(4));
        assert!((&Dim::from(1) - &dim).resolve(&bindings).is_err());
    }
}
