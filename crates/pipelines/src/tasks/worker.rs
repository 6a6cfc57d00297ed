//! The worker that all tasks share: one plain thread owns the state, takes jobs from a bounded queue, and sends replies
//! through bounded channels.
//!
//! A panic of the work fails the requests of that moment, and the thread goes on.
//!
//! Nothing is locked while the model computes. The thread sleeps while it has nothing to do; handles wake it when a job
//! comes, when a reply was read or dropped, and when they are dropped themselves.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use async_channel::{Receiver, Sender, TryRecvError, TrySendError};

use crate::Error;
use crate::error::QueueUnit;
use crate::run::isolation::guarded;

/// Jobs that wait for the worker to take them, unless it queues more; callers that hand in another wait too.
pub(crate) const QUEUE: usize = 64;
/// The most jobs that wait so, however many a worker is to queue: a place costs memory.
const MAX_QUEUE: usize = 4096;

/// Panics without a turn in between that works; further ones end the thread, which would come to nothing.
const MAX_PANICS: usize = 8;

/// What a worker owns, and does with it.
pub trait Work: Send + 'static {
    /// The name of the thread, and of what ended in errors.
    const NAME: &'static str;
    /// What is handed in.
    type Job: Send + 'static;
    /// How much there is to do, and how much was done.
    type Status: Copy + Send + 'static;
    /// What handles know: the model, and what requests leave open.
    type Context: Send + Sync + 'static;

    /// Takes a job.
    fn add(&mut self, job: Self::Job);

    /// Whether so much waits that further jobs stay in the queue.
    fn is_full(&self) -> bool;

    /// Drops requests whose reply channels are closed or whose time is up, and resumes those whose replies were read.
    fn tend(&mut self);

    /// Whether there is nothing to do until a job comes or a reply is read.
    fn is_idle(&self) -> bool;

    /// When there is something to tend even if no job comes and no reply is read.
    fn alarm(&self) -> Option<Instant>;

    /// Does some of the work. An error or a panic of the model fails its own requests only.
    fn step(&mut self);

    /// Fails all requests and starts anew: a defect may have left the state in disorder.
    fn recover(&mut self, problem: &str);

    /// A copy of the counters.
    fn status(&self) -> Self::Status;

    /// The counters if so many more jobs wait in the queue.
    fn with_queued(status: Self::Status, queued: usize) -> Self::Status;
}

/// A handle to a worker. The thread ends when the last one is dropped.
pub(crate) struct Worker<W: Work> {
    // Dropped before `shared`, which then wakes the thread to find the queue closed.
    commands: Sender<Command<W>>,
    shared: Arc<Shared<W::Status>>,
    waker: Waker,
}

/// What a worker is handed.
pub(crate) enum Command<W: Work> {
    Add(W::Job),
    /// Does something to the state between two steps.
    Do(Box<dyn FnOnce(&mut W) + Send + Sync>),
}

/// What the thread and its handles share.
struct Shared<S> {
    /// As it was between two steps. Locked while jobs are taken, never while the model computes.
    status: Mutex<S>,
    stop: AtomicBool,
    /// Set before the channels close, if the thread did not end in order.
    reason: OnceLock<String>,
    /// Closed when the thread has ended.
    closed: Receiver<()>,
}

/// Wakes the thread, and does so when it is dropped.
#[derive(Clone)]
struct Waker(Thread);

impl Drop for Waker {
    fn drop(&mut self) {
        self.0.unpark();
    }
}

impl<W: Work> Worker<W> {
    /// Starts the thread, which is to queue so many jobs.
    ///
    /// # Errors
    /// If the system refuses one.
    pub(crate) fn spawn(mut work: W, jobs: usize) -> Result<Worker<W>, Error> {
        let (commands, queue) = async_channel::bounded(jobs.clamp(QUEUE, MAX_QUEUE));
        let (alive, closed) = async_channel::bounded::<()>(1);
        let shared = Arc::new(Shared {
            status: Mutex::new(work.status()),
            stop: AtomicBool::new(false),
            reason: OnceLock::new(),
            closed,
        });
        let of_thread = Arc::clone(&shared);
        let body = move || {
            if let Err(error) = run(&mut work, &queue, &of_thread) {
                // Set before the channels close, so that readers who find them closed find the reason.
                let _ = of_thread.reason.set(format!("a defect ended it: {error}"));
            }
            queue.close();
            while queue.try_recv().is_ok() {}
            drop(work);
            drop(alive);
        };
        let thread = std::thread::Builder::new().name(W::NAME.replace(' ', "-")).spawn(body);
        let thread = thread.map_err(|error| Error::Stopped {
            name: W::NAME,
            reason: format!("its thread cannot be started: {error}"),
        })?;
        Ok(Worker { commands, shared, waker: Waker(thread.thread().clone()) })
    }

    /// Hands in a job, and waits while the queue is full. If the worker has ended, the job's replies close.
    pub(crate) fn submit(&self, job: W::Job) {
        let _ = self.commands.send_blocking(Command::Add(job));
        self.wake();
    }

    /// As [`Worker::submit`], for a task.
    pub(crate) async fn submit_async(&self, job: W::Job) {
        let _ = self.commands.send(Command::Add(job)).await;
        self.wake();
    }

    /// Hands in a job, unless the queue is full.
    ///
    /// # Errors
    /// [`Error::Busy`].
    pub(crate) fn try_submit(&self, job: W::Job) -> Result<(), Error> {
        let sent = self.commands.try_send(Command::Add(job));
        self.wake();
        match sent {
            Err(TrySendError::Full(_)) => Err(Error::Busy {
                name: W::NAME,
                waiting: self.commands.len(),
                unit: QueueUnit::Requests,
                limit: self.commands.capacity().unwrap_or(usize::MAX),
                retry_after: None,
            }),
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
        }
    }

    /// The counters as they were between two steps, and how many jobs are in the queue. Never waits for a step.
    ///
    /// # Errors
    /// If the thread has ended.
    pub(crate) fn status(&self) -> Result<(W::Status, usize), Error> {
        if self.commands.is_closed() {
            return Err(self.error());
        }
        let status = self.shared.lock();
        Ok((*status, self.commands.len()))
    }

    /// Has the thread look at its replies again.
    pub(crate) fn wake(&self) {
        self.waker.0.unpark();
    }

    /// Ends the thread after the step that runs, and waits until it has ended.
    pub(crate) fn shutdown(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.wake();
        self.wait();
    }

    /// Waits until the thread has ended.
    pub(crate) fn wait(&self) {
        // Nothing is ever sent.
        let _ = self.shared.closed.recv_blocking();
    }

    /// Why there is no reply.
    pub(crate) fn error(&self) -> Error {
        let reason = self.shared.reason.get().map_or("it was shut down", String::as_str);
        Error::Stopped { name: W::NAME, reason: reason.to_string() }
    }

    /// A channel that closes when the thread has ended.
    #[cfg(test)]
    pub(crate) fn ended(&self) -> Receiver<()> {
        self.shared.closed.clone()
    }

    /// Hands in something to do to the state between two steps, and waits while the queue is full.
    pub(crate) fn act(&self, action: impl FnOnce(&mut W) + Send + Sync + 'static) {
        let _ = self.commands.send_blocking(Command::Do(Box::new(action)));
        self.wake();
    }
}

impl<S> Shared<S> {
    fn lock(&self) -> MutexGuard<'_, S> {
        // Counters are whole even if the thread that wrote them has ended.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Work> Clone for Worker<W> {
    fn clone(&self) -> Worker<W> {
        let Worker { commands, shared, waker } = self;
        Worker { commands: commands.clone(), shared: Arc::clone(shared), waker: waker.clone() }
    }
}

impl<W: Work> std::fmt::Debug for Worker<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(W::NAME).field("ended", &self.shared.reason.get()).finish_non_exhaustive()
    }
}

/// The loop of the thread, until it is stopped or the last handle is dropped.
///
/// # Errors
/// If defects leave nothing to go on with.
fn run<W: Work>(work: &mut W, queue: &Receiver<Command<W>>, shared: &Shared<W::Status>) -> Result<(), Error> {
    let mut panics = 0;
    loop {
        match guarded(|| Ok(turn(work, queue, shared))) {
            Ok(ControlFlow::Break(())) => return Ok(()),
            Ok(ControlFlow::Continue(())) => panics = 0,
            Err(error) if panics == MAX_PANICS => return Err(error),
            Err(Error::Defect(problem)) => {
                panics += 1;
                guarded(|| {
                    work.recover(&problem);
                    *shared.lock() = work.status();
                    Ok(())
                })?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Jobs first, then a step, or else sleep.
fn turn<W: Work>(work: &mut W, queue: &Receiver<Command<W>>, shared: &Shared<W::Status>) -> ControlFlow<()> {
    if shared.stop.load(Ordering::Acquire) {
        return ControlFlow::Break(());
    }
    let is_open = take(work, queue, shared);
    if !work.is_idle() {
        work.step();
        *shared.lock() = work.status();
    } else if !is_open {
        return ControlFlow::Break(());
    } else if queue.is_empty() {
        // A wake-up that came since the queue was looked at is not lost: parking then returns at once.
        match work.alarm() {
            Some(alarm) => std::thread::park_timeout(alarm.saturating_duration_since(Instant::now())),
            None => std::thread::park(),
        }
    }
    ControlFlow::Continue(())
}

/// Takes the jobs that wait. Returns whether further ones can come. A job is in the queue or in the counters, but never
/// in neither: they are locked meanwhile.
fn take<W: Work>(work: &mut W, queue: &Receiver<Command<W>>, shared: &Shared<W::Status>) -> bool {
    let mut status = shared.lock();
    let mut is_open = true;
    work.tend();
    while !work.is_full() {
        match queue.try_recv() {
            Ok(Command::Add(job)) => work.add(job),
            Ok(Command::Do(action)) => action(work),
            Err(TryRecvError::Empty) => break,
            Err(TryRecvError::Closed) => {
                is_open = false;
                break;
            }
        }
    }
    // Some of them may have been dropped while they were in the queue.
    work.tend();
    *status = work.status();
    is_open
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNLUCKY: u32 = 1313;

    /// Doubles numbers, one a step; the step waits until the test lets it go, and fails on [`UNLUCKY`].
    struct Doubling {
        steps: Receiver<()>,
        waiting: Vec<(u32, Sender<u32>)>,
        done: usize,
    }

    impl Work for Doubling {
        const NAME: &'static str = "doubling";
        type Job = (u32, Sender<u32>);
        type Status = (usize, usize);
        type Context = ();

        fn add(&mut self, job: Self::Job) {
            self.waiting.push(job);
        }

        fn is_full(&self) -> bool {
            self.waiting.len() >= 2
        }

        fn tend(&mut self) {
            self.waiting.retain(|(_, reply)| !reply.is_closed());
        }

        fn is_idle(&self) -> bool {
            self.waiting.is_empty()
        }

        fn alarm(&self) -> Option<Instant> {
            None
        }

        fn step(&mut self) {
            let _ = self.steps.recv_blocking();
            let (number, reply) = self.waiting.remove(0);
            assert_ne!(number, UNLUCKY, "on purpose");
            let _ = reply.try_send(2 * number);
            self.done += 1;
        }

        fn recover(&mut self, problem: &str) {
            assert!(problem.contains("on purpose"));
            self.waiting.clear();
        }

        fn status(&self) -> (usize, usize) {
            (self.waiting.len(), self.done)
        }

        fn with_queued((waiting, done): (usize, usize), queued: usize) -> (usize, usize) {
            (waiting + queued, done)
        }
    }

    fn start() -> (Worker<Doubling>, Sender<()>) {
        let (go, steps) = async_channel::bounded(1);
        (Worker::spawn(Doubling { steps, waiting: Vec::new(), done: 0 }, QUEUE).unwrap(), go)
    }

    fn job(number: u32) -> ((u32, Sender<u32>), Receiver<u32>) {
        let (reply, replies) = async_channel::bounded(1);
        ((number, reply), replies)
    }

    #[test]
    fn a_full_queue_refuses_and_makes_submit_wait() {
        let (worker, go) = start();
        let (first, reply) = job(0);
        let mut replies = vec![reply];
        worker.submit(first);
        while worker.status().unwrap() != ((1, 0), 0) {
            std::thread::yield_now();
        }
        // Its step blocks now, so no other is taken.
        for number in 1..=QUEUE as u32 {
            let (job, reply) = job(number);
            worker.try_submit(job).unwrap();
            replies.push(reply);
        }
        let refused = worker.try_submit(job(65).0);
        let message = refused.unwrap_err().to_string();
        assert_eq!(message, "the doubling has 64 requests waiting and takes at most 64: try again later");
        // This does not wait for the step either.
        assert_eq!(worker.status().unwrap(), ((1, 0), QUEUE));
        let (last, answer) = job(1000);
        let waiting = std::thread::spawn({
            let worker = worker.clone();
            move || worker.submit(last)
        });
        let letting_go = std::thread::spawn(move || while go.send_blocking(()).is_ok() {});
        waiting.join().unwrap();
        assert_eq!(answer.recv_blocking(), Ok(2000));
        assert!(replies.iter().all(|reply| reply.recv_blocking().is_ok()));
        worker.shutdown();
        letting_go.join().unwrap();
    }

    #[test]
    fn jobs_with_closed_replies_are_dropped_and_a_panic_fails_those_of_its_moment() {
        let (worker, go) = start();
        let letting_go = std::thread::spawn(move || while go.send_blocking(()).is_ok() {});
        let (first, kept) = job(1);
        let (second, dropped) = job(2);
        worker.submit(first);
        drop(dropped);
        worker.submit(second);
        assert_eq!(kept.recv_blocking(), Ok(2));
        for _ in 0..3 * MAX_PANICS {
            let (unlucky, reply) = job(UNLUCKY);
            worker.submit(unlucky);
            assert!(reply.recv_blocking().is_err());
            let (next, reply) = job(7);
            worker.submit(next);
            assert_eq!(reply.recv_blocking(), Ok(14));
        }
        worker.shutdown();
        letting_go.join().unwrap();
    }

    #[test]
    fn panics_without_end_end_the_thread() {
        let (worker, go) = start();
        for _ in 0..=MAX_PANICS {
            worker.act(|_| panic!("on purpose"));
        }
        worker.wait();
        let end = worker.error().to_string();
        assert!(
            end.starts_with("the doubling has ended: a defect ended it: ") && end.ends_with("on purpose")
        );
        assert!(worker.status().is_err());
        drop(go);
    }
}
