//! Ctrl-C: the first asks for an orderly end, the second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the user has asked us to stop.
#[derive(Clone)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. Called once.
    pub(crate) fn listen() -> anyhow::Result<Interrupt> {
        let asked = Interrupt(Arc::default());
        let handler = asked.clone();
        ctrlc::set_handler(move || {
            if handler.0.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        })?;
        Ok(asked)
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
