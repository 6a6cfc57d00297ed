//! Checks `docs/reference/`: every name has its row, every path compiles or is a name of Python, and every test exists.
//! The tests that the page of the engine names are here; they run on the CPU.

mod compile;
mod debug;
mod driver;
mod extensions;
mod files;
mod kernels;
mod models;
mod ops;
mod paths;
mod printing;
mod profiling;
mod session;
mod support;

use std::collections::BTreeSet;
use std::fs;

use testdata::repository;

/// A page with a row, and an entry below it, for each name of a list.
struct Page {
    /// The page is `NAME.md`, its list `NAME-names.txt`.
    name: &'static str,
    /// A lower bound of the length of the list.
    least: usize,
    /// The paths that the page may name, and must name all of.
    known: fn() -> Vec<&'static str>,
    /// The folders whose tests may show a row: those that run on the CPU, or do without a device.
    test_folders: &'static [&'static str],
}

const PAGES: &[Page] = &[
    Page {
        name: "engine",
        least: 70,
        known: paths::engine::known,
        test_folders: &["crates/perihelion/", "crates/cpu/"],
    },
    Page {
        name: "pipelines",
        least: 100,
        known: paths::pipelines::known,
        test_folders: &["crates/perihelion/", "crates/pipelines/src/plan/config/", "crates/sources/"],
    },
];

/// Where tests are, unless their path begins with `crates/`.
const TESTS: &str = "crates/perihelion/tests/";

/// Where tests in Python are.
const PYTHON_TESTS: &str = "python/tests";

/// Exceptions of Python itself, which `python-names.txt` does not list.
const EXCEPTIONS: [&str; 3] = ["RuntimeError", "TypeError", "ValueError"];

/// The head of the tables that have a row for each name.
const HEAD: &str = "| name | in Rust | in Python | what it does |\n|---|---|---|---|\n";

/// Longer sentences are hard to read in a row.
const SENTENCE_CHARACTERS: usize = 120;

/// A row of a table: name, paths in Rust and Python, one sentence.
struct Row {
    name: String,
    rust: String,
    python: String,
    sentence: String,
}

/// An entry of the details below a table.
struct Entry {
    name: String,
    /// As `FILE::FUNCTION`.
    tests: Vec<String>,
    /// As `FILE::FUNCTION` or `FILE::CLASS::FUNCTION`.
    python_tests: Vec<String>,
}

impl Page {
    fn text(&self) -> String {
        read(&format!("{}.md", self.name))
    }

    fn names(&self) -> Vec<String> {
        read(&format!("{}-names.txt", self.name)).lines().map(str::to_string).collect()
    }

    fn rows(&self) -> Vec<Row> {
        let text = self.text();
        let tables = text.split(HEAD).skip(1);
        let lines = tables.flat_map(|table| table.lines().take_while(|line| line.starts_with("| `")));
        lines
            .map(|line| {
                let cells: Vec<&str> = line.split('|').map(str::trim).collect();
                let &["", name, rust, python, sentence, ""] = &cells[..] else {
                    panic!("not four cells: {line}")
                };
                let code = |cell| {
                    let mut code = code(cell);
                    assert_eq!(code.len(), 1, "not one name: {cell}");
                    code.remove(0)
                };
                Row {
                    name: code(name),
                    rust: code(rust),
                    python: code(python),
                    sentence: sentence.to_string(),
                }
            })
            .collect()
    }

    /// The items of the folded lists: "- `NAME`: details. Tests: `FILE::FUNCTION`, …. Python: `FILE::FUNCTION`, …."
    fn entries(&self) -> Vec<Entry> {
        let text = self.text();
        let folded = text.split("<details>").skip(1).map(|part| part.split("</details>").next().unwrap());
        let items = folded.flat_map(|part| part.split("\n- `").skip(1));
        items
            .map(|item| {
                let name = item.split('`').next().unwrap().to_string();
                let tests = item.split_once("Test:").or_else(|| item.split_once("Tests:"));
                let (rust, python) = tests
                    .and_then(|(_, tests)| tests.split_once("Python:"))
                    .unwrap_or_else(|| panic!("`{name}` has no tests, or none in Python"));
                Entry { name, tests: code(rust), python_tests: code(python) }
            })
            .collect()
    }
}

fn read(document: &str) -> String {
    fs::read_to_string(repository().join("docs/reference").join(document)).unwrap()
}

/// The text between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// Whether the list of Python's names has a path: of a module, a class, a member or a parameter (`PATH(PARAMETER)`).
fn is_in_python(list: &str, path: &str) -> bool {
    let has_parameter = |(owner, parameter): (&str, &str)| {
        let (function, class) = (format!("perihelion.{owner}("), format!("perihelion.{owner}.__init__("));
        let mut signatures =
            list.lines().filter(|line| line.starts_with(&function) || line.starts_with(&class));
        signatures.any(|line| line.split(['(', ' ']).any(|word| word.strip_suffix(':') == Some(parameter)))
    };
    if let Some(path) = path.strip_suffix(')') {
        return path.split_once('(').is_some_and(has_parameter);
    }
    let full = format!("perihelion.{path}");
    // A class that has its members under another name.
    let elsewhere =
        list.lines().filter_map(|line| line.split_once(" is perihelion.")).find_map(|(name, home)| {
            let member = full.strip_prefix(name)?.strip_prefix('.')?;
            Some(format!("{home}.{member}"))
        });
    if let Some(path) = elsewhere {
        return is_in_python(list, &path);
    }
    let is_listed = list.lines().any(|line| {
        let rest = line.strip_prefix(&full);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
    });
    // The list has the fields of a dataclass as parameters of its constructor.
    is_listed || path.rsplit_once('.').is_some_and(has_parameter)
}

/// The functions of a source file that run as tests.
fn tests_of(source: &str) -> BTreeSet<&str> {
    let attributed = source.split("#[test]").skip(1);
    let functions = attributed.filter_map(|text| {
        let (attributes, rest) = text.split_once("fn ")?;
        (!attributes.contains("#[ignore")).then(|| rest.split('(').next())?
    });
    functions.collect()
}

#[test]
fn every_name_has_one_row_and_one_entry() {
    for page in PAGES {
        let names = page.names();
        assert!(names.len() > page.least, "{}: {names:?}", page.name);
        let rows: Vec<String> = page.rows().into_iter().map(|row| row.name).collect();
        let entries: Vec<String> = page.entries().into_iter().map(|entry| entry.name).collect();
        assert_eq!(rows, entries, "{}: rows, and the entries below them", page.name);
        for name in &names {
            let count = rows.iter().filter(|row| *row == name).count();
            assert_eq!(count, 1, "{}: rows of `{name}`", page.name);
        }
        let strange: Vec<&String> = rows.iter().filter(|row| !names.contains(row)).collect();
        assert!(strange.is_empty(), "{}: rows of names that are not listed: {strange:?}", page.name);
    }
}

#[test]
fn every_row_has_known_paths_and_one_short_sentence() {
    let python_names = read("python-names.txt");
    for page in PAGES {
        let (text, known) = (page.text(), (page.known)());
        for Row { name, rust, python, sentence } in page.rows() {
            let path = format!("perihelion::{rust}");
            assert!(
                known.contains(&&path[..]),
                "`{name}` is said to be at {path}, which `paths` does not compile"
            );
            let is_known = EXCEPTIONS.contains(&&python[..]) || is_in_python(&python_names, &python);
            assert!(
                is_known,
                "`{name}` is said to be {python} in Python, which python-names.txt does not list"
            );
            let is_one = sentence.ends_with('.') && !sentence.contains(". ");
            assert!(is_one && sentence.len() <= SENTENCE_CHARACTERS, "`{name}`: {sentence}");
        }
        for path in known {
            let last = path.rsplit("::").next().unwrap();
            assert!(text.contains(last), "`paths` compiles {path}, which {}.md does not name", page.name);
        }
    }
}

#[test]
fn every_entry_names_tests_that_run_on_the_cpu() {
    for page in PAGES {
        for Entry { name, tests, .. } in page.entries() {
            assert!(!tests.is_empty(), "{}: `{name}` has no test", page.name);
            for test in tests {
                let (file, function) = test.split_once("::").unwrap_or_else(|| panic!("`{name}`: {test}"));
                let file =
                    if file.starts_with("crates/") { file.to_string() } else { format!("{TESTS}{file}") };
                let is_allowed = page.test_folders.iter().any(|folder| file.starts_with(folder));
                assert!(is_allowed, "`{name}`: {file} is not in {:?}", page.test_folders);
                let source = fs::read_to_string(repository().join(&file));
                let source = source.unwrap_or_else(|error| panic!("`{name}`: {file}: {error}"));
                assert!(tests_of(&source).contains(function), "`{name}`: {file} has no test `{function}`");
            }
        }
    }
}

#[test]
fn every_entry_names_tests_in_python() {
    for page in PAGES {
        for Entry { name, python_tests, .. } in page.entries() {
            assert!(!python_tests.is_empty(), "{}: `{name}` has no test in Python", page.name);
            for test in python_tests {
                let mut parts = test.split("::");
                let file = repository().join(PYTHON_TESTS).join(parts.next().unwrap());
                let source = fs::read_to_string(&file);
                let source = source.unwrap_or_else(|error| panic!("`{name}`: {test}: {error}"));
                let is_there = |part| {
                    [format!("class {part}:"), format!("def {part}(")]
                        .iter()
                        .any(|line| source.contains(line))
                };
                assert!(test.contains("::test_") && parts.all(is_there), "`{name}`: there is no test {test}");
            }
        }
    }
}

#[test]
fn every_test_of_this_folder_is_named() {
    let pages: String = PAGES.iter().map(Page::text).collect();
    for file in [
        "compile",
        "debug",
        "driver",
        "extensions",
        "files",
        "kernels",
        "models",
        "printing",
        "profiling",
        "session",
    ] {
        let path = format!("reference/{file}.rs");
        let source = fs::read_to_string(repository().join(TESTS).join(&path)).unwrap();
        for test in tests_of(&source) {
            assert!(pages.contains(&format!("`{path}::{test}`")), "no page names {path}::{test}");
        }
    }
}
