//! Continues a text: `cargo run --release -p perihelion --example generate -- [MODEL] [PROMPT]`.

use std::io::Write;

use perihelion::pipelines::{EventKind, TextRequest};
use perihelion::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().unwrap_or_else(|| "crates/storyteller/model.gguf".into()); // Or "org/name:Q4_K_M".
    let prompt = arguments.next().unwrap_or_else(|| "Once upon a time".into());

    let generator = TextGenerator::open(model)?;
    let mut request = TextRequest::from(prompt.as_str());
    request.parameters.max_new_tokens = Some(60);
    request.parameters.sampling.temperature = Some(0.7);
    request.parameters.seed = 1;

    print!("{prompt}");
    for event in generator.stream(request)? {
        match event? {
            EventKind::Token { text, .. } => print!("{text}"),
            EventKind::Finished { text, reason, .. } => println!("{text}\n[{reason:?}]"),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
