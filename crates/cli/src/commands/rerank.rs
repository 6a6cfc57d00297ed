//! `peri rerank`: documents in the order of how well they answer a query.

use std::num::NonZeroUsize;

use anyhow::Context;
use pipelines::RerankRequest;

use crate::exit::one_line;
use crate::parse;
use crate::scoring::ScoringArguments;

const EXAMPLES: &str = "\
Examples:
  peri rerank cross-encoder/ms-marco-MiniLM-L6-v2 --query \"how do cats sleep?\" \"Cats nap.\" \"Dogs bark.\"
  peri rerank bge-reranker/ --query \"capital of France\" --top-n 3 < paragraphs.txt";

const DETAILS: &str = "\
The first argument is the model if it is a model file, a model folder, or looks like a hub repo (org/name). -m always \
gives a model, and then all arguments are documents.

Documents go to standard output, best first, one line each: the score, the number of the document (counted from 0), and \
its text. Progress and timings go to standard error.

--json prints one object per document: index, score, text, tokens, truncated.";

/// Arguments of `peri rerank`.
#[derive(clap::Args)]
#[command(
    override_usage = "peri rerank [OPTIONS] --query QUERY MODEL [TEXT]...",
    after_help = EXAMPLES,
    after_long_help = super::details(DETAILS, EXAMPLES)
)]
pub(crate) struct Arguments {
    /// Query that the documents should answer
    #[arg(long, value_name = "QUERY")]
    query: String,
    /// Print only the best N documents
    #[arg(long, value_name = "N", value_parser = parse::count)]
    top_n: Option<NonZeroUsize>,
    #[command(flatten)]
    scoring: ScoringArguments,
}

/// A line of `--json`.
#[derive(serde::Serialize)]
struct Object<'a> {
    index: usize,
    score: f32,
    text: &'a str,
    tokens: usize,
    /// Tokens cut from the query and the document.
    truncated: usize,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let scoring = arguments.scoring.open()?;
    let request = RerankRequest::new(&arguments.query, &scoring.texts);
    let request = RerankRequest { top_n: arguments.top_n.map(NonZeroUsize::get), ..request };
    let ranking = scoring.classifier.rerank(request).context("cannot rank")?;
    let lines = ranking.documents.iter().map(|ranked| {
        let (index, score, text) = (ranked.index, ranked.score, &scoring.texts[ranked.index]);
        if arguments.scoring.json {
            let (tokens, truncated) = (ranked.tokens, ranked.truncated);
            return serde_json::to_string(&Object { index, score, text, tokens, truncated });
        }
        Ok(format!("{score:.4}  {index}  {}", one_line(text)))
    });
    scoring.print(lines, ranking.tokens)
}
