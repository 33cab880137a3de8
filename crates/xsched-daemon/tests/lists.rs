//! Checks that every list that the daemon keeps has a bound: `lists.txt` names each field of a list type that can be reached from the
//! server or the engine, with a bound of the page on bounds or a reason, and the code has no other list.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Types that grow.
const LISTS: [&str; 9] =
    ["Vec", "VecDeque", "HashMap", "BTreeMap", "HashSet", "BTreeSet", "FairQueue", "Rationed", "BinaryHeap"];

/// Reasons for which a list needs no bound of its own, and their meaning.
const REASONS: [(&str, &str); 13] = [
    ("configuration", "root's files say how many there are"),
    ("kernel", "the kernel says how many there are: ancestors, cgroups, groups of a user"),
    ("message", "lists in messages are bounded as they are decoded"),
    ("piece", "it lives within one piece of work, or one command"),
    ("words", "as many as a program's segment, or a type, has places"),
    ("connections", "one or a few for each connection"),
    ("groups", "one or a few for each group"),
    ("queues", "one or a few for each queue"),
    ("holders", "one or a few for each process with memory"),
    ("questions", "one or a few for each question for room"),
    ("books", "one or a few for each open book"),
    ("devices", "one or a few for each device with groups, memory or books"),
    ("users", "one or a few for each user that has something here"),
];

/// Fields by type, of one crate.
type Types = BTreeMap<String, Vec<(String, String)>>;

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let is_test =
            path.components().any(|part| part.as_os_str().to_string_lossy().trim_end_matches(".rs") == "tests");
        if path.is_dir() && !is_test {
            sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") && !is_test {
            all.push(read_to_string(&path).expect("a source"));
        }
    }
}

/// Words of a text that could be names of types.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with(char::is_uppercase))
}

fn is_list(of: &str) -> bool {
    words(of).any(|word| LISTS.contains(&word))
}

/// Adds the structures and enumerations of a file: fields with their types, variants with all that they hold.
fn add_types(source: &str, types: &mut Types) {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let head = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ").trim_start_matches("pub ");
        let Some((kind, rest)) = head.split_once(' ').filter(|(kind, _)| ["struct", "enum"].contains(kind)) else {
            continue;
        };
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let fields = types.entry(name).or_default();
        if let Some((_, inner)) = rest.split_once('(').filter(|_| rest.ends_with(");")) {
            fields.push(("0".into(), inner.into()));
            continue;
        }
        if !rest.ends_with('{') {
            continue;
        }
        for line in lines.by_ref().take_while(|line| *line != "}").map(str::trim) {
            let line =
                line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ").trim_start_matches("pub ");
            let field = line.split_once(": ").filter(|_| !line.starts_with("//") && !line.starts_with('#'));
            match (kind, field) {
                ("struct", Some((field, of))) => fields.push((field.into(), of.into())),
                // A field's type that goes on in the next line.
                ("struct", None) if !line.starts_with("//") && !line.starts_with('#') => {
                    if let Some((_, of)) = fields.last_mut() {
                        of.push_str(line);
                    }
                }
                ("enum", _) if !line.starts_with("//") && !line.starts_with('#') => {
                    let variant = words(line).next().unwrap_or("enum").to_owned();
                    fields.push((variant, line.into()));
                }
                _ => {}
            }
        }
    }
}

/// Lists that can be reached from a type: type and field.
fn lists_from(roots: &[&str], types: &Types) -> BTreeSet<String> {
    let (mut todo, mut seen, mut found) =
        (Vec::from_iter(roots.iter().map(|r| (*r).to_owned())), BTreeSet::new(), BTreeSet::new());
    while let Some(name) = todo.pop() {
        if !types.contains_key(&name) || !seen.insert(name.clone()) {
            continue;
        }
        for (field, of) in &types[&name] {
            if is_list(of) {
                found.insert(format!("{name}.{field}"));
            }
            todo.extend(words(of).map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_list_has_a_bound_or_a_reason() {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut types = Types::new();
    for folder in ["src", "../xsched-engine/src", "../xsched-gatekeeper/src", "../xsched-policy/src"] {
        let mut all = Vec::new();
        sources(&own.join(folder), &mut all);
        all.iter().for_each(|source| add_types(source, &mut types));
    }
    let found = lists_from(&["Server", "Engine"], &types);
    assert!(found.len() > 150 && found.contains("Wants.waiting"), "{} lists", found.len());
    let page = read_to_string(own.join("../../docs/internals/bounds.md")).expect("the page");
    let table = page.split("## Tables").nth(1).expect("the table");
    let file = read_to_string(own.join("tests/lists.txt")).expect("the list");
    let mut told = BTreeMap::new();
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (list, bound) = line.split_once(' ').unwrap_or_else(|| panic!("no bound: {line}"));
        let bound = bound.trim();
        let is_known = REASONS.iter().any(|(reason, _)| *reason == bound) || table.contains(&format!("`{bound}`"));
        assert!(is_known, "{list}: the page names no bound {bound}, and it is no reason");
        assert!(told.insert(list.to_owned(), bound).is_none(), "{list} is named twice");
    }
    let missing: Vec<_> = found.iter().filter(|list| !told.contains_key(*list)).collect();
    assert!(
        missing.is_empty(),
        "lists without a bound: give each one, and its test, or a reason in lists.txt: {missing:?}"
    );
    let gone: Vec<_> = told.keys().filter(|list| !found.contains(*list)).collect();
    assert!(gone.is_empty(), "lists.txt names lists that the code has no more: {gone:?}");
}

#[test]
fn a_new_list_is_found_wherever_it_is_kept() {
    let mut types = Types::new();
    add_types(
        "pub(crate) struct Server {\n    /// Parts.\n    pub(crate) parts: Parts,\n}\nstruct Parts {\n    deep: Option<Inner<u8>>,\n}\n\
         struct Inner<T> {\n    few: [u8; 4],\n    many: HashMap<\n        u64,\n        Other,\n    >,\n}\nenum Other {\n    One(Vec<u8>),\n    None,\n}\n\
         struct Unused {\n    never: Vec<u8>,\n}\nstruct Whole(BTreeSet<u8>);\n",
        &mut types,
    );
    let found = lists_from(&["Server", "Whole"], &types);
    assert_eq!(Vec::from_iter(&found), ["Inner.many", "Other.One", "Whole.0"]);
}
