//! Headers by ranges, from a hub that plays tricks.

use super::*;

/// A safetensors file whose header is longer than what is asked for first: 8 bytes, the header, 4 MiB of data.
fn long_header() -> Vec<u8> {
    let tensor = serde_json::json!({"dtype": "F32", "shape": [1 << 20], "data_offsets": [0, 4 << 20]});
    let note = "x".repeat(600_000);
    let header = serde_json::json!({"__metadata__": {"note": note}, "a": tensor}).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; 4 << 20]].concat()
}

fn world() -> World {
    let gguf = fs::read(testdata::asset("storyteller/model.gguf")).unwrap();
    library(&[("long.safetensors", long_header()), ("storyteller.gguf", gguf), ("model.gguf", large())])
}

impl World {
    fn headers(&self, names: &[&str]) -> Result<weights::Weights, Error> {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        self.repo()?.headers(&names)
    }

    /// The ranges that were asked for, and of whom.
    fn ranges(&self) -> Vec<(String, Option<String>)> {
        let asked = self.server.asked().into_iter();
        let content = asked.filter(|asked| !asked.line.contains("/api/"));
        content.map(|asked| (asked.line, asked.range)).collect()
    }
}

#[test]
fn ranges_grow_until_a_header_is_whole() {
    let world = world();
    let weights = world.headers(&["long.safetensors"]).unwrap();
    assert_eq!((weights.len(), weights.bytes(), weights.has_values()), (1, 4 << 20, false));
    let resolve = format!("GET /ada/tiny/resolve/{COMMIT}/long.safetensors");
    let cdn = "GET /cdn/long.safetensors".to_string();
    let range = |start: usize, end: usize| Some(format!("bytes={start}-{}", end - 1));
    let (first, second) = (range(0, 256 << 10), range(256 << 10, 1 << 20));
    // Redirects ask for the same bytes.
    assert_eq!(
        world.ranges(),
        [(resolve.clone(), first.clone()), (cdn.clone(), first), (resolve, second.clone()), (cdn, second)]
    );
    assert!(!world.storage().exists(), "nothing is kept");
}

#[test]
fn what_is_cached_is_opened() {
    let world = world();
    let names = ["storyteller.gguf", "long.safetensors"];
    let there = world.headers(&names[..1]).unwrap();
    assert_eq!(there.metadata().str("general.architecture").unwrap(), "llama");
    world.download(names[0]).unwrap();
    world.server.asked();
    let here = world.headers(&names[..1]).unwrap();
    assert!(here.has_values() && here.names().eq(there.names()));
    assert_eq!(world.server.lines(), Vec::<String>::new());
    let hub = Hub { offline: true, ..world.hub() };
    let repo =
        HuggingFaceRepo::open("ada/tiny", RepoOptions { hub: Some(hub), ..RepoOptions::default() }).unwrap();
    assert!(repo.headers(&[names[0].to_string()]).is_ok());
    let error = repo.headers(&[names[1].to_string()]).unwrap_err().to_string();
    assert!(error.starts_with("long.safetensors of ada/tiny is not in the cache"), "{error}");
}

#[test]
fn servers_need_not_know_ranges() {
    let world = world();
    world.server.fail(2, "GET /cdn/", What::WholeContent);
    assert_eq!(world.headers(&["long.safetensors"]).unwrap().len(), 1);
    assert_eq!(world.ranges().len(), 4, "no more requests than elsewhere");
}

#[test]
fn what_breaks_off_is_asked_for_again() {
    let world = world();
    world.server.fail(2, "GET /cdn/", What::Truncated(1000));
    world.server.fail(1, "GET /ada/tiny/resolve", What::Status(503, ""));
    assert_eq!(world.headers(&["long.safetensors"]).unwrap().len(), 1);
    world.server.fail(100, "GET /cdn/", What::Truncated(1000));
    let error = world.headers(&["long.safetensors"]).unwrap_err();
    assert!(matches!(error, Error::Network { tries: 6, .. }), "{error}");
}

#[test]
fn refusals_and_lies_are_told() {
    let cases = [
        (
            "GET /ada/tiny/resolve",
            What::Status(401, "X-Error-Code: GatedRepo\r\n"),
            "is gated or private (status 401)",
        ),
        (
            "GET /ada/tiny/resolve",
            What::Status(404, "X-Error-Code: EntryNotFound\r\n"),
            "has no file `long.safetensors`",
        ),
        ("GET /cdn/", What::Status(403, ""), "the server of its content answered with status 403"),
        ("GET /cdn/", What::Status(416, ""), "answered a range request with status 416"),
        ("GET /cdn/", What::Range("bytes 1-2/9"), "the range `bytes 1-2/9`, expected one from byte 0"),
        ("GET /cdn/", What::Range("bytes 0-9/*"), "the range `bytes 0-9/*`"),
        ("GET /cdn/", What::Range(""), "the range ``"),
        ("GET /cdn/", What::Range("bytes 0-262143/0"), "has 0 bytes, too few for a header"),
        ("GET /cdn/", What::Range("bytes 0-262143/600000"), "bytes or more, the file 600000"),
        ("GET /cdn/", What::Range("bytes 0-262143/9999999"), "changed from 9999999 to 479"),
    ];
    for (on, fault, message) in cases {
        let world = world();
        world.server.fail(1, on, fault);
        let error = world.headers(&["long.safetensors"]).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let world = world();
    let error = world.headers(&["model.gguf"]).unwrap_err().to_string();
    assert!(error.starts_with("ada/tiny/model.gguf: malformed GGUF: starts with"), "{error}");
    assert!(world.headers(&["../model.gguf"]).is_err());
    let error = world.headers(&["gone.gguf"]).unwrap_err().to_string();
    assert!(error.contains("has no file `gone.gguf`"), "{error}");
}
