//! Chooses one model among the weights in a folder, in the cache, or on a hub, by the same rule everywhere.

use weights::Format;

use super::ModelFiles;
use crate::hub::RepoFile;
use crate::repo::HuggingFaceRepo;
use crate::{Error, SupportedEncoding, WeightsFormat};

/// The files to download from a repository. The default is its only model, with configuration and tokenizer.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Weights in this encoding.
    pub encoding: Option<SupportedEncoding>,
    /// Weights whose files have this label in their names, such as `Q4_K_M`; unset, the one of the repository's name.
    pub label: Option<String>,
    /// Weights in this format.
    pub format: Option<WeightsFormat>,
    /// These files and no others: names, or patterns with `*` (any characters) and `?` (any one).
    pub files: Vec<String>,
    /// Fetch even what is there.
    pub force_download: bool,
}

/// What to do if there are several encodings and the request names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Several {
    /// Return an error that lists them.
    Refuse,
    /// Take the best.
    Best,
}

/// Chooses the model with the requested encoding and format. By default, safetensors come before GGUF and PyTorch, and
/// the format's default name before others. The hub is asked only if the known files have no such model.
///
/// # Errors
/// If there is none, several match equally well, or a part is missing.
pub(crate) fn choose(repo: &HuggingFaceRepo, wanted: &Wanted, several: Several) -> Result<ModelFiles, Error> {
    let mut choice = among(repo, &repo.known_files()?, wanted, several);
    let lacks = match &choice {
        Ok(model) => model.missing.is_some(),
        Err(
            Error::NoWeights { .. }
            | Error::MissingEncoding { .. }
            | Error::MissingFormat { .. }
            | Error::MissingLabel { .. },
        ) => true,
        Err(_) => false,
    };
    if lacks && repo.may_have_more() {
        choice = among(repo, &repo.all_files()?, wanted, several);
    }
    let model = match choice {
        Err(error @ Error::NoWeights { .. }) => return Err(repo.out_of_reach("a model").unwrap_or(error)),
        choice => choice?,
    };
    if let Some(part) = &model.missing {
        let error = repo.out_of_reach(part);
        // Of a set with an index, the model may need no tensor of the missing shard; its graph says.
        if model.index.is_none() || error.is_some() {
            let (part, of) = (part.clone(), model.files[0].clone());
            return Err(error.unwrap_or_else(|| Error::MissingPart { repo: repo.to_string(), part, of }));
        }
    }
    refused_early(repo, model)
}

/// Refuses a model that is known to be unsupported before it is downloaded. Local files are checked when opened.
fn refused_early(repo: &HuggingFaceRepo, mut model: ModelFiles) -> Result<ModelFiles, Error> {
    if repo.lacks(&model.files)? {
        repo.look_into(&mut model)?;
    }
    match model.problem {
        Some(problem) => Err(Error::UnknownEncoding { file: model.files.swap_remove(0), problem }),
        None => Ok(model),
    }
}

/// Chooses among the models of these files.
fn among(
    repo: &HuggingFaceRepo,
    files: &[RepoFile],
    wanted: &Wanted,
    several: Several,
) -> Result<ModelFiles, Error> {
    let mut models = repo.models_among(files)?;
    if models.is_empty() {
        return Err(Error::NoWeights { repo: repo.to_string() });
    }
    if let Some(format) = wanted.format {
        let mut formats: Vec<WeightsFormat> = models.iter().map(|model| model.format).collect();
        formats.dedup();
        models.retain(|model| model.format == format);
        if models.is_empty() {
            return Err(Error::MissingFormat { repo: repo.to_string(), format, formats });
        }
    }
    match wanted.label.as_deref().or(repo.label()) {
        Some(label) => models = labelled(repo, models, label, wanted.encoding)?,
        None => {
            if let Some(encoding) = wanted.encoding {
                models = in_encoding(repo, models, encoding)?;
            }
        }
    }
    let format = models[0].format;
    models.retain(|model| model.format == format);
    match only(&models, has_default_name).or_else(|| only(&models, |_| true)) {
        Some(model) => Ok(model),
        None => among_others(repo, models, several),
    }
}

/// The models with an encoding or, if there are none, those whose encoding is unknown until they are downloaded.
fn in_encoding(
    repo: &HuggingFaceRepo,
    mut models: Vec<ModelFiles>,
    encoding: SupportedEncoding,
) -> Result<Vec<ModelFiles>, Error> {
    repo.look_into_all(&mut models)?;
    let has = |model: &ModelFiles| model.encoding == Some(encoding);
    let may_have = |model: &ModelFiles| model.encoding.is_none() && model.problem.is_none();
    let found: Vec<ModelFiles> = match models.iter().any(has) {
        true => models.iter().filter(|model| has(model)).cloned().collect(),
        false => models.iter().filter(|model| may_have(model)).cloned().collect(),
    };
    if !found.is_empty() {
        return Ok(found);
    }
    // An unreadable file may be the requested one, unless its name says otherwise.
    for ModelFiles { files, problem, .. } in &models {
        let guess = SupportedEncoding::guess_from_file_name(&files[0]);
        if let Some(problem) = problem
            && guess.is_none_or(|guess| guess == encoding)
        {
            return Err(Error::UnknownEncoding { file: files[0].clone(), problem: problem.clone() });
        }
    }
    Err(Error::MissingEncoding { repo: repo.to_string(), encoding, encodings: encodings(&models) })
}

/// The models of a label: those whose files have it in their names or, if it names an encoding, that are in it and whose
/// names have no other label of that encoding.
fn labelled(
    repo: &HuggingFaceRepo,
    mut models: Vec<ModelFiles>,
    label: &str,
    encoding: Option<SupportedEncoding>,
) -> Result<Vec<ModelFiles>, Error> {
    let mut named: Vec<ModelFiles> =
        models.iter().filter(|model| has_label(&model.files[0], label)).cloned().collect();
    // `x-Q4_K_M.gguf` rather than `x-UD-Q4_K_M.gguf`.
    if let Some(shortest) = named.iter().map(|model| model.files[0].len()).min() {
        named.retain(|model| model.files[0].len() == shortest);
        return Ok(named);
    }
    let missing = |models: &[ModelFiles]| Error::MissingLabel {
        repo: repo.to_string(),
        label: label.to_string(),
        files: models.iter().map(|model| model.files[0].clone()).collect(),
    };
    let Some(encoding) = encoding.or_else(|| label.parse().ok()) else { return Err(missing(&models)) };
    if !SupportedEncoding::is_variant(label) {
        return in_encoding(repo, models, encoding);
    }
    // A file whose name states no label counts if its header has the encoding.
    repo.look_into_all(&mut models)?;
    let states = |model: &ModelFiles| SupportedEncoding::stated_in(&model.files[0]).contains(&encoding);
    let fits = |model: &&ModelFiles| model.encoding == Some(encoding) && !states(model);
    let found: Vec<ModelFiles> = models.iter().filter(fits).cloned().collect();
    if found.is_empty() { Err(missing(&models)) } else { Ok(found) }
}

/// Whether the name of a file, or of its folder, has a label: as a word of its own, of which `_` is a part at its end.
fn has_label(name: &str, label: &str) -> bool {
    let (name, label) = (name.to_ascii_lowercase(), label.to_ascii_lowercase());
    name.match_indices(&label).any(|(start, _)| {
        let (before, after) = (&name[..start], &name[start + label.len()..]);
        !before.ends_with(char::is_alphanumeric)
            && !after.starts_with(|next: char| next.is_alphanumeric() || next == '_')
    })
}

/// Chooses among several models of one format, none of which has its default name.
fn among_others(
    repo: &HuggingFaceRepo,
    mut models: Vec<ModelFiles>,
    several: Several,
) -> Result<ModelFiles, Error> {
    if models[0].format != WeightsFormat::Gguf
        && let Some(model) = only(&models, is_nearly_default)
    {
        return Ok(model);
    }
    repo.look_into_all(&mut models)?;
    let (unreadable, mut models): (Vec<ModelFiles>, Vec<ModelFiles>) =
        models.into_iter().partition(|model| model.problem.is_some());
    let described =
        |model: &ModelFiles| format!("{}: {}", model.files[0], model.problem.as_deref().unwrap_or_default());
    let passed_over = unreadable.iter().map(described).collect();
    let encodings = encodings(&models);
    if encodings.len() > 1 {
        if several == Several::Refuse {
            return Err(Error::SeveralEncodings { repo: repo.to_string(), encodings });
        }
        let best = best(&encodings);
        models.retain(|model| model.encoding == best);
    }
    if let Some(model) = only(&models, |_| true).or_else(|| only(&models, is_nearly_default)) {
        return Ok(ModelFiles { passed_over, ..model });
    }
    match (models.is_empty(), unreadable.into_iter().next()) {
        (true, Some(ModelFiles { files, problem, .. })) => {
            let problem = problem.unwrap_or_default();
            Err(Error::UnknownEncoding { file: files[0].clone(), problem })
        }
        _ => {
            let files = models.iter().map(|model| model.files[0].clone()).collect();
            Err(Error::SeveralFiles { repo: repo.to_string(), files })
        }
    }
}

/// The one model that fits, if there is just one.
fn only(models: &[ModelFiles], fits: impl Fn(&ModelFiles) -> bool) -> Option<ModelFiles> {
    let mut fitting = models.iter().filter(|model| fits(model));
    fitting.next().filter(|_| fitting.next().is_none()).cloned()
}

/// Whether a model's file has the default name of its format.
fn has_default_name(model: &ModelFiles) -> bool {
    model.files[0].eq_ignore_ascii_case(Format::from(model.format).default_name())
}

/// Whether a model is preferred where none has the default name: it has shards of that name or, among GGUF files, the medium
/// mix of an encoding (`q4_k_m`, not `q4_k_s` or `q4_k_l`).
fn is_nearly_default(model: &ModelFiles) -> bool {
    let (name, format) = (model.files[0].to_ascii_lowercase(), Format::from(model.format));
    if format == Format::Gguf {
        return name.contains("_k_m");
    }
    let (stem, _) = format.default_name().rsplit_once('.').expect("default names have suffixes");
    !has_default_name(model)
        && (name.starts_with(&format!("{stem}-0")) || model.index == Some(format.default_index()))
}

/// The default among several encodings: small ones with little loss come first.
fn best(there: &[SupportedEncoding]) -> Option<SupportedEncoding> {
    use SupportedEncoding::{Bfloat16, Float32, Q4_0, Q4K, Q6K};
    let order = [Q4K, Q6K, Q4_0, Bfloat16, Float32];
    order.into_iter().find(|encoding| there.contains(encoding)).or_else(|| there.first().copied())
}

fn encodings(models: &[ModelFiles]) -> Vec<SupportedEncoding> {
    let mut encodings: Vec<_> = models.iter().filter_map(|model| model.encoding).collect();
    encodings.sort();
    encodings.dedup();
    encodings
}
