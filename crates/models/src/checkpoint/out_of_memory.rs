//! Tests of copies that do not fit into memory.

use std::collections::HashMap;
use std::process::Command;

use tensor::{DType, Tensor};
use weights::{GptqConfig, Weights};

use super::gptq;
use super::testing::safetensors_start;
use crate::Error;
use crate::stored::{Names, Stored, read};

/// Says that this process may not have much memory.
const LIMITED: &str = "PERIHELION_TEST_LIMITED";

/// A file of tensors of zeros that takes no room on the disk: name, dtype, shape, bytes.
fn sparse(path: &std::path::Path, tensors: &[(&str, &str, &[usize], u64)]) -> Weights {
    let (start, zeros) = safetensors_start(tensors);
    std::fs::write(path, &start).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(start.len() as u64 + zeros).unwrap();
    let weights = Weights::open(path).unwrap();
    std::fs::remove_file(path).unwrap();
    weights
}

fn refused(result: Result<Option<Tensor>, Error>) {
    let Error::Memory(error) = result.map(|tensor| tensor.map(|tensor| *tensor.shape())).unwrap_err() else {
        panic!("expected a lack of memory")
    };
    assert!(matches!(*error, tensor::Error::OutOfMemory { bytes } if bytes >= 512 << 20), "{error}");
}

/// Of a file of 512 MiB there is room for the mapping, and not for a copy.
#[test]
fn copies_without_memory_are_refused() {
    if std::env::var_os(LIMITED).is_none() {
        let test = "checkpoint::out_of_memory::copies_without_memory_are_refused";
        let script = format!("ulimit -v 1000000; exec \"$0\" --exact {test}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(std::env::current_exe().unwrap());
        let output = command.env(LIMITED, "1").env("RAYON_NUM_THREADS", "1").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{output:?}");
        return;
    }
    let path = std::env::temp_dir().join(format!("perihelion-{}.safetensors", std::process::id()));
    let weights = sparse(&path, &[("a", "BF16", &[16384, 16384], 512 << 20)]);
    let whole = || Stored::Whole("a".to_string());
    let part = |axis, ranges| Stored::Part { name: "a".to_string(), axis, ranges };
    refused(read((&weights).into(), &Stored::Stack(vec![whole()])));
    refused(read((&weights).into(), &Stored::Transposed(Box::new(whole()))));
    refused(read((&weights).into(), &part(0, vec![0..8192, 8192..16384])));
    refused(read((&weights).into(), &part(1, vec![0..8192, 8192..16384])));
    let names = HashMap::from([("w".to_string(), whole())]);
    refused(Names { reader: (&weights).into(), names: &names, dtype: Some(DType::F32) }.tensor("w"));
    drop(weights);

    let tensors: [(&str, &str, &[usize], u64); 3] = [
        ("a.qweight", "I32", &[4096, 32768], 512 << 20),
        ("a.scales", "F16", &[1, 32768], 2 * 32768),
        ("a.qzeros", "I32", &[1, 4096], 4 * 4096),
    ];
    let weights = sparse(&path, &tensors);
    let stored = |leaf: &str| (format!("w.{leaf}"), Stored::Whole(format!("a.{leaf}")));
    let mut names = HashMap::from(["qweight", "scales", "qzeros"].map(stored));
    let config =
        GptqConfig { bits: 4, group_size: None, desc_act: false, zeros_less_one: true, dynamic: false };
    gptq::gather(&mut names, &weights, Some(&config), std::path::Path::new("config.json")).unwrap();
    refused(read((&weights).into(), &names["w.weight"]));
}
