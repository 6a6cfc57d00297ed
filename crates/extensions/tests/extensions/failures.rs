//! What extensions do wrong becomes an error, and the process goes on.

use std::fs;
use std::path::{Path, PathBuf};

use perihelion_extensions::{Compiler, Error, Library, Operand, ParameterKind};
use tensor::{DType, Shape, Tensor};

use crate::{call, compiled, compiled_c, folder, numbers};

fn faulty() -> Option<Library> {
    compiled(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sources/faulty.rs"))
}

/// What an op of `faulty.rs` says to a call.
fn message(library: &Library, op: &str, x: &[f32]) -> String {
    let result = (DType::F32, &[x.len()][..]);
    let message = call(library, op, &[], &[&Tensor::from_slice([x.len()], x)], result).unwrap_err();
    let prefix = format!("`{op}` of faulty 0: ");
    message.strip_prefix(&prefix).unwrap_or_else(|| panic!("{message}")).to_string()
}

#[test]
fn misdeeds_are_errors_and_the_next_call_works() {
    let Some(library) = faulty() else { return };
    let x = [-1f32, 1.0];
    let cases = [
        ("panics", "it panicked: -1 is negative"),
        (
            "thread_panics",
            "it panicked: assertion `left != right` failed: the sixth chunk\n  left: 5\n right: 5",
        ),
        ("infer_panics", "it panicked: 1 operands"),
        ("refuses", "[2] is too much"),
        ("silent", "it refused the call without a message"),
        ("lies_about_shape", "result 0 is stated as f32[2], but it makes f32[7, 7]"),
        ("lies_about_dtype", "result 0 is stated as f32[2], but it makes elements of the unknown dtype 9"),
        ("wrong_type", "operand 0 is f32, expected i64"),
        ("twice", "result 0 was lent already"),
        ("no_such_operand", "it panicked: operand 3 of 1"),
        ("overruns", "it wrote behind the 8 bytes of a result or buffer"),
        ("underruns", "it wrote before the 8 bytes of a result or buffer"),
        ("scribbles", "it wrote to operand 0, which it only reads, at byte 6"),
    ];
    for (op, expected) in cases {
        assert_eq!(message(&library, op, &x), expected);
        let x = Tensor::from_slice([2], &[1f32, 2.0]);
        let y = call(&library, "panics", &[], &[&x], (DType::F32, &[2])).unwrap();
        assert_eq!(numbers::<f32>(&y), [2.0, 4.0]);
    }
    let long = message(&library, "talks", &x);
    assert_eq!(long, "ä".repeat(1024));
}

#[test]
fn calls_that_do_not_fit_the_signature_never_reach_the_op() {
    let Some(library) = faulty() else { return };
    let op = library.op("panics").unwrap();
    let run =
        |operands: &mut [Operand<'_>]| op.run(&[], operands, &mut [], &crate::threads, crate::Guards::On);
    assert_eq!(run(&mut []).unwrap_err(), "`panics` of faulty 0: got 0 operands, expected 1");
    let x = Tensor::from_slice([1], &[1f32]);
    let unexpected = "`panics` of faulty 0: got 0 results, expected 1 to 1";
    assert_eq!(run(&mut [crate::read(&x)]).unwrap_err(), unexpected);
    let mut bytes = [0; 4];
    let written = crate::ArrayMut { dtype: DType::F32, shape: Shape::new(&[1]), bytes: &mut bytes };
    let result = &mut [crate::ArrayMut { dtype: DType::F32, shape: Shape::new(&[1]), bytes: &mut [0; 4] }];
    let outcome = op.run(&[], &mut [Operand::Write(written)], result, &crate::threads, crate::Guards::On);
    let expected = "`panics` of faulty 0: operand 0 is declared as Tensor, and given otherwise";
    assert_eq!(outcome.unwrap_err(), expected);
}

/// The error of loading a file, without the path in it.
fn refused(path: &Path) -> String {
    let compiler = Compiler { rustc: "rustc".into(), cache: None };
    let error = Library::open(path, &compiler).unwrap_err().to_string();
    let shown = path.canonicalize().unwrap_or(path.to_path_buf()).display().to_string();
    error.replace(&shown, "PATH")
}

#[test]
fn files_that_are_no_extension_are_named() {
    let folder = folder("no_extensions");
    let missing = folder.join("missing.so");
    // The number is that of a missing file on every system; the words differ.
    let expected = format!("extension PATH: {}", std::io::Error::from_raw_os_error(2));
    assert!(refused(&missing).starts_with(&expected), "{}", refused(&missing));
    let write = |name: &str, bytes: &[u8]| -> PathBuf {
        fs::write(folder.join(name), bytes).unwrap();
        folder.join(name)
    };
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let text = refused(&write("text.so", b"hello, I am no library"));
    assert_eq!(text, "extension PATH: no shared library (ELF): it starts with \"hello, I am no l\"");
    let empty = refused(&write("empty.so", b""));
    assert_eq!(empty, "extension PATH: no shared library (ELF): it starts with \"\"");
    let mut header = [0u8; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    (header[16], header[18]) = (3, if cfg!(target_arch = "aarch64") { 62 } else { 183 });
    let other = if cfg!(target_arch = "aarch64") { "x86_64" } else { "aarch64" };
    let foreign = refused(&write("foreign.so", &header));
    assert!(foreign.starts_with(&format!("extension PATH: made for {other} (64 bits")), "{foreign}");
    header[16] = 2;
    let program = refused(&write("program.so", &header));
    assert_eq!(program, "extension PATH: no shared library: its ELF type is 2, expected 3");
    (header[16], header[18]) = (3, if cfg!(target_arch = "aarch64") { 183 } else { 62 });
    let torn = refused(&write("torn.so", &header));
    assert!(torn.starts_with("extension PATH: the system's loader refuses it: "), "{torn}");
}

/// What is said of a library made of this C.
fn refused_c(test: &str, text: &str) -> Option<String> {
    let source = folder(&format!("{test}_source")).join("extension.c");
    fs::write(&source, format!("#include \"perihelion_extension.h\"\n{text}")).unwrap();
    Some(refused(&compiled_c(test, &source)?))
}

#[test]
fn libraries_that_break_the_abi_are_refused() {
    let Some(other) = refused_c("other", "PERIHELION_EXPORT int other(void) { return 1; }") else { return };
    let missing = "the library does not export `perihelion_extension_v1`: it is not an extension, or was built for another ABI";
    assert_eq!(other, format!("extension PATH: {missing}"));
    let entry = "const PerihelionLibrary *perihelion_extension_v1(void)";
    let table = |fields: &str| format!("static PerihelionLibrary l = {{{fields}}}; {entry} {{ return &l; }}");
    let check = |test: &str, text: &str, expected: &str| {
        assert_eq!(refused_c(test, text).unwrap(), format!("extension PATH: {expected}"));
    };
    check("null", &format!("{entry} {{ return 0; }}"), "the table is at the impossible address 0x0");
    let version = table(".abi_version = 2");
    check("version", &version, "it is made for version 2 of the ABI, expected 1");
    let size = table(".abi_version = 1, .struct_size = 3");
    check("size", &size, "the table takes 3 bytes, expected 64");
    let sizes = ".abi_version = 1, .struct_size = sizeof l, .op_size = sizeof(PerihelionOp)";
    let empty = table(&format!("{sizes}, .name = PERIHELION_TEXT(\"none\")"));
    check("empty", &empty, "the library `none` has 0 ops and this name");
    let lacks = format!("void absent(void); {entry} {{ absent(); return 0; }}");
    let message = refused_c("lacks", &lacks).unwrap();
    assert!(message.contains("the system's loader refuses it") && message.contains("absent"), "{message}");
}

#[test]
fn a_file_that_changed_is_not_taken_for_what_it_was() {
    let Some(library) = faulty() else { return };
    let parameters = library.ops().iter().flat_map(|op| &op.signature().parameters);
    assert_eq!(parameters.filter(|parameter| parameter.kind == ParameterKind::Bool).count(), 0);
    let path = folder("changed").join("library.so");
    let compiler = Compiler { rustc: "rustc".into(), cache: None };
    fs::copy(library.path(), &path).unwrap();
    Library::open(&path, &compiler).unwrap();
    Library::open(&path, &compiler).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.push(0);
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    assert!(matches!(Library::open(&path, &compiler), Err(Error::Changed { .. })));
}
