//! The figures of a benchmark, as a table, Markdown, CSV or JSON.

use chrono::Utc;
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use engine::InferenceSession;
use pipelines::config::SupportedEncoding;
use pipelines::{MemoryBytes, Plan};
use serde_json::{Value, json};

use crate::exit::one_line;
use crate::model::ModelSource;
use crate::version;

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    /// A Markdown table
    Md,
    Csv,
    /// One object per line
    Json,
}

/// The figures, and what they were measured on.
pub(super) struct Report {
    model: String,
    encoding: String,
    /// Bytes of the weights.
    size: u64,
    parameters: usize,
    device: String,
    date: String,
    /// The number of threads of the figures that are added next.
    pub(super) threads: usize,
    /// Figures with their numbers of threads.
    figures: Vec<(usize, Figure)>,
}

/// A measured quantity.
pub(super) struct Figure {
    pub(super) name: String,
    /// Tokens in the cache before the measurement.
    pub(super) depth: usize,
    pub(super) unit: &'static str,
    /// One per repetition.
    pub(super) values: Vec<f64>,
}

/// The columns of Markdown. CSV and JSON have more.
const COLUMNS: [&str; 9] =
    ["model", "encoding", "size", "parameters", "threads", "test", "median", "best", "unit"];

impl Report {
    /// A report without figures.
    pub(super) fn new(source: &ModelSource, plan: &Plan, session: &InferenceSession) -> Report {
        let device = &session.devices()[0];
        let stored = plan.config().quantization_encoding.map(SupportedEncoding::name);
        let encoding = plan.config().quantize.map(|mix| mix.name).or(stored);
        Report {
            model: one_line(&source.name()),
            encoding: encoding.unwrap_or("unknown").to_string(),
            size: match plan.checkpoint() {
                Some(checkpoint) => checkpoint.loaded_weights().bytes(),
                None => plan.weight_bytes().unwrap_or(0),
            },
            parameters: plan.parameters().map_or(0, |count| count.all),
            device: format!("{} ({})", device.name(), device.target()),
            date: Utc::now().format("%Y-%m-%dT%H:%M:%SZ").to_string(),
            threads: device.threads(),
            figures: Vec::new(),
        }
    }

    /// Adds figures measured with the current number of threads.
    pub(super) fn add(&mut self, figures: impl IntoIterator<Item = Figure>) {
        let threads = self.threads;
        self.figures.extend(figures.into_iter().map(|figure| (threads, figure)));
    }

    /// The model and the device.
    pub(super) fn title(&self) -> String {
        format!("{} on {}", self.model, self.device)
    }

    /// The whole report.
    pub(super) fn print(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Md => self.markdown(),
            Format::Csv => self.csv(),
            Format::Json => self.objects().map(|object| format!("{}\n", Value::Object(object))).collect(),
        }
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["test", "threads", "median", "best", "unit"]);
        for (threads, figure) in &self.figures {
            let [median, best] = [figure.median(), figure.best()].map(|value| format!("{value:.2}"));
            table.add_row([figure.name.clone(), threads.to_string(), median, best, figure.unit.to_string()]);
        }
        for column in 1..4 {
            table.column_mut(column).expect("five columns").set_cell_alignment(CellAlignment::Right);
        }
        let model = format!(
            "{}, {}, {} parameters",
            self.encoding,
            MemoryBytes(self.size),
            millions(self.parameters)
        );
        format!("{}\n{model}\nperi {}, {}\n{table}\n", self.title(), version::long(), self.date)
    }

    fn markdown(&self) -> String {
        let row = |cells: [&str; 9]| format!("| {} |\n", cells.join(" | "));
        let (size, parameters) = (MemoryBytes(self.size).to_string(), millions(self.parameters));
        let mut text = row(COLUMNS) + "|---|---|---:|---:|---:|---|---:|---:|---|\n";
        for (threads, figure) in &self.figures {
            let [median, best] = [figure.median(), figure.best()].map(|value| format!("{value:.2}"));
            let threads = threads.to_string();
            let model = self.model.replace('|', "\\|");
            text += &row([
                &model,
                &self.encoding,
                &size,
                &parameters,
                &threads,
                &figure.name,
                &median,
                &best,
                figure.unit,
            ]);
        }
        text + &format!("\n{}, peri {}, {}\n", self.device, version::long(), self.date)
    }

    fn csv(&self) -> String {
        let mut text = String::new();
        for (index, object) in self.objects().enumerate() {
            if index == 0 {
                text += &(object.keys().cloned().collect::<Vec<_>>().join(",") + "\n");
            }
            text += &(object.values().map(cell).collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    /// An object per figure, with the columns of CSV as keys.
    fn objects(&self) -> impl Iterator<Item = serde_json::Map<String, Value>> + '_ {
        self.figures.iter().map(|(threads, figure)| {
            let object = json!({
                "bench": "perihelion",
                "version": version::SHORT,
                "commit": version::COMMIT,
                "date": self.date,
                "model": self.model,
                "encoding": self.encoding,
                "size_bytes": self.size,
                "parameters": self.parameters,
                "device": self.device,
                "threads": threads,
                "depth": figure.depth,
                "metric": figure.name,
                "unit": figure.unit,
                "median": figure.median(),
                "best": figure.best(),
                "values": figure.values,
            });
            match object {
                Value::Object(object) => object,
                _ => unreachable!("made as an object"),
            }
        })
    }
}

impl Figure {
    fn median(&self) -> f64 {
        median(&self.values)
    }

    fn best(&self) -> f64 {
        let better = if matches!(self.unit, "tok/s" | "times") { f64::max } else { f64::min };
        self.values.iter().copied().reduce(better).expect("each figure has a value")
    }
}

/// The median; of an even number of values, the mean of the middle two.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[middle - 1] + sorted[middle]) / 2.0 } else { sorted[middle] }
}

/// A number of parameters, as models are named: 7.34 M, 0.60 B.
fn millions(parameters: usize) -> String {
    let count = parameters as f64;
    if count < 1e9 { format!("{:.2} M", count / 1e6) } else { format!("{:.2} B", count / 1e9) }
}

/// A value as a cell of CSV: lists separated by semicolons, texts quoted if needed.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(Value::to_string).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    };
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }

    #[test]
    fn csv_cells_with_commas_and_quotes_are_quoted() {
        assert_eq!(cell(&json!("a, \"b\"")), "\"a, \"\"b\"\"\"");
        assert_eq!((cell(&json!([1.5, 2])), cell(&Value::Null)), ("1.5;2".into(), String::new()));
    }
}
