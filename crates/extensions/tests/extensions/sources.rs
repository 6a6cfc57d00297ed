//! Sources are compiled once, and what stands in the way is said.

use std::fs;
use std::path::PathBuf;

use perihelion_extensions::{Compiler, Error, Library};

use crate::{compiler, folder, repository};

fn example() -> PathBuf {
    repository().join("examples/extensions/leaky_relu.rs")
}

#[test]
fn without_a_compiler_the_error_says_what_to_do() {
    let compiler = Compiler { rustc: "no-such-rustc".into(), cache: Some(folder("no_compiler")) };
    let error = Library::open(example(), &compiler).unwrap_err();
    assert!(matches!(error, Error::NoCompiler { .. }));
    let advice = "a source needs the Rust compiler, but `no-such-rustc` is not there: install Rust, name a compiler \
                  in PERIHELION_RUSTC, or give a compiled library";
    assert!(error.to_string().ends_with(advice), "{error}");
}

#[test]
fn the_compiler_is_quoted() {
    let Some(compiler) = compiler() else { return };
    let source = folder("wrong_source").join("wrong.rs");
    fs::write(&source, "use perihelion_extension::Op;\nfn wrong() -> u32 { \"text\" }\n").unwrap();
    let error = Library::open(&source, &compiler).unwrap_err().to_string();
    assert!(error.contains("does not compile\n") && error.contains("wrong.rs:2:21"), "{error}");
    let nowhere = Compiler { cache: None, ..compiler.clone() };
    let error = Library::open(example(), &nowhere).unwrap_err().to_string();
    assert!(error.contains("set PERIHELION_CACHE_DIR or HOME"), "{error}");
    fs::write(&source, "pub fn lonely() {}").unwrap();
    assert!(matches!(Library::open(&source, &compiler), Err(Error::MissingSymbol { .. })));
}

#[test]
fn a_source_is_compiled_once_and_again_when_it_or_its_library_changes() {
    let Some(compiler) = compiler() else { return };
    let home = folder("compiled_once");
    let compiler = Compiler { cache: Some(home.join("cache")), ..compiler };
    let source = home.join("my op.rs");
    let text = fs::read_to_string(example()).unwrap();
    fs::write(&source, &text).unwrap();
    // Several at once: one folder results.
    let paths: Vec<PathBuf> = std::thread::scope(|scope| {
        let open = || Library::open(&source, &compiler).unwrap().path().to_path_buf();
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
    let folders = || fs::read_dir(home.join("cache/extensions")).unwrap().count();
    assert_eq!(folders(), 2, "the crate for sources, and the library");

    let time = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let made = time(&paths[0]);
    Library::open(&source, &compiler).unwrap();
    assert_eq!(time(&paths[0]), made, "nothing is made again");
    // As a full disk would leave it. (A new file: the old one is mapped.)
    fs::remove_file(&paths[0]).unwrap();
    fs::write(&paths[0], "torn").unwrap();
    Library::open(&source, &compiler).unwrap();
    assert!(fs::metadata(&paths[0]).unwrap().len() > 1000, "the damaged library was made anew");

    fs::write(&source, text.replace("\"1.0\"", "\"1.1\"")).unwrap();
    let changed = Library::open(&source, &compiler).unwrap();
    assert_eq!(changed.version(), "1.1");
    assert_eq!(folders(), 3);
}
