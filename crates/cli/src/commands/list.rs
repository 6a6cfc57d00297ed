//! `peri list`: what is supported.

use std::io::Write;

use tensor::DType;

/// Arguments of `peri list`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The encodings that matrices may have on disk.
fn encodings() -> impl Iterator<Item = DType> {
    let plain = [DType::F32, DType::F16, DType::BF16];
    plain.into_iter().chain(DType::ALL.iter().copied().filter(|dtype| dtype.is_block()))
}

/// Prints architectures and encodings.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        let architectures: serde_json::Map<String, serde_json::Value> = models::ARCHITECTURES
            .iter()
            .map(|architecture| {
                let encodings: Vec<&str> = encodings().map(DType::name).collect();
                let facts =
                    serde_json::json!({ "gguf": architecture.gguf, "supported_encodings": encodings });
                (architecture.hugging_face.to_string(), facts)
            })
            .collect();
        writeln!(out, "{}", serde_json::json!({ "architectures": architectures }))?;
        return Ok(());
    }
    writeln!(out, "Architectures (Hugging Face name, GGUF name):")?;
    for architecture in models::ARCHITECTURES {
        writeln!(out, "  {:<24} {}", architecture.hugging_face, architecture.gguf)?;
    }
    writeln!(out, "Encodings of weights:")?;
    writeln!(out, "  {}", encodings().map(DType::name).collect::<Vec<_>>().join(" "))?;
    writeln!(out, "Files: GGUF (also split), safetensors (also sharded), PyTorch (.bin, .pt, .pth)")?;
    Ok(())
}
