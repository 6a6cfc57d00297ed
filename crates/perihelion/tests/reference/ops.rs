//! The page of ops is complete: it has a row for each name of the list, and names every method of the builder.

use std::collections::BTreeSet;
use std::path::PathBuf;

fn read(path: &str) -> String {
    std::fs::read_to_string(testdata::repository().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cells of the rows of all tables with so many columns.
fn rows(page: &str, columns: usize) -> Vec<Vec<&str>> {
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() == columns)
        .collect()
}

/// The text between backticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The public methods of `Builder`: functions that take or give one, and rows of the macros that write them.
fn methods() -> BTreeSet<String> {
    let folder: PathBuf = testdata::repository().join("crates/graph/src/builder");
    let mut methods = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap().to_string();
        let mut is_builder = false;
        for line in text.lines() {
            if !line.starts_with(' ') && line.ends_with('{') {
                is_builder = line.starts_with("impl Builder") || line.ends_with("! {");
            }
            let named = line.strip_prefix("    pub fn ").and_then(|rest| rest.split(['(', '<']).next());
            let row = line.strip_prefix("    ").and_then(|rest| rest.split_once(" = "));
            let row = row.filter(|(_, rest)| rest.ends_with(';')).map(|(name, _)| name);
            let method = named.or(row).filter(|name| is_builder && is_name(name));
            methods.extend(method.map(str::to_string));
        }
    }
    methods
}

#[test]
fn every_op_has_a_row() {
    let (page, list) = (read("docs/reference/ops.md"), read("docs/reference/ops-names.txt"));
    let rows = rows(&page, 3);
    let named: Vec<&str> = rows.iter().flat_map(|cells| code(cells[0])).collect();
    assert_eq!(named, list.lines().collect::<Vec<_>>());
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "each has one row");
    assert!(named.len() > 110, "{}", named.len());
}

#[test]
fn methods_of_the_page_are_those_of_the_builder() {
    let page = read("docs/reference/ops.md");
    let (ops, more) = (rows(&page, 3), rows(&page, 2));
    let cells = ops.iter().map(|cells| cells[1]).chain(more.iter().map(|cells| cells[0]));
    let written: BTreeSet<String> = cells.flat_map(code).map(str::to_string).collect();
    let methods = methods();
    let unknown: Vec<&String> = written.difference(&methods).collect();
    assert!(unknown.is_empty(), "the page names methods that are not there: {unknown:?}");
    let missing: Vec<&String> = methods.difference(&written).collect();
    assert!(missing.is_empty(), "the page leaves out methods: {missing:?}");
    assert!(methods.contains("add") && methods.contains("sum") && methods.contains("finish"));
}
