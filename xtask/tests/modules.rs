//! Checks that the modules of a crate, each file one, do not name each other in a circle, be it by way of others. That a child names
//! its parent, whose items it extends or uses, is no circle.

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

/// Path of the module that a file is, below the crate's root; empty for the root itself.
fn module_of(source: &Path, file: &Path) -> Vec<String> {
    let below = file.strip_prefix(source).unwrap().with_extension("");
    let mut path: Vec<_> = below.iter().map(|part| part.to_str().unwrap().to_string()).collect();
    if path.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        path.pop();
    }
    path
}

/// Paths behind each `crate::` of a text; those of a list singly.
fn named(text: &str) -> Vec<Vec<String>> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        // `$crate::` and `xsched_crate::` are other paths.
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let mut rest = &code[at + "crate::".len()..];
        read(&mut rest, &[], &mut found);
    }
    found
}

/// Reads a path, or a list of paths, behind the path that leads to it.
fn read(rest: &mut &str, before: &[String], found: &mut Vec<Vec<String>>) {
    let mut path = before.to_vec();
    loop {
        *rest = rest.trim_start();
        if let Some(list) = rest.strip_prefix('{') {
            *rest = list;
            while !rest.starts_with('}') && !rest.is_empty() {
                read(rest, &path, found);
                *rest = rest.trim_start_matches([',', ' ', '\n']);
            }
            *rest = rest.strip_prefix('}').unwrap_or(rest);
            return;
        }
        let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length > 0 {
            path.push(rest[..length].to_string());
        }
        *rest = &rest[length..];
        match rest.strip_prefix("::") {
            Some(more) => *rest = more,
            None => break,
        }
    }
    // Text behind the path, up to the next path of a list: ` as name`, `*`.
    *rest = &rest[rest.find([',', '}', ';', '\n', '(', ' ']).unwrap_or(rest.len())..];
    if rest.starts_with(" as ") {
        *rest = &rest[rest.find([',', '}', ';']).unwrap_or(rest.len())..];
    }
    found.push(path);
}

/// True if a module's text has a path that begins with this child of it.
fn names_child(text: &str, child: &str) -> bool {
    let path = format!("{child}::");
    let begins = |at: usize| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    text.match_indices(&path).any(|(at, _)| begins(at))
}

fn edges(source: &Path) -> Edges {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let modules: BTreeSet<_> =
        files.iter().map(|file| module_of(source, file)).filter(|path| !path.is_empty()).collect();
    let mut edges = Edges::new();
    for file in &files {
        let module = module_of(source, file);
        let text = std::fs::read_to_string(file).unwrap();
        // A parent names its children by `child::`.
        let is_child =
            |other: &Vec<String>| !module.is_empty() && other.len() == module.len() + 1 && other.starts_with(&module);
        for child in modules.iter().filter(|other| is_child(other)) {
            if names_child(&text, child.last().unwrap()) {
                edges.entry(module.join("::")).or_default().insert(child.join("::"));
            }
        }
        for path in named(&text) {
            // The longest part of the path that is a module.
            let Some(other) = (1..=path.len()).rev().map(|n| &path[..n]).find(|part| modules.contains(*part)) else {
                continue;
            };
            if !module.is_empty() && !module.starts_with(other) && !other.starts_with(&module) {
                edges.entry(module.join("::")).or_default().insert(other.join("::"));
            }
        }
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
    let paths: Vec<_> = named(text).iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["a", "b::c", "b::d", "e", "f::g"]);
}
