//! The chat template that joins a query and a document, for models that read pairs as conversations.

use models::{Architecture, Checkpoint};
use serde_json::{Value, json};
use text::{AddSpecial, ChatContext, ChatTemplate, ParseSpecial, Tokenizer};
use weights::Format;

use crate::Error;
use crate::plan::model_files::classifier::ClassifierConfig;
use crate::plan::model_files::sentence_transformers::MessageFormat;

/// The GGUF key of the template for pairs, as llama.cpp writes it.
pub(crate) const RERANK_KEY: &str = "tokenizer.chat_template.rerank";
/// The placeholders of the two texts in such a template.
const PLACES: [&str; 2] = ["{query}", "{document}"];
/// Contents of probes, which share no token.
const PROBES: [&str; 2] = ["0", "1 2 3 4"];

/// How a model's pairs become conversations.
#[derive(Debug)]
pub(crate) struct PairTemplate {
    source: PairSource,
    /// The tokens behind both texts, which stay if a pair is cut.
    end: Vec<u32>,
    /// Whether an instruction makes a difference.
    pub(crate) takes_prompt: bool,
}

/// The template that writes the conversation.
#[derive(Debug)]
enum PairSource {
    /// A text with [`PLACES`].
    Places(String),
    /// A template that reads messages of the roles `query` and `document`, and perhaps `system`.
    Chat { template: Box<ChatTemplate>, name: String, message: MessageFormat },
}

impl PairTemplate {
    /// That of a model's files, or else of its architecture. `None` if the tokenizer joins texts.
    ///
    /// # Errors
    /// If the files ask for a conversation, and have no template that writes both texts.
    pub(crate) fn for_model(
        checkpoint: &Checkpoint,
        tokenizer: &Tokenizer,
        files: &ClassifierConfig,
        own_template: impl FnOnce() -> Result<Option<ChatTemplate>, Error>,
    ) -> Result<Option<PairTemplate>, Error> {
        let weights = checkpoint.weights();
        let place = weights.metadata().optional::<&str>(RERANK_KEY)?.filter(|text| has_places(text));
        if let (Format::Gguf, Some(text)) = (weights.format(), place) {
            return PairTemplate::new(PairSource::Places(text.to_string()), tokenizer).map(Some);
        }
        let is_stated = files.message.is_some();
        if files.joins_by_tokenizer || !is_stated && !checkpoint.model.runs_in_steps() {
            return Ok(None);
        }
        let message = files.message.clone().unwrap_or_default();
        let (inline, name) = message.template();
        let template = match inline {
            Some(source) => Some(ChatTemplate::new(&source)?),
            None => own_template()?,
        };
        let source = |template: ChatTemplate| PairSource::Chat {
            template: Box::new(template),
            name: name.clone(),
            message: message.clone(),
        };
        let own = template.map(source).filter(|source| source.writes_both(tokenizer));
        let source = match own {
            Some(own) => Some(own),
            None if is_stated => {
                let problem = format!(
                    "the chat template `{name}` is missing, or does not write messages of the roles query and document"
                );
                return Err(Error::classifier(&checkpoint.config.source_name, problem));
            }
            None => built_in(&checkpoint.config.architecture).map(source),
        };
        source.map(|source| PairTemplate::new(source, tokenizer)).transpose()
    }

    fn new(source: PairSource, tokenizer: &Tokenizer) -> Result<PairTemplate, Error> {
        let [first, second] = PROBES.map(|probe| source.tokens(tokenizer, None, [probe, probe]));
        let (first, second) = (first?, second?);
        let alike = first.iter().rev().zip(second.iter().rev()).take_while(|(a, b)| a == b).count();
        let end = first[first.len() - alike.min(first.len())..].to_vec();
        let [one, other] = PROBES.map(|probe| source.render(tokenizer, Some(probe), PROBES).ok());
        Ok(PairTemplate { takes_prompt: one.is_some() && one != other, source, end })
    }

    /// The tokens of a pair. Names of special tokens in it are these tokens, as in conversations.
    ///
    /// # Errors
    /// If the template refuses the pair.
    pub(crate) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: Option<&str>,
        pair: [&str; 2],
    ) -> Result<Vec<u32>, Error> {
        self.source.tokens(tokenizer, prompt, pair)
    }

    /// The first tokens of a pair, `limit` with those that belong behind it.
    pub(crate) fn truncated(&self, tokens: &[u32], limit: usize) -> Vec<u32> {
        let kept = limit.saturating_sub(self.end.len()).min(tokens.len());
        [&tokens[..kept], &self.end].concat()
    }

    /// The template as GGUF files hold it, with the instruction of the model's files.
    ///
    /// # Errors
    /// If the template refuses the names of the places.
    pub(crate) fn with_places(&self, tokenizer: &Tokenizer, prompt: Option<&str>) -> Result<String, Error> {
        self.source.render(tokenizer, prompt, PLACES)
    }
}

impl PairSource {
    fn tokens(
        &self,
        tokenizer: &Tokenizer,
        prompt: Option<&str>,
        pair: [&str; 2],
    ) -> Result<Vec<u32>, Error> {
        let text = self.render(tokenizer, prompt, pair)?;
        Ok(tokenizer.encode(&text, AddSpecial::No, ParseSpecial::Yes)?)
    }

    fn render(&self, tokenizer: &Tokenizer, prompt: Option<&str>, pair: [&str; 2]) -> Result<String, Error> {
        let (template, name, message) = match self {
            PairSource::Places(text) => return Ok(filled(text, pair)),
            PairSource::Chat { template, name, message } => (template, name, message),
        };
        let content = |(role, text): (&str, &str)| match message.is_structured {
            false => json!({"role": role, "content": text}),
            true => json!({"role": role, "content": [{"type": "text", "text": text}]}),
        };
        let roles = [("query", pair[0]), ("document", pair[1])];
        let messages: Vec<Value> =
            prompt.map(|prompt| ("system", prompt)).into_iter().chain(roles).map(content).collect();
        let token = |id: Option<u32>| id.and_then(|id| tokenizer.token(id));
        let (bos, eos) = (token(tokenizer.bos()), token(tokenizer.eos()));
        let context = ChatContext {
            add_generation_prompt: false,
            bos: bos.as_deref(),
            eos: eos.as_deref(),
            extra: Some(&message.variables),
            ..ChatContext::new(&messages)
        };
        Ok(template.render_named(name, &context)?)
    }

    /// Whether both texts are in the conversation.
    fn writes_both(&self, tokenizer: &Tokenizer) -> bool {
        let render = |pair| self.render(tokenizer, None, pair).ok();
        let [one, other] = PROBES;
        let both = render([one, one]);
        both.is_some() && render([other, one]) != both && render([one, other]) != both
    }
}

/// The built-in template of an architecture.
fn built_in(name: &str) -> Option<ChatTemplate> {
    let known = Architecture::from_hugging_face(name).or_else(|_| Architecture::from_gguf(name)).ok()?;
    ChatTemplate::for_pairs(known.pair_template?)
}

fn has_places(text: &str) -> bool {
    PLACES.iter().all(|place| text.contains(place))
}

/// A text with those of a pair in their places.
fn filled(text: &str, pair: [&str; 2]) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        let place = PLACES.iter().position(|place| rest[start..].starts_with(place));
        let (written, taken) = place.map_or(("{", 1), |place| (pair[place], PLACES[place].len()));
        result.push_str(&rest[..start]);
        result.push_str(written);
        rest = &rest[start + taken..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_in_their_places_and_are_not_searched() {
        assert_eq!(filled("<{query}|{document}>{x}", ["{document}", "b{"]), "<{document}|b{>{x}");
        assert_eq!(filled("none {", ["a", "b"]), "none {");
        assert!(has_places("{query} {document}") && !has_places("{query}"));
    }
}
