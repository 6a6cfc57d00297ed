//! Which requests may wait: bounds on those that have not started, in all and of each tenant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use crate::error::{InvalidField, QueueUnit};
use crate::run::generator::Request;

/// The worker in error messages, and the name of its thread.
pub(super) const NAME: &str = "text generator";
/// Requests that may wait by default.
const REQUESTS: usize = 512;
/// Prompt tokens that may wait by default, for each token that the cache holds.
const TOKENS_PER_CACHE_TOKEN: usize = 4;
/// Of the estimate before any request has started.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// How much may wait to start. Requests beyond that are refused by the calls that do not wait, such as
/// [`TextGenerator::try_batch`](crate::TextGenerator::try_batch); the other calls take no notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests.
    pub requests: usize,
    /// Tokens of their prompts. A prompt that finds nothing waiting is never refused.
    pub tokens: usize,
    /// Requests of one tenant; requests without a tenant are bounded by `requests` alone.
    pub tenant_requests: usize,
    /// Tokens of one tenant's prompts.
    pub tenant_tokens: usize,
}

impl QueueLimits {
    /// The defaults for a cache of so many tokens: 512 requests and four times the cache, half of each for a tenant.
    pub fn new(cache_tokens: usize) -> QueueLimits {
        let tokens = cache_tokens.saturating_mul(TOKENS_PER_CACHE_TOKEN);
        let limits = QueueLimits { requests: 0, tokens, tenant_requests: 0, tenant_tokens: tokens / 2 };
        limits.with_requests(REQUESTS)
    }

    /// These with another number of requests, half of them of one tenant.
    #[must_use]
    pub fn with_requests(self, requests: usize) -> QueueLimits {
        QueueLimits { requests, tenant_requests: requests.div_ceil(2), ..self }
    }
}

/// The requests that were handed in and have not started.
#[derive(Debug)]
pub(super) struct Queue {
    limits: QueueLimits,
    state: Mutex<State>,
}

/// A request's place in the queue, until it is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    queue: Arc<Queue>,
    tenant: Option<Arc<str>>,
    tokens: usize,
}

#[derive(Debug, Default)]
struct State {
    all: Load,
    tenants: HashMap<Arc<str>, Load>,
    pace: Pace,
}

#[derive(Debug, Default, Clone, Copy)]
struct Load {
    requests: usize,
    tokens: usize,
}

/// How fast requests leave the queue by starting: sums over the last of them, in which older ones count less.
#[derive(Debug, Default)]
struct Pace {
    /// When the last request started, or the first one entered the queue.
    since: Option<Instant>,
    seconds: f64,
    requests: f64,
    tokens: f64,
}

impl Queue {
    pub(super) fn new(limits: QueueLimits) -> Queue {
        Queue { limits, state: Mutex::default() }
    }

    /// Places for requests, however many wait.
    pub(super) fn enter(self: &Arc<Queue>, requests: &[Request]) -> Vec<Ticket> {
        self.places(&mut self.lock(), requests)
    }

    /// Places for all the requests, or for none of them.
    ///
    /// # Errors
    /// [`Error::Busy`] if too many wait, and [`Error::Request`] if these are too many even if none waits.
    pub(super) fn try_enter(self: &Arc<Queue>, requests: &[Request]) -> Result<Vec<Ticket>, Error> {
        let mut state = self.lock();
        let limits = &self.limits;
        let Load { requests: count, tokens } = load(requests.iter());
        state.check(QueueUnit::Requests, state.all.requests, count, limits.requests)?;
        state.check(QueueUnit::PromptTokens, state.all.tokens, tokens, limits.tokens)?;
        let mut tenants: Vec<&str> =
            requests.iter().filter_map(|request| request.tenant.as_deref()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        for tenant in tenants {
            let waiting = state.tenants.get(tenant).copied().unwrap_or_default();
            let own = requests.iter().filter(|request| request.tenant.as_deref() == Some(tenant));
            let Load { requests: count, tokens } = load(own);
            state.check(QueueUnit::TenantRequests, waiting.requests, count, limits.tenant_requests)?;
            state.check(QueueUnit::TenantPromptTokens, waiting.tokens, tokens, limits.tenant_tokens)?;
        }
        Ok(self.places(&mut state, requests))
    }

    fn places(self: &Arc<Queue>, state: &mut State, requests: &[Request]) -> Vec<Ticket> {
        if state.all.requests == 0 {
            state.pace.since = Some(Instant::now());
        }
        let place = |request: &Request| {
            let tokens = request.prompt.len();
            let tenant: Option<Arc<str>> = request.tenant.as_deref().map(Arc::from);
            state.all.add(tokens);
            if let Some(tenant) = &tenant {
                state.tenants.entry(Arc::clone(tenant)).or_default().add(tokens);
            }
            Ticket { queue: Arc::clone(self), tenant, tokens }
        };
        requests.iter().map(place).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Leaves the queue because the request starts.
    pub(super) fn start(self, at: Instant) {
        self.queue.lock().pace.note(at, self.tokens);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.all.remove(self.tokens);
        if let Some(tenant) = &self.tenant
            && let Some(load) = state.tenants.get_mut(tenant)
        {
            load.remove(self.tokens);
            if load.requests == 0 {
                state.tenants.remove(tenant);
            }
        }
    }
}

impl State {
    /// Checks that `new` more may wait.
    fn check(&self, unit: QueueUnit, waiting: usize, new: usize, limit: usize) -> Result<(), Error> {
        let counts_requests = unit.counts_requests();
        if counts_requests && new > limit {
            let fix = format!("give at most {limit}, as many as may wait");
            return Err(Error::Request(vec![InvalidField {
                field: "requests",
                value: new.to_string(),
                fix,
            }]));
        }
        if waiting == 0 || waiting.saturating_add(new) <= limit {
            return Ok(());
        }
        let excess = waiting + new - limit;
        let excess = if counts_requests {
            Load { requests: excess, tokens: 0 }
        } else {
            Load { requests: 0, tokens: excess }
        };
        // Tenants take turns.
        let turns = if unit.is_of_tenant() { self.tenants.len() } else { 1 };
        let retry_after = Some(self.pace.time(excess, turns));
        Err(Error::Busy { name: NAME, waiting, unit, limit, retry_after })
    }
}

impl Load {
    fn add(&mut self, tokens: usize) {
        self.requests += 1;
        self.tokens += tokens;
    }

    fn remove(&mut self, tokens: usize) {
        self.requests -= 1;
        self.tokens -= tokens;
    }
}

fn load<'a>(requests: impl Iterator<Item = &'a Request>) -> Load {
    let mut load = Load::default();
    requests.for_each(|request| load.add(request.prompt.len()));
    load
}

impl Pace {
    /// The weight of a start after the next one.
    const KEPT: f64 = 31.0 / 32.0;

    fn note(&mut self, at: Instant, tokens: usize) {
        let since = self.since.replace(at).unwrap_or(at);
        self.seconds = self.seconds * Pace::KEPT + at.saturating_duration_since(since).as_secs_f64();
        self.requests = self.requests * Pace::KEPT + 1.0;
        self.tokens = self.tokens * Pace::KEPT + tokens as f64;
    }

    /// How long it takes until so much has started, if only every `turns`-th that starts counts.
    fn time(&self, excess: Load, turns: usize) -> Duration {
        let seconds = |excess: usize, started: f64| {
            if excess == 0 { 0.0 } else { excess as f64 * self.seconds / started * turns as f64 }
        };
        let seconds = seconds(excess.requests, self.requests).max(seconds(excess.tokens, self.tokens));
        if seconds.is_finite() && seconds > 0.0 {
            Duration::from_secs_f64(seconds.min(LONGEST_RETRY.as_secs_f64()))
        } else {
            FIRST_RETRY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Arc<Queue> {
        let limits = QueueLimits { requests: 6, tokens: 100, tenant_requests: 3, tenant_tokens: 60 };
        Arc::new(Queue::new(limits))
    }

    fn requests(count: usize, tokens: usize, tenant: Option<&str>) -> Vec<Request> {
        let prompt = vec![1; tokens];
        vec![Request { prompt, tenant: tenant.map(str::to_string), ..Request::default() }; count]
    }

    /// What is refused of `waiting` and then `new`.
    fn check(waiting: &[Request], new: &[Request]) -> Result<(), String> {
        let queue = queue();
        let _places = queue.enter(waiting);
        queue.try_enter(new).map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn requests_beyond_a_limit_are_refused_with_the_figures() {
        let message = |waiting: usize, unit: &str, limit: usize| {
            let retry = "try again in 1 s";
            format!("the text generator has {waiting} {unit} waiting and takes at most {limit}: {retry}")
        };
        assert_eq!(check(&requests(5, 1, None), &requests(1, 1, None)), Ok(()));
        assert_eq!(check(&requests(5, 1, None), &requests(2, 1, None)), Err(message(5, "requests", 6)));
        assert_eq!(check(&requests(1, 90, None), &requests(1, 10, None)), Ok(()));
        let refused = check(&requests(1, 90, None), &requests(1, 11, None));
        assert_eq!(refused, Err(message(90, "prompt tokens", 100)));
        assert_eq!(check(&[], &requests(1, 1000, None)), Ok(()), "nothing else waits");
        let refused = check(&[], &requests(7, 1, None)).unwrap_err();
        assert_eq!(refused, "request: requests is 7: give at most 6, as many as may wait");
    }

    #[test]
    fn a_tenant_may_have_half_of_the_queue() {
        let QueueLimits { requests, tokens, tenant_requests, tenant_tokens } = QueueLimits::new(100);
        assert_eq!((requests, tokens, tenant_requests, tenant_tokens), (512, 400, 256, 200));
        let few = QueueLimits::new(100).with_requests(1);
        assert_eq!((few.requests, few.tenant_requests, few.tokens), (1, 1, 400));
    }

    #[test]
    fn a_tenant_leaves_room_for_others() {
        let full = requests(3, 1, Some("a"));
        let refused = check(&full, &requests(1, 1, Some("a"))).unwrap_err();
        assert!(refused.contains("has 3 requests of its tenant waiting and takes at most 3"), "{refused}");
        assert_eq!(check(&full, &requests(3, 1, Some("b"))), Ok(()));
        assert_eq!(check(&full, &requests(3, 1, None)), Ok(()));
        let refused = check(&requests(1, 50, Some("a")), &requests(1, 11, Some("a"))).unwrap_err();
        assert!(
            refused.contains("has 50 prompt tokens of its tenant waiting and takes at most 60"),
            "{refused}"
        );
        let mut mixed = requests(2, 1, Some("b"));
        mixed.extend(requests(1, 1, Some("a")));
        assert!(check(&full, &mixed).is_err());
    }

    #[test]
    fn places_are_given_back() {
        let queue = queue();
        for _ in 0..3 {
            let mut places = queue.try_enter(&requests(3, 10, Some("a"))).unwrap();
            assert!(queue.try_enter(&requests(1, 10, Some("a"))).is_err());
            places.remove(0).start(Instant::now());
            drop(queue.try_enter(&requests(1, 10, Some("a"))).unwrap());
        }
        let state = queue.lock();
        assert_eq!((state.all.requests, state.all.tokens, state.tenants.len()), (0, 0, 0));
    }

    #[test]
    fn the_time_to_retry_is_that_of_the_pace() {
        let mut pace = Pace::default();
        let start = Instant::now();
        pace.since = Some(start);
        // Two start every two seconds, with ten tokens each.
        for second in (2..200).step_by(2) {
            let at = start + Duration::from_secs(second);
            pace.note(at, 10);
            pace.note(at, 10);
        }
        let seconds = |requests, tokens, turns| pace.time(Load { requests, tokens }, turns).as_secs_f64();
        assert!((seconds(5, 0, 1) - 5.0).abs() < 0.2, "{}", seconds(5, 0, 1));
        assert!((seconds(0, 70, 1) - 7.0).abs() < 0.2);
        assert!((seconds(5, 0, 3) - 15.0).abs() < 0.6);
        assert_eq!(pace.time(Load { requests: usize::MAX, tokens: 0 }, 1), LONGEST_RETRY);
    }
}
