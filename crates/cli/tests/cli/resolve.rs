//! What settings come to before a model is loaded, and what is refused before it is fetched.

use crate::hub::{Files, Hub};
use crate::plan::{CONFIG, safetensors};
use crate::support::{Folder, Outcome, command, peri, storyteller};

/// Runs a command against a hub; gives the names of what was fetched too.
fn on_hub(files: Files, name: &str, arguments: &[&str]) -> (Outcome, Vec<String>) {
    let cache = Folder::new(name);
    let outcome = Hub::start(files).peri(&cache, arguments, false);
    let snapshots = std::fs::read_dir(cache.path().join("models--ada--tiny/snapshots"));
    let folders = snapshots.into_iter().flatten().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    (outcome, files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect())
}

#[test]
fn models_that_cannot_run_are_not_downloaded() {
    let gguf = std::fs::read(storyteller()).unwrap();
    let models: [(&str, Files); 2] = [
        ("safetensors", vec![("config.json", CONFIG.into()), ("model.safetensors", safetensors(true))]),
        ("gguf", vec![("tiny-q4_k.gguf", gguf)]),
    ];
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--gpu-memory-utilization", "0.0000000001"], 4, "gpu_memory_utilization"),
        (&["--devices", "gpu:0"], 2, "device_specs"),
        (&["--serialized-model-path", "nowhere.mef"], 2, "serialized_model_path"),
    ];
    for (kind, files) in models {
        for (index, (arguments, code, part)) in cases.into_iter().enumerate() {
            for verb in
                [&["generate", "--model", "ada/tiny", "hi"][..], &["config", "check", "--model", "ada/tiny"]]
            {
                let name = format!("unfetched-{kind}-{index}-{}", verb[0]);
                let (outcome, fetched) = on_hub(files.clone(), &name, &[verb, arguments].concat());
                assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
                assert!(outcome.stderr.contains(part), "{outcome:?}");
                assert!(!fetched.iter().any(|file| file.ends_with(kind)), "{arguments:?}: {fetched:?}");
            }
        }
        let name = format!("unfetched-{kind}-plan");
        let (outcome, _) = on_hub(files, &name, &["plan", "ada/tiny", "--devices", "gpu:0"]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    }
}

#[test]
fn encoders_are_not_downloaded_to_generate_text() {
    let Some(folder) = testdata::shared("minilm-l6-v2") else { return };
    let files = ["config.json", "tokenizer.json", "model.safetensors"];
    let files = files.map(|name| (name, std::fs::read(folder.join(name)).unwrap())).to_vec();
    let (outcome, fetched) = on_hub(files, "unfetched-encoder", &["generate", "--model", "ada/tiny", "hi"]);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(outcome.stderr.contains("BertModel is an encoder"), "{outcome:?}");
    assert!(!fetched.iter().any(|file| file.ends_with("safetensors")), "{fetched:?}");
}

#[test]
fn a_folder_named_storyteller_does_not_shadow_the_built_in_model() {
    let folder = Folder::new("storyteller-beside");
    std::fs::create_dir_all(folder.path().join("storyteller")).unwrap();
    let arguments = ["generate", "--quiet", "--temperature", "0", "--max-new-tokens", "4", "The king"];
    let there = command(&arguments).current_dir(folder.path()).output().unwrap();
    assert!(there.status.success(), "{there:?}");
    assert_eq!(String::from_utf8(there.stdout).unwrap(), peri(&arguments).text());
}

#[test]
fn the_built_in_model_takes_the_same_flags_as_its_file() {
    let text = |rest: &[&str]| {
        let arguments = ["generate", "--quiet", "--temperature", "0", "--max-new-tokens", "12", "The king"];
        peri(&[&arguments[..], rest].concat()).text()
    };
    let neox = text(&["--rope-type", "neox"]);
    assert_ne!(neox, text(&[]));
    assert_eq!(neox, text(&["--rope-type", "neox", "--model", &storyteller()]));
    let other = peri(&["plan", "--architecture", "Gemma2ForCausalLM"]);
    assert_eq!(other.code, Some(3), "{other:?}");
}

/// Runs a command line of a shell in which a process may have 3 GB of addresses.
#[cfg(target_os = "linux")]
fn limited(arguments: &str) -> Outcome {
    let script = format!("ulimit -v 3000000; exec {} {arguments}", env!("CARGO_BIN_EXE_peri"));
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    Outcome {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

#[cfg(target_os = "linux")]
#[test]
fn address_space_limits_bound_memory() {
    let outcome = limited(
        "generate --max-length 512 --cache-strategy continuous --max-cache-batch-size 2000 --threads 1 hi",
    );
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(outcome.stderr.contains("lower max_cache_batch_size to"), "{outcome:?}");
    let outcome = limited("bench --batch 4000 --threads 1");
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
}

#[test]
fn oversized_pages_and_padding_are_errors_that_name_the_field() {
    let plan = peri(&["plan", "--cache-strategy", "naive", "--pad-to-multiple-of", "1000000000000"]);
    assert_eq!(plan.code, Some(4), "{plan:?}");
    assert!(plan.stderr.contains("pad_to_multiple_of is 1000000000000 tokens"), "{plan:?}");
    for page in ["1099511627776", "4611686018427387904"] {
        let outcome = peri(&["inspect", "--kv-cache-page-size", page]);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    }
}
