//! Flags for traces, which collectors of OpenTelemetry read.

use serve::TraceConfig;

/// Variables of OpenTelemetry that name a collector.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Where the server sends traces, and what they hold.
#[derive(clap::Args)]
#[command(next_help_heading = "Traces")]
pub(super) struct TraceFlags {
    /// Send a span of each request to a model to this collector, by OTLP over HTTP
    ///
    /// Such as http://localhost:4318/v1/traces. The variables OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and
    /// OTEL_EXPORTER_OTLP_ENDPOINT name one too.
    #[arg(long = "otlp-traces-endpoint", value_name = "URL", hide_short_help = true)]
    traces_endpoint: Option<String>,
    /// Put prompts and answers into spans
    #[arg(long, hide_short_help = true)]
    trace_content: bool,
}

impl TraceFlags {
    pub(super) fn config(&self) -> Option<TraceConfig> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_wanted = self.traces_endpoint.is_some() || ENDPOINT_VARIABLES.into_iter().any(is_set);
        is_wanted.then(|| TraceConfig { endpoint: self.traces_endpoint.clone(), content: self.trace_content })
    }
}
