//! Real models: all formats open, and survive being cut and bent.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use perihelion_weights::{Error, Format, Weights};
use proptest::prelude::*;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("perihelion-weights-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Weights {
    Weights::open(path).unwrap_or_else(|error| panic!("{error}"))
}

fn message(path: &Path) -> String {
    Weights::open(path).expect_err("an error").to_string()
}

#[test]
fn all_files_of_a_model_open() {
    let Some(data) = testdata::shared("stories260k") else { return };
    for (folder, format) in [("gguf", Format::Gguf), ("pytorch", Format::PyTorch)] {
        for entry in fs::read_dir(data.join(folder)).unwrap() {
            let weights = open(&entry.unwrap().path());
            assert_eq!((weights.format(), weights.len()), (format, 47));
            assert!(weights.bytes() > 200_000 && weights.files().len() == 1);
        }
    }
    assert!(
        matches!(Weights::open(&data.join("gguf")), Err(Error::SeveralModels { candidates, .. }) if candidates.len() == 8)
    );
    assert!(message(&data.join("reference/greedy.json")).contains("neither GGUF, safetensors nor PyTorch"));
    assert!(matches!(Weights::open(&data.join("absent")), Err(Error::Io { .. })));
}

#[test]
fn other_values_of_a_checkpoint_are_metadata() {
    let Some(path) = testdata::shared("stories260k/pytorch/ckpt_nested.pt") else { return };
    let weights = open(&path);
    assert_eq!(weights.metadata().required::<u32>("model_args.dim").unwrap(), 64);
    assert_eq!(weights.metadata().required::<u64>("iter_num").unwrap(), 100_000);
    let Some(path) = testdata::shared("stories260k/hf/model.safetensors") else { return };
    assert_eq!(open(&path).metadata().str("format").unwrap(), "pt");
}

#[test]
fn released_pages_read_the_same() {
    let Some(path) = testdata::shared("stories260k/gguf/stories260K-F32.gguf") else { return };
    let weights = open(&path);
    weights.prefetch("token_embd.weight");
    let before = weights.get("token_embd.weight").unwrap().to_f32_vec();
    weights.release("token_embd.weight");
    weights.release("no tensor has this name");
    assert_eq!(weights.get("token_embd.weight").unwrap().to_f32_vec(), before);
}

/// A GGUF file of f32 vectors, written by the format's rules.
fn gguf(keys: &[(&str, u16)], tensors: &[(&str, &[f32])]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    let string = |file: &mut Vec<u8>, text: &str| {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    };
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        string(&mut file, key);
        file.extend(2u32.to_le_bytes()); // u16
        file.extend(value.to_le_bytes());
    }
    let mut data = Vec::new();
    for (name, values) in tensors {
        string(&mut file, name);
        file.extend(1u32.to_le_bytes());
        file.extend((values.len() as u64).to_le_bytes());
        file.extend(0u32.to_le_bytes()); // F32
        file.extend((data.len() as u64).to_le_bytes());
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    file.resize(file.len().next_multiple_of(32), 0);
    file.extend(data);
    file
}

fn part(number: u16, total: u16, tensors: &[(&str, &[f32])]) -> Vec<u8> {
    gguf(
        &[("split.no", number), ("split.count", 2), ("split.tensors.count", total), ("only", number)],
        tensors,
    )
}

#[test]
fn split_files_are_one_model() {
    let folder = Folder::new("split");
    let first = folder.write("tiny-00001-of-00002.gguf", &part(0, 3, &[("a", &[1.0]), ("b", &[2.0, 3.0])]));
    assert!(message(&first).contains("tiny-00002-of-00002.gguf"), "{}", message(&first));
    let second = folder.write("tiny-00002-of-00002.gguf", &part(1, 3, &[("c", &[4.0])]));
    for path in [&first, &second, &folder.0] {
        let weights = open(path);
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(weights.get("c").unwrap().to_f32_vec(), [4.0]);
        assert_eq!(weights.metadata().required::<u32>("only").unwrap(), 0);
        assert_eq!(weights.files().len(), 2);
    }
    folder.write("tiny-00002-of-00002.gguf", &part(1, 3, &[("a", &[4.0])]));
    assert!(message(&first).contains("tensor `a` is in"));
    folder.write("tiny-00002-of-00002.gguf", &part(0, 3, &[("c", &[4.0])]));
    assert!(message(&first).contains("split.no is 0, the file name says 1"));
    folder.write("tiny-00002-of-00002.gguf", &part(1, 3, &[]));
    assert!(message(&first).contains("split.tensors.count is 3, the 2 parts hold 2"));
    folder.write("tiny-00001-of-00002.gguf", &gguf(&[], &[("a", &[1.0])]));
    assert!(message(&folder.0).contains("split.count is 1, the file names say 2"));
    let alone = folder.write("alone.gguf", &part(0, 3, &[]));
    assert!(message(&alone).contains("split.count is 2, but the file is not named"));
}

fn safetensors(name: &str, value: f32) -> Vec<u8> {
    let header = format!(r#"{{"{name}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}"#);
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(value.to_le_bytes());
    file
}

/// Checks that the tensor `b` of an index is absent, and why.
fn absent(path: &Path, reason: &str) {
    let weights = open(path);
    assert_eq!((weights.len(), weights.absent().collect::<Vec<_>>()), (1, vec!["b"]));
    assert_eq!(weights.reason_of_absence("b").unwrap(), reason);
    assert_eq!(weights.reason_of_absence("a"), None);
}

/// Of a tensor in several files, that counts which the index lists, wherever it is in the order of files.
#[test]
fn an_index_says_which_of_two_tensors_counts() {
    let folder = Folder::new("overlay");
    folder.write("base.safetensors", &safetensors("a", 1.0));
    folder.write("overlay.safetensors", &safetensors("a", 2.0));
    folder.write("b.safetensors", &safetensors("b", 3.0));
    let index = |shard: &str| {
        let map = format!(
            r#"{{"a": "{shard}", "b": "b.safetensors", "c": "{shard}", "d": "base.safetensors", "e": "overlay.safetensors"}}"#
        );
        folder.write(
            "model.safetensors.index.json",
            format!(r#"{{"metadata": {{"total_size": NaN}}, "weight_map": {map}}}"#).as_bytes(),
        )
    };
    for (shard, value) in [("base.safetensors", 1.0), ("overlay.safetensors", 2.0)] {
        let weights = open(&index(shard));
        assert_eq!((weights.len(), weights.get("a").unwrap().to_f32_vec()), (2, vec![value]), "{shard}");
        assert_eq!(weights.absent().collect::<Vec<_>>(), ["c", "d", "e"]);
    }
    // The tensor of a file that is lost is not replaced by an older one.
    std::fs::remove_file(folder.0.join("overlay.safetensors")).unwrap();
    let weights = open(&index("overlay.safetensors"));
    assert_eq!(weights.names().collect::<Vec<_>>(), ["b"]);
    let renamed = weights.renamed(|name| (name == "a").then(|| "x".to_string())).unwrap();
    let reason = "the model lacks overlay.safetensors, where the index lists it";
    assert_eq!(renamed.reason_of_absence("x").unwrap(), reason);
    for name in ["base", "b"] {
        std::fs::remove_file(folder.0.join(format!("{name}.safetensors"))).unwrap();
    }
    assert!(message(&folder.0).contains("b.safetensors"));
}

#[test]
fn shards_are_found_through_their_index() {
    let folder = Folder::new("index");
    folder.write("model-00001-of-00002.safetensors", &safetensors("a", 1.0));
    folder.write("model-00002-of-00002.safetensors", &safetensors("b", 2.0));
    assert_eq!(open(&folder.0).len(), 2, "shards without an index");
    let index = |second: &str| {
        let map = format!(r#"{{"a": "model-00001-of-00002.safetensors", "b": "{second}"}}"#);
        folder.write("model.safetensors.index.json", format!(r#"{{"weight_map": {map}}}"#).as_bytes())
    };
    let path = index("model-00002-of-00002.safetensors");
    assert_eq!(open(&path).get("b").unwrap().to_f32_vec(), [2.0]);
    assert_eq!(open(&folder.0).len(), 2);
    index("model-00001-of-00002.safetensors");
    absent(&path, "model-00001-of-00002.safetensors, where the index lists it, does not hold it");
    index("mtp.safetensors");
    absent(&path, "the model lacks mtp.safetensors, where the index lists it");
    index("../model-00001-of-00002.safetensors");
    assert!(message(&path).contains("is not the name of a file next to it"));
    folder.write("model.safetensors.index.json", br#"{"weight_map": {}}"#);
    assert!(message(&path).contains("lists no tensors"));
    folder.write("model.safetensors.index.json", b"[]");
    assert!(message(&path).contains("malformed safetensors: index"));
}

#[test]
fn names_and_content_must_agree() {
    let folder = Folder::new("names");
    assert!(matches!(Weights::open(&folder.0), Err(Error::NoWeights { .. })));
    let lying = folder.write("model.gguf", &safetensors("a", 1.0));
    assert!(message(&lying).ends_with("named like a GGUF file, but the content is safetensors"));
    let silent = folder.write("blob", &safetensors("a", 1.0));
    assert_eq!(open(&silent).format(), Format::Safetensors);
}

/// A zip archive with these records in a folder, compressed or not.
fn archive(records: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in records {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        zip.start_file(format!("archive/{name}"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// A state dict as PyTorch pickles it, with attributes, a parameter, and a dtype that has no storage class.
const STATE_DICT: &[u8] = b"\x80\x02ccollections\nOrderedDict\n)R(\
    X\x01\0\0\0actorch._utils\n_rebuild_parameter\nctorch._utils\n_rebuild_tensor_v2\n(\
    (X\x07\0\0\0storagectorch\nHalfStorage\nX\x01\0\0\0xX\x03\0\0\0cpuK\x04tQ\
    K\x01K\x03\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR\x88ccollections\nOrderedDict\n)R\x87R\
    X\x01\0\0\0bctorch._utils\n_rebuild_tensor_v3\n(\
    (X\x07\0\0\0storagectorch.storage\nUntypedStorage\nX\x01\0\0\0yX\x03\0\0\0cpuK\x02tQ\
    K\x00K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)Rctorch\nfloat8_e4m3fn\ntR\
    X\x01\0\0\0nK\x07u}X\x09\0\0\0_metadataNsb.";

#[test]
fn expanded_views_are_read_if_they_are_no_larger_than_their_storage() {
    let folder = Folder::new("expanded");
    let view = |len: u8| {
        let text = STATE_DICT.to_vec();
        let at = text.windows(8).position(|part| part == b"K\x01K\x03\x85K\x01\x85").unwrap();
        // Sizes and strides of `a`.
        let text = [&text[..at], b"K\x01K", &[len], b"\x85K\x00\x85", &text[at + 8..]].concat();
        let halves: &[u8] = &[0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44];
        let records = [("data.pkl", &text[..]), ("data/x", halves), ("data/y", &[0x38, 0xc0])];
        folder.write("view.pt", &archive(&records, zip::CompressionMethod::Stored))
    };
    assert_eq!(open(&view(4)).get("a").unwrap().to_f32_vec(), [2.0; 4]);
    let error = message(&view(9));
    let expected = "tensor `a` of [9] is larger than its storage of 4 elements (it repeats them with stride 0: save it \
                    with `.contiguous()`)";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn archives_hold_parameters_and_may_be_compressed() {
    let folder = Folder::new("archive");
    // f16 1, 2, 3, 4; f8e4m3 1, -2.
    let storages: [&[u8]; 2] = [&[0, 0x3c, 0, 0x40, 0, 0x42, 0, 0x44], &[0x38, 0xc0]];
    let records = [
        ("data.pkl", STATE_DICT),
        ("byteorder", b"little"),
        ("data/x", storages[0]),
        ("data/y", storages[1]),
    ];
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let weights = open(&folder.write("model.pt", &archive(&records, method)));
        assert_eq!(weights.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(weights.get("a").unwrap().to_f32_vec(), [2.0, 3.0, 4.0]);
        assert_eq!(weights.get("b").unwrap().to_f32_vec(), [1.0, -2.0]);
        weights.release("a");
        assert_eq!(weights.get("a").unwrap().to_f32_vec(), [2.0, 3.0, 4.0]);
    }
    let refused =
        |records: &[(&str, &[u8])], method| message(&folder.write("model.pt", &archive(records, method)));
    let zeros = vec![0; 4 << 20];
    let bomb = [records[0], ("data/x", &zeros), records[3]];
    let answer = refused(&bomb, zip::CompressionMethod::Deflated);
    assert!(answer.contains("`archive/data/x` decompresses to 4194304 bytes"), "{answer}");
    let stored = zip::CompressionMethod::Stored;
    assert!(refused(&[records[0], ("byteorder", b"big")], stored).contains("big-endian"));
    assert!(refused(&records[..3], stored).contains("no record `archive/data/y`"));
    assert!(refused(&[records[0], ("x/data.pkl", b"")], stored).contains("several"));
}

/// The bytes of a file's mapping that are in memory, by the kernel's account.
#[cfg(target_os = "linux")]
fn resident(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with(path.to_str().unwrap()));
    let line = lines.find(|line| line.starts_with("Rss:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
#[cfg(target_os = "linux")]
fn released_pages_leave_memory() {
    let folder = Folder::new("release");
    let values = vec![1.0; 1 << 20];
    let path = folder.write("large.gguf", &gguf(&[], &[("a", &values), ("b", &values)]));
    let weights = open(&path);
    let sum = |name| weights.get(name).unwrap().to_f32_vec().iter().sum::<f32>();
    assert_eq!(sum("a") + sum("b"), (2 << 20) as f32);
    assert!(resident(&path) >= 8 << 20);
    weights.release("a");
    let left = resident(&path);
    assert!((4 << 20..5 << 20).contains(&left), "{left} bytes are left of one tensor of two");
    assert_eq!(sum("a"), (1 << 20) as f32);
}

/// Opens bytes as each format would; whatever the verdict, all tensors given can be read.
fn survives(folder: &Folder, name: &str, bytes: &[u8]) {
    if let Ok(weights) = Weights::open(&folder.write(name, bytes)) {
        for (_, tensor) in weights.tensors() {
            std::hint::black_box(tensor.contiguous().bytes().iter().fold(0u8, |sum, byte| sum ^ byte));
        }
    }
}

const FUZZED: &[(&str, &str)] = &[
    ("model.gguf", "stories260k/gguf/stories260K-Q4_0.gguf"),
    ("model.safetensors", "stories260k/hf/model.safetensors"),
    ("model.bin", "stories260k/pytorch/legacy_tar_f16.bin"),
    ("model.pt", "malformed/pytorch/ok-transposed.pt"),
    ("tiny.gguf", "malformed/gguf/ok-align-64.gguf"),
];

#[test]
fn damage_never_panics() {
    let folder = Folder::new("fuzz");
    for &(name, path) in FUZZED {
        let Some(path) = testdata::shared(path) else { return };
        let whole = fs::read(path).unwrap();
        // Headers are at the front, and a zip archive's directory at the back of a tiny file.
        let header = whole.len().min(16 << 10);
        let flips = proptest::collection::vec((0..header, any::<u8>()), 0..8);
        let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
        proptest::test_runner::TestRunner::new(config)
            .run(&(flips, 0..whole.len() * 2), |(flips, length)| {
                let mut bytes = whole.clone();
                flips.iter().for_each(|&(at, byte)| bytes[at] = byte);
                bytes.truncate(length);
                survives(&folder, name, &bytes);
                Ok(())
            })
            .unwrap();
    }
}
