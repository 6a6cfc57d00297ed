//! Safetensors files for tests.

use serde_json::{Map, Value, json};
use tensor::Bytes;
use weights::Weights;

/// The length and the header of a safetensors file, and the bytes of its tensors: name, dtype, shape, bytes.
pub(super) fn safetensors_start(tensors: &[(&str, &str, &[usize], u64)]) -> (Vec<u8>, u64) {
    let (mut header, mut end) = (Map::new(), 0);
    for (name, dtype, shape, bytes) in tensors {
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [end, end + bytes] });
        header.insert(name.to_string(), entry);
        end += bytes;
    }
    let header = Value::from(header).to_string();
    ([&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat(), end)
}

/// A safetensors file of tensors: name, dtype, shape, and bytes, which are cut or repeated to fill the shape.
pub(crate) fn safetensors(tensors: &[(&str, &str, &[usize], Vec<u8>)]) -> Weights {
    let bits = |dtype: &str| -> usize {
        dtype.trim_start_matches(char::is_alphabetic).split('_').next().unwrap().parse().unwrap()
    };
    let size = |dtype: &str, shape: &[usize]| shape.iter().product::<usize>() * bits(dtype) / 8;
    let described: Vec<_> = tensors
        .iter()
        .map(|(name, dtype, shape, _)| (*name, *dtype, *shape, size(dtype, shape) as u64))
        .collect();
    let (mut file, _) = safetensors_start(&described);
    for (_, dtype, shape, bytes) in tensors {
        file.extend(bytes.iter().cycle().take(size(dtype, shape)));
    }
    Weights::from_bytes("model.safetensors", Bytes::new(file)).unwrap()
}
