//! Pages and examples of an installed copy, below `share/doc/xsched`. Links between them lead to their places there; a link to a file of
//! the repository that is not installed becomes plain text.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::package::tree::{put, read, walk};

/// Folder of pages and examples, below the prefix.
const FOLDER: &str = "share/doc/xsched";

/// Files, and folders with all that is in them: paths in the repository, and below [`FOLDER`].
const CARRIED: [(&str, &str); 14] = [
    ("dist/start.md", "README.md"),
    ("README.md", "about.md"),
    ("SECURITY.md", "SECURITY.md"),
    ("docs/README.md", "book.md"),
    ("docs/SUMMARY.md", "SUMMARY.md"),
    ("docs/guide", "guide"),
    ("docs/reference", "reference"),
    ("docs/internals", "internals"),
    ("docs/results", "results"),
    ("docs/pictures", "pictures"),
    ("examples", "examples"),
    ("dist/config.toml", "examples/config.toml"),
    ("dist/grafana/xsched.json", "examples/grafana/xsched.json"),
    ("dist/prometheus/xsched.rules.yml", "examples/prometheus/xsched.rules.yml"),
];

/// Folder that is installed by another part of this program, below the prefix as in the repository.
const HEADERS: &str = "include";

/// Writes pages and examples below `prefix`.
pub(crate) fn lay_out(root: &Path, prefix: &Path) -> Result<(), String> {
    let mut places = places(root)?;
    for (from, to) in places.clone() {
        let bytes = read(&root.join(&from))?;
        if from.extension().is_none_or(|extension| extension != "md") {
            put(prefix, &to.to_string_lossy(), &bytes)?;
            continue;
        }
        let text = String::from_utf8(bytes).map_err(|e| format!("{}: {e}", from.display()))?;
        // A picture is part of the page that shows it.
        for link in links(&text).into_iter().filter(|link| link.is_picture) {
            let picture = resolved(&from, &text[link.target.clone()]);
            if !places.contains_key(&picture) && root.join(&picture).is_file() {
                let place = Path::new(FOLDER).join(picture.strip_prefix("docs").unwrap_or(&picture));
                put(prefix, &place.to_string_lossy(), &read(&root.join(&picture))?)?;
                places.insert(picture, place);
            }
        }
        put(prefix, &to.to_string_lossy(), carried(&text, &from, &to, &places).as_bytes())?;
    }
    Ok(())
}

/// Place below the prefix of each carried file of the repository.
fn places(root: &Path) -> Result<BTreeMap<PathBuf, PathBuf>, String> {
    let mut places = BTreeMap::new();
    let pairs = CARRIED.map(|(from, to)| (from, Path::new(FOLDER).join(to)));
    for (from, to) in pairs {
        for path in walk(&root.join(from))?.into_iter().filter(|path| path.is_file()) {
            let below = path.strip_prefix(root.join(from)).unwrap_or(Path::new(""));
            let place = if below.as_os_str().is_empty() { to.clone() } else { to.join(below) };
            places.insert(Path::new(from).join(below).components().collect(), place);
        }
    }
    Ok(places)
}

/// Link of a page: the parts of the text that it consists of.
#[derive(Clone, Debug)]
struct Link {
    /// Place of `[`, or of `![`.
    begin: usize,
    /// Place of `](`.
    middle: usize,
    /// Part between the parentheses.
    target: std::ops::Range<usize>,
    is_picture: bool,
}

/// Links of a page, outside code.
fn links(text: &str) -> Vec<Link> {
    let (mut found, mut open) = (Vec::new(), Vec::new());
    let (mut is_block, mut begins_line, mut at) = (false, true, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if begins_line && rest.trim_start_matches(' ').starts_with("```") {
            is_block = !is_block;
            at += rest.find('\n').map_or(rest.len(), |end| end + 1);
            continue;
        }
        let c = rest.chars().next().unwrap_or('\n');
        begins_line = c == '\n';
        // An empty line ends a paragraph, and what is open in it.
        if rest.starts_with("\n\n") {
            open.clear();
        }
        let width = c.len_utf8();
        at += match c {
            _ if is_block => width,
            // Code between backquotes ends within its paragraph.
            '`' => {
                let paragraph = &rest[1..rest.find("\n\n").unwrap_or(rest.len())];
                paragraph.find('`').map_or(width, |end| end + 2)
            }
            '[' => {
                open.push(if text[..at].ends_with('!') { at - 1 } else { at });
                width
            }
            ']' => {
                let begin = open.pop();
                if let (Some(begin), Some(end)) = (begin, rest.find(')').filter(|_| rest.starts_with("]("))) {
                    let is_picture = text[begin..].starts_with('!');
                    found.push(Link { begin, middle: at, target: at + 2..at + end, is_picture });
                }
                width
            }
            _ => width,
        };
    }
    found
}

/// Text of a page at its place below the prefix.
fn carried(text: &str, from: &Path, to: &Path, places: &BTreeMap<PathBuf, PathBuf>) -> String {
    let mut edits: Vec<(std::ops::Range<usize>, String)> = Vec::new();
    for link in links(text) {
        let target = &text[link.target.clone()];
        if target.contains("://") || target.starts_with("mailto:") || target.starts_with('#') {
            continue;
        }
        let (file, anchor) = target.split_once('#').map_or((target, ""), |(file, anchor)| (file, anchor));
        let file = resolved(from, file);
        let installed = file.starts_with(HEADERS).then(|| file.clone());
        match installed.or_else(|| places.get(&file).cloned()) {
            Some(place) => {
                let anchor = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
                edits.push((link.target, format!("{}{anchor}", relative(to, &place))));
            }
            None => {
                let opening = if link.is_picture { 2 } else { 1 };
                edits.push((link.begin..link.begin + opening, String::new()));
                edits.push((link.middle..link.target.end + 1, String::new()));
            }
        }
    }
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    edits.into_iter().fold(text.to_owned(), |mut text, (range, by)| {
        text.replace_range(range, &by);
        text
    })
}

/// Text of a page for readers who have it alone: links to other files become plain text.
pub(crate) fn alone(text: &str, page: &Path) -> String {
    carried(text, page, page, &BTreeMap::new())
}

/// Path in the repository of a link's file, as seen from a page.
fn resolved(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Path from a page to a file, both below the prefix.
fn relative(page: &Path, file: &Path) -> String {
    let folder = page.parent().unwrap_or(Path::new(""));
    let shared = folder.components().zip(file.components()).take_while(|(one, other)| one == other).count();
    let up = folder.components().skip(shared).map(|_| "..".to_owned());
    let down = file.components().skip(shared).map(|part| part.as_os_str().to_string_lossy().into_owned());
    up.chain(down).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
    }

    #[test]
    fn links_lead_to_installed_files_and_others_become_text() {
        let places = [("docs/guide/one.md", "share/one.md"), ("docs/guide/two.md", "share/doc/two.md")];
        let places = places.map(|(from, to)| (PathBuf::from(from), PathBuf::from(to))).into();
        let page = "[two](two.md#part), [`c`](../../gone.md) and [not\nhere](../gone.md), `[x](y)`.\n\
                    ![p](gone.svg) [h](../../include/x.h) [w](https://example) [own](#here) [a] b\n\n\
                    ```sh\necho '[x](two.md)'\n```\n";
        let expected = "[two](doc/two.md#part), `c` and not\nhere, `[x](y)`.\n\
                        p [h](../include/x.h) [w](https://example) [own](#here) [a] b\n\n\
                        ```sh\necho '[x](two.md)'\n```\n";
        assert_eq!(carried(page, Path::new("docs/guide/one.md"), Path::new("share/one.md"), &places), expected);
    }

    #[test]
    fn a_page_alone_has_no_links_to_files() {
        let page = "[a](b.md) and [c](https://example) ![d](e.svg)";
        assert_eq!(alone(page, Path::new("docs/guide/one.md")), "a and [c](https://example) d");
    }

    #[test]
    fn every_installed_page_is_reached_from_the_first_one_and_has_no_dead_link() {
        let place = tempfile::tempdir().unwrap();
        let prefix = place.path();
        lay_out(&root(), prefix).unwrap();
        crate::bundle::copy_tree(&root().join(HEADERS), &prefix.join(HEADERS)).unwrap();
        let first = Path::new(FOLDER).join("README.md");
        let (mut reached, mut open) = (BTreeSet::from([first.clone()]), vec![first]);
        let mut dead = Vec::new();
        while let Some(page) = open.pop() {
            let text = std::fs::read_to_string(prefix.join(&page)).unwrap();
            for link in links(&text) {
                let target = text[link.target].split('#').next().unwrap();
                if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let file = resolved(&page, target);
                if !prefix.join(&file).exists() {
                    dead.push(format!("{}: {target}", page.display()));
                } else if file.extension().is_some_and(|e| e == "md") && reached.insert(file.clone()) {
                    open.push(file);
                }
            }
        }
        assert!(dead.is_empty(), "{}", dead.join("\n"));
        let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "md");
        let there = walk(prefix).unwrap().into_iter().filter(is_page);
        let unreached: Vec<_> = there.filter(|path| !reached.contains(path.strip_prefix(prefix).unwrap())).collect();
        assert!(unreached.is_empty() && reached.len() > 50, "{unreached:?}");
        for file in ["examples/tour/serve.py", "examples/prometheus/xsched.rules.yml", "examples/grafana/xsched.json"] {
            assert!(prefix.join(FOLDER).join(file).is_file(), "{file}");
        }
    }
}
