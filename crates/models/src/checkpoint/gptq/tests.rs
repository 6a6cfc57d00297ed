//! Tests of repacking: weights against the formula, and every pair of facts that may disagree.

use serde_json::json;

use tensor::{Bytes, DType, bf16, f16};

use super::*;
use crate::architectures::Architecture;
use crate::names::CanonicalNames;
use crate::stored::read;

/// What GPTQ makes of a matrix, in plain numbers, and how it is written.
#[derive(Clone)]
struct Sample {
    rows: usize,
    columns: usize,
    config: GptqConfig,
    bf16: bool,
    /// The group of each column.
    group_of: Vec<usize>,
    zero: fn(usize, usize) -> u32,
}

/// Tensors as files have them: name, dtype, shape, bytes.
type Stored4 = Vec<(&'static str, &'static str, Vec<usize>, Vec<u8>)>;

const CONFIG: GptqConfig =
    GptqConfig { bits: 4, group_size: Some(32), desc_act: false, zeros_less_one: true, dynamic: false };

impl Sample {
    fn new(rows: usize, columns: usize, config: GptqConfig) -> Sample {
        let size = config.group_size.unwrap_or(columns);
        let group_of = (0..columns).map(|column| column / size).collect();
        Sample { rows, columns, config, bf16: false, group_of, zero: |_, _| 8 }
    }

    fn groups(&self) -> usize {
        self.group_of.iter().max().unwrap() + 1
    }

    fn code(&self, row: usize, column: usize) -> u32 {
        (row * 7 + column * 5 + column / 16) as u32 % 16
    }

    fn scale(&self, group: usize, row: usize) -> f32 {
        (1 + group + row % 5) as f32 / 64.0
    }

    fn weight(&self, row: usize, column: usize) -> f32 {
        let group = self.group_of[column];
        let zero = (self.zero)(group, row) as f32;
        self.scale(group, row) * (self.code(row, column) as f32 - zero)
    }

    fn tensors(&self) -> Stored4 {
        let (rows, columns, groups) = (self.rows, self.columns, self.groups());
        let word = |codes: [u32; 8]| (0..8).fold(0, |word, i| word | codes[i] << (4 * i));
        let mut qweight = Vec::new();
        for first in (0..columns).step_by(8) {
            for row in 0..rows {
                qweight.extend(word(std::array::from_fn(|i| self.code(row, first + i))).to_le_bytes());
            }
        }
        let (mut scales, mut qzeros) = (Vec::new(), Vec::new());
        for group in 0..groups {
            for row in 0..rows {
                let scale = self.scale(group, row);
                let half =
                    if self.bf16 { bf16::from_f32(scale).to_bits() } else { f16::from_f32(scale).to_bits() };
                scales.extend(half.to_le_bytes());
            }
            for first in (0..rows).step_by(8) {
                let zeros = word(std::array::from_fn(|i| (self.zero)(group, first + i)));
                let ones = if self.config.zeros_less_one { 0x1111_1111 } else { 0 };
                qzeros.extend(zeros.wrapping_sub(ones).to_le_bytes());
            }
        }
        let g_idx = self.group_of.iter().flat_map(|&group| (group as i32).to_le_bytes()).collect();
        vec![
            ("qweight", "I32", vec![columns / 8, rows], qweight),
            ("scales", if self.bf16 { "BF16" } else { "F16" }, vec![groups, rows], scales),
            ("qzeros", "I32", vec![groups, rows / 8], qzeros),
            ("g_idx", "I32", vec![columns], g_idx),
        ]
    }
}

/// A safetensors file of layers that are called as given.
fn file(layers: &[(&str, Stored4)]) -> Weights {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (layer, tensors) in layers {
        for (leaf, dtype, shape, bytes) in tensors {
            let start = data.len();
            data.extend_from_slice(bytes);
            let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, data.len()] });
            header.insert(format!("model.layers.{layer}.{leaf}"), entry);
        }
    }
    let header = serde_json::Value::from(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
    Weights::from_bytes("model.safetensors", Bytes::new(bytes)).unwrap()
}

fn canonical(weights: &Weights) -> HashMap<String, Stored> {
    let llama = Architecture::from_hugging_face("LlamaForCausalLM").unwrap();
    let names = CanonicalNames::new(weights, llama.names).unwrap().stored.into_iter();
    names.map(|(name, stored)| (name, Stored::Whole(stored))).collect()
}

fn gathered(weights: &Weights, config: &GptqConfig) -> Result<HashMap<String, Stored>, String> {
    let mut names = canonical(weights);
    gather(&mut names, weights, Some(config), Path::new("config.json")).map_err(|error| error.to_string())?;
    Ok(names)
}

/// The weights are those of the formula, to the bit, with columns in order.
fn check(sample: &Sample, dtype: DType) -> Option<Vec<i32>> {
    let weights = file(&[("3.self_attn.q_proj", sample.tensors())]);
    let names = gathered(&weights, &sample.config).unwrap();
    let Stored::Repacked(layer) = &names["blk.3.attn_q.weight"] else { panic!("not gathered") };
    assert!(names.keys().all(|name| name.ends_with(".weight") || name.ends_with(".order")), "{names:?}");
    let order = layer.order().map(|name| match &names[name] {
        Stored::Made(order) => order.to_vec::<i32>(),
        _ => panic!("orders are made"),
    });
    let column = |place: usize| order.as_ref().map_or(place, |order| order[place] as usize);
    for rows in [0..sample.rows, sample.rows / 3..sample.rows / 2] {
        let part = layer.with_rows(vec![rows.clone()]);
        let weight = part.read(&weights).unwrap().unwrap();
        assert_eq!((weight.dtype(), *weight.shape()), part.describe());
        assert_eq!(weight.dtype(), dtype);
        let found = weight.to_f32_vec();
        let expected = rows.flat_map(|row| (0..sample.columns).map(move |place| (row, place)));
        for ((row, place), found) in expected.zip(found) {
            assert_eq!(found, sample.weight(row, column(place)), "row {row}, place {place}");
        }
    }
    order
}

#[test]
fn weights_are_those_of_the_formula() {
    for rows in [8, 64, 200] {
        assert_eq!(check(&Sample::new(rows, 96, CONFIG), DType::Q4_0), None);
        let all = GptqConfig { group_size: None, ..CONFIG };
        assert_eq!(check(&Sample::new(rows, 160, all), DType::Q4_0), None);
        // The last group is shorter than the others.
        let large = GptqConfig { group_size: Some(64), ..CONFIG };
        assert_eq!(check(&Sample { bf16: true, ..Sample::new(rows, 160, large) }, DType::Q4_0), None);
    }
}

#[test]
fn zero_points_are_those_of_the_format() {
    // One that is 0 borrows from its neighbour in the format that takes 1 from each.
    for zeros_less_one in [true, false] {
        let config = GptqConfig { zeros_less_one, ..CONFIG };
        let zero = |group: usize, row: usize| (3 * group + row) as u32 % 16;
        check(&Sample { zero, ..Sample::new(48, 96, config) }, DType::Gptq);
        check(&Sample::new(48, 96, config), DType::Q4_0);
    }
}

/// Columns in groups by turns.
fn permuted(rows: usize, columns: usize) -> Sample {
    let config = GptqConfig { desc_act: true, ..CONFIG };
    let groups = columns / 32;
    let group_of = (0..columns).map(|column| column * 5 % groups).collect();
    Sample { group_of, ..Sample::new(rows, columns, config) }
}

#[test]
fn permuted_columns_come_in_the_order_of_their_groups() {
    let sample = permuted(40, 96);
    let order = check(&sample, DType::Q4_0).unwrap();
    assert_eq!(order[..4], [0, 3, 6, 9]);
    assert_eq!(order[32..34], [2, 5]);
    check(&Sample { zero: |group, _| group as u32, ..sample }, DType::Gptq).unwrap();
}

#[test]
fn layers_of_one_order_share_it() {
    let sample = permuted(40, 96);
    let reversed = Sample { group_of: sample.group_of.iter().rev().copied().collect(), ..sample.clone() };
    let names = ["3.self_attn.q_proj", "3.self_attn.k_proj", "3.mlp.up_proj"];
    let weights =
        file(&[(names[0], sample.tensors()), (names[1], sample.tensors()), (names[2], reversed.tensors())]);
    let gathered = gathered(&weights, &sample.config).unwrap();
    let order = |name: &str| gathered[name].order().unwrap();
    assert_eq!(order("blk.3.attn_q.weight"), "blk.3.attn_k.order");
    assert_eq!(order("blk.3.attn_k.weight"), "blk.3.attn_k.order");
    assert_eq!(order("blk.3.ffn_up.weight"), "blk.3.ffn_up.order");
}

#[test]
fn groups_are_where_they_are_without_an_index() {
    let sample = Sample::new(16, 160, GptqConfig { group_size: Some(64), ..CONFIG });
    let mut tensors = sample.tensors();
    tensors[3].3.fill(0);
    let zeros = tensors.clone();
    tensors.pop();
    for tensors in [zeros, tensors] {
        let weights = file(&[("0.mlp.up_proj", tensors)]);
        let names = gathered(&weights, &sample.config).unwrap();
        let weight = read((&weights).into(), &names["blk.0.ffn_up.weight"]).unwrap().unwrap();
        let expected = (0..16 * 160).map(|at| sample.weight(at / 160, at % 160));
        assert_eq!(weight.to_f32_vec(), expected.collect::<Vec<_>>());
        let permuted = GptqConfig { desc_act: true, ..sample.config };
        let error = gathered_error(&weights, &permuted);
        assert!(error.contains("`blk.0.ffn_up.g_idx`: is "), "{error}");
        assert!(error.ends_with("though columns may be permuted or in other groups"), "{error}");
    }
}

fn gathered_error(weights: &Weights, config: &GptqConfig) -> String {
    gathered(weights, config).unwrap_err()
}

#[test]
fn what_disagrees_is_named() {
    type Edit = fn(&mut Stored4);
    let cases: [(Edit, &str); 17] = [
        (|t| drop(t.remove(1)), "scales`: missing next to its qweight"),
        (|t| drop(t.remove(2)), "qzeros`: missing next to its qweight"),
        (|t| t[0].1 = "F32", "qweight`: is f32[12, 16], expected a matrix of i32"),
        (|t| t[1].2 = vec![48], "scales`: is f16[48], expected a matrix of f16 or bf16"),
        (
            |t| shrink(t, 0, vec![11, 16]),
            "qweight`: is i32[11, 16], expected 8 · 11 columns in a multiple of 32, and rows",
        ),
        (
            |t| shrink(t, 0, vec![0, 16]),
            "qweight`: is i32[0, 16], expected 8 · 0 columns in a multiple of 32, and rows",
        ),
        (|t| shrink(t, 0, vec![1 << 40, 0]), "columns in a multiple of 32, and rows"),
        (
            |t| shrink(t, 0, vec![8, 16]),
            "scales`: is f16[3, 16], expected 2 groups, of 32 columns each of 64",
        ),
        (|t| shrink(t, 1, vec![3, 8]), "scales`: is f16[3, 8], expected the 16 rows of qweight"),
        (
            |t| shrink(t, 1, vec![2, 16]),
            "qzeros`: is i32[3, 2], expected [2, 16 / 8], after scales and qweight",
        ),
        (
            |t| shrink(t, 2, vec![3, 1]),
            "qzeros`: is i32[3, 1], expected [3, 16 / 8], after scales and qweight",
        ),
        (|t| shrink(t, 3, vec![95]), "g_idx`: is i32[95], expected i32[96], after qweight"),
        (|t| t[3].1 = "F32", "g_idx`: is f32[96], expected i32[96], after qweight"),
        (|t| index(t, 5, 3), "g_idx`: has the group 3 for column 5, but there are 3"),
        (|t| index(t, 95, -1), "g_idx`: has the group -1 for column 95, but there are 3"),
        (|t| index(t, 0, 2), "g_idx`: has 31 columns for group 0, expected a multiple of 32"),
        (
            |t| t.push(("weight", "F32", vec![1], vec![0; 4])),
            "weight`: has both plain and quantized (qweight) tensors",
        ),
    ];
    for (edit, expected) in cases {
        let mut tensors = Sample::new(16, 96, CONFIG).tensors();
        edit(&mut tensors);
        let error = gathered_error(&file(&[("7.mlp.down_proj", tensors)]), &CONFIG);
        assert!(error.starts_with("weight `blk.7.ffn_down."), "{error}");
        assert!(error.contains(expected), "{error} is not {expected}");
    }
}

/// Gives a tensor fewer elements.
fn shrink(tensors: &mut Stored4, which: usize, shape: Vec<usize>) {
    let (_, dtype, old, bytes) = &mut tensors[which];
    let width = if *dtype == "I32" { 4 } else { 2 };
    bytes.truncate(width * shape.iter().product::<usize>());
    *old = shape;
}

fn index(tensors: &mut Stored4, column: usize, group: i32) {
    tensors[3].3[4 * column..][..4].copy_from_slice(&group.to_le_bytes());
}

#[test]
fn quantized_layers_need_a_configuration() {
    let weights = file(&[("0.mlp.up_proj", Sample::new(16, 96, CONFIG).tensors())]);
    let folder = std::env::temp_dir().join(format!("perihelion-gptq-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let gather = || {
        let mut names = canonical(&weights);
        gather(&mut names, &weights, None, &folder.join("config.json")).map_err(|error| error.to_string())
    };
    let error = gather().unwrap_err();
    assert!(
        error.contains("has no `quantization_config`, but `model.layers.0.mlp.up_proj.qweight` is there"),
        "{error}"
    );
    let early = folder.join("quantize_config.json");
    std::fs::write(&early, r#"{"bits": 4, "group_size": 32, "desc_act": false, "sym": true}"#).unwrap();
    assert_eq!(gather(), Ok(()));
    std::fs::write(&early, r#"{"bits": 3, "group_size": 32}"#).unwrap();
    let error = gather().unwrap_err();
    assert!(error.contains("quantize_config.json: the file: bits is 3, supported are 4 and 8"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
