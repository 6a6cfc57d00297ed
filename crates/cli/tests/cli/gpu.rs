//! `--device gpu`: texts are the CPU's, and plans say what the host computes. Without a GPU, an error says what was looked for.

use perihelion::driver::PLATFORM;
use serde_json::{Value, json};

use crate::server::{Served, serve};
use crate::support::{peri, storyteller};

#[test]
fn the_text_is_that_of_the_cpu() {
    if !testdata::has_gpu(PLATFORM.absence()) {
        return;
    }
    let story = |device, cache: &[&str]| {
        let greedy = ["generate", "Once upon a time", "--temperature", "0", "-n", "64", "--quiet"];
        peri(&[&greedy[..], cache, &["--device", device]].concat()).text()
    };
    let exact = ["--cache-dtype", "float32"];
    assert_eq!(story("gpu", &exact), story("cpu", &exact));
    // With keys and values of 16 bits, a word of the story is as likely as another: only the same bits give the same text.
    if testdata::is_gpu_software() {
        assert_eq!(story("gpu", &[]), story("cpu", &[]));
    }
    let Some(folder) = testdata::shared("stories260k/gguf") else { return };
    for encoding in ["F32", "F16", "BF16"] {
        let model = folder.join(format!("stories260K-{encoding}.gguf")).display().to_string();
        let on = |device| {
            let shared = [
                "generate",
                "--model",
                &model,
                "Once upon a time",
                "--temperature",
                "0",
                "-n",
                "64",
                "--quiet",
            ];
            peri(&[&shared[..], &["--device", device]].concat()).text()
        };
        assert_eq!(on("gpu"), on("cpu"), "{encoding}");
    }
}

#[test]
fn the_plan_of_a_dense_model_leaves_tokens_positions_and_the_table_to_the_host() {
    if !testdata::has_gpu(PLATFORM.absence()) {
        return;
    }
    let plan = peri(&["plan", "--model", &storyteller(), "--device", "gpu", "--json"]).json();
    assert_eq!(plan["device"], "gpu:0");
    assert!(plan["device_steps"].as_u64() > Some(20), "{plan}");
    let left: Vec<&str> =
        plan["host_steps"].as_array().unwrap().iter().map(|step| step["op"].as_str().unwrap()).collect();
    let known = ["embedding", "ragged_positions", "rope_table"];
    assert!(left.iter().all(|op| known.contains(op)), "{left:?}");
}

fn answer(served: &Served, prompt: &str) -> String {
    let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let reply = served.reply("POST", "/v1/completions", "", &body.to_string());
    let body = reply.split_once("\r\n\r\n").expect("a reply").1;
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {reply}"));
    body["choices"][0]["text"].as_str().expect("a text").to_string()
}

#[test]
fn eight_texts_at_once_are_those_of_the_cpu() {
    if !testdata::has_gpu(PLATFORM.absence()) {
        return;
    }
    let prompts: Vec<String> = (1..=8).map(|count| format!("Once upon a time there were {count} ")).collect();
    let (here, there) = (serve(&[], &[]), serve(&["--device", "gpu"], &[]));
    let there = &there;
    let together: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = prompts.iter().map(|prompt| scope.spawn(move || answer(there, prompt))).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let expected: Vec<String> = prompts.iter().map(|prompt| answer(&here, prompt)).collect();
    assert_eq!(together, expected);
}

#[test]
fn without_a_gpu_the_error_says_what_was_looked_for() {
    let absent = PLATFORM.accelerator_count().to_string();
    let outcome = peri(&["generate", "Once upon a time", "--device", &format!("gpu:{absent}")]);
    let start = format!("gpu:{absent} is not available: found {absent} accelerator");
    assert!(outcome.code != Some(0) && outcome.stderr.contains(&start), "{}", outcome.stderr);
    if let Some(absence) = PLATFORM.absence() {
        assert!(outcome.stderr.contains(&absence), "{}", outcome.stderr);
    }
}
