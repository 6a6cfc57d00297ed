//! Files of llama.cpp's quantizer are met byte for byte; of other checkpoints, models stay the same. Models that are
//! quantized as they are loaded have the bits of such files.

use std::path::PathBuf;
use std::sync::Arc;

use engine::{Device, InferenceSession};
use models::{Checkpoint, Mix};
use weights::Weights;

use super::*;
use crate::plan::config::{FloatType, PipelineConfig};
use crate::testing::{config, model_of, save, text_model, try_model, try_plan};
use crate::{AddSpecial, ParseSpecial, TextModel, Tokenizer, visit_logits};

/// Tokens of any model here.
const TOKENS: [u32; 7] = [1, 403, 407, 261, 378, 300, 7];

fn options(mix: &str) -> QuantizeOptions {
    QuantizeOptions::new(Mix::find(mix).unwrap())
}

fn write_to(source: &Path, folder: &Path, options: &QuantizeOptions, target: &Path) -> Quantized {
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
fn logits(model: &Path) -> Vec<Vec<f32>> {
    logits_of(&text_model(model))
}

fn logits_of(model: &Arc<TextModel>) -> Vec<Vec<f32>> {
    let mut rows = Vec::new();
    let visit = |_, logits: &[f32]| {
        rows.push(logits.to_vec());
        Ok::<(), Error>(())
    };
    visit_logits(model, &TOKENS, TOKENS.len(), TOKENS.len(), visit).unwrap();
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
        let (expected, found) = (logits(&data), logits(&target));
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
    let expected = bits(&text_model(&gguf));
    save(&gguf, &mef);
    std::fs::remove_file(&gguf).unwrap();
    assert!(bits(&text_model(&mef)) == expected);
}

fn bits(model: &Arc<TextModel>) -> Vec<u32> {
    logits_of(model).iter().flatten().map(|logit| logit.to_bits()).collect()
}

/// A model, and the configuration that quantizes it as it is loaded.
fn quantizing(model: &Path, weights: Option<&Path>, mix: &str) -> PipelineConfig {
    let weight_path: Vec<PathBuf> = weights.into_iter().map(Path::to_path_buf).collect();
    PipelineConfig { weight_path, quantize: Mix::find(mix), ..config(model) }
}

/// Rows of 256 have K-quants; those of 64 and 172 get the nearest formats that fit.
#[test]
fn models_quantized_while_loading_have_the_bits_of_the_written_file() {
    let cases = [
        ("shakespeare-llama/hf", None, &["q4_k_m", "q3_k_m", "q8_0", "bf16"][..]),
        ("shakespeare-llama/gguf/shakespeare-llama-BF16.gguf", None, &["q4_k_m", "iq4_xs"]),
        ("stories260k/hf", None, &["q4_k_m", "q6_k"]),
        ("stories260k/hf", Some("stories260k/pytorch/pytorch_model.bf16.pth"), &["q4_0"]),
        ("stories260k/gguf/stories260K-F32.gguf", None, &["q5_k_m"]),
    ];
    for (model, weights, mixes) in cases {
        let Some(source) = testdata::shared(model) else { return };
        let weights = weights.and_then(testdata::shared);
        let checkpoint = Checkpoint::open(&source, weights.as_deref()).unwrap();
        let out = tempfile::tempdir().unwrap();
        for mix in mixes {
            let path = out.path().join(format!("{mix}.gguf"));
            let written = quantize(&checkpoint, &source, &options(mix), &path, &mut |_, _| ()).unwrap();
            let (file, loaded) = (text_model(&path), model_of(quantizing(&source, weights.as_deref(), mix)));
            assert!(bits(&loaded) == bits(&file), "{model} {mix}: other bits");
            let [of_file, plan] = [&file, &loaded].map(|model| model.plan());
            assert_eq!(plan.weight_bytes(), of_file.weight_bytes(), "{model} {mix}");
            assert_eq!(plan.cache_dtype(), of_file.cache_dtype(), "{model} {mix}");
            assert_eq!(plan.config().architecture, of_file.config().architecture, "{model} {mix}");
            assert!(written.warnings.iter().all(|warning| plan.warnings().contains(warning)), "{written:?}");
        }
    }
}

/// It is a model of its own, and belongs to the files that it was quantized from.
#[test]
fn artifacts_of_models_quantized_while_loading_need_no_other_file() {
    let Some(data) = testdata::shared("shakespeare-llama/hf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mef = folder.path().join("model.mef");
    let asked = quantizing(&data, None, "q4_k_m");
    let expected = bits(&model_of(asked.clone().save_to_serialized_model_path(mef.clone())));
    assert!(bits(&text_model(&mef)) == expected, "alone");
    assert!(bits(&model_of(asked.clone().serialized_model_path(mef.clone()))) == expected, "with its source");
    let tokenizer = |model: &Path| {
        let model = text_model(model);
        model.tokenizer().encode("Now is the winter.", AddSpecial::Yes, ParseSpecial::No).unwrap()
    };
    assert_eq!(tokenizer(&mef), tokenizer(&data));
    let refused =
        |config: PipelineConfig| try_plan(config.serialized_model_path(mef.clone())).unwrap_err().to_string();
    let plain = refused(config(&data));
    assert!(plain.contains("the encoding q4_k instead of bfloat16"), "{plain}");
    let other = refused(quantizing(&data, None, "q6_k"));
    assert!(other.contains("the encoding q4_k instead of q6_k"), "{other}");
    let again = try_plan(quantizing(&mef, None, "q8_0")).unwrap_err().to_string();
    assert!(again.contains("model.mef is quantized already, as q4_k: give weights in f32"), "{again}");
}

/// A model of a matrix of 8-bit floats, with the configuration of another one.
fn fp8(folder: &Path, other: &Path) -> PathBuf {
    std::fs::copy(other.join("config.json"), folder.join("config.json")).unwrap();
    let matrix = serde_json::json!({"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]});
    let header = serde_json::json!({"model.layers.0.self_attn.q_proj.weight": matrix}).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat();
    std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
    folder.to_path_buf()
}

#[test]
fn weights_that_cannot_be_quantized_are_refused_while_loading() {
    let refused = |config: PipelineConfig| try_plan(config).unwrap_err().to_string();
    let storyteller = testdata::asset("storyteller/model.gguf");
    let error = refused(quantizing(&storyteller, None, "q8_0"));
    assert!(
        error.starts_with("configuration: quantize is q8_0: ")
            && error.ends_with("model.gguf is quantized already, as q4_k: give weights in f32, bf16 or f16"),
        "{error}"
    );
    let Some(data) = testdata::shared("stories260k/gguf") else { return };
    let source = data.join("stories260K-F32.gguf");
    let cast = PipelineConfig { weights_dtype: Some(FloatType::Bf16), ..quantizing(&source, None, "q4_0") };
    assert!(
        refused(cast).contains("quantize is q4_0: weights_dtype is bf16, and weights are either quantized")
    );
    let error = refused(quantizing(&source, None, "q2_k_s"));
    assert!(error.contains("quantize is q2_k_s: it needs the importance of columns"), "{error}");
    let out = tempfile::tempdir().unwrap();
    let error = refused(quantizing(&fp8(out.path(), &data.with_file_name("hf")), None, "q4_0"));
    assert!(
        error.contains("quantize is q4_0: ") && error.contains("is quantized already, as FP8"),
        "{error}"
    );
    let encoder = testdata::repository().join("crates/perihelion/tests/models/encoders/mpnet");
    let out = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(encoder.join(file), out.path().join(file)).unwrap();
    }
    let error = refused(quantizing(out.path(), None, "q8_0"));
    assert!(
        error.contains("quantize is q8_0: weights are quantized in the layout of GGUF files, but "),
        "{error}"
    );
    let plan = try_plan(config(&source)).unwrap();
    let error = plan.with(|config| config.quantize(Mix::find("q4_0"))).unwrap_err().to_string();
    assert!(error.contains("quantize is q4_0: the weights of this plan are open"), "{error}");
    let error = plan.with(|config| config.weights_dtype(FloatType::F16)).unwrap_err().to_string();
    assert!(error.contains("weights_dtype is f16: the weights of this plan are open"), "{error}");
    // A value that cannot be quantized is an error once it is read.
    let out = tempfile::tempdir().unwrap();
    let damaged = out.path().join("model.gguf");
    let mut bytes = std::fs::read(&source).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    std::fs::write(&damaged, &bytes).unwrap();
    let error = try_model(quantizing(&damaged, None, "q8_0")).err().unwrap().to_string();
    assert!(error.contains("holds inf, expected finite numbers") && error.contains("weight `"), "{error}");
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
}

/// The importance of the first layer's queries is the mean square of the normalized embeddings.
#[test]
fn importance_is_the_mean_square_of_inputs() {
    let Some(data) = testdata::shared("shakespeare-llama/hf") else { return };
    let checkpoint = Checkpoint::open(&data, None).unwrap();
    let tokens: Vec<u32> = (0..300).map(|i| i * 37 % 1024).collect();
    let mut done = 0;
    let importance =
        measure_importance(&session(), &checkpoint, &tokens, 200, &mut |tokens| done = tokens).unwrap();
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
        for (found, expected) in importance.for_tensor(name).unwrap().iter().zip(&expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 1e-4 * expected.max(1e-3),
                "{name} {found} {expected}"
            );
        }
    }
    assert!(importance.for_tensor("output.weight").is_none());
    let out = tempfile::tempdir().unwrap();
    let target = out.path().join("important.gguf");
    let important = QuantizeOptions { importance: Some(Arc::new(importance)), ..options("q2_k_s") };
    write_to(&data, &data, &important, &target);
    assert!(Weights::open(&target).is_ok());
}
