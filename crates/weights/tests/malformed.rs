//! Hostile files: each gets the verdict its index states, nothing crashes, and no allocation exceeds the file by far.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use perihelion_weights::{Error, Weights};
use serde::Deserialize;

/// Counts what is allocated now and at most since the last reset.
struct Counting;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only sizes are counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = CURRENT.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is the callee's demand.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CURRENT.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Files may cost this many times their size in memory, and this much more.
const MAX_GROWTH: usize = 16;
const MAX_CONSTANT: usize = 1 << 20;

/// Cases whose container is whole: the model in it is wrong, which is for the models crate to find.
const WRONG_MODELS: &[&str] = &[
    "gguf/real-block_count-6.gguf",        // more layers than there are tensors for
    "gguf/real-block_count-100000.gguf",   // likewise
    "gguf/real-head_count-0.gguf",         // a division by zero in the shapes of attention
    "gguf/real-head_count_kv-0.gguf",      // likewise
    "gguf/real-embedding_length-128.gguf", // a width other than the tensors'
];

#[derive(Deserialize)]
struct Index {
    files: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    file: String,
    format: String,
    expect: String,
    /// A file of the shared data that this one is an edit of.
    base: Option<String>,
    truncate: Option<usize>,
    #[serde(default)]
    patch: Vec<(usize, String)>,
    bytes: usize,
}

/// Opens a file and looks at all it gave, within the bounds on memory.
fn open(path: &Path) -> Result<Weights, Error> {
    let size = fs::metadata(path).map_or(0, |file| file.len() as usize);
    let before = CURRENT.load(Relaxed);
    PEAK.store(before, Relaxed);
    let weights = Weights::open(path);
    let used = PEAK.load(Relaxed) - before;
    let allowed = MAX_GROWTH * size + MAX_CONSTANT;
    assert!(used <= allowed, "{}: {used} bytes were allocated, {allowed} are allowed", path.display());
    if let Ok(weights) = &weights {
        for (_, tensor) in weights.tensors() {
            std::hint::black_box(tensor.contiguous().bytes().iter().fold(0u8, |sum, byte| sum ^ byte));
        }
        let _ = std::hint::black_box((weights.len(), weights.bytes()));
    } else if let Err(error) = &weights {
        assert!(error.to_string().len() < 2000, "{error}");
    }
    weights
}

/// The file of a case: as it lies there, or made from its base in a folder of our own.
fn file_of(case: &Case, data: &Path, folder: &Path) -> PathBuf {
    let Some(base) = &case.base else { return data.join("malformed").join(&case.file) };
    let mut bytes = fs::read(data.join(base)).unwrap();
    bytes.truncate(case.truncate.unwrap_or(bytes.len()));
    for (offset, byte) in &case.patch {
        bytes[*offset] = u8::from_str_radix(byte, 16).unwrap();
    }
    assert_eq!(bytes.len(), case.bytes, "{}", case.file);
    let path = folder.join(case.file.replace('/', "-"));
    fs::write(&path, bytes).unwrap();
    path
}

fn index_gives_its_verdicts(data: &Path, folder: &Path) {
    let index: Index = serde_json::from_slice(&fs::read(data.join("malformed/index.json")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    for case in index.files.iter().filter(|case| case.format != "onnx") {
        let opened = open(&file_of(case, data, folder));
        let fits = match case.expect.as_str() {
            "accept" => opened.is_ok(),
            "reject" => opened.is_err() || WRONG_MODELS.contains(&case.file.as_str()),
            _ => true,
        };
        if !fits {
            wrong.push(format!("{} ({}): {opened:?}", case.file, case.expect));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn exploits_are_refused(data: &Path) {
    for entry in fs::read_dir(data.join("malformed/picklescan")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let opened = open(&path);
        if name.ends_with("new_pytorch_model.bin") {
            assert!(!opened.unwrap().is_empty(), "{name}");
        } else if ["malicious", "exploit", "GHSA", "sploit"].iter().any(|word| name.contains(word)) {
            assert!(opened.is_err(), "{name}: {opened:?}");
        }
    }
}

fn refusals_name_what_was_asked(data: &Path) {
    for (file, global) in [
        ("exec-os-system.pt", "os.system"),
        ("exec-posix-system.pt", "posix.system"),
        ("exec-builtins-eval.pt", "builtins.eval"),
        ("exec-protocol4-stack-global.pt", "os.system"),
        ("exec-torch-load.pt", "torch.load"),
        ("exec-subprocess-popen.pt", "subprocess.Popen"),
    ] {
        let error = open(&data.join("malformed/pytorch").join(file)).unwrap_err();
        assert!(matches!(&error, Error::Refused { global: named, .. } if named == global), "{file}: {error}");
    }
}

fn views_are_read_as_views(data: &Path) {
    for (file, values) in [
        ("ok-tensor.pt", &[1.0, 2.0, 3.0, 4.0][..]),
        ("ok-transposed.pt", &[1.0, 3.0, 2.0, 4.0]),
        ("ok-offset.pt", &[3.0, 4.0]),
    ] {
        let weights = open(&data.join("malformed/pytorch").join(file)).unwrap();
        let (_, tensor) = weights.tensors().next().unwrap();
        assert_eq!(tensor.to_f32_vec(), values, "{file}");
    }
}

/// Files of nothing but the smallest records their formats have: where memory per byte is largest.
fn dense_files_stay_in_bounds(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let _ = open(&path);
    };
    let length = |len: u64| len.to_le_bytes();
    let gguf = |tensors: u32, keys: u32, body: Vec<Vec<u8>>| {
        let counts = [length(tensors.into()), length(keys.into())].concat();
        [b"GGUF\x03\0\0\0".to_vec(), counts, body.concat()].concat()
    };
    // A name, one axis of zero elements, type, offset.
    let tensor = |i| [&length(4)[..], &name(i), &1u32.to_le_bytes(), &[0; 8], &[0; 4], &[0; 8]].concat();
    write("tensors.gguf", &gguf(RECORDS, 0, (0..RECORDS).map(tensor).collect()));
    // A key and a u8.
    let key = |i| [&length(4)[..], &name(i), &[0, 0, 0, 0, 7]].concat();
    write("keys.gguf", &gguf(0, RECORDS, (0..RECORDS).map(key).collect()));
    // One key, and an array of empty strings.
    let array =
        [&length(1)[..], b"k", &9u32.to_le_bytes(), &8u32.to_le_bytes(), &length(RECORDS.into())].concat();
    write("strings.gguf", &gguf(0, 1, vec![array, vec![0; 8 * RECORDS as usize]]));
    let tensor = |i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let json = format!("{{{}}}", (0..RECORDS).map(tensor).collect::<Vec<_>>().join(","));
    write("tensors.safetensors", &[&length(json.len() as u64)[..], json.as_bytes()].concat());
    // Empty tuples, tuples in tuples, empty lists, memo entries, dicts of one entry, a list of constants.
    let constants = [&b"("[..], &b"N".repeat(10_000), b"e"].concat();
    for (index, unit) in [b")0", &b"\x85"[..], b"]0", b"\x94", b"}NNs0", &constants].into_iter().enumerate() {
        let program = unit.repeat(1_000_000 / unit.len());
        write(&format!("{index}.bin"), &[&b"\x80\x02]"[..], &program, b"."].concat());
    }
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for i in 0..RECORDS / 3 {
        zip.start_file(i.to_string(), zip::write::SimpleFileOptions::default()).unwrap();
    }
    write("records.pt", zip.finish().unwrap().get_ref());
}

/// Enough that the constant does not matter.
const RECORDS: u32 = 60_000;

/// Four letters that no other number has.
fn name(i: u32) -> [u8; 4] {
    [0, 5, 10, 15].map(|shift| b'A' + (i >> shift & 31) as u8)
}

/// One test, as the count of allocations is one for the whole process.
#[test]
fn hostile_files_get_their_verdicts() {
    let Some(data) = testdata::shared("malformed").map(|path| path.parent().unwrap().to_path_buf()) else {
        return;
    };
    let folder = std::env::temp_dir().join(format!("perihelion-malformed-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    index_gives_its_verdicts(&data, &folder);
    exploits_are_refused(&data);
    refusals_name_what_was_asked(&data);
    views_are_read_as_views(&data);
    dense_files_stay_in_bounds(&folder);
    fs::remove_dir_all(&folder).unwrap();
}
