//! `peri list`: what is supported.

use std::io::Write;

use anyhow::Context;
use tensor::DType;

/// Arguments of `peri list`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The files that weights may be in.
const FILES: [&str; 3] =
    ["GGUF (.gguf, also split)", "safetensors (also sharded)", "PyTorch (.bin, .pt, .pth)"];

/// The encodings that matrices may have on disk.
fn encodings() -> Vec<&'static str> {
    let plain = [DType::F32, DType::F16, DType::BF16];
    plain.iter().chain(DType::ALL.iter().filter(|dtype| dtype.is_block())).map(|dtype| dtype.name()).collect()
}

/// Prints architectures, encodings and files.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = if arguments.json { json() } else { lines() };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").context("cannot write to standard output")
}

fn json() -> String {
    let architectures: serde_json::Map<String, serde_json::Value> = models::ARCHITECTURES
        .iter()
        .map(|architecture| {
            let facts = serde_json::json!({ "gguf": architecture.gguf, "supported_encodings": encodings() });
            (architecture.hugging_face.to_string(), facts)
        })
        .collect();
    serde_json::json!({ "architectures": architectures, "files": FILES }).to_string()
}

fn lines() -> String {
    let mut lines = vec!["Architectures (Hugging Face name, GGUF name):".to_string()];
    for architecture in models::ARCHITECTURES {
        lines.push(format!("  {:<32} {}", architecture.hugging_face, architecture.gguf));
    }
    lines.push("Encodings of weights:".into());
    lines.push(format!("  {}", encodings().join(" ")));
    lines.push("Files:".into());
    lines.extend(FILES.map(|file| format!("  {file}")));
    lines.join("\n")
}
