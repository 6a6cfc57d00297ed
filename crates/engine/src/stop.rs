//! Calls that end early: a handle that cancels them, a time by which they must be done.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::Error;

/// How to make one call, for [`crate::Model::execute_with`] and [`crate::Model::execute_into`].
#[derive(Debug, Clone, Default)]
pub struct ExecuteOptions {
    /// Ends the call when it is cancelled.
    pub cancel: Option<CancelHandle>,
    /// When the call must be done.
    pub deadline: Option<Instant>,
}

/// Cancels the calls that were given it, from any thread. Clones cancel the same calls.
///
/// ```
/// use perihelion_engine::CancelHandle;
///
/// let handle = CancelHandle::new();
/// let other = handle.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(handle.is_cancelled());
/// ```
#[derive(Clone, Default)]
pub struct CancelHandle(Arc<Cancellation>);

#[derive(Default)]
struct Cancellation {
    cancelled: AtomicBool,
    poll: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl CancelHandle {
    /// A handle that is not cancelled.
    pub fn new() -> CancelHandle {
        CancelHandle::default()
    }

    /// A handle that also cancels a call when `poll` gives true. The call asks on its own thread, before each step; the
    /// next call asks anew.
    pub fn polling(poll: impl Fn() -> bool + Send + Sync + 'static) -> CancelHandle {
        CancelHandle(Arc::new(Cancellation { poll: Some(Box::new(poll)), ..Cancellation::default() }))
    }

    /// Cancels the calls that run with it, and those that come.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Relaxed) || self.0.poll.as_ref().is_some_and(|poll| poll())
    }
}

impl fmt::Debug for CancelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancelHandle").field(&self.0.cancelled).finish()
    }
}

/// Whether a call must end: asked before each step, and at each turn of a loop.
#[derive(Clone, Copy)]
pub(crate) struct Stop<'c> {
    model: &'c str,
    options: &'c ExecuteOptions,
}

impl<'c> Stop<'c> {
    /// What ends a call of a model; `None` if nothing does.
    pub(crate) fn new(model: &'c str, options: &'c ExecuteOptions) -> Option<Stop<'c>> {
        (options.cancel.is_some() || options.deadline.is_some()).then_some(Stop { model, options })
    }

    /// Fails once the call is cancelled or out of time.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let model = || self.model.to_string();
        if self.options.cancel.as_ref().is_some_and(CancelHandle::is_cancelled) {
            return Err(Error::Cancelled { model: model() });
        }
        match self.options.deadline.map(|deadline| Instant::now().saturating_duration_since(deadline)) {
            Some(late) if !late.is_zero() => Err(Error::DeadlinePassed { model: model(), late }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use graph::{Builder, Graph, Type};
    use tensor::{Buffer, DType, Tensor};

    use super::*;
    use crate::Model;
    use crate::testing::{build, session};

    /// A loop that ends when the buffer says so, which nothing writes.
    fn endless() -> Model {
        let graph = build("endless", |b: &mut Builder| {
            let on = b.input("on", Type::new(DType::Bool, graph::dims![]));
            let zero = b.constant(Tensor::scalar(0i64));
            b.while_loop(
                &[zero],
                |_, _| Ok(on),
                |b, carried| {
                    let one = b.constant(Tensor::scalar(1i64));
                    Ok(vec![b.add(carried[0], one)?])
                },
            )
        });
        session().load(&graph, &()).unwrap()
    }

    fn flag(on: bool) -> Buffer {
        Buffer::from_tensor(&Tensor::from_bools([0; 0], &[on]))
    }

    #[test]
    fn a_call_is_cancelled_once_its_poll_says_so() {
        let asked = AtomicUsize::new(0);
        let cancel = CancelHandle::polling(move || asked.fetch_add(1, Ordering::Relaxed) == 10);
        let options = ExecuteOptions { cancel: Some(cancel), deadline: None };
        let error = endless().execute_with(&[flag(true)], &options).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
        // The poll gives false again.
        assert_eq!(endless().execute_with(&[flag(false)], &options).unwrap()[0].to_vec::<i64>(), [0]);
    }

    #[test]
    fn a_loop_that_fills_given_buffers_stops_at_its_deadline() {
        let (model, total) = (endless(), Buffer::from_slice([0; 0], &[7i64]));
        let deadline = Some(Instant::now() + Duration::from_millis(20));
        let options = ExecuteOptions { cancel: None, deadline };
        let error = model.execute_into(&[flag(true)], std::slice::from_ref(&total), &options).unwrap_err();
        assert!(matches!(&error, Error::DeadlinePassed { model, .. } if model == "endless"), "{error}");
        assert_eq!(total.to_vec::<i64>(), [7]);
        let options = ExecuteOptions { cancel: Some(CancelHandle::new()), deadline: None };
        model.execute_into(&[flag(false)], std::slice::from_ref(&total), &options).unwrap();
        assert_eq!(total.to_vec::<i64>(), [0]);
        options.cancel.as_ref().unwrap().cancel();
        let error = model.execute_into(&[flag(false)], std::slice::from_ref(&total), &options).unwrap_err();
        assert!(matches!(error, Error::Cancelled { .. }), "{error}");
    }

    #[test]
    fn no_step_runs_once_a_call_is_cancelled() {
        let text = "graph g(%x: f32[2], %b: mut f32[2]) { store(%b, %x) return %x }";
        let model = session().load(&Graph::parse(text).unwrap(), &()).unwrap();
        let (x, b) = (Buffer::from_slice([2], &[1f32, 2.0]), Buffer::from_slice([2], &[0f32; 2]));
        let options = ExecuteOptions { cancel: Some(CancelHandle::new()), deadline: None };
        options.cancel.as_ref().unwrap().cancel();
        model.execute_with(&[x.clone(), b.clone()], &options).unwrap_err();
        assert_eq!(b.to_vec::<f32>(), [0.0; 2]);
        model.execute(&[x, b.clone()]).unwrap();
        assert_eq!(b.to_vec::<f32>(), [1.0, 2.0]);
    }
}
