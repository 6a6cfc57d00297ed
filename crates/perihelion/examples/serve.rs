//! Serves a model over HTTP and asks it once: `cargo run --release -p perihelion --example serve -- [MODEL]`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use perihelion::driver::PLATFORM;
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{PipelineConfig, UseCase};
use serve::{Address, ModelConfig, Server, ServerConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).unwrap_or_else(|| "crates/storyteller/model.gguf".into());
    // The defaults of `peri serve`: a paged cache with prefix caching, and as many sequences as fit into memory.
    let config = PipelineConfig { huggingface_repo_id: model, ..UseCase::Server.config() };
    let settings = ServerConfig {
        addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()], // Port 0: any free port.
        ..ServerConfig::default()
    };

    let session = Arc::new(InferenceSession::new([])?.into());
    let server = Server::start(settings, vec![ModelConfig::new(config)], session, &PLATFORM)?;
    let Address::Tcp(address) = server.addresses()[0] else { return Err("not a TCP address".into()) };
    println!("listening at http://{address}");

    let handle = server.handle();
    let running = thread::spawn(|| server.run()); // A program that only serves calls `run` on its main thread.
    println!("{}", ask(address)?);
    handle.stop();
    running.join().map_err(|_| "the server panicked")?;
    Ok(())
}

/// The answer to a completion request, as any HTTP client would get it.
fn ask(address: SocketAddr) -> std::io::Result<String> {
    let body = r#"{"prompt": "Once upon a time", "max_tokens": 16, "seed": 1}"#;
    let mut connection = TcpStream::connect(address)?;
    write!(
        connection,
        "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}
