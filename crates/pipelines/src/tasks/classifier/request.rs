//! Texts and pairs as callers have them, their tokens as the model takes them, and their scores.

use crate::Error;
use crate::activation::ScoreActivation;
use crate::error::InvalidField;
use crate::tasks::classification_model::ClassificationModel;
use crate::tasks::vectors::{
    EmbeddingPrompt, Tokens, Truncate, VectorRequest, chosen_prompt, invalid_prompt,
};
use crate::tokenizer::{AddSpecial, PairTokens, ParseSpecial};

/// Texts, and how they are scored.
pub type ClassificationRequest = VectorRequest<ClassificationText, ClassificationParameters>;

/// A text or pair to score. Names of special tokens in it are text, unless a chat template joins the pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassificationText {
    /// A text.
    Text(String),
    /// Two texts, such as a query and a document.
    Pair(String, String),
}

/// How texts are scored. What a request leaves open is as the classifier was started, and what that leaves open is as
/// the model's files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassificationParameters {
    /// How logits become scores.
    pub activation: Option<ScoreActivation>,
    /// Whether texts that are too long are cut; otherwise they are refused. Of a pair, the longer text is
    /// cut first; pairs that a chat template joins are cut at their end only.
    pub truncate: Option<Truncate>,
    /// The most tokens of a text or a pair, those that the model wants around it included; at most and by default as many as
    /// the model takes.
    pub max_tokens: Option<usize>,
    /// The instruction for the model: a message of its own if a chat template joins pairs, else text in front of the
    /// first text.
    pub prompt: Option<EmbeddingPrompt>,
}

/// A query, and documents to rank.
#[derive(Debug, Clone, Default)]
pub struct RerankRequest {
    /// The query that documents should answer.
    pub query: String,
    /// The documents to rank.
    pub documents: Vec<String>,
    /// How many of the best are returned; `None` is all.
    pub top_n: Option<usize>,
    /// How pairs of the query and a document are scored.
    pub parameters: ClassificationParameters,
}

/// The scores of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Classification {
    /// One for each label.
    pub scores: Vec<f32>,
    /// How many tokens they were made of.
    pub tokens: usize,
    /// How many more the text has, which were left out.
    pub truncated: usize,
}

/// Documents in the order of their scores.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Ranking {
    /// The best documents, best first.
    pub documents: Vec<Ranked>,
    /// Tokens of the pairs of all documents.
    pub tokens: usize,
}

/// A document in a ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Ranked {
    /// Which of the request's documents.
    pub index: usize,
    /// How well it answers the query.
    pub score: f32,
    /// How many tokens the pair has.
    pub tokens: usize,
    /// How many more it has, which were left out.
    pub truncated: usize,
}

/// How the texts of one request are scored: every choice made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassificationSettings {
    pub(super) activation: ScoreActivation,
    pub(super) truncate: Truncate,
    pub(super) max_tokens: Option<usize>,
    pub(super) prompt: Option<String>,
}

impl ClassificationSettings {
    /// The parameters, or else as the model's files say.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub(super) fn for_model(
        model: &ClassificationModel,
        parameters: &ClassificationParameters,
    ) -> Result<ClassificationSettings, Error> {
        let wanted = parameters.prompt.as_ref();
        let prompt = chosen_prompt(model.prompts(), model.default_prompt(), wanted);
        let defaults =
            ClassificationSettings { activation: model.activation(), ..ClassificationSettings::default() };
        defaults.resolve(model, parameters, prompt)
    }

    /// The parameters, or else as here.
    ///
    /// # Errors
    /// If the parameters do not fit the model.
    pub(super) fn with(
        &self,
        model: &ClassificationModel,
        parameters: &ClassificationParameters,
    ) -> Result<ClassificationSettings, Error> {
        let prompt = match &parameters.prompt {
            Some(given) => chosen_prompt(model.prompts(), None, Some(given)),
            None => Ok(self.prompt.clone()),
        };
        self.resolve(model, parameters, prompt)
    }

    fn resolve(
        &self,
        model: &ClassificationModel,
        parameters: &ClassificationParameters,
        prompt: Result<Option<String>, InvalidField>,
    ) -> Result<ClassificationSettings, Error> {
        let prompt = prompt.and_then(|prompt| match prompt {
            Some(text) if model.pair_template().is_some_and(|template| !template.takes_prompt) => {
                Err(invalid_prompt(&text, "the model's template for pairs takes none".to_string()))
            }
            other => Ok(other),
        });
        Ok(ClassificationSettings {
            activation: parameters.activation.unwrap_or(self.activation),
            truncate: parameters.truncate.unwrap_or(self.truncate),
            max_tokens: parameters.max_tokens.or(self.max_tokens),
            prompt: prompt.map_err(|problem| Error::Embedder(vec![problem]))?,
        })
    }
}

impl RerankRequest {
    /// All documents, scored as the classifier was started.
    pub fn new<T: Into<String>>(
        query: impl Into<String>,
        documents: impl IntoIterator<Item = T>,
    ) -> RerankRequest {
        let documents = documents.into_iter().map(Into::into).collect();
        RerankRequest { query: query.into(), documents, ..RerankRequest::default() }
    }

    /// The best `top_n` documents only.
    #[must_use]
    pub fn top(self, top_n: usize) -> RerankRequest {
        RerankRequest { top_n: Some(top_n), ..self }
    }

    pub(super) fn into_pairs(self) -> ClassificationRequest {
        let RerankRequest { query, documents, parameters, .. } = self;
        let pair = |document: String| ClassificationText::Pair(query.clone(), document);
        ClassificationRequest { texts: documents.into_iter().map(pair).collect(), parameters }
    }
}

impl Classification {
    /// The index of the label with the highest score; of equal ones, the first.
    pub fn best(&self) -> usize {
        let scores = self.scores.iter().enumerate();
        scores.reduce(|best, next| if next.1 > best.1 { next } else { best }).map_or(0, |(index, _)| index)
    }
}

impl Ranking {
    /// The `top` best of documents with one score each.
    pub(super) fn new(scored: Vec<Classification>, top: Option<usize>) -> Ranking {
        let tokens = scored.iter().map(|document| document.tokens).sum();
        let document = |(index, document): (usize, Classification)| {
            let Classification { scores, tokens, truncated } = document;
            Ranked { index, score: scores[0], tokens, truncated }
        };
        let mut documents: Vec<Ranked> = scored.into_iter().enumerate().map(document).collect();
        documents.sort_by(|a, b| b.score.total_cmp(&a.score));
        documents.truncate(top.unwrap_or(usize::MAX));
        Ranking { documents, tokens }
    }
}

impl ClassificationText {
    /// The tokens as the model takes them. `index` is the text's position in its request.
    ///
    /// # Errors
    /// If there are none, too many, or some that the model does not have.
    pub(super) fn tokens(
        &self,
        index: usize,
        model: &ClassificationModel,
        settings: &ClassificationSettings,
        limit: usize,
    ) -> Result<Tokens, Error> {
        let prompt = settings.prompt.as_deref();
        let with_prompt = |text: &str| format!("{}{text}", prompt.unwrap_or_default());
        let tokens = match (self, model.pair_template()) {
            (ClassificationText::Text(text), _) => {
                text_tokens(&with_prompt(text), index, model, settings.truncate, limit)
            }
            (ClassificationText::Pair(first, second), None) => {
                pair_tokens([&with_prompt(first), second], index, model, settings.truncate, limit)
            }
            (ClassificationText::Pair(..), Some(_)) if settings.truncate == Truncate::Left => {
                return Err(Error::Embedder(vec![InvalidField {
                    field: "truncate",
                    value: "left".to_string(),
                    fix: "the model joins pairs by a chat template: they are cut on the right only"
                        .to_string(),
                }]));
            }
            (ClassificationText::Pair(first, second), Some(template)) => {
                let ids = template.tokens(model.tokenizer(), prompt, [first, second])?;
                let cut = || Ok(template.truncated(&ids, limit));
                fitting(&ids, cut, index, settings.truncate, limit)
            }
        }?;
        tokens.check(index, model.checkpoint().model.vocab)?;
        Ok(tokens)
    }
}

fn encode(model: &ClassificationModel, text: &str, add: AddSpecial) -> Result<Vec<u32>, Error> {
    Ok(model.tokenizer().encode(text, add, ParseSpecial::No)?)
}

fn text_tokens(
    text: &str,
    index: usize,
    model: &ClassificationModel,
    truncate: Truncate,
    limit: usize,
) -> Result<Tokens, Error> {
    let whole = encode(model, text, AddSpecial::Yes)?;
    let cut = || Ok(Tokens::truncated(&whole, &encode(model, text, AddSpecial::No)?, limit, truncate).ids);
    fitting(&whole, cut, index, truncate, limit)
}

/// The tokens, cut if they are too many and may be.
fn fitting(
    whole: &[u32],
    cut: impl FnOnce() -> Result<Vec<u32>, Error>,
    index: usize,
    truncate: Truncate,
    limit: usize,
) -> Result<Tokens, Error> {
    let ids = if whole.len() > limit && truncate != Truncate::Never { cut()? } else { whole.to_vec() };
    if ids.len() > limit {
        return Err(Error::TextTooLong { index, tokens: ids.len(), limit });
    }
    Ok(Tokens { truncated: whole.len() - ids.len(), ids, types: Vec::new() })
}

fn pair_tokens(
    pair: [&str; 2],
    index: usize,
    model: &ClassificationModel,
    truncate: Truncate,
    limit: usize,
) -> Result<Tokens, Error> {
    let [first, second] = pair.map(|text| encode(model, text, AddSpecial::No));
    let (first, second) = (first?, second?);
    let around = model.tokenizer().pair(&[], &[])?.ids.len();
    let (lengths, room) = ([first.len(), second.len()], limit.saturating_sub(around));
    let fits = lengths[0] + lengths[1] + around <= limit;
    if !fits && (truncate == Truncate::Never || room == 0) {
        return Err(Error::PairTooLong { index, first: lengths[0], second: lengths[1], around, limit });
    }
    let [kept_first, kept_second] = if fits { lengths } else { longest_first(lengths, room) };
    let kept = [truncate.keep(&first, kept_first), truncate.keep(&second, kept_second)];
    let PairTokens { ids, types } = model.tokenizer().pair(kept[0], kept[1])?;
    let known = model.token_types() as u32;
    if let Some(other) = types.iter().find(|&&token_type| known > 1 && token_type >= known) {
        return Err(Error::TokenType { token_type: *other, known });
    }
    let truncated = lengths[0] + lengths[1] - kept_first - kept_second;
    Ok(Tokens { ids, types, truncated })
}

/// How many tokens of two texts remain if `room` do not suffice for all: those of the longer text are left out until both
/// are equally long, then of both in turn.
fn longest_first([first, second]: [usize; 2], room: usize) -> [usize; 2] {
    let (half, rest) = (room / 2, room - room / 2);
    match first <= second {
        true if first <= half => [first, room - first],
        true => [half, rest],
        false if second <= half => [room - second, second],
        false => [rest, half],
    }
}

impl From<String> for ClassificationText {
    fn from(text: String) -> ClassificationText {
        ClassificationText::Text(text)
    }
}

impl From<&str> for ClassificationText {
    fn from(text: &str) -> ClassificationText {
        ClassificationText::Text(text.to_string())
    }
}

impl From<&String> for ClassificationText {
    fn from(text: &String) -> ClassificationText {
        ClassificationText::Text(text.clone())
    }
}

impl<A: Into<String>, B: Into<String>> From<(A, B)> for ClassificationText {
    fn from((first, second): (A, B)) -> ClassificationText {
        ClassificationText::Pair(first.into(), second.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths that the strategy `longest_first` of the library `tokenizers` gives.
    #[test]
    fn the_longer_text_is_cut_first() {
        assert_eq!(longest_first([3, 20], 10), [3, 7]);
        assert_eq!(longest_first([20, 3], 10), [7, 3]);
        assert_eq!(longest_first([20, 30], 11), [5, 6]);
        assert_eq!(longest_first([30, 20], 11), [6, 5]);
        assert_eq!(longest_first([5, 6], 10), [5, 5]);
        assert_eq!(longest_first([0, 9], 1), [0, 1]);
    }

    #[test]
    fn documents_rank_by_score_and_then_by_index() {
        let scored = [0.5, 2.0, 0.5, -1.0].map(|score| Classification {
            scores: vec![score],
            tokens: 3,
            truncated: 0,
        });
        let order = |top: Option<usize>| {
            let ranking = Ranking::new(scored.to_vec(), top);
            assert_eq!(ranking.tokens, 12);
            ranking.documents.iter().map(|document| document.index).collect::<Vec<_>>()
        };
        assert_eq!(order(None), [1, 0, 2, 3]);
        assert_eq!(order(Some(2)), [1, 0]);
        assert_eq!((order(Some(0)).len(), order(Some(9)).len()), (0, 4));
    }
}
