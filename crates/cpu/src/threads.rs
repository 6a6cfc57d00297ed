//! A fork-join pool: one call, many chunks, claimed by whichever thread is free.
//!
//! Workers spin for a moment between regions, since the next one of a forward pass comes within microseconds, and
//! park after that, since cores are shared. No thread waits for a particular worker: chunks that a descheduled
//! worker has not claimed are taken by the others, the caller among them.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a thread looks for work, or for the end of a region, before it parks.
const SPIN: Duration = Duration::from_micros(50);
/// Looks between two readings of the clock.
const LOOKS: usize = 64;

/// Threads that wait for work.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's among them; 0 means one per core that this process may use.
    pub fn new(threads: usize) -> Pool {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { available() } else { threads };
        let shared = Arc::new(Shared::default());
        let worker = |index| {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name(format!("peri-cpu-{index}"));
            // A machine that refuses more threads gets a smaller pool, which computes the same results.
            builder.spawn(move || shared.serve()).ok()
        };
        let workers = (1..threads).map_while(worker).collect();
        Pool { shared, workers }
    }

    /// The number of threads, the caller's among them.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body` once with each of `0..chunks`, on any thread and in any order, and returns when all are done.
    ///
    /// A call from within a body, or while another thread's call is under way, runs on the calling thread alone.
    ///
    /// # Panics
    /// With the payload of the first body that panicked, after all others have finished.
    pub fn run(&self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        let exclusive = !self.workers.is_empty() && chunks > 1 && !IN_REGION.get();
        match exclusive.then(|| Region::enter(&self.shared, self.workers.len())).flatten() {
            Some(region) => region.run(chunks, body),
            None => (0..chunks).for_each(body),
        }
    }

    /// Cuts `data` into pieces of `length` elements (the last may be shorter) and calls `body` once with each
    /// piece and its index, as [`Pool::run`] does.
    ///
    /// # Panics
    /// If `length` is 0, and as [`Pool::run`] does.
    pub fn run_on_pieces<T: Send>(
        &self,
        data: &mut [T],
        length: usize,
        body: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let pieces = data.len().div_ceil(length);
        let (start, len) = (SendPointer(data.as_mut_ptr()), data.len());
        self.run(pieces, &|index| {
            let (first, end) = (index * length, len.min((index + 1) * length));
            // SAFETY: pieces lie inside `data`, are disjoint, and `run` gives each index out once.
            body(index, unsafe { std::slice::from_raw_parts_mut(start.get().add(first), end - first) });
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.parking));
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// A pointer that threads may share because what they do with it is disjoint.
#[derive(Clone, Copy)]
pub(crate) struct SendPointer<T>(pub(crate) *mut T);

impl<T> SendPointer<T> {
    /// The pointer. (A method, so that closures capture the wrapper and not its field.)
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: the code that dereferences the pointer answers for that; the wrapper only carries it to other threads.
unsafe impl<T: Send> Send for SendPointer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SendPointer<T> {}

thread_local! {
    /// Whether this thread is inside a body, where a further `run` has no one to share work with.
    static IN_REGION: Cell<bool> = const { Cell::new(false) };
}

/// What the caller and its workers share. The hot words sit on cache lines of their own.
#[derive(Default)]
struct Shared {
    /// The region's number in the upper half, its unclaimed chunks in the lower: one word, so that a worker that
    /// slept through the end of a region cannot take part in the next by mistake.
    unclaimed: Line<AtomicU64>,
    /// Chunks of the region that have not finished.
    unfinished: Line<AtomicUsize>,
    /// Written only between regions, by the thread that holds `busy`; read only by who claimed a chunk.
    task: Line<UnsafeCell<Task>>,
    /// Whether a region is under way.
    busy: AtomicBool,
    closing: AtomicBool,
    /// Workers that are parked or about to park.
    sleepers: AtomicUsize,
    /// Whether the caller is parked or about to park.
    caller_waits: AtomicBool,
    parking: Mutex<()>,
    work: Condvar,
    done: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// The work of a region. The body's lifetime is erased: it ends when `unfinished` reaches 0.
#[derive(Default)]
struct Task {
    chunks: usize,
    body: Option<*const (dyn Fn(usize) + Sync)>,
}

// SAFETY: `task` holds a pointer to a `Sync` body; `Shared`'s field documentation says who touches it when.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// The life of a worker.
    fn serve(&self) {
        IN_REGION.set(true);
        while self.wait_for_work() {
            self.help();
        }
    }

    /// Claims and runs chunks until none is left unclaimed.
    fn help(&self) {
        let mut finished = 0;
        while let Some(remaining) = self.claim() {
            // SAFETY: a claimed chunk keeps the region open, so nothing writes the task and the body is alive.
            let (chunks, body) = unsafe {
                let task = &*self.task.0.get();
                (task.chunks, &*task.body.expect("an open region has a body"))
            };
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(chunks - remaining))) {
                lock(&self.panic).get_or_insert(payload);
            }
            finished += 1;
        }
        if finished > 0 && self.unfinished.0.fetch_sub(finished, Ordering::SeqCst) == finished {
            // The region may be over by now, so nothing of the task is touched from here on.
            if self.caller_waits.load(Ordering::SeqCst) {
                drop(lock(&self.parking));
                self.done.notify_all();
            }
        }
    }

    /// Takes a chunk of the region under way; returns how many were unclaimed, this one included.
    fn claim(&self) -> Option<usize> {
        let mut word = self.unclaimed.0.load(Ordering::Acquire);
        loop {
            let remaining = word as u32;
            if remaining == 0 {
                return None;
            }
            let next = word - 1;
            match self.unclaimed.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(remaining as usize),
                Err(now) => word = now,
            }
        }
    }

    fn has_work(&self) -> bool {
        self.unclaimed.0.load(Ordering::SeqCst) as u32 != 0
    }

    /// Returns when there is a chunk to claim (true) or the pool closes (false).
    fn wait_for_work(&self) -> bool {
        let ready = || self.has_work() || self.closing.load(Ordering::Relaxed);
        if !spin_until(ready) {
            let mut guard = lock(&self.parking);
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            while !self.has_work() && !self.closing.load(Ordering::SeqCst) {
                guard = self.work.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
        !self.closing.load(Ordering::SeqCst)
    }

    /// Returns when every chunk has finished.
    fn wait_for_end(&self) {
        let ended = || self.unfinished.0.load(Ordering::SeqCst) == 0;
        if spin_until(ended) {
            return;
        }
        let mut guard = lock(&self.parking);
        self.caller_waits.store(true, Ordering::SeqCst);
        while !ended() {
            guard = self.done.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.caller_waits.store(false, Ordering::SeqCst);
    }
}

/// The caller's hold on the workers.
struct Region<'a> {
    shared: &'a Shared,
    workers: usize,
}

impl<'a> Region<'a> {
    /// The workers, unless another thread has them.
    fn enter(shared: &'a Shared, workers: usize) -> Option<Region<'a>> {
        let free = shared.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        free.ok().map(|_| Region { shared, workers })
    }

    fn run(self, chunks: usize, body: &(dyn Fn(usize) + Sync)) {
        let chunks32 = u32::try_from(chunks).expect("fewer than 2^32 chunks");
        let body: *const (dyn Fn(usize) + Sync + '_) = body;
        // SAFETY: only the lifetime changes; this function returns after the last use, panics included.
        let body: *const (dyn Fn(usize) + Sync + 'static) = unsafe { std::mem::transmute(body) };
        // SAFETY: `busy` is held and no chunk is unclaimed or unfinished, so no worker reads the task.
        unsafe { *self.shared.task.0.get() = Task { chunks, body: Some(body) } };
        self.shared.unfinished.0.store(chunks, Ordering::Relaxed);
        let region = (self.shared.unclaimed.0.load(Ordering::Relaxed) >> 32) + 1;
        self.shared.unclaimed.0.store(region << 32 | u64::from(chunks32), Ordering::SeqCst);
        self.wake(chunks);
        IN_REGION.set(true);
        self.shared.help();
        IN_REGION.set(false);
        self.shared.wait_for_end();
        let panicked = lock(&self.shared.panic).take();
        drop(self);
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    fn wake(&self, chunks: usize) {
        if self.shared.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        drop(lock(&self.shared.parking));
        if chunks > self.workers {
            self.shared.work.notify_all();
        } else {
            (1..chunks).for_each(|_| self.shared.work.notify_one());
        }
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        self.shared.busy.store(false, Ordering::Release);
    }
}

/// Looks for `condition` for a bounded time; whether it came true.
fn spin_until(condition: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..LOOKS {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

/// The lock, even if a thread panicked while holding it: the data of these locks is valid at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a region and checks that each chunk ran exactly once.
    fn check(pool: &Pool, chunks: usize) {
        let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(chunks, &|chunk| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
        });
        assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{chunks} chunks");
    }

    #[test]
    fn each_chunk_runs_once() {
        for threads in [1, 2, 3, 4, 9] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for round in 0..2000 {
                check(&pool, [0, 1, 2, 3, 5, 64][round % 6]);
            }
        }
        assert!(Pool::new(0).threads() >= 1);
    }

    #[test]
    fn parked_workers_wake() {
        let pool = Pool::new(4);
        for _ in 0..20 {
            std::thread::sleep(2 * SPIN);
            check(&pool, 100);
        }
    }

    #[test]
    fn a_sleeping_worker_stalls_nobody_else() {
        let pool = Pool::new(3);
        let others = AtomicUsize::new(0);
        pool.run(50, &|chunk| {
            if chunk == 0 {
                // Ends only because the other threads do all the other chunks meanwhile.
                while others.load(Ordering::SeqCst) < 49 {
                    std::thread::yield_now();
                }
            } else {
                others.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!(others.into_inner(), 49);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(4);
        for round in 0..50 {
            let finished = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(16, &|chunk| {
                    assert!(chunk != round % 16, "chunk {chunk} broke");
                    finished.fetch_add(1, Ordering::Relaxed);
                });
            }));
            let payload = outcome.unwrap_err();
            assert_eq!(*payload.downcast_ref::<String>().unwrap(), format!("chunk {} broke", round % 16));
            assert_eq!(finished.into_inner(), 15);
            check(&pool, 16);
        }
    }

    #[test]
    fn nested_and_concurrent_calls_complete() {
        let pool = Pool::new(4);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        let sum = AtomicUsize::new(0);
                        pool.run(7, &|outer| {
                            pool.run(5, &|inner| {
                                sum.fetch_add(outer * 5 + inner, Ordering::Relaxed);
                            });
                        });
                        assert_eq!(sum.into_inner(), (0..35).sum::<usize>());
                    }
                });
            }
        });
    }

    #[test]
    fn pieces_cover_the_data() {
        let pool = Pool::new(3);
        let mut data = vec![0usize; 1000];
        pool.run_on_pieces(&mut data, 7, &|index, piece| {
            piece.iter_mut().enumerate().for_each(|(i, x)| *x = index * 7 + i)
        });
        assert!(data.iter().enumerate().all(|(i, &x)| i == x));
        pool.run_on_pieces(&mut [0u8; 0], 3, &|_, _| panic!("no pieces"));
    }
}
