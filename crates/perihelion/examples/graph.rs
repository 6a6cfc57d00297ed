//! Builds a graph, compiles it once, and runs it with inputs of several sizes: `cargo run -p perihelion --example graph`.

use std::collections::HashMap;

use perihelion::driver::{Buffer, DType, Tensor};
use perihelion::engine::InferenceSession;
use perihelion::graph::{Builder, Type, dims};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut b = Builder::new("layer");
    let x = b.input("x", Type::new(DType::F32, dims!["rows", 3]));
    let w = b.weight("w", Type::new(DType::F32, [2, 3]))?;
    let product = b.linear(x, w)?; // [rows, 2]
    let y = b.relu(product)?;
    let graph = b.finish(&[y])?;
    println!("{graph}");

    let session = InferenceSession::new([])?; // Runs on the CPU.
    let weights =
        HashMap::from([("w".to_string(), Tensor::from_slice([2, 3], &[1f32, 0.0, 0.0, 0.0, -1.0, 0.0]))]);
    let model = session.load(&graph, &weights)?;
    for rows in [1, 4] {
        let x = Buffer::from_slice([rows, 3], &vec![1f32; rows * 3]);
        let outputs = model.execute(&[x])?;
        println!("{rows} rows: {:?}", outputs[0].to_vec::<f32>());
    }
    Ok(())
}
