//! Packages hold what their manifests say.

use std::fs;
use std::path::Path;

use perihelion_extensions::{Compiler, Library, MANIFEST, pack};

use crate::{compiled, folder, repository, runs, statistics};

/// The error of loading a package after a change to its manifest, without the path in it.
fn changed(package: &Path, from: &str, to: &str) -> String {
    let path = package.join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let error = Library::open(package, &Compiler::from_env()).unwrap_err().to_string();
    fs::write(&path, text).unwrap();
    error.replace(&package.canonicalize().unwrap().display().to_string(), "PATH")
}

#[test]
fn packages_are_made_loaded_and_checked() {
    if !runs("cargo", "-V") {
        return;
    }
    let package = folder("statistics_package");
    pack(statistics(), &package).unwrap();
    pack(statistics(), &package).unwrap();
    let library = Library::open(&package, &Compiler::from_env()).unwrap();
    assert_eq!((library.name(), library.ops().len()), ("statistics", 4));
    assert_eq!(library.digest(), Library::open(statistics(), &Compiler::from_env()).unwrap().digest());

    let digest = library.digest();
    let zeros = "0".repeat(64);
    let other = changed(&package, &digest, &zeros);
    let facts = format!("its blake3 digest is {digest}, the manifest says {zeros}");
    assert!(other.ends_with(&facts), "{other}");
    let short = changed(&package, &digest, "12");
    assert!(short.starts_with("extension package PATH: the digest \"12\" is none"), "{short}");
    let abi = changed(&package, "\"abi\": 1", "\"abi\": 3");
    assert_eq!(abi, "extension PATH: it is made for version 3 of the ABI, expected 1");
    let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    let machine = changed(&package, &format!("\"{target}\""), "\"z80-cpm\"");
    let expected = format!("extension package PATH: it holds no library for {target}, only for: z80-cpm");
    assert_eq!(machine, expected);
    let outside = changed(&package, &format!("\"{target}/"), "\"../");
    assert!(outside.contains("is not within the folder"), "{outside}");
    let name = changed(&package, "\"name\": \"statistics\"", "\"name\": \"other\"");
    assert_eq!(name, "extension package PATH: the manifest says other 1.0, the library says statistics 1.0");
    let op = changed(&package, "\"name\": \"mean_of\"", "\"name\": \"sum_of\"");
    assert_eq!(op, "extension package PATH: the library has no op `sum_of` as the manifest says it");
    let field = changed(&package, "\"abi\"", "\"abo\"");
    assert!(field.starts_with("extension package PATH: manifest.json: unknown field `abo`"), "{field}");
    let empty = changed(&package, "{", "");
    assert!(empty.starts_with("extension package PATH: manifest.json: "), "{empty}");
    fs::remove_file(package.join(MANIFEST)).unwrap();
    let none = Library::open(&package, &Compiler::from_env()).unwrap_err().to_string();
    let expected = format!("manifest.json: {}", std::io::Error::from_raw_os_error(2));
    assert!(none.contains(&expected), "{none}");
}

#[test]
fn a_package_holds_one_library() {
    let Some(other) = compiled(&repository().join("examples/extensions/leaky_relu.rs")) else { return };
    let package = folder("mixed_package");
    pack(statistics(), &package).unwrap();
    let error = pack(other.path(), &package).unwrap_err().to_string();
    assert!(error.ends_with("the manifest says statistics 1.0, the library says leaky_relu 1.0"), "{error}");
}
