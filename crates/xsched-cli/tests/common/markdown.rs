//! The project's pages and their contents, for tests of the documentation.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};

/// Fenced block.
#[derive(Debug)]
pub struct Block {
    /// Page and line of the fence, for error messages.
    pub at: String,
    /// Words after the fence, such as `sh run`.
    pub tags: Vec<String>,
    pub text: String,
}

/// Page of the documentation.
#[derive(Debug)]
pub struct Page {
    pub path: PathBuf,
    pub text: String,
}

/// Root folder of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages below `docs/`, in order.
pub fn book() -> Vec<Page> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(Page::read(path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "where is the book?");
    found
}

/// All pages of the book, those at the root, and those that are installed beside the book.
pub fn pages() -> Vec<Page> {
    let mut found = book();
    found.push(page("dist/start.md"));
    found.extend(["tour", "c-api", "opencl", "pytorch"].map(|name| page(&format!("examples/{name}/README.md"))));
    found.extend(
        ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| Page::read(root().join(name))),
    );
    found
}

/// Page at a path from the root.
pub fn page(name: &str) -> Page {
    Page::read(root().join(name))
}

impl Page {
    fn read(path: PathBuf) -> Page {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Page { path, text }
    }

    /// Path of the page from the root.
    pub fn name(&self) -> String {
        self.path.strip_prefix(root()).unwrap().display().to_string()
    }

    /// Lines outside fenced blocks with their numbers, and the blocks.
    fn split(&self) -> (Vec<(usize, &str)>, Vec<Block>) {
        let (mut lines, mut blocks, mut open) = (Vec::new(), Vec::<Block>::new(), false);
        for (number, line) in self.text.lines().enumerate() {
            match line.trim_start().strip_prefix("```") {
                Some(_) if open => open = false,
                Some(tags) => {
                    open = true;
                    let tags = tags.split([' ', ',']).filter(|t| !t.is_empty()).map(str::to_owned).collect();
                    blocks.push(Block { at: format!("{}:{}", self.name(), number + 1), tags, text: String::new() });
                }
                None if open => {
                    let text = &mut blocks.last_mut().unwrap().text;
                    text.push_str(line);
                    text.push('\n');
                }
                None => lines.push((number + 1, line)),
            }
        }
        assert!(!open, "{}: a fenced block has no end", self.name());
        (lines, blocks)
    }

    pub fn blocks(&self) -> Vec<Block> {
        self.split().1
    }

    pub fn prose(&self) -> Vec<(usize, &str)> {
        self.split().0
    }

    /// Anchors of the headings, as GitHub and mdBook make them.
    pub fn anchors(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for (_, line) in self.prose() {
            let heading = line.trim_start_matches('#');
            if heading.len() == line.len() || !heading.starts_with(' ') {
                continue;
            }
            let anchor: String = heading
                .trim()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .flat_map(char::to_lowercase)
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let again = found.iter().filter(|a| **a == anchor).count();
            found.push(if again == 0 { anchor } else { format!("{anchor}-{again}") });
        }
        found
    }

    /// Targets of the page's links, with their lines; images too.
    pub fn links(&self) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (number, line) in self.prose() {
            let line = without_code(line);
            let mut rest = line.as_str();
            while let Some(at) = rest.find("](") {
                rest = &rest[at + 2..];
                let Some(end) = rest.find(')') else { break };
                found.push((number, rest[..end].to_owned()));
                rest = &rest[end..];
            }
        }
        found
    }

    /// Sections of the second level: the heading, and the names in backquotes at the beginning of table rows.
    pub fn rows(&self) -> Vec<(String, Vec<String>)> {
        let mut found = vec![(String::new(), Vec::new())];
        for (_, line) in self.prose() {
            if let Some(heading) = line.strip_prefix("## ") {
                found.push((heading.replace('`', ""), Vec::new()));
            } else if let Some(row) = line.strip_prefix("| `") {
                let cell = row.split(" | ").next().unwrap();
                let names = format!("`{cell}");
                found.last_mut().unwrap().1.extend(names.split('`').skip(1).step_by(2).map(str::to_owned));
            }
        }
        found
    }
}

/// Line without its parts in backquotes, in which `](` is no link.
fn without_code(line: &str) -> String {
    if !line.matches('`').count().is_multiple_of(2) {
        return line.to_owned();
    }
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Words of each call of `xsched` in a block of shell commands, without redirections.
pub fn calls(block: &Block) -> Vec<Vec<String>> {
    let joined = block.text.replace("\\\n", " ");
    let mut found = Vec::new();
    for line in joined.lines() {
        let words: Vec<String> = words(line).into_iter().take_while(|w| !w.starts_with('#')).collect();
        for part in words.split(|w| matches!(w.as_str(), "|" | "&&" | ";" | "&")) {
            // Variables before the command and `sudo` are skipped.
            let skip = part.iter().take_while(|w| *w == "sudo" || w.split('=').next().is_some_and(is_variable)).count();
            if part.get(skip).is_some_and(|w| w == "xsched") {
                let words = part[skip..].iter().take_while(|w| !matches!(w.as_str(), ">" | "2>" | ">>"));
                found.push(words.cloned().collect());
            }
        }
    }
    found
}

/// Words of a line. Text between single quotes belongs to one word.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ';' if !quoted => words.extend([std::mem::take(&mut word), ";".to_owned()]),
            c if c.is_whitespace() && !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn is_variable(word: &str) -> bool {
    word.len() > 1 && word.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}
