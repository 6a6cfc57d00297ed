//! Chat templates by name, for models that carry none.

use super::{ChatTemplate, DEFAULT, Limits};

/// Names and sources.
const BUILT_IN: [(&str, &str); 9] = [
    ("alpaca", include_str!("built_in/alpaca.jinja")),
    ("chatml", include_str!("built_in/chatml.jinja")),
    ("gemma", include_str!("built_in/gemma.jinja")),
    ("llama2", include_str!("built_in/llama2.jinja")),
    ("llama3", include_str!("built_in/llama3.jinja")),
    ("mistral", include_str!("built_in/mistral.jinja")),
    ("plain", include_str!("built_in/plain.jinja")),
    ("vicuna", include_str!("built_in/vicuna.jinja")),
    ("zephyr", include_str!("built_in/zephyr.jinja")),
];

/// Templates that join two texts.
const FOR_PAIRS: [(&str, &str); 1] = [("qwen3_reranker", include_str!("built_in/qwen3_reranker.jinja"))];

impl ChatTemplate {
    /// A built-in template that joins a message of the role `query` and one of the role `document`, after an instruction
    /// of the role `system`, for a model that scores such pairs; `None` if there is none of this name.
    pub fn for_pairs(name: &str) -> Option<ChatTemplate> {
        built_in(&FOR_PAIRS, name)
    }

    /// A built-in template, such as `chatml`; `None` if there is none of this name.
    ///
    /// They take texts alone, and know neither tools nor documents. A model understands the one that it was trained
    /// with; `plain` is for models that continue texts: messages and
    /// answers are one text, and every message after an answer starts a new paragraph.
    pub fn named(name: &str) -> Option<ChatTemplate> {
        built_in(&BUILT_IN, name)
    }

    /// The names that [`ChatTemplate::named`] takes, sorted.
    pub fn built_in_names() -> impl ExactSizeIterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }
}

fn built_in(templates: &[(&str, &str)], name: &str) -> Option<ChatTemplate> {
    let (name, source) = templates.iter().find(|(own, _)| *own == name)?;
    Some(ChatTemplate::labeled([(DEFAULT, (*name).to_owned(), Ok(*source))], Limits::default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ChatContext;

    /// The output of jinja2.
    const PROMPTS: [(&str, &str); 9] = [
        (
            "chatml",
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("llama2", "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Why? [/INST]"),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("mistral", "<s>[INST] Be brief.\n\nHi [/INST] Hello!</s>[INST] Why? [/INST]"),
        (
            "gemma",
            "<s><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello!<end_of_turn>\n<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "zephyr",
            "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\nHello!</s>\n<|user|>\nWhy?</s>\n<|assistant|>\n",
        ),
        ("vicuna", "<s>Be brief. USER: Hi ASSISTANT: Hello!</s>USER: Why? ASSISTANT:"),
        (
            "alpaca",
            "<s>Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello!</s>\n\n### Instruction:\nWhy?\n\n### Response:\n",
        ),
        ("plain", "<s>Be brief.\nHiHello!\nWhy?"),
    ];

    #[test]
    fn built_in_templates_render_as_in_jinja2() {
        let messages = [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "content": "Hello!"}),
            json!({"role": "user", "content": [{"type": "text", "text": "Why?"}]}),
        ];
        for (name, expected) in PROMPTS {
            let template = ChatTemplate::named(name).unwrap();
            let context = ChatContext { bos: Some("<s>"), eos: Some("</s>"), ..ChatContext::new(&messages) };
            assert_eq!(template.render(&context).unwrap(), expected, "{name}");
            // Without tokens around a text, without a question, and of a message without content.
            let bare = ChatContext { add_generation_prompt: false, ..ChatContext::new(&messages[1..2]) };
            assert!(template.render(&bare).unwrap().trim_end().contains("Hi"), "{name}");
            template.render(&ChatContext::new(&[json!({"role": "assistant", "content": null})])).unwrap();
        }
        let mut names: Vec<_> = PROMPTS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert!(ChatTemplate::built_in_names().eq(names));
        assert!(ChatTemplate::named("no-such").is_none() && ChatTemplate::named("").is_none());
    }

    /// The prompt of the model card of Qwen3-Reranker.
    #[test]
    fn pairs_become_the_prompt_of_qwen3_reranker() {
        let template = ChatTemplate::for_pairs("qwen3_reranker").unwrap();
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let pair = [message("query", "why?"), message("document", "so")];
        let check = |messages: &[serde_json::Value], instruction: &str| {
            let expected = format!(
                "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the \
                 Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
                 <Instruct>: {instruction}\n<Query>: why?\n<Document>: so<|im_end|>\n<|im_start|>assistant\n<think>\n\n\
                 </think>\n\n"
            );
            assert_eq!(template.render(&ChatContext::new(messages)).unwrap(), expected);
        };
        check(&pair, "Given a web search query, retrieve relevant passages that answer the query");
        check(&[&[message("system", "Find it")], &pair[..]].concat(), "Find it");
        assert!(ChatTemplate::for_pairs("chatml").is_none());
    }
}
