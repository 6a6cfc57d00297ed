//! The system fails: calls that return errors, full disks, and a clock that jumps. A library that is loaded before the
//! system's own puts the faults there.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Folder, command, storyteller};

/// Error numbers.
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// The functions with which files are read.
const READING: [(&str, i32); 4] = [("open64", EMFILE), ("read", EIO), ("statx", EIO), ("mmap", EIO)];
/// The functions with which files are written.
const WRITING: [(&str, i32); 6] = [
    ("open64", EROFS),
    ("write", ENOSPC),
    ("fsync", EIO),
    ("rename", EIO),
    ("mkdir", EROFS),
    ("ftruncate64", ENOSPC),
];

/// The library with the faults, compiled into a folder; `None` with a line that says so if there is no C compiler.
pub(crate) fn library(folder: &Folder) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/faults.c");
    let library = folder.path().join("faults.so");
    let compiler =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    match compiler {
        Ok(status) => {
            assert!(status.success(), "the library with the faults compiles");
            Some(library)
        }
        Err(error) => {
            testdata::skip(&format!("cc: {error}"));
            None
        }
    }
}

/// A command into which faults are put.
struct Faulty<'a> {
    library: &'a Path,
    arguments: &'a [&'a str],
    /// Each run has a folder of its own in this one.
    folder: &'a Folder,
}

impl Faulty<'_> {
    /// Runs the command in the folder with a number, with variables for the library. Gives the files that are there then.
    fn run(&self, number: usize, variables: &[(&str, &str)]) -> (Output, Vec<Vec<u8>>) {
        let folder = self.folder.path().join(number.to_string());
        std::fs::create_dir(&folder).unwrap();
        let mut command = command(self.arguments);
        command.current_dir(&folder).envs(variables.iter().copied());
        command.env("LD_PRELOAD", self.library).env("PERIHELION_CACHE_DIR", folder.join("cache"));
        let output = command.output().unwrap();
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let files = entries.filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap()).collect();
        std::fs::remove_dir_all(folder).unwrap();
        (output, files)
    }

    /// How often the command calls a function.
    fn calls(&self, function: &str) -> usize {
        let file = self.folder.path().join("calls");
        let (output, _) = self
            .run(0, &[("FAULT", &format!("{function}:0:0")), ("FAULT_CALLS", &file.display().to_string())]);
        assert!(output.status.success(), "{output:?}");
        std::fs::read_to_string(file).unwrap().parse().unwrap()
    }

    /// Fails each `step`-th call of the functions. Each time the command ends with the output and the files that it has
    /// without faults, or says what went wrong and leaves these files or none. Gives the number of faults.
    fn fail_each(&self, functions: &[(&str, i32)], step: usize) -> usize {
        let sound = self.run(0, &[]);
        let of_function = |&(function, error): &(&str, i32)| {
            let calls = (1..=self.calls(function)).step_by(step);
            calls.map(move |call| format!("{function}:{call}:{error}")).collect::<Vec<_>>()
        };
        let faults: Vec<String> = functions.iter().flat_map(of_function).collect();
        let check = |index: usize| {
            let (fault, (sound, sound_files)) = (&faults[index], &sound);
            let (output, files) = self.run(index, &[("FAULT", fault)]);
            let errors = String::from_utf8_lossy(&output.stderr);
            let ended = output.status.code().is_some_and(|code| code < 100) && !errors.contains("panicked");
            assert!(ended, "{fault}: {}: {errors}", output.status);
            if output.status.success() {
                assert_eq!(timeless(&output.stdout), timeless(&sound.stdout), "{fault}");
                assert!(files == *sound_files, "{fault} changes files");
            } else {
                assert!(errors.lines().any(|line| line.starts_with("peri: ")), "{fault}: {errors}");
                assert!(files.is_empty() || files == *sound_files, "{fault} leaves a part of a file");
            }
        };
        let count = faults.len();
        std::thread::scope(|scope| {
            for first in [0, 1] {
                scope.spawn(move || (first..count).step_by(2).for_each(check));
            }
        });
        count
    }
}

/// An output without the line that says how long the command took.
fn timeless(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.lines().filter(|line| !line.starts_with("time ")).collect()
}

/// Fault F15: each `step`-th call with which a model is read fails.
fn reads_fail(name: &str, step: usize) {
    let folder = Folder::new(name);
    let Some(library) = library(&folder) else { return };
    let model = storyteller();
    let generate =
        ["generate", "--model", &model, "Once", "--max-new-tokens", "2", "--temperature", "0", "--quiet"];
    let mut faults =
        Faulty { library: &library, arguments: &generate, folder: &folder }.fail_each(&READING, step);
    if let Some(encoder) = testdata::shared("minilm-l6-v2") {
        let encoder = encoder.display().to_string();
        let encode = ["encode", "--model", &encoder, "Once", "--quiet"];
        faults += Faulty { library: &library, arguments: &encode, folder: &folder }.fail_each(&READING, step);
    }
    println!("{faults} faults");
    assert!(faults > 150 / step, "{faults}");
}

#[test]
fn models_are_read_or_refused_whatever_call_fails() {
    reads_fail("reads", 13);
}

#[test]
#[ignore = "takes a minute"]
fn models_are_read_or_refused_whichever_of_all_calls_fails() {
    reads_fail("all-reads", 1);
}

/// Fault F5: a disk that is full, read-only or broken.
#[test]
fn files_are_written_whole_or_not_at_all_whatever_call_fails() {
    let folder = Folder::new("writes");
    let Some(library) = library(&folder) else { return };
    let arguments = ["quantize", "--to", "q8_0", "--out", "out.gguf", "--quiet"];
    let faulty = Faulty { library: &library, arguments: &arguments, folder: &folder };
    let faults = faulty.fail_each(&WRITING, 5);
    assert!(faults > 15, "{faults}");
    let (output, _) = faulty.run(0, &[("FAULT", &format!("write:9:{ENOSPC}"))]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("out.gguf needs ") && errors.contains("No space left"), "{errors}");
}

/// Fault F7: each process compiles the model for itself, and what all write is as if one had.
#[test]
fn many_processes_load_one_model_at_once_and_leave_one_entry_of_each_graph() {
    let folder = Folder::new("cold-loads");
    let model = storyteller();
    let start = |cache: &Path| {
        let arguments = [
            "generate",
            "--model",
            &model,
            "Once",
            "--max-new-tokens",
            "4",
            "--temperature",
            "0",
            "--threads",
            "1",
            "--quiet",
        ];
        let mut command = command(&arguments);
        command.env("PERIHELION_CACHE_DIR", cache).spawn().unwrap()
    };
    let entries = |cache: &Path| {
        let entries = std::fs::read_dir(cache.join("compiled")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let (alone, shared) = (folder.path().join("alone"), folder.path().join("shared"));
    let sound = start(&alone).wait_with_output().unwrap();
    assert!(sound.status.success() && !entries(&alone).is_empty(), "{sound:?}");
    let children: Vec<_> = (0..32).map(|_| start(&shared)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(timeless(&output.stdout), timeless(&sound.stdout));
    }
    assert_eq!(entries(&shared), entries(&alone));
}

#[test]
fn a_model_runs_without_a_compile_cache_if_that_cannot_be_written() {
    let folder = Folder::new("uncached");
    let Some(library) = library(&folder) else { return };
    let arguments = ["generate", "Once", "--max-new-tokens", "2", "--temperature", "0", "--quiet"];
    let faulty = Faulty { library: &library, arguments: &arguments, folder: &folder };
    let sound = faulty.run(0, &[]).0.stdout;
    for (function, error) in [("mkdir", EROFS), ("rename", ENOSPC)] {
        let fault = format!("{function}:1+:{error}");
        let (output, _) = faulty.run(0, &[("FAULT", &fault)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == sound, "{fault}: {errors}");
        assert_eq!(errors.matches("a compiled model is not kept").count(), 1, "{fault}: {errors}");
    }
}
