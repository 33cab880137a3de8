//! Form of documents: `cargo xtask prose PAGE.md`.
//!
//! A page consists of blocks: paragraphs, items of lists and cells of tables. At most one block in [`PART`] may open headless, by the
//! rule for comments ([`is_headless`]). [`LIST`] has the exact number of each page that has more.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::is_headless;
use crate::Failure;

/// Place of the list in the workspace.
pub const LIST: &str = "xtask/pages.toml";

/// Number of blocks for each headless one that a page may have.
const PART: usize = 20;

/// Pages outside `docs/`.
const AT_THE_ROOT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

const HEAD: &str = "\
# Pages in which more than 5 % of the paragraphs, list items and table cells open headless, with their numbers. `cargo xtask prose PAGE`
# prints them. The numbers may only fall: `cargo xtask prose --write` lowers them. A page without a line keeps to the 5 %.
";

/// Block of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Number of its first line.
    pub line: usize,
    /// Text in one line.
    pub text: String,
    /// Place among the blocks.
    pub kind: Kind,
}

/// Kind of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Paragraph or quotation.
    Paragraph,
    /// Item of a list.
    Item,
    /// Cell of a table, its head included.
    Cell,
}

impl Block {
    /// Reports whether it opens headless.
    #[must_use]
    pub fn is_headless(&self) -> bool {
        let plain = self.text.replace('*', "");
        let text = plain.trim_start_matches(['_', '[', '!', '(', '"', '“', ' ']);
        // A value such as `none` or `all` fills a cell.
        let is_value = self.kind == Kind::Cell && !text.contains(' ') && !is_headless(&format!("{text} x"));
        !is_value && is_headless(text)
    }
}

/// Page with its blocks.
#[derive(Clone, Debug)]
pub struct Page {
    /// Path from the root.
    pub name: String,
    /// Number of blocks.
    pub blocks: usize,
    /// Blocks that open headless.
    pub headless: Vec<Block>,
}

impl Page {
    /// Number of headless blocks that a page of this size may have.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.blocks.div_ceil(PART)
    }

    fn of(name: &str, text: &str) -> Page {
        let all = blocks(text);
        Page { name: name.into(), blocks: all.len(), headless: all.into_iter().filter(Block::is_headless).collect() }
    }
}

/// Blocks of a page, outside code, headings and remarks (`<!-- … -->`).
#[must_use]
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let (mut is_code, mut is_remark, mut is_open) = (false, false, false);
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if !is_remark && line.starts_with("```") {
            (is_code, is_open) = (!is_code, false);
        } else if is_code {
        } else if is_remark || line.starts_with("<!--") {
            (is_remark, is_open) = (!line.ends_with("-->"), false);
        } else if line.is_empty() || line.starts_with(['#', '<']) {
            is_open = false;
        } else if let Some(row) = line.strip_prefix('|') {
            is_open = false;
            found.extend(cells(row).into_iter().map(|text| Block { line: number, text, kind: Kind::Cell }));
        } else if let Some(item) = item(line) {
            is_open = true;
            found.push(Block { line: number, text: item.into(), kind: Kind::Item });
        } else if let Some(block) = found.last_mut().filter(|_| is_open) {
            block.text.push(' ');
            block.text.push_str(line);
        } else {
            is_open = true;
            let text = line.trim_start_matches(['>', ' ']).into();
            found.push(Block { line: number, text, kind: Kind::Paragraph });
        }
    }
    found
}

/// Text of a list item, behind its mark.
fn item(line: &str) -> Option<&str> {
    let bare = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let mark = if bare.len() < line.len() { [". ", ") "] } else { ["- ", "* "] };
    mark.iter().find_map(|mark| bare.strip_prefix(mark)).map(str::trim)
}

/// Cells of a row that hold words. A bar within code or behind a backslash separates none.
fn cells(row: &str) -> Vec<String> {
    let (mut cells, mut cell, mut is_code) = (Vec::new(), String::new(), false);
    for letter in row.chars() {
        is_code ^= letter == '`';
        if letter == '|' && !is_code && !cell.ends_with('\\') {
            cells.push(std::mem::take(&mut cell));
        } else {
            cell.push(letter);
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).filter(|cell| cell.contains(char::is_alphabetic)).collect()
}

/// Pages of the book and of the root.
///
/// # Errors
/// A page cannot be read.
pub fn all(root: &Path) -> Result<Vec<Page>, String> {
    let mut names: Vec<String> = AT_THE_ROOT.map(String::from).into();
    let mut left = vec![root.join("docs")];
    while let Some(folder) = left.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                names.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    let read = |name: &String| {
        let text = std::fs::read_to_string(root.join(name)).map_err(|error| format!("{name}: {error}"))?;
        Ok(Page::of(name, &text))
    };
    names.iter().map(read).collect()
}

/// Reads the list.
///
/// # Errors
/// There is none, or it is no list of numbers.
pub fn listed(root: &Path) -> Result<BTreeMap<String, usize>, String> {
    let text = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))
}

/// Compares pages with the list; returns a line for each number that differs.
#[must_use]
pub fn compare(listed: &BTreeMap<String, usize>, pages: &[Page]) -> Vec<String> {
    let mut wrong = Vec::new();
    for page in pages {
        let (name, is, limit) = (&page.name, page.headless.len(), page.limit());
        match listed.get(name) {
            None if is > limit => wrong.push(format!(
                "{name}: {is} of {} blocks open headless, {limit} may; `cargo xtask prose {name}` prints them",
                page.blocks
            )),
            Some(&may) if is > may => wrong.push(format!(
                "{name}: {is} blocks open headless, {may} are listed; `cargo xtask prose {name}` prints them"
            )),
            Some(&may) if is < may || is <= limit => wrong.push(format!(
                "{name}: {is} blocks open headless, {may} are listed; lower the list: cargo xtask prose --write"
            )),
            _ => {}
        }
    }
    let gone = listed.keys().filter(|name| !pages.iter().any(|page| page.name == **name));
    wrong.extend(gone.map(|name| format!("{name}: no such page; delete its line from {LIST}")));
    wrong
}

/// Prints the headless blocks of a page.
///
/// # Errors
/// There is no such page, or one cannot be read.
pub(super) fn print(root: &Path, name: &str) -> Result<(), Failure> {
    let pages = all(root)?;
    let Some(page) = pages.iter().find(|page| page.name == name) else {
        return Err(Failure::Input(format!("no page `{name}`; name it from the root, as docs/README.md")));
    };
    for block in &page.headless {
        println!("{name}:{}: headless: {}", block.line, block.text);
    }
    println!("{name}: {} of {} blocks, {} may", page.headless.len(), page.blocks, page.limit());
    Ok(())
}

/// Table of the pages, those with most headless blocks first.
pub(super) fn table(pages: &[Page]) -> String {
    let mut sorted: Vec<&Page> = pages.iter().collect();
    sorted.sort_by_key(|page| std::cmp::Reverse(page.headless.len()));
    let mut text = format!("{:<40} {:>8} {:>9} {:>7}\n", "page", "blocks", "headless", "%");
    for page in sorted.iter().filter(|page| !page.headless.is_empty()) {
        let (blocks, headless) = (page.blocks, page.headless.len());
        let share = 100.0 * headless as f64 / blocks as f64;
        let _ = writeln!(text, "{:<40} {blocks:>8} {headless:>9} {share:>7.1}", page.name);
    }
    text
}

/// Writes the list with the present numbers, where they are lower.
pub(super) fn lower(root: &Path, pages: &[Page]) -> Result<(), String> {
    let before = listed(root)?;
    let mut text = HEAD.to_string();
    for page in pages.iter().filter(|page| page.headless.len() > page.limit()) {
        if let Some(may) = before.get(&page.name) {
            let _ = writeln!(text, "\"{}\" = {}", page.name, page.headless.len().min(*may));
        }
    }
    std::fs::write(root.join(LIST), text).map_err(|error| format!("{LIST}: {error}"))?;
    let still = compare(&listed(root)?, pages);
    if still.is_empty() { Ok(()) } else { Err(format!("{LIST} is written; more than listed:\n{}", still.join("\n"))) }
}
