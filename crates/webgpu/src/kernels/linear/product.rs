//! The product of rows with one weight, and what follows it.

use engine::{FarArray, FarBytes, FarOperand};
use graph::ops::Unary;
use tensor::DType;

use super::layout::{self, Layout, rows_text};
use crate::recorder::{Access, Place, Recorder, Shader};
use crate::weights::weight;

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
        match self.weight {
            FarOperand::Packed(packed) => {
                let weight = weight(packed)?;
                let shader = self.shader(("w", DType::U32, Access::Weight), &[], self.layout.text());
                let words = weight.panel_bytes / 4;
                weight.pieces.iter().try_for_each(|piece| {
                    let params = [PANEL * piece.first, words];
                    self.dispatch(recorder, &shader, Place::Weight(&piece.memory), piece.panels, &params)
                })
            }
            FarOperand::View(view) if matches!(view.dtype, DType::F32 | DType::F16 | DType::BF16) => {
                let names =
                    ["size_1", "size_2", "size_3", "x_0", "x_1", "x_2", "x_3", "w_0", "w_1", "w_2", "w_3"];
                let text = rows_text(self.batch.is_transposed);
                let shader = self.shader(("w", view.dtype, Access::Memory), &names, text);
                let Batch { sizes, x, weight, .. } = self.batch;
                let params = [&[0, 0], &sizes[1..], &x, &weight].concat();
                let panels = sizes.iter().product::<usize>() * self.rows.div_ceil(PANEL);
                self.dispatch(recorder, &shader, Place::Memory(&view.bytes), panels, &params)
            }
            FarOperand::View(view) => {
                Err(format!("a weight of {} that is computed; only floats are read as they are", view.dtype))
            }
            FarOperand::InResult | FarOperand::Buffer(_) => Err("a weight is a value to read".to_string()),
        }
    }

    /// The shader of a layout, which ends with what follows the products.
    fn shader(&self, weight: (&str, DType, Access), more: &[&str], text: layout::Text) -> Shader {
        let mut bindings =
            vec![weight, ("x", self.x.1, Access::Memory), ("result", DType::F32, Access::Memory)];
        let mut value = "sum".to_string();
        let mut math = "";
        let mut bind = |name| bindings.push((name, DType::F32, Access::Memory));
        if self.bias.is_some() {
            bind("bias");
            value = "sum + bias(row)".to_string();
        }
        if let Some(function) = self.function.and_then(activation) {
            math = include_str!("../math.wgsl");
            value = format!("{function}({value})");
        }
        if self.gated.is_some() {
            bind("gated");
            value = format!("({value}) * gated(at)");
        }
        if self.residual.is_some() {
            bind("residual");
            value = format!("{value} + residual(at)");
        }
        let finish = include_str!("finish.wgsl");
        let function = format!("fn finished(sum: f32, row: u32, at: u32) -> f32 {{ return {value}; }}\n");
        let source = [&text.text, finish, &function, math].concat();
        let params = [&["tokens", "columns", "rows", "first_row", "panel_words"], more].concat();
        Shader::new("linear", &bindings, &params, &text.constants, &source)
    }

    /// Multiplies so many panels; the `params` are those behind `rows`.
    fn dispatch(
        &self,
        recorder: &mut Recorder,
        shader: &Shader,
        weight: Place<'_>,
        panels: usize,
        params: &[usize],
    ) -> Result<(), String> {
        let mut places = vec![weight, Place::Memory(self.x.0), Place::Memory(self.result)];
        places.extend(self.bias.map(|bias| Place::Memory(&bias.bytes)));
        places.extend(self.gated.map(Place::Memory));
        places.extend(self.residual.map(|residual| Place::Memory(&residual.bytes)));
        let sizes = [self.tokens, self.columns, self.rows];
        let params: Vec<u32> = sizes.iter().chain(params).map(|&param| param as u32).collect();
        let groups = panels * self.tokens.div_ceil(TILE);
        let work = (groups * PANEL * self.tokens.min(TILE) * self.columns) as u64;
        recorder.dispatch(shader, &places, &params, groups, work)
    }
}
