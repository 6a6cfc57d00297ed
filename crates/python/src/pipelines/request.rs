//! Python's `SamplingParams` as a request.

use std::collections::BTreeMap;

use perihelion::driver;
use perihelion::pipelines::{
    AddSpecial, Constraint, LogitsProcessor, LogprobsMode, ParseSpecial, Request, SamplingOptions, Tokenizer,
};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};

use super::error::pipelines_error;
use super::wakeups::attached;
use crate::buffer::Buffer;

/// How many answers `SamplingParams` asks for.
pub(super) fn count(params: &Bound<'_, PyAny>) -> PyResult<usize> {
    Params(params).get("n", "a whole number, at least 1")
}

/// The request that `SamplingParams` describes, without its prompt and its bad words.
pub(super) fn request(params: &Bound<'_, PyAny>, seed: u64) -> PyResult<Request> {
    let params = Params(params);
    let number = "a number or None";
    let count = "a whole number, at least 0, or None";
    Ok(Request {
        sampling: SamplingOptions {
            temperature: params.get("temperature", number)?,
            // As in files: 0 and less is all tokens.
            top_k: params.get::<Option<i64>>("top_k", count)?.map(|k| usize::try_from(k).unwrap_or(0)),
            top_p: params.get("top_p", number)?,
            min_p: params.get("min_p", number)?,
            repetition_penalty: params.get("repetition_penalty", number)?,
            frequency_penalty: params.get("frequency_penalty", number)?,
            presence_penalty: params.get("presence_penalty", number)?,
        },
        seed,
        logit_bias: params
            .get::<Option<BTreeMap<u32, f32>>>("logit_bias", "a dict from tokens to numbers, or None")?
            .unwrap_or_default(),
        logprobs: params.get("logprobs", count)?,
        logprobs_mode: params.logprobs_mode()?,
        prompt_logprobs: params.get("prompt_logprobs", count)?,
        max_new_tokens: params.get("max_tokens", count)?,
        min_new_tokens: params.get("min_tokens", "a whole number, at least 0")?,
        ignore_eos: params.get("ignore_eos", "True or False")?,
        show_special_tokens: !params.get::<bool>("skip_special_tokens", "True or False")?,
        stop: params.texts("stop")?,
        stop_token_ids: params
            .get::<Option<Vec<u32>>>("stop_token_ids", "a list of tokens, or None")?
            .unwrap_or_default(),
        cache_salt: params.get("cache_salt", "a text or None")?,
        allowed_token_ids: params.get("allowed_token_ids", "a list of tokens, or None")?,
        constraint: params.constraint()?,
        logits_processor: params.logits_processor()?,
        ..Request::default()
    })
}

/// The bad words of `SamplingParams` as tokens: at the start of a text, and behind a space.
pub(super) fn bad_words(params: &Bound<'_, PyAny>, tokenizer: &Tokenizer) -> PyResult<Vec<Vec<u32>>> {
    let words = Params(params).get::<Option<Vec<String>>>("bad_words", "a list of texts, or None")?;
    let mut found = Vec::new();
    for word in words.unwrap_or_default() {
        let word = word.trim_start();
        for text in [word, &format!(" {word}")] {
            let tokens = tokenizer.encode(text, AddSpecial::No, ParseSpecial::No);
            let tokens = tokens.map_err(|error| pipelines_error(error.into()))?;
            if !found.contains(&tokens) {
                found.push(tokens);
            }
        }
    }
    Ok(found)
}

/// An object of Python whose attributes are parameters.
pub(crate) struct Params<'a, 'py>(pub(crate) &'a Bound<'py, PyAny>);

impl<'py> Params<'_, 'py> {
    pub(crate) fn get<T: FromPyObjectOwned<'py>>(&self, name: &str, expected: &str) -> PyResult<T> {
        let value = self.0.getattr(name)?;
        value.extract().map_err(|_| {
            let is_in_kind = value.is_instance_of::<PyInt>() && expected.contains("number");
            match is_in_kind {
                true => PyValueError::new_err(format!("{name} is {value}: give {expected}")),
                false => match value.get_type().name() {
                    Ok(given) => PyTypeError::new_err(format!("{name}: got {given}, expected {expected}")),
                    Err(error) => error,
                },
            }
        })
    }

    /// Which probabilities are reported.
    fn logprobs_mode(&self) -> PyResult<LogprobsMode> {
        let expected = "\"raw_logprobs\" or \"processed_logprobs\"";
        match &self.get::<String>("logprobs_mode", expected)?[..] {
            "raw_logprobs" => Ok(LogprobsMode::Raw),
            "processed_logprobs" => Ok(LogprobsMode::Processed),
            other => Err(PyValueError::new_err(format!("logprobs_mode is {other:?}: give {expected}"))),
        }
    }

    /// One text or several.
    pub(crate) fn texts(&self, name: &str) -> PyResult<Vec<String>> {
        let expected = "a text, a list of texts, or None";
        if self.0.getattr(name)?.is_instance_of::<PyString>() {
            return Ok(vec![self.get(name, expected)?]);
        }
        Ok(self.get::<Option<Vec<String>>>(name, expected)?.unwrap_or_default())
    }

    /// The form of the answers, if one is given.
    pub(super) fn constraint(&self) -> PyResult<Option<Constraint>> {
        let text = "a text or None";
        let regex = self.get::<Option<String>>("regex", text)?;
        let grammar = self.get::<Option<String>>("grammar", text)?;
        let choice = self.get::<Option<Vec<String>>>("choice", "a list of texts, or None")?;
        let given = [
            self.json_schema()?,
            regex.map(|regex| Constraint::Regex(regex.into())),
            grammar.map(|grammar| Constraint::grammar(&grammar)),
            choice.map(Constraint::choice),
        ];
        match &given.into_iter().flatten().collect::<Vec<_>>()[..] {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            [one, other, ..] => Err(PyValueError::new_err(format!(
                "{} and {} are both given: an answer has one form",
                one.name(),
                other.name()
            ))),
        }
    }

    /// Calls the method `_process_logits`, if there are processors.
    fn logits_processor(&self) -> PyResult<Option<LogitsProcessor>> {
        if self.0.getattr("logits_processors")?.is_none() {
            return Ok(None);
        }
        let process = self.0.getattr("_process_logits")?.unbind();
        Ok(Some(LogitsProcessor::new(move |generated, logits| {
            let buffer = driver::Buffer::from_slice([logits.len()], logits);
            let given = (generated.to_vec(), Buffer(buffer.clone()));
            let called = attached(|py| process.call1(py, given).map(drop));
            called.ok_or("the interpreter has ended")??;
            logits.copy_from_slice(buffer.read()?.as_slice::<f32>());
            Ok(())
        })))
    }

    /// A schema as an object of Python, or as text.
    fn json_schema(&self) -> PyResult<Option<Constraint>> {
        let schema = self.0.call_method0("_schema")?;
        if schema.is_none() {
            return Ok(None);
        }
        let text = match schema.extract::<String>() {
            Ok(text) => text,
            Err(_) => dumps(&schema)?,
        };
        let constraint = Constraint::json_schema(&text);
        constraint.map(Some).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// The JSON of a schema. Errors are those of Python's `json`, with the parameter's name.
fn dumps(schema: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = schema.py();
    let json = py
        .import("json")?
        .call_method1("dumps", (schema,))
        .map_err(|error| PyErr::from_type(error.get_type(py), format!("json_schema: {}", error.value(py))))?;
    json.extract()
}
