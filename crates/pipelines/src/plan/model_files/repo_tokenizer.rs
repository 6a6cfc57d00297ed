//! The tokenizer of a repository: its files fetched, and nothing else of the model.

use sources::{HuggingFaceRepo, WeightsFormat};
use text::Tokenizer;
use text::tokenizer::{COMPANION_FILES, FILES};
use weights::file_name::shard_sets;

use crate::Error;

/// The tokenizer of a repository: the first of the [`FILES`] that it has, or else a GGUF file, of
/// which the header is fetched if it is not on this machine. `file` is one of these by name.
///
/// # Errors
/// If there is none, it cannot be fetched, or as [`Tokenizer::from_file`].
pub fn tokenizer_from_repo(repo: &HuggingFaceRepo, file: Option<&str>) -> Result<Tokenizer, Error> {
    if let Some(file) = file {
        return match WeightsFormat::from_file_name(file) {
            Some(WeightsFormat::Gguf) => from_gguf_of(repo, file),
            _ => from_file_of(repo, file),
        };
    }
    for file in FILES {
        if repo.file_exists(file)? {
            return from_file_of(repo, file);
        }
    }
    let weights = repo.weight_files()?;
    let files = weights.get(&WeightsFormat::Gguf).map_or(&[][..], Vec::as_slice);
    let mut cached = None;
    for file in files {
        cached = cached.or(repo.cached(file)?.map(|_| file));
    }
    // All of them are one model in several encodings, or nearly always.
    match cached.or(files.first()) {
        Some(file) => from_gguf_of(repo, file),
        None => {
            let problem = format!("the repo has none of {}, and no GGUF file", FILES.join(", "));
            Err(text::Error::tokenizer(repo, problem).into())
        }
    }
}

/// From a file of a tokenizer and the files next to it.
fn from_file_of(repo: &HuggingFaceRepo, file: &str) -> Result<Tokenizer, Error> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut names = vec![file.to_string()];
    for name in COMPANION_FILES {
        let name = if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") };
        if repo.file_exists(&name)? {
            names.push(name);
        }
    }
    Ok(Tokenizer::from_file(&repo.download_all(&names, false, &|_| ())?[0])?)
}

/// From the header of a GGUF file, or of the set that it is a part of.
fn from_gguf_of(repo: &HuggingFaceRepo, file: &str) -> Result<Tokenizer, Error> {
    let weights = repo.weight_files()?;
    let listed = weights.get(&WeightsFormat::Gguf).into_iter().flatten().map(String::as_str);
    let set = shard_sets(listed).into_iter().find(|set| set.contains(&file)).unwrap_or_else(|| vec![file]);
    let names: Vec<String> = set.into_iter().map(str::to_string).collect();
    Ok(Tokenizer::from_gguf(repo.headers(&names)?.metadata())?)
}
