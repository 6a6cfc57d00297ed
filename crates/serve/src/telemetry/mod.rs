//! What the server says about its requests: metrics, the access log, reports and traces.

mod access_log;
mod measures;
mod report;
#[cfg_attr(not(feature = "otlp"), path = "no_traces.rs")]
mod traces;

pub(crate) use access_log::AccessLog;
pub use access_log::{LogFormat, json_log_line, show_logs};
pub(crate) use measures::{Answers, Labels, Measures, Metrics, STAGES};
pub(crate) use report::RequestReport;
pub use traces::TraceConfig;
pub(crate) use traces::{SpanFacts, TraceParent, Traces, parent};
