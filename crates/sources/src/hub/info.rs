//! What a hub says of a repository.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::RepoFile;
use super::names::{file_path, is_commit};
use crate::Error;

/// What a hub says of a repository at a revision.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// `owner/name`, as the hub spells it.
    pub id: String,
    /// The commit.
    pub sha: String,
    /// Whether others can see it.
    pub private: bool,
    /// Whether terms have to be accepted.
    pub gated: bool,
    /// When it last changed, as the hub writes it.
    pub last_modified: Option<String>,
    /// The task, such as `text-generation`.
    pub pipeline_tag: Option<String>,
    /// The library it was made with.
    pub library_name: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// Downloads in the last month.
    pub downloads: Option<u64>,
    /// How many people like it.
    pub likes: Option<u64>,
    /// The architectures of its `config.json`.
    pub architectures: Vec<String>,
    /// Elements of each dtype in its safetensors files, by the dtype's name there (`BF16`).
    pub safetensors: BTreeMap<String, u64>,
    /// Its files, by name.
    pub siblings: Vec<RepoFile>,
}

/// The part of the hub's answer that is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    id: String,
    sha: String,
    #[serde(default)]
    private: bool,
    #[serde(default)]
    gated: serde_json::Value,
    last_modified: Option<String>,
    #[serde(rename = "pipeline_tag")]
    pipeline_tag: Option<String>,
    #[serde(rename = "library_name")]
    library_name: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    downloads: Option<u64>,
    likes: Option<u64>,
    config: Option<Config>,
    safetensors: Option<Safetensors>,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    architectures: Vec<String>,
}

#[derive(Deserialize)]
struct Safetensors {
    #[serde(default)]
    parameters: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    #[serde(rename = "rfilename")]
    name: String,
    size: Option<u64>,
    /// Git's id of the content; of large files, that of a pointer to it.
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

/// A file that git keeps elsewhere.
#[derive(Deserialize)]
struct Lfs {
    sha256: Option<String>,
}

impl Sibling {
    /// The name of the content in the cache: its digest.
    fn content(&mut self) -> Option<String> {
        let digest = match self.lfs.take() {
            Some(large) => large.sha256,
            None => self.blob_id.take(),
        };
        digest.filter(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

impl ModelInfo {
    /// Reads the answer of a hub to `GET /api/models/{repo}/revision/{revision}`.
    ///
    /// # Errors
    /// If it is no such answer, or names files that would lie outside of the repository.
    pub fn from_json(url: &str, json: &[u8]) -> Result<ModelInfo, Error> {
        let problem = |problem: String| Error::Protocol { url: url.to_string(), problem };
        let answer: Answer = serde_json::from_slice(json)
            .map_err(|error| problem(format!("not the answer of a hub: {error}")))?;
        if !is_commit(&answer.sha) {
            return Err(problem(format!("`{}` is not the id of a commit", answer.sha.escape_debug())));
        }
        let mut siblings = Vec::with_capacity(answer.siblings.len());
        for mut sibling in answer.siblings {
            file_path(&sibling.name)?;
            let content = sibling.content();
            siblings.push(RepoFile { name: sibling.name, size: sibling.size, content });
        }
        siblings.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(ModelInfo {
            id: answer.id,
            sha: answer.sha,
            private: answer.private,
            // `false`, or how: "auto" or "manual".
            gated: !matches!(answer.gated, serde_json::Value::Null | serde_json::Value::Bool(false)),
            last_modified: answer.last_modified,
            pipeline_tag: answer.pipeline_tag,
            library_name: answer.library_name,
            tags: answer.tags,
            downloads: answer.downloads,
            likes: answer.likes,
            architectures: answer.config.map(|config| config.architectures).unwrap_or_default(),
            safetensors: answer.safetensors.map(|summary| summary.parameters).unwrap_or_default(),
            siblings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn read(json: serde_json::Value) -> Result<ModelInfo, Error> {
        ModelInfo::from_json("http://hub/api/models/a/b", json.to_string().as_bytes())
    }

    #[test]
    fn an_answer_is_read() {
        let info = read(serde_json::json!({
            "_id": "1", "id": "a/b", "sha": COMMIT, "gated": "manual", "downloads": 7, "pipeline_tag": "text-generation",
            "config": {"architectures": ["LlamaForCausalLM"]}, "lastModified": "2025-01-01T00:00:00.000Z",
            "safetensors": {"parameters": {"BF16": 100, "F32": 2}, "total": 102},
            "siblings": [{"rfilename": "b.bin", "size": 5, "blobId": "x"}, {"rfilename": "a/c.json"}],
        }))
        .unwrap();
        assert_eq!((info.gated, info.private, info.downloads), (true, false, Some(7)));
        assert_eq!(info.architectures, ["LlamaForCausalLM"]);
        assert_eq!(info.safetensors["BF16"], 100);
        let files: Vec<_> = info.siblings.iter().map(|file| (file.name.as_str(), file.size)).collect();
        assert_eq!(files, [("a/c.json", None), ("b.bin", Some(5))]);
    }

    #[test]
    fn a_hostile_answer_is_refused() {
        for sibling in ["../../.bashrc", "/etc/passwd", "a\u{0}b", "a\\..\\b"] {
            let answer =
                serde_json::json!({"id": "a/b", "sha": COMMIT, "siblings": [{"rfilename": sibling}]});
            assert!(matches!(read(answer), Err(Error::InvalidName { .. })), "{sibling:?}");
        }
        for sha in ["../..", "main", ""] {
            assert!(read(serde_json::json!({"id": "a/b", "sha": sha})).is_err());
        }
        assert!(read(serde_json::json!([])).unwrap_err().to_string().contains("not the answer of a hub"));
    }
}
