//! The repository's own rules, as tests: what every source file opens with, how long it may be, and that paths named in the
//! documents exist.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// House rule: near 500 lines. Past this one a file is to be split by noun.
const LONGEST: usize = 650;

/// Documents whose links and paths are checked.
const DOCUMENTS: [&str; 10] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "GLOSSARY.md",
    "CHANGELOG.md",
    "docs/configuration.md",
    "docs/datasets.md",
    "docs/models.md",
    "docs/traces.md",
    "docs/sweeps.md",
];

/// A word that starts so is taken for a path in the repository.
const ROOTS: [&str; 11] = [
    "src/",
    "tests/",
    "docs/",
    "configs/",
    "scripts/",
    "benches/",
    "kernels/",
    "data/demo",
    ".ci/",
    ".config/",
    "results/README.md",
];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every `.rs` file of the folders that hold code, sorted.
fn sources() -> Vec<PathBuf> {
    fn walk(folder: &Path, out: &mut BTreeSet<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.insert(path);
            }
        }
    }
    let mut out = BTreeSet::new();
    for folder in ["src", "tests", "benches", "examples"] {
        walk(&repository().join(folder), &mut out);
    }
    out.into_iter().collect()
}

/// The document's text; `None` while it does not exist.
fn document(name: &str) -> Option<String> {
    fs::read_to_string(repository().join(name)).ok()
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let silent: Vec<_> =
        sources().into_iter().filter(|path| !fs::read_to_string(path).unwrap().starts_with("//! ")).collect();
    assert!(silent.is_empty(), "these files do not open with `//! `: {silent:#?}");
}

#[test]
fn no_source_file_is_too_long() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST)
        .collect();
    assert!(long.is_empty(), "these files are longer than {LONGEST} lines: {long:#?}");
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for name in DOCUMENTS {
        let Some(text) = document(name) else { continue };
        let folder = repository().join(name).parent().unwrap().to_owned();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let path = link.split('#').next().unwrap();
            // ARCHITECTURE.md is named before it is written.
            if !path.is_empty() && path != "ARCHITECTURE.md" && !folder.join(path).exists() {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}

#[test]
fn paths_named_in_documents_exist() {
    let mut missing = Vec::new();
    for name in DOCUMENTS {
        let Some(text) = document(name) else { continue };
        missing.extend(
            paths(&text)
                .into_iter()
                .filter(|path| !repository().join(path).exists())
                .map(|path| format!("{name}: {path}")),
        );
    }
    assert!(missing.is_empty(), "paths that do not exist: {missing:#?}");
}

/// Targets of `[text](target)`.
fn links(text: &str) -> Vec<String> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()).collect()
}

/// Words that look like paths in the repository; those with a placeholder are left out.
fn paths(text: &str) -> BTreeSet<String> {
    text.split(|c: char| c.is_whitespace() || "`'\"()[],;=|".contains(c))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .filter(|word| !word.contains(['<', '*', '{', '…']))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_checks_see_what_they_should() {
    assert_eq!(links("see [a](b.md#c) and [d](https://e)"), ["b.md#c", "https://e"]);
    let found = paths("run `src/lib.rs`, then docs/x.md. Not src/<name>.rs, nor data/mine; --path=tests/a.rs");
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["docs/x.md", "src/lib.rs", "tests/a.rs"]);
}

/// Every equation of the paper is named in ARCHITECTURE.md's table, and every function named there exists.
#[test]
fn the_table_of_equations_is_complete_and_true() {
    let text = fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let table: Vec<&str> = text
        .lines()
        .skip_while(|line| *line != "## Where each equation lives")
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| "))
        .collect();
    let first_column: String = table.iter().filter_map(|line| line.split('|').nth(1)).collect();
    for n in 1..=28 {
        assert!(first_column.contains(&format!("({n})")), "equation ({n}) is not in the table");
    }
    let mut checked = 0;
    for name in table.iter().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|name| name.contains("::")) {
        let parts: Vec<&str> = name.split("::").collect();
        let (item, path) = parts.split_last().unwrap();
        // The longest prefix of the path that is a module file; a type may stand between module and function.
        let file = (1..=path.len()).rev().find_map(|n| {
            let module = repository().join("src").join(path[..n].join("/"));
            [module.with_extension("rs"), module.join("mod.rs")].into_iter().find(|f| f.is_file())
        });
        let file = file.unwrap_or_else(|| panic!("{name}: no such module"));
        let code = fs::read_to_string(&file).unwrap();
        let defined = [format!("fn {item}"), format!("struct {item}"), format!("trait {item}")];
        assert!(defined.iter().any(|d| code.contains(d.as_str())), "{name}: not in {}", file.display());
        checked += 1;
    }
    assert!(checked > 20, "only {checked} functions were found in the table");
}
