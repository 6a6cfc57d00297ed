//! A program that has a subscriber of its own gets the warnings of sessions there.

use std::io::Write;
use std::sync::{Arc, Mutex};

use graph::Graph;
use perihelion_engine::{CompileCache, InferenceSession, ReferenceDevice, show_logs};

/// Collects lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_subscriber_of_the_program_stays() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    show_logs().unwrap();
    // No folder can be made below a file.
    let below = std::env::current_exe().unwrap().join("below");
    let builder = InferenceSession::builder().device(Arc::new(ReferenceDevice));
    let session = builder.compile_cache(CompileCache::at(below)).build().unwrap();
    session.compile(&Graph::parse("graph g(%x: f32[2]) { %y = neg(%x) return %y }").unwrap()).unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(text.contains("WARN") && text.contains("a compiled model is not kept: "), "{text:?}");
}
