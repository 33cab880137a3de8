//! Checks that the modules in a crate's root do not name each other in a circle, be it by way of others. Parents and children may name each
//! other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Edges = BTreeMap<String, BTreeSet<String>>;

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Module of the crate's root that a file belongs to; none for the root itself.
fn module_of(source: &Path, file: &Path) -> Option<String> {
    let first = file.strip_prefix(source).unwrap().iter().next().unwrap().to_str().unwrap();
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main"].contains(&name)).then(|| name.to_string())
}

/// First names behind each `crate::` of a text: one, or those of a list.
fn named(text: &str) -> Vec<String> {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` and `xsched_crate::` are other paths.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    found.push(word(&list[at..]));
                    begins = false;
                }
                _ => {}
            }
        }
    }
    found
}

fn edges(source: &Path) -> Edges {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let modules: BTreeSet<_> = files.iter().filter_map(|file| module_of(source, file)).collect();
    let mut edges = Edges::new();
    for file in &files {
        let Some(module) = module_of(source, file) else { continue };
        let text = std::fs::read_to_string(file).unwrap();
        let others = named(&text).into_iter().filter(|name| *name != module && modules.contains(name));
        edges.entry(module.clone()).or_default().extend(others);
    }
    edges
}

/// All modules that a module names, directly or through others.
fn below(edges: &Edges, module: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![module.to_string()];
    while let Some(next) = open.pop() {
        for other in edges.get(&next).into_iter().flatten() {
            if found.insert(other.clone()) {
                open.push(other.clone());
            }
        }
    }
    found
}

#[test]
fn no_modules_go_round_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    for folder in xtask::workspace::crates(&root).unwrap() {
        if folder.ends_with("xtask") {
            continue;
        }
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        let edges = edges(&folder.join("src"));
        let round: BTreeSet<_> = edges.keys().filter(|module| below(&edges, module).contains(*module)).collect();
        for module in &round {
            let back: Vec<_> = edges[*module].iter().filter(|other| below(&edges, other).contains(*module)).collect();
            wrong.push(format!("{name}: `{module}` names {back:?}, which lead back to it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_found_in_lists_and_paths() {
    let text = "use crate::{a, b::{c, d}, e};\nlet x = crate::f::g(); // crate::h\nuse other_crate::i;";
    assert_eq!(named(text), ["a", "b", "e", "f"]);
}
