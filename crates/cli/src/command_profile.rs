//! Which fields of a pipeline's configuration each command uses, and which column of defaults.

use pipelines::config::{FIELDS, Field, UseCase};

/// Field names, in groups.
type Groups = &'static [&'static [&'static str]];
/// Field names, each with a text.
type Pairs = &'static [(&'static str, &'static str)];

/// How a command uses a configuration.
pub(crate) trait CommandProfile {
    /// The fields it uses: these are its flags. Other fields keep the command's defaults, even if a file or the
    /// environment sets them.
    const FIELDS: Groups;
    /// Whose defaults it has.
    const USE_CASE: UseCase = UseCase::Prompt;
    /// The tables that its configuration file may have.
    const TABLES: &'static [&'static str] = &[];
    /// The short help text of MODEL.
    const SHORT_MODEL: &'static str = "Model file, folder or hub repo [default: the built-in storyteller]";
    /// The help text of MODEL.
    const MODEL: &'static str = "A GGUF file, a folder with config.json, tokenizer and weights, or a hub repo such as org/name [default: the built-in storyteller]";
    /// Help texts for defaults that are not one fixed value.
    const DEFAULT_TEXTS: Pairs = &[];
}

/// Which model.
const MODEL: &[&str] = &[
    "huggingface_repo_id",
    "engine",
    "architecture",
    "weight_path",
    "quantization_encoding",
    "trust_remote_code",
    "force_download",
    "rope_type",
    "weights_dtype",
    "quantize",
    "revision",
    "python",
];
/// Fields the compiled graph depends on.
const GRAPH: &[&str] =
    &["device_specs", "max_length", "kv_cache_page_size", "cache_dtype", "reproducible", "exact_activations"];
/// The memory budget.
const MEMORY: &[&str] = &["gpu_memory_utilization"];
/// The KV cache.
const CACHE: &[&str] = &["max_cache_batch_size", "cache_strategy", "pad_to_multiple_of"];
/// The scheduler.
const STEPS: &[&str] = &["max_ce_batch_size", "max_num_steps", "max_batch_tokens", "max_step_ms"];
/// Artifacts.
const LOAD: &[&str] = &["serialized_model_path"];
const SAVE: &[&str] = &["save_to_serialized_model_path"];
/// Text generation.
const GENERATION: &[&str] = &["max_new_tokens", "enable_prefix_caching", "top_k"];

/// A model's `generation_config.json` may override the default of `top_k`.
const TOP_K: (&str, &str) = ("top_k", "40 *");

/// `peri generate`.
pub(crate) enum Generate {}
/// `peri chat` and `peri run`.
pub(crate) enum Chat {}
/// `peri serve`.
pub(crate) enum Serve {}
/// `peri plan`.
pub(crate) enum Plan {}
/// `peri config`.
pub(crate) enum Config {}
/// `peri bench`.
pub(crate) enum Bench {}
/// `peri eval`.
pub(crate) enum Eval {}
/// `peri inspect`.
pub(crate) enum Inspect {}
/// `peri warm-cache`.
pub(crate) enum WarmCache {}
/// `peri quantize`, which reads the weights as they are stored.
pub(crate) enum Quantize {}
/// `peri encode`, `peri rerank` and `peri classify`.
pub(crate) enum Encode {}
/// `peri tokenize`, which only needs the tokenizer.
pub(crate) enum Tokenize {}
/// `peri render`, which only needs the tokenizer and the chat template.
pub(crate) enum Render {}

impl CommandProfile for Generate {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, STEPS, LOAD, SAVE, GENERATION, &["enable_echo"]];
    const DEFAULT_TEXTS: Pairs = &[TOP_K, ("max_cache_batch_size", "one per answer, up to 64")];
}

impl CommandProfile for Chat {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, STEPS, LOAD, SAVE, GENERATION];
    const USE_CASE: UseCase = UseCase::Chat;
    const DEFAULT_TEXTS: Pairs = &[
        TOP_K,
        ("enable_prefix_caching", "true for the paged cache strategy"),
        ("max_new_tokens", "-1, built-in 80"),
    ];
}

impl CommandProfile for Serve {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, STEPS, LOAD, GENERATION];
    const USE_CASE: UseCase = UseCase::Server;
    const TABLES: &'static [&'static str] = &["server", "model"];
    const SHORT_MODEL: &'static str = "Model files, folders or hub repos [default: the built-in storyteller]";
}

impl CommandProfile for Plan {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, LOAD];
}

impl CommandProfile for Config {
    const FIELDS: Groups = Generate::FIELDS;
    const DEFAULT_TEXTS: Pairs = &[("top_k", "from generation_config.json, else 40")];
}

impl CommandProfile for Bench {
    const FIELDS: Groups =
        &[MODEL, GRAPH, MEMORY, &["cache_strategy", "pad_to_multiple_of"], STEPS, LOAD, SAVE];
}

impl CommandProfile for Eval {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, LOAD, SAVE];
}

impl CommandProfile for Inspect {
    const FIELDS: Groups = &[MODEL, GRAPH, LOAD];
    const MODEL: &'static str = "A GGUF file, a model folder, a hub repo such as org/name, or an artifact (.mef) [default: the built-in storyteller]";
}

impl CommandProfile for WarmCache {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, SAVE];
}

impl CommandProfile for Quantize {
    const FIELDS: Groups = &[&[
        "huggingface_repo_id",
        "architecture",
        "weight_path",
        "quantization_encoding",
        "trust_remote_code",
        "force_download",
        "revision",
    ]];
}

impl CommandProfile for Encode {
    const FIELDS: Groups = &[MODEL, GRAPH, MEMORY, &["max_cache_batch_size", "max_batch_tokens"], LOAD, SAVE];
    const USE_CASE: UseCase = UseCase::Encode;
    const SHORT_MODEL: &'static str = "Model file, folder or hub repo";
    const MODEL: &'static str = "A GGUF file, a model folder, or a hub repo such as org/name";
}

impl CommandProfile for Tokenize {
    const FIELDS: Groups = &[&["huggingface_repo_id"]];
    const MODEL: &'static str = "A GGUF file, a tokenizer.json or tokenizer.model, a folder with one, a hub repo, or a file in one \
         (org/name/file) [default: the built-in storyteller]";
}

impl CommandProfile for Render {
    const FIELDS: Groups = &[MODEL];
}

/// The fields a command uses, in the order of the configuration.
pub(crate) fn fields<P: CommandProfile>() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| P::FIELDS.iter().any(|group| group.contains(&field.name)))
}

/// The default of a field, as the help shows it.
pub(crate) fn default_text<P: CommandProfile>(field: &Field) -> String {
    match P::DEFAULT_TEXTS.iter().find(|(name, _)| *name == field.name) {
        Some((_, words)) => words.to_string(),
        None => field.text(&P::USE_CASE.config()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<P: CommandProfile>() {
        let groups = P::FIELDS.iter().copied().flatten().copied();
        let names: Vec<&str> = groups.chain(P::DEFAULT_TEXTS.iter().map(|(name, _)| *name)).collect();
        assert!(names.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)), "{names:?}");
    }

    #[test]
    fn profiles_name_existing_fields() {
        check::<Generate>();
        check::<Chat>();
        check::<Serve>();
        check::<Plan>();
        check::<Config>();
        check::<Bench>();
        check::<Eval>();
        check::<Inspect>();
        check::<WarmCache>();
        check::<Quantize>();
        check::<Encode>();
        check::<Tokenize>();
        check::<Render>();
        assert_eq!(fields::<Config>().count(), FIELDS.len(), "peri config shows every field");
    }
}
