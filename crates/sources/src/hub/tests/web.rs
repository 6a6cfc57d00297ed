//! Tests downloads of weights from servers that are not hubs.

use sha2::{Digest, Sha256};

use super::*;
use crate::FileSet;

impl World {
    /// The address of a file that no hub describes.
    fn address(&self, name: &str) -> String {
        self.server.elsewhere(name)
    }

    fn locate_at(&self, address: &str) -> Result<FileSet, Error> {
        let weight_path = vec![PathBuf::from(address)];
        locate(&ModelRequest { weight_path, hub: Some(self.hub()), ..ModelRequest::default() })
    }

    fn fetch_from(&self, address: &str) -> Result<PathBuf, Error> {
        Ok(self.locate_at(address)?.fetch(&|_| ())?.weights.remove(0))
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn files_of_the_web_are_kept_with_their_digest() {
    let world = World::new();
    let files = world.locate_at(&world.address("model.gguf")).unwrap();
    assert!(!files.are_here().unwrap() && files.are_of_network());
    assert_eq!(files.bytes().unwrap(), Some(large().len() as u64));
    let path = files.fetch(&|_| ()).unwrap().weights.remove(0);
    assert_eq!(fs::read(&path).unwrap(), large());
    assert!(files.are_here().unwrap() && files.weight_path() == [path.clone()]);
    let digest = fs::read_to_string(path.with_added_extension("sha256")).unwrap();
    assert_eq!(digest, format!("{}  model.gguf\n", sha256(&large())));
    let names: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(world.hub().contents().unwrap().bytes, large().len() as u64 + digest.len() as u64);
    // No token is sent to another server, and nothing is asked again.
    assert!(world.server.asked().iter().all(|asked| asked.token.is_none()));
    assert_eq!(world.fetch_from(&world.address("model.gguf")).unwrap(), path);
    assert_eq!(world.server.asked(), []);
    let offline = Hub { offline: true, ..world.hub() };
    let locate = |address: String| {
        let weight_path = vec![PathBuf::from(address)];
        locate(&ModelRequest { weight_path, hub: Some(offline.clone()), ..ModelRequest::default() }).unwrap()
    };
    assert_eq!(locate(world.address("model.gguf")).fetch(&|_| ()).unwrap().weights, [path]);
    let error = locate(world.address("other.gguf")).fetch(&|_| ()).unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
}

#[test]
fn digests_in_addresses_are_demanded() {
    let world = World::new();
    let right = format!("{}#sha256={}", world.address("model.gguf"), sha256(&large()).to_uppercase());
    let wrong = format!("{}#sha256={}", world.address("model.gguf"), "0".repeat(64));
    let error = world.fetch_from(&wrong).unwrap_err();
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
    let facts = format!("its SHA-256 is {}, expected {}", sha256(&large()), "0".repeat(64));
    assert!(error.to_string().contains(&facts), "{error}");
    let path = world.fetch_from(&right).unwrap();
    world.server.asked();
    world.fetch_from(&right).unwrap();
    assert_eq!(world.server.asked(), []);
    // A file in the cache does not pass for another content.
    assert!(world.fetch_from(&wrong).is_err());
    assert_eq!(fs::read(path).unwrap(), large());
}

#[test]
fn downloads_from_the_web_go_on_if_the_version_is_the_same() {
    let check = |then: &'static str, now: &'static str, from: usize| {
        let world = World::new();
        let version = |version| world.server.fail(1, "GET /cdn/", What::Header("ETag", version));
        version(then);
        world.server.fail(1, "GET /cdn/", What::Truncated(300_000));
        world.server.fail(1, "GET /cdn/", What::Status(403, ""));
        let error = world.fetch_from(&world.address("model.gguf")).unwrap_err().to_string();
        assert!(error.contains("/cdn/model.gguf: the server refuses it (status 403)"), "{error}");
        world.server.asked();
        version(now);
        let path = world.fetch_from(&world.address("model.gguf")).unwrap();
        assert_eq!(fs::read(path).unwrap(), large());
        let rest = (from > 0).then(|| format!("bytes={from}-"));
        let ranges: Vec<_> = world.server.asked().into_iter().map(|asked| asked.range).collect();
        assert_eq!(ranges, [Some("bytes=0-0".to_string()), rest], "{then} {now}");
    };
    check("\"v1\"", "\"v1\"", 300_000);
    check("\"v1\"", "\"v2\"", 0);
    // A weak ETag does not promise the same bytes.
    check("W/\"v1\"", "W/\"v1\"", 0);
}

#[test]
fn a_file_that_changes_while_it_arrives_is_refused() {
    let world = World::new();
    for version in ["\"v1\"", "\"v2\""] {
        world.server.fail(1, "GET /cdn/", What::Header("ETag", version));
    }
    let error = world.fetch_from(&world.address("model.gguf")).unwrap_err().to_string();
    assert!(error.contains("the file changed during the download: try again"), "{error}");
}

#[test]
fn addresses_that_name_no_weights_are_refused() {
    let world = World::new();
    let check = |address: &str, expected: &str| {
        let error = world.locate_at(address).unwrap_err().to_string();
        assert!(error.starts_with("weight_path is ") && error.contains(expected), "{address}: {error}");
        assert!(!error.contains("secret"), "{error}");
    };
    check("https://example.com", "the address names no file");
    check("https://example.com/model.zip", "must end in .gguf, .safetensors");
    check("https://ada:secret@example.com/model.gguf", "user name or password are not supported");
    check("https://example.com/a%2Fmodel.gguf", "has a `/` in it");
    check("https://example.com/model.gguf#sha256=abc", "64 hexadecimal digits");
    let lost = world.fetch_from(&world.address("lost.gguf")).unwrap_err().to_string();
    assert!(lost.contains("the server has no such file (status 404)"), "{lost}");
}

#[test]
fn parts_of_a_set_lie_together() {
    let world = World::new();
    let first = world.address("a%20x-00001-of-00002.gguf?key=1");
    let files = world.locate_at(&first).unwrap();
    let names: Vec<_> = files.weight_path();
    assert!(names[0].ends_with("a x-00001-of-00002.gguf") && names[1].ends_with("a x-00002-of-00002.gguf"));
    let error = files.fetch(&|_| ()).unwrap_err().to_string();
    assert!(error.contains("/cdn/a%20x-00001-of-00002.gguf?key=1: the server has no such file"), "{error}");
    assert_eq!(names[0].parent(), names[1].parent());
    let other = world.locate_at(&world.address("a%20x-00001-of-00002.gguf?key=2")).unwrap();
    assert_ne!(other.weight_path()[0].parent(), names[0].parent());
}
