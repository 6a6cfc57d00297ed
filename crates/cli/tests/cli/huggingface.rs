//! The engine `huggingface`: tiny models that Transformers runs, and what is left when one of the two processes dies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::plan;
use crate::server::{Served, serve};
use crate::support::{Folder, Outcome, command, peri};

/// Longer than anything here takes, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The models of `tests/huggingface/make_models.py`, and the interpreter that made them.
struct Made {
    folder: Folder,
    python: String,
    expected: Value,
}

impl Made {
    /// `None` without an interpreter that has the packages.
    fn new(name: &str) -> Option<Made> {
        let python = testdata::transformers()?;
        let folder = Folder::new(name);
        let script = testdata::repository().join("tests/huggingface/make_models.py");
        let made = Command::new(&python).arg(script).arg(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let expected = fs::read_to_string(folder.path().join("expected.json")).unwrap();
        let expected = serde_json::from_str(&expected).unwrap();
        Some(Made { folder, python: python.display().to_string(), expected })
    }

    fn model(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Arguments that name a model and the engine.
    fn engine<'a>(&'a self, model: &'a str) -> [&'a str; 6] {
        ["-m", model, "--engine", "huggingface", "--python", &self.python]
    }

    fn generate(&self, name: &str, more: &[&str]) -> Outcome {
        let model = self.model(name);
        let greedy = ["-p", "Once upon", "-n", "12", "--temperature", "0", "--ignore-eos", "--json"];
        peri(&[&["generate"][..], &self.engine(&model), &greedy, more].concat())
    }
}

/// Finds the ids of processes whose command line contains a word.
fn processes_with(word: &str) -> Vec<u32> {
    let is_with = |id: &u32| {
        fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_with).collect()
}

/// The children of a process.
fn children(parent: u32) -> Vec<u32> {
    let is_child = |id: &u32| {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        status.lines().any(|line| line == format!("PPid:\t{parent}"))
    };
    processes_with("").into_iter().filter(is_child).collect()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn kill(signal: &str, id: u32) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
}

/// Whether a process is gone, or only its exit status is left.
fn is_gone(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

#[test]
fn greedy_texts_are_those_of_transformers_and_of_our_engine() {
    let Some(made) = Made::new("hf-texts") else { return };
    for name in ["opt", "llama"] {
        let outcome = made.generate(name, &[]);
        assert!(!outcome.stderr.contains("warning"), "{}", outcome.stderr);
        let answer = &outcome.json_lines()[0];
        assert_eq!(answer["text"], made.expected[name]["text"], "{name}");
    }
    let model = made.model("llama");
    let greedy = ["-p", "Once upon", "-n", "12", "--temperature", "0", "--ignore-eos", "--json", "--quiet"];
    let ours = &peri(&[&["generate", "-m", &model][..], &greedy].concat()).json_lines()[0];
    assert_eq!(ours["text"], made.expected["llama"]["text"], "Transformers and this engine agree");
    let unknown = peri(&["generate", "-m", &made.model("opt"), "-p", "Once"]);
    let lines: Vec<&str> = unknown.stderr.lines().collect();
    let first =
        lines.iter().position(|line| line.contains("unsupported architecture `OPTForCausalLM`")).unwrap();
    assert!(lines[first].len() < 300 && lines[first + 1].contains("--engine huggingface"), "{lines:?}");
    assert!(lines[first + 2].contains("`peri list`"), "{lines:?}");
}

#[test]
fn code_of_a_model_runs_only_if_it_is_trusted() {
    let Some(made) = Made::new("hf-code") else { return };
    let refused = made.generate("mean", &[]);
    assert!(
        refused.code != Some(0) && refused.stderr.contains("set trust_remote_code"),
        "{}",
        refused.stderr
    );
    let outcome = made.generate("mean", &["--trust-remote-code"]);
    assert_eq!(outcome.stderr.matches("trust_remote_code").count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("run with your rights"), "{}", outcome.stderr);
    assert_eq!(outcome.json_lines()[0]["text"], made.expected["mean"]["text"], "a model without a cache");
}

#[test]
fn embeddings_are_means_of_the_hidden_states() {
    let Some(made) = Made::new("hf-embed") else { return };
    let model = made.model("albert");
    let arguments = [&["encode"][..], &made.engine(&model), &["--json", "Once upon", "Other"]].concat();
    let answer = peri(&arguments).json_lines();
    let vector: Vec<f64> = serde_json::from_value(answer[0]["embedding"].clone()).unwrap();
    let expected: Vec<f64> = serde_json::from_value(made.expected["albert"].clone()).unwrap();
    let distance = vector.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(vector.len() == expected.len() && distance < 1e-5, "{distance}: {vector:?}");
}

/// Asks for a completion, checks the status of the answer, and returns its body.
fn complete(served: &Served, status: &str, body: &Value) -> Value {
    let reply = served.reply("POST", "/v1/completions", "", &body.to_string());
    assert!(reply.starts_with(&format!("HTTP/1.1 {status}")), "{reply}");
    let (_, json) = reply.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_server_answers_as_with_our_engine_and_goes_on_when_the_process_dies() {
    let Some(made) = Made::new("hf-serve") else { return };
    let model = made.model("bloom");
    let mut served = serve(&made.engine(&model), &[]);
    let greedy =
        json!({"prompt": "Once upon", "max_tokens": 12, "temperature": 0, "ignore_eos": true, "logprobs": 3});
    let alone = complete(&served, "200", &greedy);
    assert_eq!(alone["choices"][0]["text"], made.expected["bloom"]["text"]);
    // Others that run at the same time change no bit; nor does who is preempted for whom.
    let others = json!({"prompt": ["Other words", "x", "Once upon"], "max_tokens": 10, "n": 2, "seed": 1, "ignore_eos": true});
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| complete(&served, "200", &others));
        for _ in 0..2 {
            assert_eq!(complete(&served, "200", &greedy)["choices"], alone["choices"]);
        }
        assert_eq!(busy.join().unwrap()["choices"].as_array().unwrap().len(), 6);
    });
    let again = complete(&served, "200", &others);
    assert_eq!(
        again["choices"],
        complete(&served, "200", &others)["choices"],
        "the same seed, the same bits"
    );
    let scored = json!({"prompt": "Once upon", "max_tokens": 0, "echo": true, "logprobs": 1});
    let scored = complete(&served, "200", &scored);
    assert_eq!(scored["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap().len(), 9, "{scored}");
    let form = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer", "maximum": 9, "minimum": 1}}});
    let formed = json!({"prompt": "Once", "max_tokens": 8, "response_format": form});
    let formed = complete(&served, "200", &formed);
    let text = formed["choices"][0]["text"].as_str().unwrap();
    assert!(text.trim().parse::<u8>().is_ok_and(|number| (1..10).contains(&number)), "{text:?}");
    let stopped = json!({"prompt": "Once upon", "max_tokens": 12, "temperature": 0, "stop": made.expected["bloom"]["text"].as_str().unwrap()[3..5]});
    assert_eq!(complete(&served, "200", &stopped)["choices"][0]["finish_reason"], "stop");

    let [worker] = children(served.id())[..] else { panic!("one child") };
    kill("-9", worker);
    wait_until("the worker ends", || !Path::new(&format!("/proc/{worker}")).exists());
    // The next request loads the model again.
    assert_eq!(complete(&served, "200", &greedy)["choices"], alone["choices"]);
    // One that runs when the process dies fails, and says why.
    let [worker] = children(served.id())[..] else { panic!("one child") };
    let long = json!({"prompt": "Once", "max_tokens": 1000, "n": 8, "ignore_eos": true});
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| served.reply("POST", "/v1/completions", "", &long.to_string()));
        // The request still has thousands of steps to run, and each of them updates the metrics.
        let runs = |line: &str| {
            let count =
                line.starts_with("vllm:num_requests_running").then(|| line.rsplit_once(' ')).flatten();
            count.is_some_and(|(_, count)| count.parse().is_ok_and(|count: f64| count > 0.0))
        };
        wait_until("the request runs", || served.reply("GET", "/metrics", "", "").lines().any(runs));
        kill("-9", worker);
        let reply = failing.join().unwrap();
        assert!(
            reply.starts_with("HTTP/1.1 503")
                && reply.contains("engine huggingface: its process has ended: signal: 9")
                && !reply.contains("internal error"),
            "{reply}"
        );
    });
    assert_eq!(complete(&served, "200", &greedy)["choices"], alone["choices"]);
    let [worker] = children(served.id())[..] else { panic!("one child") };
    kill("-9", served.id());
    served.end();
    wait_until("the worker ends with the server", || is_gone(worker));
}

/// An interpreter whose torch is a file of the test, so that the worker fails, ends or waits while it imports.
fn broken(folder: &Folder, torch: &str) -> (String, PathBuf) {
    folder.file("torch.py", torch);
    let path = folder.path().display();
    let python = folder.file("python", format!("#!/bin/sh\nPYTHONPATH={path} exec python3 \"$@\"\n"));
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let model = folder.path().join("model");
    fs::create_dir_all(&model).unwrap();
    fs::write(model.join("config.json"), plan::CONFIG.replace("LlamaForCausalLM", "OddForCausalLM")).unwrap();
    fs::write(model.join("model.safetensors"), plan::safetensors(false)).unwrap();
    (python, model)
}

fn generate(python: &str, model: &Path) -> Outcome {
    let model = model.display().to_string();
    peri(&["generate", "-m", &model, "--engine", "huggingface", "--python", python, "-p", "Once", "--quiet"])
}

#[test]
fn a_worker_that_cannot_start_says_why() {
    let folder = Folder::new("hf-broken");
    let check = |torch: &str, parts: &[&str]| {
        let (python, model) = broken(&folder, torch);
        let outcome = generate(&python, &model);
        let found = parts.iter().all(|part| outcome.stderr.contains(part));
        assert!(outcome.code != Some(0) && found, "{parts:?}: {}", outcome.stderr);
    };
    check(
        "raise ImportError('no such thing')",
        &["no such thing: install torch and transformers", "`python`"],
    );
    check(
        "import os, sys; sys.stderr.write('first\\nlast words\\n'); sys.stderr.flush(); os._exit(3)",
        &["its process has ended: exit status: 3; its last line: last words"],
    );
    check("import os; os.kill(os.getpid(), 9)", &["its process has ended: signal: 9"]);
    check("print('to standard output'); raise ImportError('after text')", &["after text: install"]);
    let (_, model) = broken(&folder, "");
    let outcome = generate("/no/such/python", &model);
    assert!(
        outcome.stderr.contains("engine huggingface (/no/such/python): cannot be started: "),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_worker_dies_with_its_parent_even_while_it_loads() {
    let folder = Folder::new("hf-orphan");
    let file = folder.path().join("pid").display().to_string();
    let torch =
        format!("import os, time; open({file:?}, 'w').write(str(os.getpid()) + '.'); time.sleep(1000)");
    let (python, model) = broken(&folder, &torch);
    let model = model.display().to_string();
    let arguments = ["generate", "-m", &model, "--engine", "huggingface", "--python", &python, "-p", "Once"];
    for signal in ["-9", "-TERM"] {
        let _ = fs::remove_file(&file);
        let mut child = command(&arguments).spawn().unwrap();
        let worker = || fs::read_to_string(&file).ok()?.strip_suffix('.')?.parse::<u32>().ok();
        wait_until("the worker imports", || worker().is_some());
        let worker = worker().unwrap();
        assert!(!is_gone(worker));
        kill(signal, child.id());
        wait_until("the worker ends", || is_gone(worker));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Nothing that has a name is shared.
    let names = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    assert_eq!(names.filter(|entry| entry.file_name().to_string_lossy().contains("perihelion")).count(), 0);
}

#[test]
fn settings_that_the_engine_cannot_follow_are_refused() {
    let folder = Folder::new("hf-refused");
    let (_, model) = broken(&folder, "");
    let model = model.display().to_string();
    for (arguments, part) in [
        (&["--quantize", "q8_0"][..], "quantize is q8_0: the huggingface engine does not quantize"),
        (&["--quantization-encoding", "q4_k"], "quantization_encoding is q4_k: the huggingface engine reads"),
        (&["--cache-dtype", "f16"], "cache_dtype is f16"),
        (&["--reproducible", "any"], "reproducible is any"),
        (&["--weight-path", "other.safetensors"], "weight_path is other.safetensors"),
        (&["--save-to-serialized-model-path", "a.mef"], "compiles nothing"),
    ] {
        let command =
            [&["generate", "-m", &model, "--engine", "huggingface", "-p", "Once"], arguments].concat();
        let outcome = peri(&command);
        assert!(outcome.code == Some(2) && outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
    }
    let without = peri(&["generate", "-m", &model, "--python", "python3", "-p", "Once"]);
    assert!(without.stderr.contains("python is python3: it names an interpreter"), "{}", without.stderr);
    let planned = peri(&["plan", &model, "--engine", "huggingface", "--json"]).text();
    let planned: Value = serde_json::from_str(&planned).unwrap();
    assert_eq!(
        (&planned["architecture"], &planned["task"]),
        (&json!("OddForCausalLM"), &json!("text_generation"))
    );
    assert_eq!(
        (&planned["cache_bytes_per_token"], &planned["warnings"]),
        (&json!(2 * 2 * 2 * 8 * 2), &json!([]))
    );
    let inspected = peri(&["inspect", &model, "--engine", "huggingface"]);
    assert!(inspected.stderr.contains("peri inspect needs a graph"), "{}", inspected.stderr);
    let gguf = crate::support::storyteller();
    let gguf = peri(&["generate", "-m", &gguf, "--engine", "huggingface", "-p", "Once"]);
    assert!(gguf.stderr.contains("the huggingface engine reads folders and repos"), "{}", gguf.stderr);
}
