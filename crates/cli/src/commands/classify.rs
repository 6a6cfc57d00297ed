//! `peri classify`: the labels of texts.

use anyhow::Context;
use pipelines::Classification;

use crate::scoring::ScoringArguments;

const EXAMPLES: &str = "\
Examples:
  peri classify distilbert/distilbert-base-uncased-finetuned-sst-2-english \"What a day!\"
  peri classify sentiment/ --json < lines.txt > labels.jsonl";

const DETAILS: &str = "\
The first argument is the model if it is a model file, a model folder, or looks like a hub repo (org/name). -m always \
gives a model, and then all arguments are texts.

Labels go to standard output, one line per text: the label with the highest score, and that score. Progress and timings \
go to standard error.

--json prints one object per text: index, text, label, scores of all labels, tokens, truncated.";

/// Arguments of `peri classify`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri classify [OPTIONS] MODEL [TEXT]...",
    after_help = EXAMPLES,
    after_long_help = super::details(DETAILS, EXAMPLES)
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    scoring: ScoringArguments,
}

/// A line of `--json`.
#[derive(serde::Serialize)]
struct Object<'a> {
    index: usize,
    text: &'a str,
    label: &'a str,
    scores: serde_json::Map<String, serde_json::Value>,
    tokens: usize,
    /// Tokens cut from the text.
    truncated: usize,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scoring = arguments.scoring.open()?;
    let scored = scoring.classifier.classify(&scoring.texts).context("cannot classify")?;
    let tokens = scored.iter().map(|text| text.tokens).sum();
    let labels = scoring.classifier.labels();
    let lines = scoring.texts.iter().zip(&scored).enumerate().map(|(index, (text, scored))| {
        let label = &labels[scored.best()][..];
        if arguments.scoring.json {
            let Classification { scores, tokens, truncated, .. } = scored;
            let scores = labels.iter().cloned().zip(scores.iter().map(|&score| score.into())).collect();
            let (tokens, truncated) = (*tokens, *truncated);
            return serde_json::to_string(&Object { index, text, label, scores, tokens, truncated });
        }
        Ok(format!("{label}  {:.4}", scored.scores[scored.best()]))
    });
    scoring.print(lines, tokens)
}
