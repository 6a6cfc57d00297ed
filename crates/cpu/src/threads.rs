//! A fork-join pool: one call, many chunks, claimed by whichever thread is free.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that wait for work.
pub struct Pool {
    threads: usize,
}

impl Pool {
    /// A pool of `threads` threads, the caller's among them; 0 means one per core that this process may use.
    pub fn new(threads: usize) -> Pool {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        Pool { threads: if threads == 0 { available() } else { threads } }
    }

    /// The number of threads, the caller's among them.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `body` once with each of `0..chunks`, on any thread and in any order, and returns when all are done.
    pub fn run(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let chunk = next.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    return;
                }
                body(chunk);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..self.threads.min(chunks) {
                scope.spawn(work);
            }
            work();
        });
    }
}
