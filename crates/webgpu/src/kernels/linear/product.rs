//! The product of rows with one weight, and what follows it.

use engine::{FarArray, FarBytes, FarOperand};
use graph::ops::Unary;
use tensor::DType;

use super::layout::{self, Layout, rows_text};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};
use crate::weights::{Piece, weight};

/// Rows of a panel.
const PANEL: usize = 16;
/// The most tokens that a workgroup multiplies with a panel.
const TILE: usize = 8;

/// The product of a weight, and what follows it.
pub(in super::super) struct Product<'c> {
    pub(super) weight: &'c FarOperand<'c>,
    pub(super) layout: Layout,
    /// The rows as the layout wants them.
    pub(super) x: (&'c FarBytes, DType),
    pub(super) tokens: usize,
    pub(super) columns: usize,
    /// Of the weight.
    pub(super) rows: usize,
    /// Where the matrices lie that are not packed.
    pub(super) batch: Batch,
    pub(super) bias: Option<&'c FarArray<'c>>,
    pub(super) function: Option<Unary>,
    /// What the products are multiplied with.
    pub(super) gated: Option<&'c FarBytes>,
    pub(super) residual: Option<&'c FarArray<'c>>,
    pub(super) result: &'c FarBytes,
}

/// Axes of a batch.
pub(in super::super) const AXES: usize = 4;

/// Where the matrices of a batch lie.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Batch {
    /// The sizes of the axes.
    pub(in super::super) sizes: [usize; AXES],
    /// Elements from one matrix of rows to the next, by axis.
    pub(in super::super) x: [usize; AXES],
    /// Elements from one weight to the next, by axis.
    pub(in super::super) weight: [usize; AXES],
    /// Whether the weights are stored column by column.
    pub(in super::super) is_transposed: bool,
}

impl Batch {
    /// One matrix.
    const ONE: Batch = Batch { sizes: [1; AXES], x: [0; AXES], weight: [0; AXES], is_transposed: false };
}

/// The function of `math.wgsl` or WGSL.
pub(super) fn activation(function: Unary) -> Option<&'static str> {
    match function {
        Unary::Relu => Some("relu"),
        Unary::Silu => Some("silu"),
        Unary::GeluTanh => Some("gelu_tanh"),
        Unary::Gelu => Some("gelu"),
        Unary::GeluQuick => Some("gelu_quick"),
        Unary::Sigmoid => Some("sigmoid"),
        Unary::Tanh => Some("tanh_"),
        _ => None,
    }
}

impl<'c> Product<'c> {
    /// The product of tokens of some columns, of a dtype, with a weight of these columns and of rows; nothing follows it.
    pub(in super::super) fn new(
        weight: &'c FarOperand<'c>,
        layout: Layout,
        x: (&'c FarBytes, DType),
        [tokens, columns, rows]: [usize; 3],
        result: &'c FarBytes,
    ) -> Product<'c> {
        let (bias, function, gated, residual) = (None, None, None, None);
        let batch = Batch::ONE;
        Product { weight, layout, x, tokens, columns, rows, batch, bias, function, gated, residual, result }
    }

    /// The products of a batch of matrices.
    pub(in super::super) fn batched(self, batch: Batch) -> Product<'c> {
        Product { batch, ..self }
    }

    pub(in super::super) fn record(&self, recorder: &mut Recorder) -> Result<(), String> {
        let FarOperand::View(view) = self.weight else { return record_all(&[self], recorder) };
        if !matches!(view.dtype, DType::F32 | DType::F16 | DType::BF16) {
            let dtype = view.dtype;
            return Err(format!("a weight of {dtype} that is computed; only floats are read as they are"));
        }
        let names = ["size_1", "size_2", "size_3", "x_0", "x_1", "x_2", "x_3", "w_0", "w_1", "w_2", "w_3"];
        let Batch { sizes, x, weight, is_transposed } = self.batch;
        let params: Vec<u32> =
            sizes[1..].iter().chain(&x).chain(&weight).map(|&param| param as u32).collect();
        let panels = sizes.iter().product::<usize>() * self.rows.div_ceil(PANEL);
        let part = Part { product: self, place: Place::Memory(&view.bytes), first_row: 0, panels };
        let weight = (view.dtype, Access::Memory);
        Parts { parts: &[part], is_pair: false, weight }.dispatch(
            recorder,
            rows_text(is_transposed),
            0,
            (&names, &params),
        )
    }

    /// The pieces of a packed weight, and the words of a panel.
    fn parts(&self) -> Result<(Vec<Part<'_, 'c>>, usize), String> {
        let FarOperand::Packed(packed) = self.weight else {
            return Err("a weight is not packed".to_string());
        };
        let weight = weight(packed)?;
        let part = |piece: &'c Piece| Part {
            product: self,
            place: Place::Weight(&piece.memory),
            first_row: PANEL * piece.first,
            panels: piece.panels,
        };
        Ok((weight.pieces.iter().map(part).collect(), weight.panel_bytes / 4))
    }
}

/// Multiplies the same rows with packed weights of one dtype, as many in a dispatch as its bindings allow.
pub(super) fn record_all(products: &[&Product<'_>], recorder: &mut Recorder) -> Result<(), String> {
    let (mut parts, mut words) = (Vec::new(), 0);
    for product in products {
        let (pieces, panel_words) = product.parts()?;
        parts.extend(pieces);
        words = panel_words;
    }
    let Some(first) = products.first() else { return Ok(()) };
    let others = 1 + usize::from(first.gated.is_some()) + usize::from(first.residual.is_some());
    let most = (BINDINGS - others) / (2 + usize::from(first.bias.is_some()));
    parts.chunks(most).try_for_each(|parts| {
        Parts { parts, is_pair: false, weight: PACKED }.dispatch(
            recorder,
            first.layout.text(),
            words,
            (&[], &[]),
        )
    })
}

/// Multiplies the same rows with two packed weights of one dtype, the first of which gates the second.
pub(super) fn record_gated(
    gate: &Product<'_>,
    up: &Product<'_>,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let ((gates, words), (ups, _)) = (gate.parts()?, up.parts()?);
    gates.into_iter().zip(ups).try_for_each(|(gate_part, up_part)| {
        Parts { parts: &[gate_part, up_part], is_pair: true, weight: PACKED }.dispatch(
            recorder,
            gate.layout.text(),
            words,
            (&[], &[]),
        )
    })
}

/// The most bindings that every adapter allows, besides the params.
const BINDINGS: usize = 8;
/// How packed weights are bound.
const PACKED: (DType, Access) = (DType::U32, Access::Weight);

/// Neighbouring panels of a weight.
struct Part<'p, 'c> {
    product: &'p Product<'c>,
    place: Place<'p>,
    first_row: usize,
    panels: usize,
}

/// What one dispatch multiplies.
struct Parts<'p, 'c> {
    parts: &'p [Part<'p, 'c>],
    /// Whether the first of two gates the second, and so gives the one result.
    is_pair: bool,
    weight: (DType, Access),
}

impl Parts<'_, '_> {
    /// How many results there are.
    fn results(&self) -> usize {
        if self.is_pair { 1 } else { self.parts.len() }
    }

    fn dispatch(
        &self,
        recorder: &mut Recorder,
        text: layout::Text,
        panel_words: usize,
        more: (&[&str], &[u32]),
    ) -> Result<(), String> {
        let &Product { x, tokens, columns, gated, residual, .. } = self.parts[0].product;
        let mut places = vec![Place::Memory(x.0)];
        places.extend(self.parts.iter().map(|part| part.place));
        places.extend(self.parts[..self.results()].iter().map(|part| Place::Memory(part.product.result)));
        places.extend(self.parts.iter().filter_map(|part| Some(Place::Memory(&part.product.bias?.bytes))));
        places.extend(gated.map(Place::Memory));
        places.extend(residual.map(|residual| Place::Memory(&residual.bytes)));
        let mut params = [tokens, columns, panel_words].map(|param| param as u32).to_vec();
        for part in self.parts {
            params.extend([part.panels, part.product.rows, part.first_row].map(|param| param as u32));
        }
        params.extend(more.1);
        let panels: usize = self.parts[..self.results()].iter().map(|part| part.panels).sum();
        let groups = panels * tokens.div_ceil(TILE);
        let work = (groups * PANEL * tokens.min(TILE) * columns) as u64;
        recorder.dispatch(&self.shader(text, more.0), &places, &params, groups, work)
    }

    /// The shader of a layout, for these weights and what follows the products.
    fn shader(&self, text: layout::Text, more: &[&str]) -> Shader {
        let product = self.parts[0].product;
        let names = |what: &str, count: usize| (0..count).map(|k| format!("{what}_{k}")).collect::<Vec<_>>();
        let (weights, results) = (names("w", self.parts.len()), names("result", self.results()));
        let biases = names("bias", product.bias.map_or(0, |_| self.parts.len()));
        let mut bindings = vec![("x", product.x.1, Access::Memory)];
        bindings.extend(weights.iter().map(|name| (&name[..], self.weight.0, self.weight.1)));
        let extra = [product.gated.map(|_| "gated"), product.residual.map(|_| "residual")];
        let floats = results.iter().chain(&biases).map(|name| &name[..]).chain(extra.into_iter().flatten());
        bindings.extend(floats.map(|name| (name, DType::F32, Access::Memory)));
        let own: Vec<String> = (0..self.parts.len())
            .flat_map(|k| ["panels", "rows", "first_row"].map(|what| format!("{what}_{k}")))
            .collect();
        let mut params = vec!["tokens", "columns", "panel_words"];
        params.extend(own.iter().map(|name| &name[..]).chain(more.iter().copied()));
        let math = if product.function.is_some() { include_str!("../math.wgsl") } else { "" };
        let source = [&text.text, include_str!("finish.wgsl"), &self.functions(), math].concat();
        let mut constants = text.constants;
        constants.push(("PAIR", self.is_pair.to_string()));
        Shader::new("linear", &bindings, &params, &constants, &source)
    }

    /// The functions that read words of weights, find the weight of a panel and write results.
    fn functions(&self) -> String {
        let count = self.parts.len();
        let word = |k: usize| format!("return w_{k}_words[i];");
        let four = |k: usize| {
            let words = [0, 16, 32, 48].map(|row| format!("w_{k}_words[i + {row}u]"));
            format!("return vec4<u32>({});", words.join(", "))
        };
        let next = |k: usize| {
            format!(
                "if (matrix == {k}u && rest >= p.panels_{k}) {{ rest -= p.panels_{k}; matrix = {}u; }} ",
                k + 1
            )
        };
        let begin: String = (0..self.results() - 1).map(next).collect();
        let finish = |k: usize| {
            let value = self.value(k);
            format!(
                "let row = p.first_row_{k} + row_of_piece; if (is_inside && row < p.rows_{k}) {{ \
                 let at = token * p.rows_{k} + row; set_result_{k}(result_start + at, {value}); }}"
            )
        };
        format!(
            "fn weight(i: u32) -> u32 {{ {} }}\nfn four_weights(i: u32) -> vec4<u32> {{ {} }}\n\
             fn begin(panel: u32) -> u32 {{ var rest = panel; matrix = 0u; {begin}return rest; }}\n\
             fn finish(sum: f32, up: f32, row_of_piece: u32, token: u32, is_inside: bool) {{ {} }}\n",
            by_matrix(count, &word),
            by_matrix(count, &four),
            by_matrix(self.results(), &finish),
        )
    }

    /// What is made of the sum of products with the `k`-th weight.
    fn value(&self, k: usize) -> String {
        let product = self.parts[k].product;
        let biased = |sum: &str, k: usize| match product.bias {
            Some(_) => format!("{sum} + bias_{k}(row)"),
            None => sum.to_string(),
        };
        let mut value = biased("sum", k);
        if let Some(function) = product.function.and_then(activation) {
            value = format!("{function}({value})");
        }
        if self.is_pair {
            value = format!("({value}) * ({})", biased("up", 1));
        }
        if product.gated.is_some() {
            value = format!("({value}) * gated(at)");
        }
        match product.residual {
            Some(_) => format!("{value} + residual(at)"),
            None => value,
        }
    }
}

/// Statements for each of so many weights.
fn by_matrix(count: usize, statements: &dyn Fn(usize) -> String) -> String {
    let case = |k: usize| match k + 1 == count {
        true => format!("default: {{ {} }}", statements(k)),
        false => format!("case {k}u: {{ {} }} ", statements(k)),
    };
    match count {
        1 => statements(0),
        _ => format!("switch matrix {{ {} }}", (0..count).map(case).collect::<String>()),
    }
}
