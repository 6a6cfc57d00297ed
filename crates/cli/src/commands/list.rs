//! `peri list`: supported architectures, encodings and file formats.

use pipelines::config::SupportedEncoding;

use crate::output;

const AFTER_HELP: &str = "\
`peri models` lists the models on this machine.

JSON: architectures{name: {example_repo_ids[], supported_encodings[], gguf, task}}, files[].";

/// Arguments of `peri list`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The file formats of weights.
const FILES: [&str; 3] =
    ["GGUF (.gguf, also split)", "safetensors (also sharded)", "PyTorch (.bin, .pt, .pth)"];

/// The encodings of weights.
fn encodings() -> Vec<&'static str> {
    SupportedEncoding::ALL.iter().map(|encoding| encoding.name()).collect()
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = if arguments.json { json() } else { lines() };
    output::print(text + "\n")
}

fn json() -> String {
    let facts = |name: &str, gguf: Option<&str>, examples: &[&str], task: &str| {
        let facts = serde_json::json!({
            "example_repo_ids": examples,
            "supported_encodings": encodings(),
            "gguf": gguf,
            "task": task,
        });
        (name.to_string(), facts)
    };
    let decoders = models::ARCHITECTURES.iter().map(|own| {
        let task = if own.classifies { "text_classification" } else { "text_generation" };
        facts(own.hugging_face, own.gguf, own.examples, task)
    });
    let wrappers =
        models::FRAMES.iter().map(|own| facts(own.hugging_face, None, own.examples, "text_generation"));
    let encoders = models::ENCODERS.iter().map(|own| {
        let task = own.head.map_or("embeddings_generation", |_| "text_classification");
        facts(own.hugging_face, Some(own.gguf), own.examples, task)
    });
    let mut architectures = serde_json::Map::new();
    for (name, facts) in decoders.chain(wrappers).chain(encoders) {
        // The first row of a name is taken.
        architectures.entry(name).or_insert(facts);
    }
    serde_json::json!({ "architectures": architectures, "files": FILES }).to_string()
}

fn lines() -> String {
    let mut lines = vec!["Architectures (Hugging Face name, GGUF name):".to_string()];
    for architecture in models::ARCHITECTURES {
        let gguf = [architecture.gguf, architecture.gguf_of_experts];
        let gguf: Vec<&str> = gguf.into_iter().flatten().collect();
        lines.push(format!("  {:<38} {}", architecture.hugging_face, gguf.join(", ")).trim_end().to_string());
    }
    lines.push("Vision wrappers, of which only the text part runs:".into());
    lines.extend(models::FRAMES.iter().map(|frame| format!("  {}", frame.hugging_face)));
    lines.push("Encoders:".into());
    for encoder in models::ENCODERS {
        lines.push(format!("  {:<38} {}", encoder.hugging_face, encoder.gguf));
    }
    lines.push("Encodings of weights:".into());
    lines.push(format!("  {}", encodings().join(" ")));
    lines.push("Files:".into());
    lines.extend(FILES.map(|file| format!("  {file}")));
    lines.join("\n")
}
