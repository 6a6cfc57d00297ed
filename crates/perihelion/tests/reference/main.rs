//! `docs/reference/` tells the truth: every name has its row, every path leads somewhere, every test exists.

mod behavior;
mod ops;
mod paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use testdata::repository;

/// A page that has a row for each name of a list.
struct Page {
    /// The page is `NAME.md`, its list `NAME-names.txt`.
    name: &'static str,
    /// The names that the list has at least.
    least: usize,
    /// The paths that it may name, and names all of.
    known: fn() -> Vec<&'static str>,
}

const PAGES: &[Page] = &[
    Page { name: "engine", least: 70, known: paths::engine::known },
    Page { name: "pipelines", least: 100, known: paths::pipelines::known },
];

/// What a row of the table says.
struct Row {
    name: String,
    path: String,
    here: String,
    tests: Vec<String>,
}

impl Page {
    fn text(&self) -> String {
        read(&format!("{}.md", self.name))
    }

    fn names(&self) -> Vec<String> {
        read(&format!("{}-names.txt", self.name)).lines().map(str::to_string).collect()
    }
}

fn read(document: &str) -> String {
    fs::read_to_string(repository().join("docs/reference").join(document)).unwrap()
}

/// The rows of all tables of a page. Each has five cells: name, path, what it does, tests, differences.
fn rows(page: &str) -> Vec<Row> {
    let lines = page.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let &["", name, path, here, tests, _, ""] = &cells[..] else { panic!("not five cells: {line}") };
            let code = |cell| {
                let mut code = code(cell);
                assert_eq!(code.len(), 1, "not one name: {cell}");
                code.remove(0)
            };
            Row { name: code(name), path: code(path), here: here.to_string(), tests: self::code(tests) }
        })
        .collect()
}

/// What stands between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The names of all tests in the repository's sources.
fn tests() -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for crate_ in fs::read_dir(repository().join("crates")).unwrap() {
        for folder in ["src", "tests"] {
            add_tests(&crate_.as_ref().unwrap().path().join(folder), &mut tests);
        }
    }
    tests
}

fn add_tests(folder: &Path, tests: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_tests(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(path).unwrap();
            let after = source.split("#[test]").skip(1);
            let named = after.filter_map(|text| text.split_once("fn ")?.1.split_once('('));
            tests.extend(named.map(|(name, _)| name.to_string()));
        }
    }
}

#[test]
fn every_name_has_one_row() {
    for page in PAGES {
        let rows: Vec<String> = rows(&page.text()).into_iter().map(|row| row.name).collect();
        let names = page.names();
        for name in &names {
            let count = rows.iter().filter(|row| *row == name).count();
            assert_eq!(count, 1, "{}: rows of `{name}`", page.name);
        }
        let strange: Vec<&String> = rows.iter().filter(|row| !names.contains(row)).collect();
        assert!(strange.is_empty(), "{}: rows of names that are not listed: {strange:?}", page.name);
        assert!(names.len() > page.least, "{}: {names:?}", page.name);
    }
}

#[test]
fn every_row_names_a_path_that_is_there() {
    for page in PAGES {
        let (text, known) = (page.text(), (page.known)());
        for Row { name, path, here, .. } in rows(&text) {
            assert!(known.contains(&&path[..]), "`{name}` is said to be at {path}, which nobody compiled");
            assert!(!here.is_empty(), "what `{name}` does is not said");
        }
        for path in known {
            let last = path.rsplit("::").next().unwrap();
            assert!(text.contains(last), "{path} is compiled, and {}.md does not name it", page.name);
        }
    }
}

#[test]
fn every_row_names_tests_that_exist() {
    let known = tests();
    for Row { name, tests, .. } in PAGES.iter().flat_map(|page| rows(&page.text())) {
        assert!(!tests.is_empty(), "no test shows `{name}`");
        for test in tests {
            assert!(known.contains(&test), "`{name}` is said to be shown by the test `{test}`");
        }
    }
}
