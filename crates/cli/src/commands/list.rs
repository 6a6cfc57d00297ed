//! `peri list`: what is supported.

use std::io::Write;

use anyhow::Context;
use pipelines::config::SupportedEncoding;

const AFTER_HELP: &str = "\
JSON: architectures{name: {example_repo_ids[], supported_encodings[], gguf, task}}, files[].";

/// Arguments of `peri list`.
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The files that weights may be in.
const FILES: [&str; 3] =
    ["GGUF (.gguf, also split)", "safetensors (also sharded)", "PyTorch (.bin, .pt, .pth)"];

/// Models of each architecture that are published on the hub.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("LlamaForCausalLM", &["meta-llama/Llama-3.2-1B-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct"]),
    ("MistralForCausalLM", &["mistralai/Mistral-7B-Instruct-v0.3"]),
    ("MinistralForCausalLM", &["mistralai/Ministral-8B-Instruct-2410"]),
    ("Ministral3ForCausalLM", &["mistralai/Ministral-3-3B-Instruct-2512"]),
    ("Mistral3ForConditionalGeneration", &["mistralai/Ministral-3-3B-Instruct-2512"]),
    ("MixtralForCausalLM", &["mistralai/Mixtral-8x7B-Instruct-v0.1"]),
    ("Qwen2ForCausalLM", &["Qwen/Qwen2.5-0.5B-Instruct"]),
    ("Qwen2MoeForCausalLM", &["Qwen/Qwen1.5-MoE-A2.7B-Chat"]),
    ("Qwen3ForCausalLM", &["Qwen/Qwen3-0.6B"]),
    ("Qwen3MoeForCausalLM", &["Qwen/Qwen3-30B-A3B"]),
    ("GraniteForCausalLM", &["ibm-granite/granite-3.3-2b-instruct"]),
    ("GraniteMoeForCausalLM", &["ibm-granite/granite-3.1-1b-a400m-instruct"]),
    ("Phi3ForCausalLM", &["microsoft/Phi-3.5-mini-instruct", "microsoft/Phi-4-mini-instruct"]),
    ("SmolLM3ForCausalLM", &["HuggingFaceTB/SmolLM3-3B"]),
    ("Olmo2ForCausalLM", &["allenai/OLMo-2-0425-1B-Instruct"]),
    ("Olmo3ForCausalLM", &["allenai/Olmo-3-7B-Instruct"]),
    ("OlmoeForCausalLM", &["allenai/OLMoE-1B-7B-0125-Instruct"]),
    ("Exaone4ForCausalLM", &["LGAI-EXAONE/EXAONE-4.0-1.2B"]),
    ("GemmaForCausalLM", &["google/gemma-2b-it"]),
    ("Gemma2ForCausalLM", &["google/gemma-2-2b-it"]),
    ("Gemma3ForCausalLM", &["google/gemma-3-1b-it"]),
    ("Gemma3ForConditionalGeneration", &["google/gemma-3-4b-it"]),
    ("BertModel", &["sentence-transformers/all-MiniLM-L6-v2", "BAAI/bge-small-en-v1.5"]),
    ("MPNetForMaskedLM", &["sentence-transformers/all-mpnet-base-v2"]),
    ("XLMRobertaModel", &["BAAI/bge-m3", "intfloat/multilingual-e5-small"]),
];

/// The encodings of weights.
fn encodings() -> Vec<&'static str> {
    SupportedEncoding::ALL.iter().map(|encoding| encoding.name()).collect()
}

/// Models of an architecture.
fn examples(architecture: &str) -> &'static [&'static str] {
    EXAMPLES.iter().find(|(name, _)| *name == architecture).map_or(&[], |(_, repos)| repos)
}

/// Prints architectures, encodings and files.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = if arguments.json { json() } else { lines() };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").context("cannot write to standard output")
}

fn json() -> String {
    let facts = |name: &str, gguf: &str, task: &str| {
        let facts = serde_json::json!({
            "example_repo_ids": examples(name),
            "supported_encodings": encodings(),
            "gguf": gguf,
            "task": task,
        });
        (name.to_string(), facts)
    };
    let decoders = models::ARCHITECTURES.iter();
    let decoders = decoders.map(|decoder| facts(decoder.hugging_face, decoder.gguf, "text_generation"));
    let encoders = models::ENCODERS.iter();
    let encoders = encoders.map(|encoder| facts(encoder.hugging_face, encoder.gguf, "embeddings_generation"));
    let architectures: serde_json::Map<String, serde_json::Value> = decoders.chain(encoders).collect();
    serde_json::json!({ "architectures": architectures, "files": FILES }).to_string()
}

fn lines() -> String {
    let mut lines = vec!["Architectures (Hugging Face name, GGUF name):".to_string()];
    for architecture in models::ARCHITECTURES {
        lines.push(format!("  {:<32} {}", architecture.hugging_face, architecture.gguf));
    }
    lines.push("Encoders:".into());
    for encoder in models::ENCODERS {
        lines.push(format!("  {:<32} {}", encoder.hugging_face, encoder.gguf));
    }
    lines.push("Encodings of weights:".into());
    lines.push(format!("  {}", encodings().join(" ")));
    lines.push("Files:".into());
    lines.extend(FILES.map(|file| format!("  {file}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_has_an_example() {
        for architecture in models::ARCHITECTURES {
            assert!(!examples(architecture.hugging_face).is_empty(), "{}", architecture.hugging_face);
        }
    }
}
