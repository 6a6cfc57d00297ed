//! Suggests the command to use for a verb that only other tools have.

use crate::model_name;

/// Verbs, and the command that does the same.
const HINTS: &[(&[&str], &str)] = &[
    (&["ls", "tags"], "use `peri models`, which lists the models on this machine"),
    (&["rm", "remove", "delete", "del"], "use `peri models rm NAME`"),
    (&["du"], "use `peri models du`"),
    (
        &["show", "info", "describe"],
        "use `peri models show NAME` for its files, `peri inspect MODEL` for the model itself",
    ),
    (&["cache"], "use `peri models`, or `peri doctor` to check the caches"),
    (&["download", "fetch", "get", "install"], "use `peri pull OWNER/NAME`"),
    (&["server", "api", "start"], "use `peri serve`"),
    (&["ps", "stop", "load", "unload"], "no model stays loaded: each command loads its own"),
    (&["quantise", "convert"], "use `peri quantize`"),
    (
        &["complete", "completion", "predict", "continue"],
        "use `peri generate`, or `peri completions` for shell completions",
    ),
    (&["embed", "embedding", "embeddings"], "use `peri encode`"),
    (&["rank", "score"], "use `peri rerank`"),
    (&["label", "classifier"], "use `peri classify`"),
    (&["benchmark", "perf"], "use `peri bench`"),
    (&["perplexity", "ppl", "evaluate"], "use `peri eval`"),
    (&["tokens", "detokenize", "encode-tokens"], "use `peri tokenize`, with --decode for the way back"),
    (&["template", "prompt"], "use `peri render`"),
    (&["collect-env", "check", "diagnose"], "use `peri doctor`"),
    (&["version"], "use `peri --version`"),
];

/// A hint for a word in the place of a command.
pub(crate) fn hint(word: &str) -> Option<String> {
    let lower = word.to_ascii_lowercase();
    let known = HINTS.iter().find(|(verbs, _)| verbs.contains(&&lower[..])).map(|(_, hint)| hint.to_string());
    known.or_else(|| model_name::names_model(word).then(|| format!("to run a model, use `peri run {word}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hint_shadows_a_command() {
        let command = crate::command();
        for verb in HINTS.iter().flat_map(|(verbs, _)| *verbs) {
            assert!(command.find_subcommand(verb).is_none(), "{verb}");
        }
    }

    #[test]
    fn hints_name_existing_commands() {
        let command = crate::command();
        for (verbs, hint) in HINTS {
            for name in hint.split("`peri ").skip(1).filter_map(|rest| rest.split([' ', '`']).next()) {
                assert!(
                    name.starts_with('-') || command.find_subcommand(name).is_some(),
                    "{verbs:?}: {hint}"
                );
            }
        }
    }
}
