//! The architectures we know. To add one, write the file and add a row to [`ARCHITECTURES`].

mod afmoe;
mod apertus;
mod arcee;
mod bailing_moe2;
mod bamba;
mod bert;
mod cohere;
mod cohere2_moe;
mod cwm;
mod deepseek;
mod distilbert;
mod dots1;
mod embedding_gemma;
mod ernie4_5;
mod exaone4;
mod exaone_moe;
mod falcon;
mod falcon_h1;
mod frames;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod glm4;
mod glm4_moe;
mod gpt2;
mod gpt_neox;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod granite_moe;
mod granite_swa;
mod hunyuan;
mod hy_v3;
mod jamba;
mod jina_v3;
mod laguna;
mod lfm2;
mod lfm3;
mod llama;
mod llama4;
mod longcat_flash;
mod mamba;
mod mamba2;
mod mellum;
mod mimo_v2;
mod minicpm3;
mod minimax_m2;
mod mistral;
mod mistral4;
mod mixtral;
mod modernbert;
mod mpnet;
mod muse_glimmer;
mod nemotron;
mod nemotron_h;
mod nomic_bert;
mod olmo;
mod olmo2;
mod olmo_hybrid;
mod olmoe;
mod phi;
mod phi3;
mod phi_moe;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod roberta;
mod seed_oss;
mod smollm3;
mod solar_open;
mod stablelm;
mod starcoder2;
mod step3p5;
mod youtu;

use std::sync::LazyLock;

use graph::ops::{RopeStyle, Unary};
use weights::MetaValue;

use crate::config::ConfigKeys;
use crate::key::GgufKeys;
use crate::layout::Layout;
use crate::names::NameTable;
pub use frames::{FRAMES, Frame};

use crate::{
    CenteredNorms, ClassificationHead, Config, Decoder, Encoder, EncoderConfig, Error, Rope, WeightTypes,
};

/// Whether a model has the weight of a name.
pub(crate) type HasWeight<'a> = dyn Fn(&str) -> bool + 'a;

/// What a family of decoders is called, how its files say their configuration and lay out their weights, and how that
/// becomes a model.
#[derive(Debug, Clone, Copy)]
pub struct Architecture {
    /// The name in a Hugging Face `config.json`.
    pub hugging_face: &'static str,
    /// Another name of the same, if there is one.
    pub alias: Option<&'static str>,
    /// Models that are published on the hub.
    pub examples: &'static [&'static str],
    /// The name in GGUF's `general.architecture`; `None` if llama.cpp does not have the architecture.
    pub gguf: Option<&'static str>,
    /// The same in files of models with experts, if it is another one.
    pub gguf_of_experts: Option<&'static str>,
    /// The `model_type` in a `config.json`.
    pub model_type: &'static str,
    /// Whether a head that scores texts is in the place of the one that makes text.
    pub classifies: bool,
    /// The built-in chat template that joins two texts to be scored, for files without one of their own.
    pub pair_template: Option<&'static str>,
    /// The keys of a `config.json` that `transformers` reads for the family, beyond those that all families have.
    pub keys: &'static [&'static str],
    /// Puts the family's own keys of a `config.json` into the words that all share, and adds what `transformers` assumes
    /// if the file does not say it.
    pub(crate) complete: fn(&mut ConfigKeys) -> Result<(), String>,
    /// Changes what the family's GGUF files say otherwise than others, or leave out.
    pub(crate) gguf_quirks: fn(&GgufKeys<'_>, &mut Config) -> Result<(), Error>,
    /// The names of weights in Hugging Face files. Of several tables the first that knows a name counts.
    pub names: &'static [NameTable],
    /// The names in GGUF files that mean something else than with other families, for a model that has the weights of
    /// which it is told: by the names of its GGUF file as it is read, by canonical names as one is written.
    pub(crate) gguf_names: fn(&HasWeight<'_>) -> NameTable,
    /// The keys that llama.cpp needs in the family's GGUF files, and that make no difference here.
    pub(crate) gguf_keys: fn(&Config) -> Vec<(&'static str, MetaValue)>,
    /// Names the weights that Hugging Face files store in another layout.
    pub(crate) layout: fn(&mut Layout<'_>, &Config) -> Result<(), Error>,
    /// The same for GGUF files.
    pub(crate) gguf_layout: fn(&mut Layout<'_>, &Config) -> Result<(), Error>,
    /// Whether GGUF files hold the gates of experts and what they multiply in one tensor.
    pub(crate) gguf_joins_gates: bool,
    /// Whether GGUF files hold what makes keys of latents and what makes values of them in one tensor.
    pub(crate) gguf_joins_latents: bool,
    /// Whether the weights of GGUF files are multiplied by the factors of the configuration.
    pub(crate) gguf_holds_factors: bool,
    /// The order of query and key rows in Hugging Face files.
    pub rope: RopeStyle,
    /// The same in GGUF files.
    pub gguf_rope: RopeStyle,
    /// The norms whose weights in Hugging Face files are less by 1 than what they multiply by. (GGUF files hold the
    /// latter.)
    pub centered_norms: CenteredNorms,
    /// The model of a configuration and its ropes, as [`Rope::all`] has them. The weights say what configurations
    /// leave out: ties and biases.
    pub decoder: fn(&Config, Vec<Rope>, &dyn WeightTypes) -> Decoder,
}

/// How many pairs of dims turn by time, height and width, which are one and the same position of text; `usual` is what
/// `transformers` assumes.
fn rope_sections(config: &Config, usual: [usize; 3]) -> Vec<(&'static str, MetaValue)> {
    let [time, height, width] = config.rope.sections.unwrap_or(usual).map(|pairs| pairs as i32);
    vec![("rope.dimension_sections", vec![time, height, width, 0].into())]
}

/// The keys of two lists.
const fn joined<const N: usize>(first: &[&'static str], second: &[&'static str]) -> [&'static str; N] {
    assert!(first.len() + second.len() == N);
    let mut all = [""; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < first.len() { first[i] } else { second[i - first.len()] };
        i += 1;
    }
    all
}

/// Every architecture, in the order `peri list` prints.
pub const ARCHITECTURES: &[Architecture] = &[
    // Before Mistral and Mixtral, whose GGUF files call themselves Llamas: the first row of a name is taken.
    llama::LLAMA,
    mistral::MISTRAL,
    mistral::MINISTRAL,
    mistral::MINISTRAL3,
    mistral::MISTRAL3,
    mixtral::MIXTRAL,
    qwen2::QWEN2,
    qwen2_moe::QWEN2_MOE,
    qwen2_vl::QWEN2_VL,
    qwen2_vl::QWEN2_5_VL,
    qwen3::QWEN3,
    qwen3::QWEN3_CLASSIFIER,
    qwen3_moe::QWEN3_MOE,
    mellum::MELLUM,
    qwen3_vl::QWEN3_VL,
    qwen3_vl::QWEN3_VL_MOE,
    qwen3_next::QWEN3_NEXT,
    qwen3_5::QWEN3_5,
    qwen3_5::QWEN3_5_VISION,
    qwen3_5::QWEN3_5_MOE,
    qwen3_5::QWEN3_5_MOE_VISION,
    granite::GRANITE,
    granite_moe::GRANITE_MOE,
    granite_moe::GRANITE_MOE_SHARED,
    granite_swa::GRANITE_SWA,
    granite_swa::GRANITE_MOE_SWA,
    phi::PHI,
    phi3::PHI3,
    phi_moe::PHI_MOE,
    smollm3::SMOLLM3,
    olmo::OLMO,
    olmo2::OLMO2,
    olmo2::OLMO3,
    olmo_hybrid::OLMO_HYBRID,
    olmoe::OLMOE,
    minimax_m2::MINIMAX_M2,
    mimo_v2::MIMO_V2,
    step3p5::STEP3P5,
    step3p5::STEP3P7,
    dots1::DOTS1,
    hunyuan::HUNYUAN,
    hunyuan::HUNYUAN_MOE,
    hy_v3::HY_V3,
    exaone4::EXAONE4,
    exaone4::EXAONE4_5,
    exaone_moe::EXAONE_MOE,
    gemma::GEMMA,
    gemma2::GEMMA2,
    gemma3::GEMMA3,
    gemma3::GEMMA3_VISION,
    gpt2::GPT2,
    gpt_neox::GPT_NEOX,
    starcoder2::STARCODER2,
    cohere::COHERE,
    cohere::COHERE2,
    cohere2_moe::COHERE2_MOE,
    stablelm::STABLELM,
    glm4::GLM,
    glm4::GLM4,
    glm4::GLM4_VISION,
    glm4_moe::GLM4_MOE,
    glm4_moe::GLM4_MOE_VISION,
    solar_open::SOLAR_OPEN,
    bailing_moe2::BAILING_MOE2,
    // Before V3 and others, whose GGUF files call themselves so too.
    deepseek::DEEPSEEK_V2,
    deepseek::DEEPSEEK_V3,
    deepseek::KIMI_K25,
    deepseek::KIMI_VL,
    deepseek::DEEPSEEK_V32,
    deepseek::GLM_MOE_DSA,
    deepseek::GLM4_MOE_LITE,
    mistral4::MISTRAL4,
    youtu::YOUTU,
    minicpm3::MINICPM3,
    longcat_flash::LONGCAT_FLASH,
    ernie4_5::ERNIE4_5,
    ernie4_5::ERNIE4_5_MOE,
    seed_oss::SEED_OSS,
    falcon::FALCON,
    nemotron::NEMOTRON,
    arcee::ARCEE,
    cwm::CWM,
    apertus::APERTUS,
    afmoe::AFMOE,
    laguna::LAGUNA,
    muse_glimmer::MUSE_GLIMMER,
    gpt_oss::GPT_OSS,
    llama4::LLAMA4,
    llama4::LLAMA4_VISION,
    gemma3n::GEMMA3N,
    gemma3n::GEMMA3N_VISION,
    gemma4::GEMMA4,
    gemma4::GEMMA4_VISION,
    gemma4::GEMMA4_UNIFIED,
    lfm2::LFM2,
    lfm2::LFM2_MOE,
    lfm2::LFM2_VISION,
    lfm3::LFM3,
    mamba2::MAMBA2,
    mamba::MAMBA,
    mamba::FALCON_MAMBA,
    granite_hybrid::GRANITE_HYBRID,
    falcon_h1::FALCON_H1,
    nemotron_h::NEMOTRON_H,
    jamba::JAMBA,
    bamba::BAMBA,
];

/// How checkpoints name an encoder and its weights, and how their configuration becomes one.
#[derive(Debug, Clone, Copy)]
pub struct EncoderArchitecture {
    /// The name in a Hugging Face `config.json`.
    pub hugging_face: &'static str,
    /// Models that are published on the hub.
    pub examples: &'static [&'static str],
    /// The name in GGUF's `general.architecture`.
    pub gguf: &'static str,
    /// The names of weights in Hugging Face files.
    pub names: &'static [NameTable],
    /// The keys of a `config.json` that other encoders have another word for, and that word.
    pub renames: &'static [(&'static str, &'static str)],
    /// The decoder whose configuration it shares, if there is one.
    pub(crate) family: Option<&'static Architecture>,
    /// The norms whose weights in Hugging Face files are less by 1 than what they multiply by.
    pub centered_norms: CenteredNorms,
    /// Whether llama.cpp has the architecture.
    pub(crate) in_llama_cpp: bool,
    /// The function inside the head that scores texts, if the name says that there is one.
    pub head: Option<Unary>,
    /// The encoder of a configuration, without its head. The weights say whether there are token types.
    pub(crate) encoder: fn(&Config, &EncoderConfig, &dyn WeightTypes) -> Result<Encoder, Error>,
}

/// Every encoder, in the order `peri list` prints.
pub const ENCODERS: &[EncoderArchitecture] = &[
    // Before RoBERTa, whose GGUF files call themselves BERTs: the first row of a name is taken.
    bert::BERT,
    bert::BERT_MASKED,
    bert::BERT_CLASSIFIER,
    distilbert::DISTILBERT,
    distilbert::DISTILBERT_MASKED,
    distilbert::DISTILBERT_CLASSIFIER,
    mpnet::MPNET,
    mpnet::MPNET_MASKED,
    mpnet::MPNET_CLASSIFIER,
    roberta::ROBERTA,
    roberta::ROBERTA_MASKED,
    roberta::ROBERTA_CLASSIFIER,
    roberta::XLM_ROBERTA,
    roberta::XLM_ROBERTA_MASKED,
    roberta::XLM_ROBERTA_CLASSIFIER,
    modernbert::MODERNBERT,
    modernbert::MODERNBERT_MASKED,
    modernbert::MODERNBERT_CLASSIFIER,
    nomic_bert::NOMIC_BERT,
    nomic_bert::NOMIC_BERT_MASKED,
    nomic_bert::NOMIC_BERT_MOE,
    nomic_bert::GTE,
    nomic_bert::GTE_MASKED,
    nomic_bert::GTE_CLASSIFIER,
    nomic_bert::NEW,
    nomic_bert::NEW_CLASSIFIER,
    jina_v3::JINA_V3,
    embedding_gemma::EMBEDDING_GEMMA,
];

impl EncoderArchitecture {
    /// The encoder of a configuration, with its head. GGUF files name the encoder alone, so that their weights say whether
    /// there is a head.
    ///
    /// # Errors
    /// If the configuration contradicts itself.
    pub fn build(
        &self,
        config: &Config,
        own: &EncoderConfig,
        weights: &dyn WeightTypes,
    ) -> Result<Encoder, Error> {
        let is_stored = |name: &str| weights.dtype(name).is_some();
        let activation = match self.head {
            Some(activation) => Some(Some(activation)),
            // llama.cpp applies these functions to the first layer, which its files of BERTs lack.
            None if is_stored("cls.output.weight") => {
                let activation = if is_stored("cls.norm.weight") { Unary::Gelu } else { Unary::Tanh };
                Some(is_stored("cls.weight").then_some(activation))
            }
            None => None,
        };
        let encoder = (self.encoder)(config, own, weights)?;
        let is_modern = is_stored("cls.norm.weight") || encoder.final_norm.is_some();
        let head = activation.map(|activation| ClassificationHead {
            labels: own.labels.clone(),
            activation,
            bias: !is_modern || is_stored("cls.bias"),
            norm: encoder.final_norm.filter(|_| is_modern),
            mean: own.mean_of_tokens,
            output_bias: true,
            log_odds: false,
        });
        Ok(Encoder { head, ..encoder })
    }

    /// The encoder with a GGUF name.
    pub fn from_gguf(name: &str) -> Option<&'static EncoderArchitecture> {
        ENCODERS.iter().find(|encoder| encoder.gguf == name)
    }

    /// The encoder with a Hugging Face name.
    pub fn from_hugging_face(name: &str) -> Option<&'static EncoderArchitecture> {
        ENCODERS.iter().find(|encoder| encoder.hugging_face == name)
    }
}

impl Architecture {
    /// The architecture with a GGUF name.
    ///
    /// # Errors
    /// If there is none, listing those there are.
    pub fn from_gguf(name: &str) -> Result<&'static Architecture, Error> {
        let of_experts = ARCHITECTURES.iter().find(|own| own.gguf_of_experts == Some(name));
        of_experts.map_or_else(|| find(name, |own| own.gguf, |encoder| encoder.gguf), Ok)
    }

    /// What the GGUF file of a model of the family calls it.
    pub(crate) fn gguf_name(&self, has_experts: bool) -> Option<&'static str> {
        self.gguf_of_experts.filter(|_| has_experts).or(self.gguf)
    }

    /// The architecture with a Hugging Face name. It may be that of a family with another head than that of text, such as
    /// `MistralModel` and `MistralForSequenceClassification`, unless such a name has a row of its own.
    ///
    /// # Errors
    /// If there is none, listing those there are.
    pub fn from_hugging_face(name: &str) -> Result<&'static Architecture, Error> {
        let found =
            find(name, |architecture| Some(architecture.hugging_face), |encoder| encoder.hugging_face);
        let other =
            || ARCHITECTURES.iter().find(|own| own.alias == Some(name)).or_else(|| with_other_head(name));
        match found {
            Err(Error::Architecture { .. }) => other().map_or(found, Ok),
            found => found,
        }
    }

    /// The name of the class that the `model_type` of a `config.json` stands for, if the file names none: of a decoder that
    /// makes text, of a model around one, or of an encoder without a head.
    pub fn from_model_type(model_type: &str) -> Option<&'static str> {
        let decoder = ARCHITECTURES.iter().find(|own| own.model_type == model_type && !own.classifies);
        // As `transformers` names most classes.
        let plain = model_type.replace(['-', '_'], "");
        let is_of_type = |name: &&str| {
            let stem = name.strip_suffix("Model").or_else(|| name.strip_suffix("ForConditionalGeneration"));
            stem.is_some_and(|stem| stem.to_lowercase() == plain)
        };
        let encoders = ENCODERS.iter().map(|encoder| encoder.hugging_face);
        let mut others = FRAMES.iter().map(|frame| frame.hugging_face).chain(encoders);
        decoder.map(|own| own.hugging_face).or_else(|| others.find(is_of_type))
    }

    /// The family of the text half of a model that sees, whose own `model_type` is inside; or else this one.
    pub(crate) fn of_text_half(&'static self, model_type: Option<&str>) -> &'static Architecture {
        let known = |architecture: &&Architecture| Some(architecture.model_type) == model_type;
        ARCHITECTURES.iter().find(known).unwrap_or(self)
    }
}

/// A Hugging Face name as this crate keeps it, if it is one of an architecture, a frame or an encoder.
pub fn known_name(name: &str) -> Option<&'static str> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let decoders = ARCHITECTURES.iter().flat_map(|own| {
            let stems =
                stem(own.hugging_face).into_iter().flat_map(|stem| [stem.to_string(), format!("{stem}Text")]);
            let others = stems.flat_map(|stem| OTHER_HEADS.map(|head| format!("{stem}{head}")));
            [Some(own.hugging_face), own.alias].into_iter().flatten().map(str::to_string).chain(others)
        });
        let others = FRAMES.iter().map(|frame| frame.hugging_face);
        let others = others.chain(ENCODERS.iter().map(|encoder| encoder.hugging_face));
        decoders.chain(others.map(str::to_string)).collect()
    });
    NAMES.iter().find(|own| *own == name).map(String::as_str)
}

/// The endings of names of decoders without a head, and of decoders that score texts.
const OTHER_HEADS: [&str; 2] = ["Model", CLASSIFIES];
pub(crate) const CLASSIFIES: &str = "ForSequenceClassification";

/// A name without the head that makes text.
fn stem(name: &str) -> Option<&str> {
    let heads = ["ForCausalLM", "LMHeadModel", "ForConditionalGeneration"];
    heads.iter().find_map(|head| name.strip_suffix(head))
}

/// The family of a name with another head.
fn with_other_head(name: &str) -> Option<&'static Architecture> {
    let family = OTHER_HEADS.iter().find_map(|head| name.strip_suffix(head))?;
    // Models that see have a class of their own for the text half.
    let families = [Some(family), family.strip_suffix("Text")];
    let mut families = families.into_iter().flatten();
    families.find_map(|family| ARCHITECTURES.iter().find(|own| stem(own.hugging_face) == Some(family)))
}

/// Whether a decoder's name says that it has no head: it makes hidden states alone.
pub(crate) fn is_bare(name: &str) -> bool {
    name.ends_with("Model") && !ARCHITECTURES.iter().any(|own| own.hugging_face == name)
}

fn find(
    name: &str,
    key: fn(&Architecture) -> Option<&'static str>,
    encoder_key: fn(&EncoderArchitecture) -> &'static str,
) -> Result<&'static Architecture, Error> {
    ARCHITECTURES.iter().find(|architecture| key(architecture) == Some(name)).ok_or_else(|| {
        let encoders = ENCODERS.iter().map(encoder_key);
        if encoders.clone().any(|encoder| encoder == name) {
            return Error::NotADecoder { name: name.to_string() };
        }
        let nearest = nearest_names(name, ARCHITECTURES.iter().filter_map(key).chain(encoders)).join(", ");
        Error::Architecture { found: name.escape_debug().to_string(), nearest }
    })
}

/// The three names most like the given one; case does not count.
pub fn nearest_names<'a>(given: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let given = given.to_lowercase();
    let mut rated: Vec<(f64, &str)> = Vec::new();
    for name in names {
        if !rated.iter().any(|(_, known)| *known == name) {
            rated.push((strsim::jaro_winkler(&given, &name.to_lowercase()), name));
        }
    }
    rated.sort_by(|one, other| other.0.total_cmp(&one.0));
    rated.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoders_are_known_by_the_names_of_other_heads() {
        let family = |name: &str| Architecture::from_hugging_face(name).unwrap().hugging_face;
        for (name, expected) in [
            ("MistralModel", "MistralForCausalLM"),
            ("GPT2Model", "GPT2LMHeadModel"),
            ("Gemma3TextForSequenceClassification", "Gemma3ForCausalLM"),
            ("LlamaForSequenceClassification", "LlamaForCausalLM"),
            ("Qwen3ForSequenceClassification", "Qwen3ForSequenceClassification"),
            ("Kimi_K25ForConditionalGeneration", "KimiK25ForConditionalGeneration"),
        ] {
            assert_eq!((family(name), known_name(name)), (expected, Some(name)), "{name}");
        }
        assert!(is_bare("MistralModel") && !is_bare("MistralForCausalLM") && !is_bare("GPT2LMHeadModel"));
        for unknown in ["OddModel", "BertForSequenceClassification", "ForSequenceClassification", "Model"] {
            assert!(Architecture::from_hugging_face(unknown).is_err(), "{unknown}");
        }
        assert_eq!(known_name("OddModel"), None);
    }

    /// Rows are made from others, so that a name or an example may be left behind.
    #[test]
    fn rows_have_their_own_names_and_examples() {
        for (index, own) in ARCHITECTURES.iter().enumerate() {
            assert!(!own.examples.is_empty(), "{}", own.hugging_face);
            for other in &ARCHITECTURES[..index] {
                assert_ne!(own.hugging_face, other.hugging_face);
                let same_family = own.model_type == other.model_type;
                assert!(!same_family || own.classifies, "{}", own.hugging_face);
                // Ministral 3 sees, and runs as text alone too.
                let both = own.hugging_face == "Mistral3ForConditionalGeneration";
                assert!(both || own.examples != other.examples, "{}", own.hugging_face);
            }
        }
    }
}
