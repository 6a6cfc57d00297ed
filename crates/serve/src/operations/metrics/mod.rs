//! `GET /metrics`: the server's figures for Prometheus, under vLLM's names for metrics that vLLM has too.

mod collect;
mod process;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::api_error::ApiError;
use crate::state::ServerState;
use collect::Snapshot;

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Shows counters, gauges and histograms, as OpenMetrics if the client accepts it, else as Prometheus text.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "Operation",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn show(
    State(server): State<Arc<ServerState>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, ApiError> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot::new(&server)));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| {
        let message = format!("metrics: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
    })?;
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let (kind, text) = if accept.contains("application/openmetrics-text") {
        (OPEN_METRICS, text)
    } else {
        (PROMETHEUS, to_prometheus(&text))
    };
    Ok(([(header::CONTENT_TYPE, kind)], text))
}

/// The older text form: the families of counters have the name of their samples, and there is no end mark.
fn to_prometheus(text: &str) -> String {
    let counter = |line: &str| {
        let name = line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?;
        Some(name.to_string())
    };
    let counters: Vec<String> = text.lines().filter_map(counter).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind), Some(name), Some(rest))
                if counters.iter().any(|counter| counter == name) =>
            {
                out.push_str(&format!("# {kind} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_counters_have_the_name_of_their_samples() {
        let open = "# HELP a A b c.\n# TYPE a counter\na_total{x=\"# TYPE\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_total A b c.\n# TYPE a_total counter\na_total{x=\"# TYPE\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n";
        assert_eq!(to_prometheus(open), expected);
    }
}
