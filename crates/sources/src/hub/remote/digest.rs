//! The digest that names a content on a hub: SHA-256 of large files, git's SHA-1 of small ones.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// A digest under way.
pub(super) enum Digest {
    Sha256(Box<Sha256>),
    /// Git hashes a header with the size, then the content.
    Git(Box<Sha1>),
    /// The hub names the content in a way of its own, so the size alone is checked.
    Unknown,
}

impl Digest {
    /// The digest that an ETag states, before anything was read.
    pub(super) fn from_etag(etag: &str, size: u64) -> Digest {
        let hexadecimal = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match etag.len() {
            64 if hexadecimal => Digest::Sha256(Box::default()),
            40 if hexadecimal => Digest::Git(Box::new(Sha1::new().chain_update(format!("blob {size}\0")))),
            _ => Digest::Unknown,
        }
    }

    /// The digest of files of the web.
    pub(super) fn sha256() -> Digest {
        Digest::Sha256(Box::default())
    }

    /// Its kind, for messages.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Digest::Sha256(_) => "SHA-256",
            Digest::Git(_) => "git object id",
            Digest::Unknown => "name",
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Digest::Sha256(digest) => digest.update(bytes),
            Digest::Git(digest) => digest.update(bytes),
            Digest::Unknown => {}
        }
    }

    /// The digest in hexadecimal, or what the ETag says where that is no digest.
    pub(super) fn finish(self, etag: &str) -> String {
        let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Digest::Sha256(digest) => hexadecimal(&digest.finalize()),
            Digest::Git(digest) => hexadecimal(&digest.finalize()),
            Digest::Unknown => etag.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_hub() {
        let digest = |etag: &str, content: &str| {
            let mut digest = Digest::from_etag(etag, content.len() as u64);
            digest.update(content.as_bytes());
            digest.finish(etag)
        };
        // `printf abc | sha256sum`, `printf abc | git hash-object --stdin`.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(sha256, "abc"), sha256);
        let git = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";
        assert_eq!(digest(git, "abc"), git);
        assert_ne!(digest(git, "abd"), git);
        assert_eq!(digest("some-tag", "abc"), "some-tag");
    }
}
