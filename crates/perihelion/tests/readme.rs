//! Every link and every path in README, ARCHITECTURE and `docs/` exists.

use std::path::PathBuf;

fn repository() -> PathBuf {
    testdata::repository()
}

/// README, ARCHITECTURE and the pages under `docs/`, as paths from the root.
fn documents() -> Vec<String> {
    let mut documents = vec!["README.md".to_string(), "ARCHITECTURE.md".to_string()];
    let mut folders = vec!["docs".to_string()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(repository().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(path),
                false if path.ends_with(".md") => documents.push(path),
                false => {}
            }
        }
    }
    documents
}

/// Targets of links, relative to the folder of the document, and code that is a path from the root; `PATH::TEST` is one.
fn named(text: &str) -> (Vec<String>, Vec<String>) {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = links.filter(|link| !link.contains("://")).filter_map(|link| link.split('#').next());
    let links = files.map(str::to_string).collect();
    let code = text.split('`').skip(1).step_by(2);
    let is_path = |code: &&str| {
        ["crates/", "docs/", "tools/"].iter().any(|folder| code.starts_with(folder))
            && !code.contains(|c: char| c.is_whitespace() || c.is_uppercase())
    };
    (links, code.filter(is_path).map(|code| code.split("::").next().unwrap_or(code).to_string()).collect())
}

/// The headings of a page, as the anchors that GitHub makes of them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn links_to_sections_lead_to_headings() {
    let mut checked = 0;
    for document in documents() {
        let path = repository().join(&document);
        let text = std::fs::read_to_string(&path).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for (page, anchor) in
            links.filter(|link| !link.contains("://")).filter_map(|link| link.split_once('#'))
        {
            let page = if page.is_empty() { path.clone() } else { path.parent().unwrap().join(page) };
            let anchors = anchors(&std::fs::read_to_string(&page).unwrap());
            assert!(
                anchors.iter().any(|other| other == anchor),
                "{document}: {} has no #{anchor}",
                page.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} links to sections found");
}

#[test]
fn links_and_paths_in_documents_exist() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(repository().join(&document)).unwrap();
        let (links, paths) = named(&text);
        let folder = repository().join(&document).parent().unwrap().to_path_buf();
        let targets = links.iter().map(|link| folder.join(link));
        for target in targets.chain(paths.iter().map(|path| repository().join(path))) {
            assert!(target.exists(), "{document} names {}, which is not there", target.display());
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} links and paths found");
}

/// The code that is `PATH::TEST`, of which the path is a file.
fn named_tests(text: &str) -> Vec<(PathBuf, &str)> {
    let code = text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once("::"));
    code.map(|(path, test)| (repository().join(path), test)).filter(|(path, _)| path.is_file()).collect()
}

#[test]
fn tests_that_documents_name_exist() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(repository().join(&document)).unwrap();
        for (path, test) in named_tests(&text) {
            let source = std::fs::read_to_string(&path).unwrap();
            let path = path.display();
            assert!(
                source.contains(&format!("fn {test}(")),
                "{document} names {test}, which is not in {path}"
            );
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} tests found");
}

#[test]
fn every_page_is_linked_from_readme_or_architecture() {
    let read = |document: &str| std::fs::read_to_string(repository().join(document)).unwrap();
    let (readme, architecture) = (read("README.md"), read("ARCHITECTURE.md"));
    for page in documents().into_iter().skip(2) {
        assert!(readme.contains(&page) || architecture.contains(&page), "nothing leads to {page}");
    }
}
