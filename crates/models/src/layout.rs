//! Weights that files store several in one tensor, one in several, or otherwise than the graph takes them.

use std::collections::HashMap;
use std::ops::Range;

use tensor::{DType, Shape, Tensor};
use weights::Weights;

use crate::stored::{Stored, describe};
use crate::{Config, DeltaConfig, Error};

/// The weights of a checkpoint by canonical name, to be named as the graph takes them.
pub(crate) struct Layout<'a> {
    weights: &'a Weights,
    names: &'a mut HashMap<String, Stored>,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(weights: &'a Weights, names: &'a mut HashMap<String, Stored>) -> Layout<'a> {
        Layout { weights, names }
    }

    /// Whether there is a weight.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// The shape of a weight, if it is there.
    pub(crate) fn shape(&self, name: &str) -> Option<Shape> {
        Some(describe(self.weights, self.names.get(name)?)?.1)
    }

    /// Gives a weight, if it is there, another name.
    pub(crate) fn rename(&mut self, name: &str, other: &str) {
        if let Some(stored) = self.names.remove(name) {
            self.names.insert(other.to_string(), stored);
        }
    }

    /// Gives each weight for which there is another name that one.
    pub(crate) fn rename_all(&mut self, other: impl Fn(&str) -> Option<String>) {
        let names = std::mem::take(self.names).into_iter();
        *self.names = names.map(|(name, stored)| (other(&name).unwrap_or(name), stored)).collect();
    }

    /// Says that a matrix, or those of experts, if they are there and not in blocks, are stored with their axes the other
    /// way round.
    pub(crate) fn transpose(&mut self, name: &str) {
        let stored = self.names.get(name).and_then(|stored| describe(self.weights, stored));
        if let Some((dtype, _)) = stored
            && !dtype.is_block()
        {
            self.wrap(name, |rank| rank >= 2, Stored::Transposed);
        }
    }

    /// Names the places of the first axis of a tensor, `{stem}.0.weight` and so on.
    ///
    /// # Errors
    /// If there are others than `count`.
    pub(crate) fn unstack(&mut self, stem: &str, count: usize) -> Result<(), Error> {
        let name = format!("{stem}.weight");
        let Some(whole) = self.names.remove(&name) else { return Ok(()) };
        let found = describe(self.weights, &whole).and_then(|(_, shape)| shape.first().copied()).unwrap_or(0);
        if found != count {
            let message = format!("holds {found} matrices, but the configuration makes it {count}");
            return Err(Error::Weight { name, message });
        }
        for index in 0..count {
            let inner = Box::new(whole.clone());
            self.names.insert(format!("{stem}.{index}.weight"), Stored::Place { inner, index });
        }
        Ok(())
    }

    /// Replaces a name by those of its parts, whose places alternate along an axis.
    ///
    /// # Errors
    /// If the places are not as many for each part.
    pub(crate) fn split_alternating<const N: usize>(
        &mut self,
        stacked: &str,
        axis: usize,
        parts: [String; N],
    ) -> Result<(), Error> {
        let Some(whole) = self.names.remove(stacked) else { return Ok(()) };
        let refuse = |message: String| Err(Error::Weight { name: stacked.to_string(), message });
        let (dtype, shape) = describe(self.weights, &whole).expect("names lead to tensors");
        let found = shape.get(axis).copied().unwrap_or(0);
        if found == 0 || !found.is_multiple_of(N) {
            return refuse(format!("has {found} rows for {N} weights, expected as many for each"));
        }
        if dtype.is_block() && shape.rank() < axis + 2 {
            return refuse(format!("has the dtype {dtype}, whose blocks cannot be taken apart"));
        }
        for (start, part) in parts.into_iter().enumerate() {
            let stored = match &whole {
                Stored::Repacked(weight) if axis + 2 == shape.rank() => {
                    let rows = (start..found).step_by(N).map(|row| row..row + 1);
                    Stored::Repacked(weight.with_rows(rows.collect()))
                }
                _ => Stored::Every { inner: Box::new(whole.clone()), axis, start, step: N },
            };
            self.names.insert(part, stored);
        }
        Ok(())
    }

    /// Says that a vector, if it is there, is stored with more axes, or with none.
    pub(crate) fn flatten(&mut self, name: &str) {
        self.wrap(name, |rank| rank != 1, Stored::Flat);
    }

    /// Adds a vector that files hold elsewhere than in their tensors.
    pub(crate) fn make(&mut self, name: String, values: &[f32]) {
        self.names.insert(name, Stored::Made(Tensor::from_slice([values.len()], values)));
    }

    /// Says that a weight below 0, if it is there, is stored as the logarithm of its size.
    pub(crate) fn exponentiate(&mut self, name: &str) {
        self.wrap(name, |_| true, Stored::NegativeExp);
    }

    fn wrap(&mut self, name: &str, fits: fn(usize) -> bool, wrap: fn(Box<Stored>) -> Stored) {
        let Some(stored) = self.names.get(name) else { return };
        if describe(self.weights, stored).is_some_and(|(_, shape)| fits(shape.rank())) {
            let stored = self.names.remove(name).expect("it was there");
            self.names.insert(name.to_string(), wrap(Box::new(stored)));
        }
    }

    /// Names tensors that are stored one by one, `{stem}.0.weight` and so on, as one weight with one more axis, in front.
    ///
    /// # Errors
    /// If there are others than `count`, or they are not all of one type.
    pub(crate) fn stack(&mut self, stem: &str, count: usize, target: &str) -> Result<(), Error> {
        let name = |index: usize| format!("{stem}.{index}.weight");
        if !self.has(&name(0)) {
            return Ok(());
        }
        let refuse = |index: usize, message: String| Err(Error::Weight { name: name(index), message });
        let mut stored = Vec::new();
        for index in 0..count {
            let Some(part) = self.names.remove(&name(index)) else {
                return refuse(index, format!("missing: the configuration says that there are {count}"));
            };
            stored.push(part);
        }
        if self.has(&name(count)) {
            return refuse(count, format!("the configuration says that there are {count}"));
        }
        let types: Vec<(DType, Shape)> =
            stored.iter().filter_map(|part| describe(self.weights, part)).collect();
        if let Some(other) = types.iter().position(|ty| *ty != types[0]) {
            let [(dtype, shape), (first, first_shape)] = [types[other], types[0]];
            let message = format!("is {dtype}{shape}, but the first of them is {first}{first_shape}");
            return refuse(other, message);
        }
        self.names.insert(target.to_string(), Stored::Stack(stored));
        Ok(())
    }

    /// Names matrices or vectors that are stored apart as one, in which the rows of each follow those of the one before.
    ///
    /// # Errors
    /// If one is missing, if they have other columns or dtypes, or if their columns are in an order of their own.
    pub(crate) fn join(&mut self, parts: &[String], target: String) -> Result<(), Error> {
        if !parts.iter().any(|part| self.has(part)) {
            return Ok(());
        }
        let mut stored = Vec::with_capacity(parts.len());
        let mut first = None;
        for name in parts {
            let refuse = |message: String| Err(Error::Weight { name: name.clone(), message });
            let Some(part) = self.names.remove(name) else {
                return refuse("missing from the checkpoint".into());
            };
            if part.order().is_some() {
                return refuse("has permuted columns (desc_act), which are not supported here".into());
            }
            let Some((dtype, shape)) = describe(self.weights, &part) else {
                return refuse("is not a matrix".into());
            };
            let own = (dtype, shape.get(1..).map(<[usize]>::to_vec));
            if *first.get_or_insert_with(|| own.clone()) != own {
                return refuse(format!("is {dtype}{shape}, which does not follow `{}`", parts[0]));
            }
            stored.push(part);
        }
        self.names.insert(target, Stored::Joined(stored));
        Ok(())
    }

    /// Names queries, keys and values of matrices and biases `attn_qkv` that hold, for each key and value head, the query
    /// heads that it serves, the key head and the value head.
    ///
    /// # Errors
    /// If one of them has other rows than these.
    pub(crate) fn split_grouped_attention(&mut self, config: &Config) -> Result<(), Error> {
        let (groups, head) = (config.attention.kv_heads, config.attention.head_dim);
        let queries = config.attention.heads / groups;
        let rows = |first: usize, heads: usize| -> Vec<Range<usize>> {
            let start = |group: usize| (group * (queries + 2) + first) * head;
            (0..groups).map(|group| start(group)..start(group) + heads * head).collect()
        };
        let expected = (config.attention.heads + 2 * groups) * head;
        for layer in 0..config.layers {
            for leaf in ["weight", "bias"] {
                let name = |stem: &str| format!("blk.{layer}.{stem}.{leaf}");
                // Before ranges are made of numbers that nothing confirms.
                let Some(found) = self.rows(&name("attn_qkv")) else { continue };
                if found != expected {
                    let message = format!("has {found} rows, but the configuration makes it {expected}");
                    return Err(Error::Weight { name: name("attn_qkv"), message });
                }
                let parts = [
                    (name("attn_q"), rows(0, queries)),
                    (name("attn_k"), rows(queries, 1)),
                    (name("attn_v"), rows(queries + 1, 1)),
                ];
                self.take_apart(&name("attn_qkv"), 0, parts)?;
            }
        }
        Ok(())
    }

    /// Names the queries, keys and values of matrices and biases that hold them one on the other.
    pub(crate) fn split_stacked_attention(&mut self, config: &Config) -> Result<(), Error> {
        let (query, keys) = (
            config.attention.heads * config.attention.head_dim,
            config.attention.kv_heads * config.attention.head_dim,
        );
        for layer in (0..config.layers).filter(|&layer| !config.lists.is_recurrent(layer)) {
            for leaf in ["weight", "bias"] {
                let name = |stem: &str| format!("blk.{layer}.{stem}.{leaf}");
                let parts = [(name("attn_q"), query), (name("attn_k"), keys), (name("attn_v"), keys)];
                self.take_apart(&name("attn_qkv"), 0, one_after_the_other(parts))?;
            }
        }
        Ok(())
    }

    /// Names the gates of matrices that hold them on the matrices they gate: those of twice the width.
    pub(crate) fn split_stacked_gates(&mut self, config: &Config) -> Result<(), Error> {
        for layer in 0..config.layers {
            for leaf in ["weight", "bias"] {
                let name = |stem: &str| format!("blk.{layer}.{stem}.{leaf}");
                let rows = self.rows(&name("ffn_up"));
                if !self.has(&name("ffn_gate")) && rows == Some(2 * config.feed_forward) {
                    let parts = [name("ffn_gate"), name("ffn_up")].map(|name| (name, config.feed_forward));
                    self.take_apart(&name("ffn_up"), 0, one_after_the_other(parts))?;
                }
            }
        }
        Ok(())
    }

    /// Names what makes keys and values of latents: matrices of each head, which files store together.
    ///
    /// # Errors
    /// If there are other rows than the configuration says.
    pub(crate) fn split_latents(&mut self, config: &Config) -> Result<(), Error> {
        let Some(latent) = config.latent else { return Ok(()) };
        let (heads, keys) = (config.attention.heads, config.attention.head_dim - config.rope.dims);
        let rows = keys + latent.value_dims;
        for layer in 0..config.layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let Some(found) = self.rows(&name("attn_kv_b")) else { continue };
            let expected = heads * rows;
            if found != expected {
                let message = format!("has {found} rows, but the configuration makes it {expected}");
                return Err(Error::Weight { name: name("attn_kv_b"), message });
            }
            let whole = Box::new(self.names.remove(&name("attn_kv_b")).expect("it has rows"));
            let part = |rows: Range<usize>, transposed: bool| Stored::Heads {
                whole: whole.clone(),
                heads,
                rows,
                transposed,
            };
            self.names.insert(name("attn_k_b"), part(0..keys, true));
            self.names.insert(name("attn_v_b"), part(keys..rows, false));
        }
        Ok(())
    }

    /// Names the parts of the matrices of gated delta nets that hold, for each key head, its query, its key, its values
    /// and their gates; and of those that hold, for each key head, β and then α of its values.
    ///
    /// # Errors
    /// If one of them has other rows than these.
    pub(crate) fn split_delta_nets(&mut self, config: &Config) -> Result<(), Error> {
        let Some(DeltaConfig { key_heads, key_dim, value_heads, value_dim, .. }) = config.delta else {
            return Ok(());
        };
        let shared = value_heads / key_heads;
        for layer in 0..config.layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let sizes = [key_dim, key_dim, shared * value_dim, shared * value_dim];
            if let Some([query, key, value, gate]) =
                self.ranges_of_heads(&name("ssm_in"), key_heads, sizes)?
            {
                let parts = [(name("attn_qkv"), [query, key, value].concat()), (name("attn_gate"), gate)];
                self.take_apart(&name("ssm_in"), 0, parts)?;
            }
            if let Some([beta, alpha]) = self.ranges_of_heads(&name("ssm_ba"), key_heads, [shared; 2])? {
                self.take_apart(&name("ssm_ba"), 0, [(name("ssm_beta"), beta), (name("ssm_alpha"), alpha)])?;
            }
        }
        Ok(())
    }

    /// The ranges of the rows of each part of a matrix that holds these sizes of each for every head, if it is there.
    ///
    /// # Errors
    /// If it has other rows.
    fn ranges_of_heads<const N: usize>(
        &self,
        name: &str,
        heads: usize,
        sizes: [usize; N],
    ) -> Result<Option<[Vec<Range<usize>>; N]>, Error> {
        let Some(found) = self.rows(name) else { return Ok(None) };
        let of_head: usize = sizes.iter().sum();
        // Before ranges are made of numbers that nothing confirms.
        if found != heads * of_head {
            let message = format!("has {found} rows, but the configuration makes it {}", heads * of_head);
            return Err(Error::Weight { name: name.to_string(), message });
        }
        let mut first = 0;
        Ok(Some(sizes.map(|size| {
            let start = first;
            first += size;
            (0..heads).map(|head| head * of_head + start..head * of_head + start + size).collect()
        })))
    }

    /// Names the two matrices of gated blocks that lie one on the other, the gate second.
    ///
    /// # Errors
    /// If they have other rows than the configuration says.
    pub(crate) fn split_gates_behind(&mut self, config: &Config) -> Result<(), Error> {
        for layer in 0..config.layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let parts = [name("ffn_up"), name("ffn_gate")].map(|name| (name, config.feed_forward));
            self.take_apart(&name("ffn_up_gate"), 0, one_after_the_other(parts))?;
        }
        Ok(())
    }

    /// Says that matrices of experts are stored one on the other as a matrix, perhaps with their axes the other way round.
    ///
    /// # Errors
    /// If the rows are not as many for each.
    pub(crate) fn split_experts(&mut self, name: &str, count: usize, transposed: bool) -> Result<(), Error> {
        let Some(rows) = self.rows(name) else { return Ok(()) };
        if count == 0 || !rows.is_multiple_of(count) {
            let message = format!("has {rows} rows for {count} experts, expected as many for each");
            return Err(Error::Weight { name: name.to_string(), message });
        }
        let whole = Box::new(self.names.remove(name).expect("it has rows"));
        let rows = 0..rows / count;
        self.names.insert(name.to_string(), Stored::Heads { whole, heads: count, rows, transposed });
        Ok(())
    }

    fn rows(&self, name: &str) -> Option<usize> {
        self.shape(name)?.first().copied()
    }

    /// Gives all matrices of a layer's experts the name of one weight [experts, rows, columns], and the gate of a shared
    /// expert that of a vector.
    ///
    /// # Errors
    /// If there are not as many experts as the configuration says, or their matrices are not alike.
    pub(crate) fn gather_experts(&mut self, config: &Config) -> Result<(), Error> {
        let Some(experts) = config.experts else { return Ok(()) };
        for layer in 0..config.layers {
            let name = |stem: &str| format!("blk.{layer}.{stem}.weight");
            let parts = [name("ffn_gate_exps"), name("ffn_up_exps")].map(|name| (name, experts.width));
            self.take_apart(&name("ffn_gate_up_exps"), 1, one_after_the_other(parts))?;
            for stem in ["ffn_gate", "ffn_up", "ffn_down"] {
                let target = format!("{stem}_exps");
                self.stack(&format!("blk.{layer}.{stem}"), experts.count, &name(&target))?;
            }
            self.flatten(&name("ffn_gate_inp_shexp"));
        }
        Ok(())
    }

    /// Gives some rows of a matrix, which keeps its own name, another one.
    ///
    /// # Errors
    /// If the matrix is stored in several tensors.
    pub(crate) fn name_rows(
        &mut self,
        matrix: &str,
        ranges: Vec<Range<usize>>,
        target: &str,
    ) -> Result<(), Error> {
        let rows = match self.names.get(matrix) {
            Some(Stored::Whole(name)) => Stored::Part { name: name.clone(), axis: 0, ranges },
            Some(Stored::Repacked(weight)) => Stored::Repacked(weight.with_rows(ranges)),
            _ => {
                let message = "is stored otherwise than as a matrix, whose rows cannot be taken apart";
                return Err(Error::Weight { name: matrix.to_string(), message: message.to_string() });
            }
        };
        self.names.insert(target.to_string(), rows);
        Ok(())
    }

    /// Replaces a name by those of its parts, each of which has ranges of an axis.
    ///
    /// # Errors
    /// If the axis has another size than the parts together, or blocks lie across it.
    pub(crate) fn take_apart<const N: usize>(
        &mut self,
        stacked: &str,
        axis: usize,
        parts: [(String, Vec<Range<usize>>); N],
    ) -> Result<(), Error> {
        let Some(whole) = self.names.remove(stacked) else { return Ok(()) };
        let refuse = |message: String| Err(Error::Weight { name: stacked.to_string(), message });
        let expected: usize = parts.iter().flat_map(|(_, ranges)| ranges).map(Range::len).sum();
        let (dtype, shape) = describe(self.weights, &whole).expect("names lead to tensors");
        let found = shape.get(axis).copied().unwrap_or(0);
        if found != expected {
            return refuse(format!("has {found} rows for {N} weights, expected {expected}"));
        }
        if dtype.is_block() && shape.rank() < axis + 2 {
            return refuse(format!("has the dtype {dtype}, whose blocks cannot be taken apart"));
        }
        for (part, ranges) in parts {
            let stored = match (&whole, &ranges[..]) {
                (Stored::Whole(name), _) => Stored::Part { name: name.clone(), axis, ranges },
                (Stored::Transposed(inner), _) if axis + 2 >= shape.rank() => match &**inner {
                    Stored::Whole(name) => {
                        // The last two axes change places.
                        let axis = 2 * shape.rank() - 3 - axis;
                        let part = Stored::Part { name: name.clone(), axis, ranges };
                        Stored::Transposed(Box::new(part))
                    }
                    _ => {
                        return refuse(
                            "is stored otherwise than as a matrix, which cannot be taken apart".into(),
                        );
                    }
                },
                (Stored::Repacked(weight), _) if axis + 2 == shape.rank() => {
                    Stored::Repacked(weight.with_rows(ranges))
                }
                _ => return refuse("is stored in several tensors, which cannot be taken apart".into()),
            };
            self.names.insert(part, stored);
        }
        Ok(())
    }
}

/// The ranges of parts that follow each other, each so many rows.
pub(crate) fn one_after_the_other<const N: usize>(
    parts: [(String, usize); N],
) -> [(String, Vec<Range<usize>>); N] {
    let mut start = 0;
    parts.map(|(name, rows)| {
        let range = start..start + rows;
        start = range.end;
        (name, vec![range])
    })
}
