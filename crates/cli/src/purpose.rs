//! What commands make of a configuration: the fields that each obeys, and their values where nobody says otherwise.

use pipelines::config::{FIELDS, Field, Layers, Origin};

/// Names of fields, in groups.
type Groups = &'static [&'static [&'static str]];
/// Names of fields, and a text for each.
type Pairs = &'static [(&'static str, &'static str)];

/// What a command makes of a configuration.
pub(crate) trait Purpose {
    /// The fields that it obeys, in groups: these are its flags. All others are as it has them, whoever sets them.
    const OBEYS: Groups;
    /// Fields, and what they are where nobody says otherwise, as flags say it.
    const DEFAULTS: Pairs = &[];
    /// What can be given as the model, for the help.
    const MODEL: &'static str = "A GGUF file, a folder with config.json and weights, or a repo of a hub [default: a small storyteller, built in]";
    /// Fields whose defaults depend on more, and on what, for the help.
    const DEPENDS: Pairs = &[];
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
];
/// What its compiled form depends on.
const GRAPH: &[&str] = &["device_specs", "max_length", "kv_cache_page_size"];
/// What it may take.
const MEMORY: &[&str] = &["gpu_memory_utilization"];
/// How the cache is shared out.
const CACHE: &[&str] = &["max_cache_batch_size", "cache_strategy", "pad_to_multiple_of"];
/// How batches are made.
const STEPS: &[&str] = &["max_ce_batch_size", "max_num_steps"];
/// Compiled models as files.
const LOAD: &[&str] = &["serialized_model_path"];
const SAVE: &[&str] = &["save_to_serialized_model_path"];
/// What is written.
const WRITE: &[&str] = &["max_new_tokens", "enable_prefix_caching", "top_k"];

/// What generating is like where nobody says otherwise, which `plan` and `config` take for granted.
const GENERATING: Pairs = &[
    ("max_length", "auto"),
    ("max_new_tokens", "200"),
    ("max_cache_batch_size", "1"),
    ("cache_strategy", "paged"),
    ("kv_cache_page_size", PAGE_SIZE),
];
/// How tokens are chosen is up to the model, if its makers say so.
const TOP_K: (&str, &str) = ("top_k", "40 *");
/// Tokens in a page: small against a text, large against its bookkeeping. The same for every command, so that what one
/// saves another can start from.
const PAGE_SIZE: &str = "64";

/// `peri generate`.
pub(crate) enum Generate {}
/// `peri chat`.
pub(crate) enum Chat {}
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
/// `peri encode`.
pub(crate) enum Encode {}
/// `peri tokenize`, which wants the tokenizer alone.
pub(crate) enum Tokenize {}
/// `peri render`, which wants the tokenizer and the template alone.
pub(crate) enum Render {}

impl Purpose for Generate {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, STEPS, LOAD, SAVE, WRITE, &["enable_echo"]];
    const DEFAULTS: Pairs = GENERATING;
    const DEPENDS: Pairs = &[TOP_K, ("max_cache_batch_size", "as many as answers are wanted, up to 64")];
}

impl Purpose for Chat {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, STEPS, LOAD, SAVE, WRITE];
    const DEFAULTS: Pairs = &[
        ("max_length", "auto"),
        ("max_new_tokens", "-1"),
        ("max_cache_batch_size", "1"),
        ("cache_strategy", "paged"),
        ("kv_cache_page_size", PAGE_SIZE),
    ];
    const DEPENDS: Pairs = &[TOP_K, ("enable_prefix_caching", "true where the cache is paged")];
}

impl Purpose for Plan {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, CACHE, LOAD];
    const DEFAULTS: Pairs = GENERATING;
}

impl Purpose for Config {
    const OBEYS: Groups = Generate::OBEYS;
    const DEFAULTS: Pairs = GENERATING;
    const DEPENDS: Pairs = &[("top_k", "what the makers of the model recommend, else 40")];
}

impl Purpose for Bench {
    const OBEYS: Groups =
        &[MODEL, GRAPH, MEMORY, &["cache_strategy", "pad_to_multiple_of"], STEPS, LOAD, SAVE];
    const DEFAULTS: Pairs = GENERATING;
}

impl Purpose for Eval {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, LOAD, SAVE];
    const DEFAULTS: Pairs = GENERATING;
}

impl Purpose for Inspect {
    const OBEYS: Groups = &[MODEL, GRAPH, LOAD];
    const DEFAULTS: Pairs = GENERATING;
}

impl Purpose for WarmCache {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, SAVE];
    const DEFAULTS: Pairs = GENERATING;
}

impl Purpose for Encode {
    const OBEYS: Groups = &[MODEL, GRAPH, MEMORY, &["max_cache_batch_size"], LOAD, SAVE];
    const DEFAULTS: Pairs = &[
        ("max_length", "auto"),
        ("max_cache_batch_size", "256"),
        ("cache_strategy", "paged"),
        ("kv_cache_page_size", PAGE_SIZE),
    ];
}

impl Purpose for Tokenize {
    const OBEYS: Groups = &[&["huggingface_repo_id"]];
    const DEFAULTS: Pairs = GENERATING;
    const MODEL: &'static str = "A GGUF file, a tokenizer.json or tokenizer.model, a folder with one, a repo of a hub, or a file of a repo \
         (org/repo/file) [default: the storyteller's]";
}

impl Purpose for Render {
    const OBEYS: Groups = &[MODEL];
    const DEFAULTS: Pairs = GENERATING;
}

/// The fields that a command obeys, in the order of the table.
pub(crate) fn obeyed<P: Purpose>() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| P::OBEYS.iter().any(|group| group.contains(&field.name)))
}

/// The configuration of a command where nobody says otherwise.
pub(crate) fn defaults<P: Purpose>() -> Layers {
    let mut layers = Layers::default();
    for (name, text) in P::DEFAULTS {
        let field = Field::find(name).expect("a name of the table");
        let value = field.parse(text).expect("a value of its field");
        layers.set(name, &value, Origin::Command).expect("parsed by the field");
    }
    layers
}

/// The default of a field, as the help shows it.
pub(crate) fn default_text<P: Purpose>(field: &Field) -> String {
    match P::DEPENDS.iter().find(|(name, _)| *name == field.name) {
        Some((_, words)) => words.to_string(),
        None => field.text(defaults::<P>().config()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<P: Purpose>() {
        let groups = P::OBEYS.iter().copied().flatten().copied();
        let names: Vec<&str> = groups.chain(P::DEPENDS.iter().map(|(name, _)| *name)).collect();
        assert!(names.iter().all(|name| FIELDS.iter().any(|field| field.name == *name)), "{names:?}");
        // What one saves, another starts from.
        assert_eq!(defaults::<P>().config().kv_cache_page_size.to_string(), PAGE_SIZE);
    }

    #[test]
    fn names_and_values_are_those_of_the_table() {
        check::<Generate>();
        check::<Chat>();
        check::<Plan>();
        check::<Config>();
        check::<Bench>();
        check::<Eval>();
        check::<Inspect>();
        check::<WarmCache>();
        check::<Encode>();
        check::<Tokenize>();
        check::<Render>();
        assert_eq!(obeyed::<Config>().count(), FIELDS.len(), "all that there is can be shown");
    }
}
