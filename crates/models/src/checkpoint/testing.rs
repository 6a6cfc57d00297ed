//! Safetensors files for tests.

use serde_json::{Map, Value, json};

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
