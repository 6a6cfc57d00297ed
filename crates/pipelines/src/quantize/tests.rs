//! Files of llama.cpp's quantizer are met byte for byte; of other checkpoints, models stay the same.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Device, InferenceSession};
use models::{Checkpoint, Mix};
use weights::Weights;

use super::*;
use crate::testing::{save, text_model};
use crate::{AddSpecial, ParseSpecial, Scorer, Window};

fn options(mix: &str) -> QuantizeOptions<'static> {
    QuantizeOptions { mix: Mix::find(mix).unwrap(), pure: false, importance: None }
}

fn write_to(source: &Path, folder: &Path, options: &QuantizeOptions<'_>, target: &Path) -> Quantized {
    let checkpoint = Checkpoint::open(source, None).unwrap();
    let mut last = (0, 1);
    let written =
        quantize(&checkpoint, folder, options, target, &mut |done, total| last = (done, total)).unwrap();
    assert_eq!(last, (written.bytes, written.bytes));
    written
}

fn session() -> InferenceSession {
    InferenceSession::new([Arc::new(cpu::Cpu::new(2)) as Arc<dyn Device>]).unwrap()
}

/// The logits of each position.
fn logits(model: &Path, tokens: &[u32]) -> Vec<Vec<f32>> {
    let model = text_model(model);
    let window = Window { start: 0, scored: 0, end: tokens.len() };
    let mut rows = Vec::new();
    let visit = |_, logits: &[f32]| {
        rows.push(logits.to_vec());
        Ok::<(), Error>(())
    };
    Scorer::new(&model, tokens.len()).unwrap().score(tokens, window, visit).unwrap();
    rows
}

/// llama.cpp made the files of these models from the same bf16 weights.
#[test]
fn gguf_files_equal_those_of_llama_cpp_byte_for_byte() {
    let cases = [
        ("shakespeare-llama", &["Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0"][..]),
        ("storyteller", &["Q4_0", "Q4_K_M", "Q6_K", "Q8_0"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (model, mixes) in cases {
        let Some(data) = testdata::shared(&format!("{model}/gguf")) else { return };
        let source = data.join(format!("{model}-BF16.gguf"));
        for mix in mixes {
            let target = folder.path().join("out.gguf");
            let written = write_to(&source, &data, &options(mix), &target);
            assert_eq!(written.warnings, [""; 0]);
            let expected = std::fs::read(data.join(format!("{model}-{mix}.gguf"))).unwrap();
            assert!(std::fs::read(&target).unwrap() == expected, "{model} {mix}");
        }
    }
}

/// A folder's tensors, in their other order of rows, are those of the GGUF file that was made from it.
#[test]
fn folders_become_the_same_tensors() {
    for model in ["shakespeare-llama", "storyteller"] {
        let Some(data) = testdata::shared(model) else { return };
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.gguf");
        write_to(&data.join("hf"), &data.join("hf"), &options("q4_k_m"), &target);
        let expected = Weights::open(&data.join(format!("gguf/{model}-Q4_K_M.gguf"))).unwrap();
        let found = Weights::open(&target).unwrap();
        assert!(found.names().eq(expected.names()), "{model}");
        for (name, tensor) in expected.tensors() {
            let own = found.get(name).unwrap();
            assert_eq!((own.dtype(), own.shape()), (tensor.dtype(), tensor.shape()), "{model} {name}");
            assert!(own.bytes() == tensor.bytes(), "{model} {name}");
        }
        for key in ["tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"] {
            assert_eq!(found.metadata().get(key), expected.metadata().get(key), "{model} {key}");
        }
    }
}

#[test]
fn logits_of_a_folder_and_of_its_gguf_are_equal() {
    for (folder, weights) in
        [("stories260k/hf", None), ("stories260k/hf", Some("stories260k/pytorch/pytorch_model.bin"))]
    {
        let Some(data) = testdata::shared(folder) else { return };
        let out = tempfile::tempdir().unwrap();
        let target = out.path().join("f32.gguf");
        let weights: Option<PathBuf> = weights.and_then(testdata::shared);
        let checkpoint = Checkpoint::open(&data, weights.as_deref()).unwrap();
        quantize(&checkpoint, &data, &options("f32"), &target, &mut |_, _| ()).unwrap();
        let tokens = [1, 403, 407, 261, 378, 300, 7];
        let (expected, found) = (logits(&data, &tokens), logits(&target, &tokens));
        for (expected, found) in expected.iter().flatten().zip(found.iter().flatten()) {
            assert!((expected - found).abs() < 2e-4, "{expected} {found}");
        }
        let model = text_model(&target);
        let text = "Once upon a time, Zoë had 12 cats.";
        let encode =
            |tokenizer: &Tokenizer| tokenizer.encode(text, AddSpecial::Yes, ParseSpecial::No).unwrap();
        assert_eq!(encode(model.tokenizer()), encode(&Tokenizer::from_directory(&data).unwrap()));
    }
}

/// Of a saved model whose weights are gone, every bit is the same.
#[test]
fn logits_of_a_gguf_and_of_its_artifact_have_the_same_bits() {
    let Some(data) = testdata::shared("shakespeare-llama/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let [gguf, mef] = ["model.gguf", "model.mef"].map(|name| folder.path().join(name));
    write_to(&data, &data, &options("q4_k_m"), &gguf);
    let tokens = [1, 403, 407, 261, 378, 300, 7];
    let bits = |model: &Path| -> Vec<u32> {
        logits(model, &tokens).iter().flatten().map(|logit| logit.to_bits()).collect()
    };
    let expected = bits(&gguf);
    save(&gguf, &mef);
    std::fs::remove_file(&gguf).unwrap();
    assert!(bits(&mef) == expected);
}

/// Rows of 172 are in no blocks.
#[test]
fn what_fits_no_blocks_is_said() {
    let Some(data) = testdata::shared("stories260k/gguf") else { return };
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("q4.gguf");
    let written = write_to(&data.join("stories260K-F32.gguf"), &data, &options("q4_0"), &target);
    assert_eq!(written.dtypes[&DType::F16], 5);
    assert!(written.warnings[0].starts_with("the rows of 5 tensors are not in blocks of 32"), "{written:?}");
    let again = write_to(&target, &data, &options("q8_0"), &out.path().join("again.gguf"));
    assert!(again.warnings[0].contains("tensors were quantized before"), "{again:?}");
}

#[test]
fn damage_is_refused_and_leaves_no_file() {
    let Some(data) = testdata::shared("stories260k/gguf") else { return };
    let out = tempfile::tempdir().unwrap();
    let copy = out.path().join("model.gguf");
    let mut bytes = std::fs::read(data.join("stories260K-F32.gguf")).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&copy, &bytes).unwrap();
    let checkpoint = Checkpoint::open(&copy, None).unwrap();
    let run = |mix: &str, target: &Path| {
        quantize(&checkpoint, out.path(), &options(mix), target, &mut |_, _| ()).unwrap_err().to_string()
    };
    let target = out.path().join("q8.gguf");
    assert!(run("q8_0", &target).contains("holds NaN, expected finite numbers"));
    assert!(run("q2_k_s", &target).contains("q2_k_s needs the importance of columns"));
    let own = out.path().join("./model.gguf");
    assert!(run("q8_0", &own).ends_with("is read from and cannot be written to: name another file"));
    assert!(run("q8_0", &out.path().join("missing/q8.gguf")).contains(testdata::NO_SUCH_FILE));
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 1);
    let mut row = [0; 34];
    let problem = quantize_row(&[1e38; 32], DType::Q8_0, None, &mut row).unwrap_err();
    assert!(problem.contains("is too large for q8_0"), "{problem}");
}

/// The importance of the first layer's queries is the mean square of the normalized embeddings.
#[test]
fn importance_is_the_mean_square_of_inputs() {
    let Some(data) = testdata::shared("shakespeare-llama/hf") else { return };
    let checkpoint = Checkpoint::open(&data, None).unwrap();
    let tokens: Vec<u32> = (0..300).map(|i| i * 37 % 1024).collect();
    let mut done = 0;
    let importance =
        Importance::measure(&session(), &checkpoint, &tokens, 200, &mut |tokens| done = tokens).unwrap();
    assert_eq!((done, importance.tokens, importance.columns.len()), (300, 300, 3 * 7));
    let embedding = checkpoint.tensor("token_embd.weight").unwrap().unwrap();
    let norm = checkpoint.tensor("blk.0.attn_norm.weight").unwrap().unwrap().to_f32_vec();
    let mut expected = vec![0.0; 256];
    for &token in &tokens {
        let row = embedding.narrow(0, token as usize..token as usize + 1).to_f32_vec();
        let square: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>() / 256.0;
        let scale = 1.0 / (square + 1e-5).sqrt();
        for (sum, (x, norm)) in expected.iter_mut().zip(row.iter().zip(&norm)) {
            *sum += (f64::from(*x) * scale * f64::from(*norm)).powi(2) / 300.0;
        }
    }
    for name in ["blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.0.attn_qkv.weight"] {
        for (found, expected) in importance.of(name).unwrap().iter().zip(&expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 1e-4 * expected.max(1e-3),
                "{name} {found} {expected}"
            );
        }
    }
    assert!(importance.of("output.weight").is_none());
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("important.gguf");
    let important = QuantizeOptions { importance: Some(&importance), ..options("q2_k_s") };
    write_to(&data, &data, &important, &target);
    assert!(Weights::open(&target).is_ok());
}
