//! The tensors of a GGUF file, made of those of a checkpoint row by row.

use std::collections::BTreeMap;
use std::ops::Range;

use graph::ops::RopeStyle;
use tensor::{DType, Shape, Tensor};

use crate::{Config, DeltaConfig, Error};

/// Rows of heads whose pairs are to lie in another style.
#[derive(Debug, Clone, Copy)]
struct Pairs {
    /// Rows of a head.
    head: usize,
    /// How many of them turn.
    turning: usize,
    /// How pairs lie in the file.
    style: RopeStyle,
}

/// A tensor of a GGUF file, and what its rows are made of.
#[derive(Debug, Clone)]
pub(crate) struct ExportTensor {
    /// Its name in the file.
    pub(crate) name: String,
    /// What the files of the checkpoint call the tensors that it is made of.
    pub(crate) files: Vec<String>,
    /// The axes before the last two.
    outer: Vec<usize>,
    /// Where its rows are, in their order: ranges of the rows of tensors with two axes.
    parts: Vec<(Tensor, Range<usize>)>,
    /// Whether it has one axis, and each of its values is a row.
    is_vector: bool,
    /// What becomes of each value, if it changes.
    pub(crate) change: Option<fn(f32) -> f32>,
    /// Factors on ranges of rows, applied in this order.
    pub(crate) factors: Vec<(Range<usize>, f32)>,
    /// Which column of the checkpoint each one is, if they change places.
    column_order: Option<Vec<usize>>,
    /// Which rows of heads become pairs, if others are.
    pairs: Option<Pairs>,
    /// Whether it is f32 if nothing else is asked for.
    is_float: bool,
}

impl ExportTensor {
    /// A tensor as it is.
    pub(crate) fn whole(name: String, tensor: Tensor) -> ExportTensor {
        let shape = *tensor.shape();
        let is_vector = shape.rank() <= 1;
        let columns = if is_vector { 1 } else { shape[shape.rank() - 1] };
        let rows = shape.elements().checked_div(columns).unwrap_or(0);
        let outer = shape.get(..shape.rank().saturating_sub(2)).unwrap_or(&[]).to_vec();
        if shape.rank() == 3 && !tensor.is_contiguous() {
            // A view, which is read row by row.
            let matrices = (0..shape[0]).map(|index| (tensor.select(0, index), 0..shape[1]));
            return ExportTensor { is_float: false, ..stacked(name, outer, matrices.collect()) };
        }
        // Blocks do not part, so that vectors of them stay one row.
        let matrix = if is_vector && tensor.dtype().is_block() {
            tensor.reshape([1, rows])
        } else if shape.rank() == 2 {
            // Perhaps a transposed view, which is read row by row.
            tensor
        } else {
            tensor.contiguous().reshape([rows, columns])
        };
        let rows = matrix.shape()[0];
        let parts = vec![(matrix, 0..rows)];
        ExportTensor { is_vector, is_float: false, ..stacked(name, outer, parts) }
    }

    /// A tensor that is f32 unless another dtype is asked for.
    pub(crate) fn whole_float(name: String, tensor: Tensor) -> ExportTensor {
        ExportTensor { is_float: true, ..ExportTensor::whole(name, tensor) }
    }

    /// The tensor, with what the files call those that it is made of.
    pub(crate) fn made_of(self, files: Vec<String>) -> ExportTensor {
        ExportTensor { files, ..self }
    }

    /// The tensor by another name.
    pub(crate) fn named(self, name: &str) -> ExportTensor {
        ExportTensor { name: name.to_string(), ..self }
    }

    /// The tensor with these rows alone, in this order.
    pub(crate) fn with_rows(mut self, ranges: Vec<Range<usize>>) -> ExportTensor {
        let (matrix, _) = self.parts.remove(0);
        for range in ranges {
            match self.parts.last_mut() {
                Some((_, last)) if last.end == range.start => last.end = range.end,
                _ => self.parts.push((matrix.clone(), range)),
            }
        }
        self
    }

    /// Some rows of each head of a matrix, as [heads, rows, columns]; those of keys, which come first, with columns for
    /// rows.
    fn head_rows(&self, name: String, heads: usize, rows: Range<usize>) -> ExportTensor {
        let matrix = &self.parts[0].0;
        let each = matrix.shape()[0] / heads;
        let part = |head: usize| {
            let part = matrix.narrow(0, head * each + rows.start..head * each + rows.end);
            let part = if rows.start == 0 { part.permute(&[1, 0]) } else { part };
            let rows = 0..part.shape()[0];
            (part, rows)
        };
        stacked(name, vec![heads], (0..heads).map(part).collect())
    }

    /// The tensor as a matrix of rows of so many values.
    pub(crate) fn in_rows_of(self, columns: usize) -> ExportTensor {
        let (tensor, _) = &self.parts[0];
        let matrix = tensor.contiguous().reshape([tensor.elements() / columns.max(1), columns]);
        ExportTensor::whole_float(self.name, matrix).made_of(self.files)
    }

    /// Numbers of columns, such as their importance, in the order of the file.
    pub(crate) fn in_column_order(&self, of_columns: &[f32]) -> Vec<f32> {
        match &self.column_order {
            None => of_columns.to_vec(),
            Some(order) => order.iter().map(|&column| of_columns[column]).collect(),
        }
    }

    /// A matrix of one row as a vector.
    fn flattened(self) -> ExportTensor {
        let (matrix, _) = &self.parts[0];
        let vector = matrix.reshape([matrix.elements()]);
        ExportTensor::whole_float(self.name, vector).made_of(self.files)
    }

    /// The dtype in the checkpoint.
    pub(crate) fn dtype(&self) -> DType {
        self.parts[0].0.dtype()
    }

    /// The dtype if no other is asked for.
    pub(crate) fn kept_dtype(&self) -> DType {
        if self.is_float { DType::F32 } else { self.dtype() }
    }

    /// The number of rows, all axes but the last together; of a vector, its values.
    pub(crate) fn rows(&self) -> usize {
        self.parts.iter().map(|(_, range)| range.len()).sum()
    }

    /// Values of a row.
    pub(crate) fn columns(&self) -> usize {
        self.parts[0].0.shape()[1]
    }

    /// The shape in the file.
    pub(crate) fn shape(&self) -> Shape {
        if self.is_vector {
            return Shape::new(&[self.rows() * self.columns()]);
        }
        let inner = self.rows() / self.outer.iter().product::<usize>().max(1);
        Shape::new(&[&self.outer[..], &[inner, self.columns()]].concat())
    }

    /// The bytes of the checkpoint, where the file holds them as they are.
    pub(crate) fn stored(&self) -> Option<Tensor> {
        let [(tensor, rows)] = &self.parts[..] else { return None };
        let is_plain = self.change.is_none()
            && self.factors.is_empty()
            && self.column_order.is_none()
            && self.pairs.is_none()
            && rows.len() == tensor.shape()[0]
            && tensor.is_contiguous();
        is_plain.then(|| tensor.clone())
    }

    /// The values of a row, `f32[columns]`.
    pub(crate) fn row(&self, row: usize) -> Vec<f32> {
        let factors = self.factors.iter().filter(|(rows, _)| rows.contains(&row));
        let mut row = self.pairs.map_or(row, |pairs| pairs.source(row));
        let (tensor, start) = self
            .parts
            .iter()
            .find_map(|(tensor, range)| {
                let found = (row < range.len()).then_some((tensor, range.start + row));
                row = row.wrapping_sub(range.len());
                found
            })
            .expect("a row of this tensor");
        let mut values = self.in_column_order(&tensor.narrow(0, start..start + 1).to_f32_vec());
        if let Some(change) = self.change {
            values.iter_mut().for_each(|value| *value = change(*value));
        }
        for (_, factor) in factors {
            values.iter_mut().for_each(|value| *value *= factor);
        }
        values
    }
}

impl Pairs {
    /// The row that becomes this one: within the rows of each head that turn, pairs (`i`, `i + half`) become
    /// (`2i`, `2i + 1`), or the other way round.
    fn source(self, row: usize) -> usize {
        let (start, within, half) = (row / self.head * self.head, row % self.head, self.turning / 2);
        match self.style {
            _ if within >= self.turning => row,
            RopeStyle::Interleaved => start + within % 2 * half + within / 2,
            RopeStyle::HalfSplit => start + within % half * 2 + within / half,
        }
    }
}

/// Gives the pairs of rows of queries and keys the other style.
pub(crate) fn pair_rows(
    tensors: &mut [ExportTensor],
    config: &Config,
    style: RopeStyle,
) -> Result<(), Error> {
    for tensor in tensors {
        let stem = tensor.name.rsplit('.').nth(1).unwrap_or_default();
        match stem {
            "attn_q" | "attn_k" => {
                let (head, turning) = (config.attention.head_dim, config.rope.dims);
                tensor.pairs = Some(Pairs { head, turning, style });
            }
            "attn_qkv" | "attn_q_norm" | "attn_k_norm" => {
                let message = "holds queries or keys in a layout that no known file has with other pairs";
                return Err(Error::Weight { name: tensor.name.clone(), message: message.to_string() });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Puts the value heads of gated delta nets in an order in which one of each key head follows the other.
pub(crate) fn tile(tensors: &mut Vec<ExportTensor>, delta: &DeltaConfig) {
    let &DeltaConfig { key_heads, key_dim, value_heads, value_dim, .. } = delta;
    let shared = value_heads / key_heads;
    if shared == 1 {
        return;
    }
    // Ranges of so many rows of each value head, after others.
    let heads = |after: usize, rows: usize| -> Vec<Range<usize>> {
        let head = |index: usize| index % key_heads * shared + index / key_heads;
        (0..value_heads).map(|index| after + head(index) * rows..after + (head(index) + 1) * rows).collect()
    };
    let keys = 2 * key_heads * key_dim;
    let tiled = |tensor: ExportTensor| match tensor.name.rsplit('.').nth(1).unwrap_or_default() {
        "attn_qkv" | "ssm_conv1d" => {
            tensor.with_rows(std::iter::once(0..keys).chain(heads(keys, value_dim)).collect())
        }
        "attn_gate" => tensor.with_rows(heads(0, value_dim)),
        "ssm_alpha" | "ssm_beta" | "ssm_dt" | "ssm_a" => tensor.with_rows(heads(0, 1)),
        "ssm_out" => {
            let column_order = heads(0, value_dim).into_iter().flatten().collect();
            ExportTensor { column_order: Some(column_order), ..tensor }
        }
        _ => tensor,
    };
    *tensors = std::mem::take(tensors).into_iter().map(tiled).collect();
}

/// Makes two tensors of each that expands latents: one makes keys, the other values.
pub(crate) fn split_latents(tensors: &mut Vec<ExportTensor>, config: &Config) {
    let Some(latent) = config.latent else { return };
    let keys = config.attention.head_dim - config.rope.dims;
    for tensor in std::mem::take(tensors) {
        let Some(stem) = tensor.name.strip_suffix("attn_kv_b.weight") else {
            tensors.push(tensor);
            continue;
        };
        for (name, rows) in [("attn_k_b", 0..keys), ("attn_v_b", keys..keys + latent.value_dims)] {
            let name = format!("{stem}{name}.weight");
            let part = tensor.head_rows(name, config.attention.heads, rows);
            tensors.push(part.made_of(tensor.files.clone()));
        }
    }
}

/// Makes one tensor of the matrices of a layer's experts, of the norms of a layer's heads, and of the projections of
/// residual streams.
pub(crate) fn stack(tensors: &mut Vec<ExportTensor>) {
    let mut stacks: BTreeMap<String, Vec<(usize, Tensor, Vec<String>)>> = BTreeMap::new();
    let mut others = Vec::new();
    for tensor in std::mem::take(tensors) {
        let path = tensor.name.strip_suffix(".weight").unwrap_or_default();
        let numbered = path.rsplit_once('.').and_then(|(stem, index)| Some((stem, index.parse().ok()?)));
        let kind = |stem: &str| match stem {
            stem if stem.contains(".ffn_") => Some("_exps"),
            stem if stem.ends_with("_norm") || stem.starts_with("altup_") => Some(""),
            _ => None,
        };
        if let Some((stem, index)) = numbered
            && let Some(suffix) = kind(stem)
        {
            let part = tensor.parts[0].0.clone();
            let part = if tensor.is_vector { part.reshape([1, part.elements()]) } else { part };
            stacks.entry(format!("{stem}{suffix}.weight")).or_default().push((index, part, tensor.files));
        } else {
            let is_gate = path.ends_with("ffn_gate_inp_shexp");
            others.push(if is_gate { tensor.flattened() } else { tensor });
        }
    }
    for (name, mut stack) in stacks {
        stack.sort_by_key(|(index, ..)| *index);
        let is_apart = name.ends_with("_exps.weight") || name.starts_with("altup_");
        let outer = if is_apart { vec![stack.len()] } else { Vec::new() };
        let files = stack.iter().flat_map(|(.., files)| files.clone()).collect();
        let parts: Vec<_> = stack
            .into_iter()
            .map(|(_, matrix, _)| {
                let rows = 0..matrix.shape()[0];
                (matrix, rows)
            })
            .collect();
        others.push(stacked(name, outer, parts).made_of(files));
    }
    *tensors = others;
}

fn stacked(name: String, outer: Vec<usize>, parts: Vec<(Tensor, Range<usize>)>) -> ExportTensor {
    ExportTensor {
        name,
        files: Vec::new(),
        outer,
        parts,
        is_vector: false,
        change: None,
        factors: Vec::new(),
        column_order: None,
        pairs: None,
        is_float: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
        Tensor::from_slice(Shape::new(shape), &values)
    }

    fn rows(tensor: &ExportTensor) -> Vec<f32> {
        (0..tensor.rows()).flat_map(|row| tensor.row(row)).collect()
    }

    #[test]
    fn halves_become_neighbours() {
        let mut config = crate::config::tests::small();
        config.attention.head_dim = 8;
        let config = Config { rope: crate::RopeConfig { dims: 6, ..config.rope.clone() }, ..config };
        let mut tensors = vec![
            ExportTensor::whole("blk.0.attn_q.weight".into(), counting(&[16, 1])),
            ExportTensor::whole("blk.0.attn_k.bias".into(), counting(&[8])),
            ExportTensor::whole("blk.0.attn_v.weight".into(), counting(&[2, 2])),
        ];
        pair_rows(&mut tensors, &config, RopeStyle::Interleaved).unwrap();
        let head = [0.0, 3.0, 1.0, 4.0, 2.0, 5.0, 6.0, 7.0];
        assert_eq!(rows(&tensors[0]), [head, head.map(|row| row + 8.0)].concat());
        assert_eq!((rows(&tensors[1]), tensors[1].shape()), (head.to_vec(), Shape::new(&[8])));
        assert_eq!(rows(&tensors[2]), [0.0, 1.0, 2.0, 3.0]);
        assert!(tensors[0].stored().is_none() && tensors[2].stored().is_some());
        let mut norm = vec![ExportTensor::whole("blk.0.attn_q_norm.weight".into(), counting(&[8]))];
        assert!(pair_rows(&mut norm, &config, RopeStyle::Interleaved).is_err());
        // And back.
        let neighbours = ExportTensor::whole("blk.0.attn_q.weight".into(), Tensor::from_slice([8, 1], &head));
        let mut tensors = vec![neighbours];
        pair_rows(&mut tensors, &config, RopeStyle::HalfSplit).unwrap();
        assert_eq!(rows(&tensors[0]), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn experts_are_stacked() {
        let matrix = |name: &str, shape: &[usize]| ExportTensor::whole_float(name.into(), counting(shape));
        let mut tensors = vec![
            matrix("blk.1.ffn_up.1.weight", &[3, 2]),
            matrix("blk.1.ffn_up.0.weight", &[3, 2]),
            matrix("blk.1.ffn_gate_inp.weight", &[2, 2]),
        ];
        tensors[0].parts[0].0 = Tensor::from_slice([3, 2], &[9f32; 6]);
        stack(&mut tensors);
        let found: Vec<_> = tensors.iter().map(|tensor| (&tensor.name[..], tensor.shape())).collect();
        let stack = Shape::new(&[2, 3, 2]);
        let expected =
            [("blk.1.ffn_gate_inp.weight", Shape::new(&[2, 2])), ("blk.1.ffn_up_exps.weight", stack)];
        assert_eq!(found, expected);
        let firsts = rows(&tensors[1]).into_iter().step_by(2).collect::<Vec<_>>();
        assert_eq!(firsts, [0.0, 2.0, 4.0, 9.0, 9.0, 9.0]);
    }

    /// Of [experts, gates and up in turn, columns] the gates, of which each expert has rows that lie apart.
    #[test]
    fn views_are_read_row_by_row() {
        let whole = counting(&[2, 6, 2]);
        let gates = ExportTensor::whole_float("gates".into(), whole.every(1, 0, 2));
        assert_eq!((gates.shape(), gates.columns()), (Shape::new(&[2, 3, 2]), 2));
        assert_eq!(rows(&gates), whole.every(1, 0, 2).to_vec::<f32>());
        assert_eq!(rows(&gates)[..4], [0.0, 1.0, 4.0, 5.0]);
        assert!(gates.stored().is_none());
    }
}
