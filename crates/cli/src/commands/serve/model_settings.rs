//! Flags for the names, the chat templates and the sampling of the models that are served.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use pipelines::SamplingOptions;
use serve::ModelConfig;

use crate::conversation::{find_template, templates};
use crate::exit::Usage;
use crate::sampling;

/// Settings of models beyond those of their files.
#[derive(clap::Args)]
#[command(next_help_heading = "Models")]
pub(super) struct ModelSettingsFlags {
    /// Another name of the model; MODEL=NAME for one of several; repeatable
    #[arg(long = "alias", value_name = "NAME", hide_short_help = true)]
    aliases: Vec<String>,
    /// Chat template in place of the model's own; MODEL=FILE for one of several; repeatable
    ///
    /// A built-in name such as `chatml`, or a file with a Jinja template.
    #[arg(
        long = "template",
        value_name = "NAME|FILE",
        hide_short_help = true,
        add = ArgValueCompleter::new(templates)
    )]
    templates: Vec<String>,
    #[command(flatten)]
    sampling: SamplingDefaults,
}

/// How tokens are chosen where requests do not say.
#[derive(clap::Args)]
#[command(next_help_heading = "Default sampling of requests")]
struct SamplingDefaults {
    /// Temperature; 0 takes the likeliest token [default: the model's, else 1]
    #[arg(
        long,
        value_name = "T",
        allow_negative_numbers = true,
        value_parser = sampling::temperature,
        hide_short_help = true
    )]
    temperature: Option<f32>,
    /// Sample from total probability P [default: the model's, else 1]
    #[arg(
        long,
        value_name = "P",
        allow_negative_numbers = true,
        value_parser = sampling::top_p,
        hide_short_help = true
    )]
    top_p: Option<f32>,
    /// Cut tokens below P times the top probability [default: the model's, else 0]
    #[arg(
        long,
        value_name = "P",
        allow_negative_numbers = true,
        value_parser = sampling::min_p,
        hide_short_help = true
    )]
    min_p: Option<f32>,
    /// Penalty on repeated tokens [default: the model's, else 1]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = sampling::repetition_penalty,
        hide_short_help = true
    )]
    repetition_penalty: Option<f32>,
    /// Lower a token's logit by X for each time it occurs in the answer [default: 0]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = sampling::frequency_penalty,
        hide_short_help = true
    )]
    frequency_penalty: Option<f32>,
    /// Lower a token's logit by X once it occurs in the answer [default: 0]
    #[arg(
        long,
        value_name = "X",
        allow_negative_numbers = true,
        value_parser = sampling::presence_penalty,
        hide_short_help = true
    )]
    presence_penalty: Option<f32>,
}

impl ModelSettingsFlags {
    /// The sampling that requests, presets and models leave open.
    pub(super) fn sampling(&self) -> SamplingOptions {
        let SamplingDefaults {
            temperature,
            top_p,
            min_p,
            repetition_penalty,
            frequency_penalty,
            presence_penalty,
        } = self.sampling;
        SamplingOptions {
            temperature,
            top_p,
            top_k: None,
            min_p,
            repetition_penalty,
            frequency_penalty,
            presence_penalty,
        }
    }

    /// Gives models the names and templates of the flags.
    ///
    /// # Errors
    /// If a flag does not say which of several models it means, or a template is not one.
    pub(super) fn apply(&self, models: &mut [&mut ModelConfig]) -> anyhow::Result<()> {
        for alias in &self.aliases {
            let (model, name) = named("--alias", alias, models)?;
            model.aliases.push(name.to_string());
        }
        for template in &self.templates {
            let (model, path) = named("--template", template, models)?;
            model.template = Some(find_template(Path::new(path))?);
        }
        Ok(())
    }
}

/// The model that the value of a flag is about, and the value without its name.
fn named<'m, 'v>(
    flag: &str,
    value: &'v str,
    models: &'m mut [&mut ModelConfig],
) -> Result<(&'m mut ModelConfig, &'v str), Usage> {
    let is_of = |model: &ModelConfig, name: &str| {
        model.id == name || model.id.strip_suffix(name).is_some_and(|start| start.ends_with('/'))
    };
    let with_name = value.split_once('=').filter(|(_, value)| !value.is_empty());
    let of_name = with_name
        .and_then(|(name, value)| Some((models.iter().position(|model| is_of(model, name))?, value)));
    let (index, rest) = match of_name {
        Some(found) => found,
        None if models.len() == 1 => (0, value),
        None => {
            let ids: Vec<&str> = models.iter().map(|model| &model.id[..]).collect();
            let ids = ids.join(", ");
            return Err(Usage(format!("{flag} {value}: give MODEL=VALUE, where MODEL is one of {ids}")));
        }
    };
    if rest.is_empty() {
        return Err(Usage(format!("{flag}: the value is empty")));
    }
    Ok((&mut *models[index], rest))
}

#[cfg(test)]
mod tests {
    use pipelines::config::PipelineConfig;

    use super::*;

    fn check(ids: &[&str], value: &str, expected: Result<(&str, &str), &str>) {
        let model =
            |id: &&str| ModelConfig { id: id.to_string(), ..ModelConfig::new(PipelineConfig::default()) };
        let mut models: Vec<ModelConfig> = ids.iter().map(model).collect();
        let mut models: Vec<&mut ModelConfig> = models.iter_mut().collect();
        match (named("--alias", value, &mut models), expected) {
            (Ok((model, rest)), Ok(expected)) => assert_eq!((&model.id[..], rest), expected),
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
            (found, expected) => panic!("{:?}, expected {expected:?}", found.map(|(_, rest)| rest)),
        }
    }

    #[test]
    fn value_names_its_model_unless_there_is_only_one() {
        check(&["a"], "gpt-4o", Ok(("a", "gpt-4o")));
        check(&["a"], "a=gpt-4o", Ok(("a", "gpt-4o")));
        check(&["a"], "x=y.jinja", Ok(("a", "x=y.jinja")));
        check(&["team/a:q8", "b"], "a:q8=gpt-4o", Ok(("team/a:q8", "gpt-4o")));
        check(&["team/a", "b"], "b=default", Ok(("b", "default")));
        let problem = "--alias gpt-4o: give MODEL=VALUE, where MODEL is one of a, b";
        check(&["a", "b"], "gpt-4o", Err(problem));
        check(&["a"], "", Err("--alias: the value is empty"));
    }
}
