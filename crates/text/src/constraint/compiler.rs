//! Compiles constraints for one tokenizer, within limits of time and memory, and keeps what it compiled.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::{ParserFactory, TokenParser};
use serde_json::{Value, json};
use toktrie::{InferenceCapabilities, TokEnv};

use super::cache::Cache;
use super::schema::UniqueMap;
use super::unique::{MarkedTokens, UniqueItems};
use super::vocabulary::Vocabulary;
use super::{Constraint, ConstraintError, Matcher, gbnf, lark, regex, schema};
use crate::{Error, Tokenizer};

/// How long a constraint may take to compile.
const COMPILE_TIME: Duration = Duration::from_secs(2);
/// Threads that compile, those that took too long included. (llguidance's own limits end them too.)
const MAX_COMPILING: usize = 8;
/// llguidance compiles by recursion, as deep as definitions refer to each other. The system lends stack as it is used.
const STACK: usize = 256 << 20;
/// Compilations that find the place of a problem in a schema.
const MAX_TRIALS: usize = 200;

static COMPILING: AtomicUsize = AtomicUsize::new(0);

/// Compiles constraints for one tokenizer, and keeps the grammars that were used last.
pub struct GrammarCompiler {
    tokenizer: Arc<Tokenizer>,
    /// Made for the first constraint: few models ever get one.
    factory: OnceLock<Result<Arc<Factory>, String>>,
    cache: Mutex<Cache<Grammar>>,
}

/// A constraint, compiled for a tokenizer. Clones are cheap.
#[derive(Clone)]
pub struct Grammar(Arc<Compiled>);

struct Compiled {
    /// At the start of an answer, with its first mask computed.
    start: Mutex<Matcher>,
    constraint: Constraint,
}

impl GrammarCompiler {
    /// A compiler that has compiled nothing.
    pub fn new(tokenizer: Arc<Tokenizer>) -> GrammarCompiler {
        GrammarCompiler { tokenizer, factory: OnceLock::new(), cache: Mutex::default() }
    }

    /// Compiles a constraint, unless it was compiled before.
    ///
    /// # Errors
    /// If it is malformed, cannot be enforced with this tokenizer, or is beyond the limits of time and size.
    pub fn compile(&self, constraint: &Constraint) -> Result<Grammar, Error> {
        let digest = constraint.digest();
        if let Some(grammar) = self.cache().get(&digest) {
            return Ok(grammar);
        }
        let grammar = self.compile_anew(constraint)?;
        self.cache().insert(digest, grammar.clone());
        Ok(grammar)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache<Grammar>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compile_anew(&self, constraint: &Constraint) -> Result<Grammar, ConstraintError> {
        let refuse = |problem: String| ConstraintError::new(constraint.name(), problem);
        let factory = self.factory.get_or_init(|| factory(&self.tokenizer)).clone().map_err(refuse)?;
        let source = self.source(constraint)?;
        let kind = constraint.name();
        let vocabulary = self.tokenizer.vocab_size();
        let start = in_time(kind, move || {
            let (parser, unique) = source.compile(&factory.parsers, kind)?;
            let unique = unique.map(|map| UniqueItems::new(Arc::new(map), factory.marked()));
            Matcher::new(parser, unique, vocabulary, kind)
        })?;
        Ok(Grammar(Arc::new(Compiled { start: Mutex::new(start), constraint: constraint.clone() })))
    }

    /// What llguidance compiles.
    fn source(&self, constraint: &Constraint) -> Result<Source, ConstraintError> {
        Ok(match constraint {
            Constraint::JsonSchema(value) => Source::Schema(Arc::clone(value)),
            Constraint::JsonObject => Source::Schema(Arc::new(json!({ "type": "object" }))),
            Constraint::Regex(expression) => {
                regex::check(expression)?;
                Source::Regex(expression.to_string())
            }
            Constraint::Choice(options) => Source::Regex(regex::of_choice(options)?),
            Constraint::Lark(grammar) => Source::Lark(Arc::clone(grammar), Arc::clone(&self.tokenizer)),
            Constraint::Gbnf(grammar) => Source::Prepared(gbnf::to_lark(grammar, &self.tokenizer)?),
        })
    }

    #[cfg(test)]
    pub(super) fn num_cached(&self) -> usize {
        self.cache().len()
    }
}

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").field("tokenizer", &self.tokenizer.kind()).finish_non_exhaustive()
    }
}

impl Grammar {
    /// A matcher at the start of an answer. It shares no caches with others, so that the work it takes, and whether that
    /// is within the limits, depends on its own sequence alone.
    pub fn matcher(&self) -> Matcher {
        self.0.start.lock().unwrap_or_else(PoisonError::into_inner).independent()
    }

    /// The constraint that it enforces.
    pub fn constraint(&self) -> &Constraint {
        &self.0.constraint
    }
}

impl fmt::Debug for Grammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Grammar").field(self.constraint()).finish()
    }
}

/// What llguidance compiles.
enum Source {
    Schema(Arc<Value>),
    Regex(String),
    /// A grammar whose schemas are not prepared.
    Lark(Arc<str>, Arc<Tokenizer>),
    Prepared(String),
}

impl Source {
    fn compile(
        self,
        factory: &ParserFactory,
        kind: &'static str,
    ) -> Result<(TokenParser, Option<UniqueMap>), ConstraintError> {
        let refuse = |error: &str| ConstraintError::new(kind, tidied(error));
        let compile = |grammar| factory.create_parser(grammar).map_err(|error| error.to_string());
        let parser = match self {
            Source::Schema(schema) => {
                let prepared = schema::prepare(&schema, true)?;
                let parser = compile(TopLevelGrammar::from_json_schema(prepared.schema.clone()));
                let parser = parser.map_err(|error| locate(factory, &prepared.schema, &error))?;
                return Ok((parser, prepared.unique));
            }
            Source::Regex(expression) => {
                compile(TopLevelGrammar::from_regex(&expression)).map_err(|error| refuse(&error))
            }
            Source::Lark(grammar, tokenizer) => {
                let prepared = lark::prepare(&grammar, &tokenizer)?;
                compile(TopLevelGrammar::from_lark(prepared)).map_err(|error| refuse(&error))
            }
            Source::Prepared(grammar) => {
                compile(TopLevelGrammar::from_lark(grammar)).map_err(|error| refuse(&error))
            }
        };
        Ok((parser?, None))
    }
}

/// The parts that all grammars of a tokenizer share.
struct Factory {
    /// With the trie of tokens, and masks of those that often come together.
    parsers: ParserFactory,
    /// Made for the first schema with unique items.
    marked: OnceLock<Arc<MarkedTokens>>,
}

impl Factory {
    fn marked(&self) -> Arc<MarkedTokens> {
        let make = || Arc::new(MarkedTokens::new(self.parsers.tok_env().tok_trie()));
        Arc::clone(self.marked.get_or_init(make))
    }
}

fn factory(tokenizer: &Arc<Tokenizer>) -> Result<Arc<Factory>, String> {
    let environment: TokEnv = Arc::new(Vocabulary::new(tokenizer)?);
    let slices = SlicedBiasComputer::general_slices();
    let factory = ParserFactory::new(&environment, InferenceCapabilities::default(), &slices);
    let mut factory = factory.map_err(|error| error.to_string())?;
    factory.quiet();
    *factory.limits_mut() = ParserLimits {
        // A state takes up to 2 KB: together 64 MiB.
        max_lexer_states: 32_000,
        max_grammar_size: 250_000,
        verbose_errors: false,
        ..ParserLimits::default()
    };
    Ok(Arc::new(Factory { parsers: factory, marked: OnceLock::new() }))
}

/// Compiles on a thread of its own, which has the stack for it, and gives up when it takes too long.
fn in_time<T: Send + 'static>(
    kind: &'static str,
    work: impl FnOnce() -> Result<T, ConstraintError> + Send + 'static,
) -> Result<T, ConstraintError> {
    let refuse = |problem: String| Err(ConstraintError::new(kind, problem));
    if COMPILING.fetch_add(1, Ordering::AcqRel) >= MAX_COMPILING {
        COMPILING.fetch_sub(1, Ordering::AcqRel);
        return refuse(format!("{MAX_COMPILING} constraints are being compiled already: try again later"));
    }
    let (result, received) = mpsc::sync_channel(1);
    let thread =
        std::thread::Builder::new().name("compile-grammar".into()).stack_size(STACK).spawn(move || {
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            COMPILING.fetch_sub(1, Ordering::AcqRel);
            if let Ok(made) = made {
                let _ = result.send(made);
            }
        });
    if let Err(error) = thread {
        COMPILING.fetch_sub(1, Ordering::AcqRel);
        return refuse(format!("no thread can be started to compile it: {error}"));
    }
    match received.recv_timeout(COMPILE_TIME) {
        Ok(made) => made,
        Err(RecvTimeoutError::Timeout) => {
            refuse(format!("it takes more than {} seconds to compile", COMPILE_TIME.as_secs()))
        }
        Err(RecvTimeoutError::Disconnected) => refuse("a defect in its compiler".into()),
    }
}

/// An error of llguidance's in one line, without what is ours in it.
fn tidied(error: &str) -> String {
    let of_regex = error.lines().find_map(|line| line.strip_prefix("error: "));
    let line = of_regex.or(error.lines().next()).unwrap_or_default();
    let line = line.strip_prefix("at ").unwrap_or(line);
    line.split_once(" (in regex): ").map_or(line, |(_, problem)| problem).to_owned()
}

/// Finds the innermost schema that does not compile alone, and the keyword without which it does.
fn locate(factory: &ParserFactory, schema: &Value, error: &str) -> ConstraintError {
    let mut trials = 0;
    let mut problem = |schema: &Value| {
        trials += 1;
        if trials > MAX_TRIALS {
            return None;
        }
        let parser = factory.create_parser(TopLevelGrammar::from_json_schema(schema.clone()));
        parser.err().map(|error| error.to_string())
    };
    let (mut origin, mut inner, mut error) = (schema::origin(schema), schema, error.to_owned());
    loop {
        let found = schema::children(inner).into_iter().find_map(|child| {
            let error = problem(&alone(schema, child)).filter(|found| is_of_kind(found, &error))?;
            Some((child, error))
        });
        let Some((child, found)) = found else { break };
        origin = schema::origin(child).or(origin);
        (inner, error) = (child, found);
    }
    let (pointer, made_of) = origin.unwrap_or_default();
    let culprit = || culprit(inner, &error, |rest| problem(&alone(schema, rest)).is_none());
    ConstraintError {
        pointer: Some(pointer.to_owned()),
        keyword: made_of.map(str::to_owned).or_else(culprit),
        ..ConstraintError::new("json_schema", tidied(&error))
    }
}

/// Whether an error is of the kind of another: that a schema accepts nothing, or that it is not supported.
fn is_of_kind(error: &str, other: &str) -> bool {
    const NOTHING: &str = "Unsatisfiable";
    error.contains(NOTHING) == other.contains(NOTHING)
}

/// The keyword of a schema without which it compiles.
fn culprit(schema: &Value, error: &str, mut compiles: impl FnMut(&Value) -> bool) -> Option<String> {
    let mut keywords: Vec<&String> =
        schema.as_object()?.keys().filter(|key| schema::constrains(key)).collect();
    // Those that the error names are likely; without the type or its schemas much compiles that is not the problem.
    let is_named = |keyword: &str| error.contains(keyword);
    keywords.sort_by_key(|key| (*key == "type", schema::holds_schemas(key), !is_named(key)));
    let is_culprit = |keyword: &&String| {
        let mut rest = schema.clone();
        rest.as_object_mut().and_then(|map| map.shift_remove(*keyword));
        compiles(&rest)
    };
    keywords.into_iter().find(is_culprit).cloned()
}

/// A schema of a document, with all that its references name.
fn alone(document: &Value, schema: &Value) -> Value {
    let mut schema = moved(schema);
    if let Value::Object(map) = &mut schema {
        map.insert(DOCUMENT.into(), moved(document));
        map.extend(document.get(OPTIONS).map(|options| (OPTIONS.to_owned(), options.clone())));
    }
    schema
}

/// Where a document is kept in one of its schemas.
const DOCUMENT: &str = "$document";
/// llguidance's options in a schema.
const OPTIONS: &str = "x-guidance";

/// A schema whose references are to [`DOCUMENT`].
fn moved(schema: &Value) -> Value {
    match schema {
        Value::Array(list) => list.iter().map(moved).collect(),
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                let value = match (&**key, value.as_str().and_then(|value| value.strip_prefix('#'))) {
                    ("$ref", Some(pointer)) => format!("#/{DOCUMENT}{pointer}").into(),
                    _ => moved(value),
                };
                (key.clone(), value)
            };
            map.iter().filter(|(key, _)| *key != OPTIONS).map(entry).collect()
        }
        _ => schema.clone(),
    }
}
