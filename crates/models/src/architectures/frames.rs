//! Models that see or hear around a text model of any family, of which we run the text part.

use serde::Deserialize;

use super::{ARCHITECTURES, Architecture, glm4_moe, llama, qwen2};

/// A class of models around a text model.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// The name in a Hugging Face `config.json`.
    pub hugging_face: &'static str,
    /// Models that are published on the hub.
    pub examples: &'static [&'static str],
    /// The family of text parts whose configuration names none.
    usual: &'static Architecture,
}

/// Every frame, in the order `peri list` prints.
pub const FRAMES: &[Frame] = &[
    Frame {
        hugging_face: "LlavaForConditionalGeneration",
        examples: &["llava-hf/llava-1.5-7b-hf", "mistral-community/pixtral-12b"],
        usual: &llama::LLAMA,
    },
    Frame {
        hugging_face: "LlavaNextForConditionalGeneration",
        examples: &["llava-hf/llava-v1.6-mistral-7b-hf"],
        usual: &llama::LLAMA,
    },
    Frame {
        hugging_face: "LlavaOnevisionForConditionalGeneration",
        examples: &["llava-hf/llava-onevision-qwen2-7b-ov-hf"],
        usual: &qwen2::QWEN2,
    },
    Frame {
        hugging_face: "InternVLForConditionalGeneration",
        examples: &["OpenGVLab/InternVL3-8B-hf"],
        usual: &qwen2::QWEN2,
    },
    Frame {
        hugging_face: "InternVLChatModel",
        examples: &["OpenGVLab/InternVL3-8B", "OpenGVLab/InternVL3_5-8B"],
        usual: &qwen2::QWEN2,
    },
    Frame {
        hugging_face: "Idefics3ForConditionalGeneration",
        examples: &["HuggingFaceM4/Idefics3-8B-Llama3"],
        usual: &llama::LLAMA,
    },
    Frame {
        hugging_face: "SmolVLMForConditionalGeneration",
        examples: &["HuggingFaceTB/SmolVLM2-2.2B-Instruct"],
        usual: &llama::LLAMA,
    },
    Frame {
        hugging_face: "Glm46VForConditionalGeneration",
        examples: &["zai-org/GLM-4.6V-Flash"],
        usual: &glm4_moe::GLM4_MOE_VISION,
    },
];

/// The keys of a `config.json` about the text part.
#[derive(Deserialize)]
struct Outer {
    #[serde(alias = "llm_config")]
    text_config: Option<Text>,
}

#[derive(Deserialize)]
struct Text {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
}

impl Frame {
    /// The frame with a Hugging Face name.
    pub(crate) fn from_hugging_face(name: &str) -> Option<&'static Frame> {
        FRAMES.iter().find(|frame| frame.hugging_face == name)
    }

    /// The architecture of the text part, which may be none of ours.
    pub(crate) fn text_architecture(&self, json: &str) -> String {
        let text = weights::from_json::<Outer>(json.as_bytes()).ok().and_then(|outer| outer.text_config);
        let Some(Text { model_type, architectures }) = text else { return self.usual.hugging_face.into() };
        let is_of_type =
            |own: &&Architecture| Some(own.model_type) == model_type.as_deref() && !own.classifies;
        if let Some(known) = ARCHITECTURES.iter().find(is_of_type) {
            return known.hugging_face.into();
        }
        let named = architectures.and_then(|names| names.into_iter().next()).or(model_type);
        named.unwrap_or_else(|| self.usual.hugging_face.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_parts_are_of_the_family_that_is_named() {
        let check = |json: &str, expected: &str| {
            let frame = Frame::from_hugging_face("LlavaOnevisionForConditionalGeneration").unwrap();
            assert_eq!(frame.text_architecture(json), expected, "{json}");
        };
        check(r#"{"text_config": {"model_type": "mistral"}}"#, "MistralForCausalLM");
        check(r#"{"llm_config": {"model_type": "qwen3"}}"#, "Qwen3ForCausalLM");
        check(r#"{"text_config": {"model_type": "gemma3_text"}}"#, "Gemma3ForCausalLM");
        check(r#"{"text_config": {}}"#, "Qwen2ForCausalLM");
        check("{}", "Qwen2ForCausalLM");
        let unknown =
            r#"{"llm_config": {"model_type": "internlm2", "architectures": ["InternLM2ForCausalLM"]}}"#;
        check(unknown, "InternLM2ForCausalLM");
        check(r#"{"text_config": {"model_type": "opt"}}"#, "opt");
    }
}
