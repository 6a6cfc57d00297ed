//! When the tokens of streams came, and figures made of that.

use std::fmt;
use std::time::{Duration, Instant};

/// One stream.
pub(crate) struct Trace {
    sent: Instant,
    arrivals: Vec<Instant>,
    /// As many as the target says that it made.
    pub(crate) tokens: usize,
}

impl Trace {
    /// A request that is sent now.
    pub(crate) fn begin() -> Trace {
        Trace { sent: Instant::now(), arrivals: Vec::new(), tokens: 0 }
    }

    /// So many pieces of text came now.
    pub(crate) fn note(&mut self, pieces: usize) {
        let now = Instant::now();
        self.arrivals.extend(std::iter::repeat_n(now, pieces));
    }
}

/// The figures of a round. Displays as three columns of the table: first token, between tokens, the server's time.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    /// Tokens per second of all streams together, prompts included.
    pub(crate) rate: f64,
    /// Milliseconds: median and 99th percentile.
    first: [f64; 2],
    between: [f64; 2],
    /// Microseconds of the server's threads for each token.
    server: f64,
}

impl Summary {
    /// The figures of streams that began together, for which the server's threads ran so long.
    pub(crate) fn of(began: Instant, traces: &[Trace], server: Duration) -> Summary {
        let end = traces.iter().filter_map(|trace| trace.arrivals.last()).max().copied().unwrap_or(began);
        let tokens: usize = traces.iter().map(|trace| trace.tokens).sum();
        let first = traces.iter().filter_map(|trace| Some(*trace.arrivals.first()? - trace.sent)).collect();
        let between =
            traces.iter().flat_map(|trace| trace.arrivals.windows(2).map(|pair| pair[1] - pair[0])).collect();
        Summary {
            rate: tokens as f64 / (end - began).as_secs_f64(),
            first: percentiles(first),
            between: percentiles(between),
            server: server.as_secs_f64() * 1e6 / tokens.max(1) as f64,
        }
    }

    /// Each figure's median.
    pub(crate) fn median(rounds: &[Summary]) -> Summary {
        let median = |figure: &dyn Fn(&Summary) -> f64| {
            let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        Summary {
            rate: median(&|summary| summary.rate),
            first: [0, 1].map(|i| median(&|summary| summary.first[i])),
            between: [0, 1].map(|i| median(&|summary| summary.between[i])),
            server: median(&|summary| summary.server),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([first, slow_first], [between, slow_between]) = (self.first, self.between);
        write!(f, "{first:.2}, {slow_first:.2} ms | {between:.2}, {slow_between:.2} ms | ")?;
        if self.server > 0.0 { write!(f, "{:.1} µs", self.server) } else { Ok(()) }
    }
}

/// The median and the 99th percentile, in milliseconds.
fn percentiles(mut times: Vec<Duration>) -> [f64; 2] {
    times.sort_unstable();
    let at = |percent: usize| times.get((times.len() * percent).div_ceil(100).saturating_sub(1));
    [50, 99].map(|percent| at(percent).map_or(0.0, |time| time.as_secs_f64() * 1e3))
}
