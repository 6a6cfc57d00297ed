//! Finds the text nearest to a query: `cargo run --release -p perihelion --example embed -- MODEL QUERY TEXT...`.

use perihelion::prelude::*;

/// A tiny encoder with random weights, which the tests use; try "sentence-transformers/all-MiniLM-L6-v2".
const MODEL: &str = "crates/perihelion/tests/models/encoders/xlm_roberta";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, texts) = match &arguments[..] {
        [] => (MODEL, ["a cat", "the cat sat on a mat", "dogs run"].map(String::from).to_vec()),
        [model, texts @ ..] => (model.as_str(), texts.to_vec()),
    };

    let embedder = Embedder::open(model)?;
    let embeddings = embedder.embed(texts.clone())?;
    let Some((query, rest)) = embeddings.split_first() else { return Err("give a query and texts".into()) };

    // Vectors have length 1, so their product is the cosine of the angle between them.
    let similarity =
        |other: &Embedding| -> f32 { query.vector.iter().zip(&other.vector).map(|(a, b)| a * b).sum() };
    for (embedding, text) in rest.iter().zip(&texts[1..]) {
        println!("{:.4}  {text}", similarity(embedding));
    }
    Ok(())
}
