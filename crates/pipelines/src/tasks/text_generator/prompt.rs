//! Prompts as callers have them: text, tokens, or a conversation.

use serde_json::{Map, Value};

use crate::Error;
use crate::chat_template::{ChatContext, ChatPrompt, ChatTemplate, Moment};
use crate::run::generator::Request;
use crate::tokenizer::{AddSpecial, ParseSpecial, Tokenizer};

/// A prompt, and what is wanted of it.
#[derive(Debug, Clone)]
pub struct TextRequest {
    /// What is continued.
    pub prompt: Prompt,
    /// How, and how far. The `prompt` here is filled in.
    pub parameters: Request,
}

/// What is continued.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// A text.
    Text {
        /// The text.
        text: String,
        /// Whether the tokens that the model wants around a text are added.
        add: AddSpecial,
        /// Whether the names of special tokens in it mean these.
        parse: ParseSpecial,
    },
    /// Tokens, as they are.
    Tokens(Vec<u32>),
    /// A conversation, for the model's chat template.
    Chat(Chat),
}

/// A conversation.
#[derive(Debug, Clone)]
pub struct Chat {
    /// Objects with `role`, `content`, and what else the model's template reads.
    pub messages: Vec<Value>,
    /// Function schemas as in the OpenAI API.
    pub tools: Option<Vec<Value>>,
    /// Texts to answer from, for templates that take them.
    pub documents: Option<Vec<Value>>,
    /// Whether the prompt ends where the assistant is to speak.
    pub add_generation_prompt: bool,
    /// Whether the prompt ends with the content of the last message, to be continued. `add_generation_prompt` does not
    /// count then.
    pub continue_final_message: bool,
    /// What the template's clock shows; the time of rendering if absent.
    pub now: Option<Moment>,
    /// More variables of the template, `enable_thinking` for one.
    pub extra: Map<String, Value>,
}

/// A message of a conversation: who says what.
///
/// ```
/// use perihelion_pipelines::{ChatMessage, Prompt};
///
/// let prompt: Prompt = [ChatMessage::system("Be brief."), ChatMessage::user("Hello")].into();
/// # let Prompt::Chat(chat) = prompt else { unreachable!() };
/// # assert_eq!(chat.messages[1], serde_json::json!({"role": "user", "content": "Hello"}));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, or what else the model's template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl ChatMessage {
    /// Instructions for the whole conversation.
    pub fn system(content: impl Into<String>) -> ChatMessage {
        ChatMessage { role: "system".to_string(), content: content.into() }
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> ChatMessage {
        ChatMessage { role: "user".to_string(), content: content.into() }
    }

    /// What the model has answered.
    pub fn assistant(content: impl Into<String>) -> ChatMessage {
        ChatMessage { role: "assistant".to_string(), content: content.into() }
    }
}

impl From<ChatMessage> for Value {
    fn from(ChatMessage { role, content }: ChatMessage) -> Value {
        serde_json::json!({ "role": role, "content": content })
    }
}

impl Chat {
    /// Messages to be answered now, and nothing else.
    pub fn new(messages: Vec<Value>) -> Chat {
        Chat {
            messages,
            tools: None,
            documents: None,
            add_generation_prompt: true,
            continue_final_message: false,
            now: None,
            extra: Map::new(),
        }
    }

    /// The prompt's text: that of [`Chat::prompt`].
    ///
    /// # Errors
    /// As [`Chat::prompt`].
    pub fn render(&self, template: &ChatTemplate, tokenizer: Option<&Tokenizer>) -> Result<String, Error> {
        self.prompt(template, tokenizer).map(|prompt| prompt.text)
    }

    /// The prompt. Messages are in the shape of the OpenAI API; the template gets them in the forms that it takes. The special
    /// tokens that it may write are those of the tokenizer, if there is one and `extra` says nothing else.
    ///
    /// # Errors
    /// As [`ChatTemplate::render_chat`], and if the last message is to be continued and the prompt does not have its content.
    pub fn prompt(
        &self,
        template: &ChatTemplate,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<ChatPrompt, Error> {
        let name = |id: fn(&Tokenizer) -> Option<u32>| tokenizer.and_then(|own| own.token(id(own)?));
        let (bos, eos) = (name(Tokenizer::bos), name(Tokenizer::eos));
        let mut messages = self.messages.clone();
        if self.continue_final_message {
            messages.last_mut().into_iter().for_each(mark_end);
        }
        let context = ChatContext {
            tools: self.tools.as_deref(),
            documents: self.documents.as_deref(),
            add_generation_prompt: self.add_generation_prompt && !self.continue_final_message,
            special_tokens: tokenizer.map(Tokenizer::special_tokens),
            bos: bos.as_deref(),
            eos: eos.as_deref(),
            now: self.now.unwrap_or_else(Moment::now),
            extra: Some(&self.extra),
            ..ChatContext::new(&messages)
        };
        let ChatPrompt { text, ignored } = template.render_chat(&context)?;
        let text = if self.continue_final_message { up_to_mark(text)? } else { text };
        Ok(ChatPrompt { text, ignored })
    }

    /// The text that the model goes on with: that of the last message, if it is to be continued.
    pub fn continued(&self) -> Option<&str> {
        let message = self.messages.last().filter(|_| self.continue_final_message)?;
        let parts = message["content"].as_array();
        message["content"].as_str().or_else(|| parts?.last()?["text"].as_str()).or(Some(""))
    }
}

/// Stands behind the content of a message to be continued while it is rendered. Its space shows whether the template
/// trims contents.
const END: &str = "\u{E000}end of the message\u{E000} ";

/// Puts the mark behind the content, or behind the reasoning if that is all there is.
fn mark_end(message: &mut Value) {
    let is_empty = |value: &Value| value.as_str().is_none_or(|text| text.trim().is_empty());
    let has_content = message["content"].is_array() || !is_empty(&message["content"]);
    let reasoning =
        ["reasoning_content", "reasoning", "thinking"].into_iter().find(|name| !is_empty(&message[*name]));
    let field = reasoning.filter(|_| !has_content).unwrap_or("content");
    // What is no object, or no part, is refused when it is adapted.
    let Some(fields) = message.as_object_mut() else { return };
    let content = fields.entry(field).or_insert(Value::Null);
    let last = match content {
        Value::Array(parts) => parts.last_mut().and_then(|part| part.get_mut("text")),
        content => Some(content),
    };
    if let Some(text) = last {
        *text = Value::String(format!("{}{END}", text.as_str().unwrap_or_default()));
    }
}

/// The prompt up to the mark. As in `transformers`, white space at the end goes if the template trims contents.
fn up_to_mark(mut prompt: String) -> Result<String, Error> {
    let Some(end) = prompt.rfind(END.trim_end()) else {
        let (name, problem) =
            ("default".to_owned(), "the prompt does not have the content of the last message");
        return Err(text::Error::ChatUnfit { name, index: None, problem: problem.to_owned() }.into());
    };
    let is_trimmed = !prompt[end..].starts_with(END);
    prompt.truncate(end);
    if is_trimmed {
        prompt.truncate(prompt.trim_end().len());
    }
    Ok(prompt)
}

impl Prompt {
    /// The tokens of the prompt.
    pub(super) fn encode(
        self,
        tokenizer: &Tokenizer,
        template: Option<&ChatTemplate>,
    ) -> Result<Vec<u32>, Error> {
        match self {
            Prompt::Text { text, add, parse } => Ok(tokenizer.encode(&text, add, parse)?),
            Prompt::Tokens(tokens) => Ok(tokens),
            Prompt::Chat(chat) => {
                let prompt = chat.render(template.ok_or(Error::NoChatTemplate)?, Some(tokenizer))?;
                if prompt.is_empty() {
                    let (name, problem) = ("default".to_owned(), "the prompt is empty".to_owned());
                    return Err(text::Error::ChatUnfit { name, index: None, problem }.into());
                }
                // The template writes all special tokens itself.
                Ok(tokenizer.encode(&prompt, AddSpecial::No, ParseSpecial::Yes)?)
            }
        }
    }
}

impl TextRequest {
    /// A prompt to be continued as a [`Request`] is by default.
    pub fn new(prompt: impl Into<Prompt>) -> TextRequest {
        TextRequest { prompt: prompt.into(), parameters: Request::default() }
    }
}

/// Text from a stranger: special tokens around it, none in it.
impl From<String> for Prompt {
    fn from(text: String) -> Prompt {
        Prompt::Text { text, add: AddSpecial::Yes, parse: ParseSpecial::No }
    }
}

impl From<&str> for Prompt {
    fn from(text: &str) -> Prompt {
        text.to_owned().into()
    }
}

impl From<Vec<u32>> for Prompt {
    fn from(tokens: Vec<u32>) -> Prompt {
        Prompt::Tokens(tokens)
    }
}

impl From<Vec<ChatMessage>> for Prompt {
    fn from(messages: Vec<ChatMessage>) -> Prompt {
        Prompt::Chat(Chat::new(messages.into_iter().map(Value::from).collect()))
    }
}

impl<const COUNT: usize> From<[ChatMessage; COUNT]> for Prompt {
    fn from(messages: [ChatMessage; COUNT]) -> Prompt {
        Prompt::from(Vec::from(messages))
    }
}

impl From<Chat> for Prompt {
    fn from(chat: Chat) -> Prompt {
        Prompt::Chat(chat)
    }
}

impl<P: Into<Prompt>> From<P> for TextRequest {
    fn from(prompt: P) -> TextRequest {
        TextRequest::new(prompt)
    }
}

/// A request that has its tokens already.
impl From<Request> for TextRequest {
    fn from(mut parameters: Request) -> TextRequest {
        TextRequest { prompt: Prompt::Tokens(std::mem::take(&mut parameters.prompt)), parameters }
    }
}
