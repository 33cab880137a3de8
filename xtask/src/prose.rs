//! Form of comments and documents: `cargo xtask prose [CRATE | PAGE] [--write]`. Documents are in [`pages`].
//!
//! A comment is a run of whole lines of one kind (`///`, `//!` or `//`), and is judged by its first line. It is *headless* if it opens with
//! a clause or pronoun in place of the noun or verb that it is about ([`is_headless`]), and a *fragment* if it is one word in all, but
//! for names in code (`hipError_t`). Headings between rules (`// ---- Queues ----`) are left out. [`LIST`] has the numbers of both for each crate, which may only fall.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;

use crate::Failure;

pub mod pages;

/// Place of the list in the workspace.
pub const LIST: &str = "xtask/prose.toml";

const HEAD: &str = "\
# Comments of each crate that open headless, and those of one word: `cargo xtask prose` says which. The numbers may only fall:
# `cargo xtask prose --write` lowers them. A crate without a line has none of either.
";

/// First words that stand for a missing noun.
const HEADLESS: [&str; 20] = [
    "what",
    "whatever",
    "who",
    "whoever",
    "whose",
    "whom",
    "whether",
    "which",
    "whichever",
    "why",
    "how",
    "those",
    "it",
    "they",
    "them",
    "he",
    "she",
    "whomever",
    "same",
    "ditto",
];
/// Pairs of such words.
const HEADLESS_PAIRS: [(&str, &str); 3] = [("the", "same"), ("as", "above"), ("as", "before")];
/// Words that open a clause; a main clause may follow.
const CLAUSES: [&str; 4] = ["where", "wherever", "when", "whenever"];
/// Words that are headless before a relative word: "by whom".
const PREPOSITIONS: [&str; 16] = [
    "about", "after", "at", "before", "by", "for", "from", "in", "of", "on", "since", "to", "under", "until", "with",
    "behind",
];
/// Words that are pronouns before a verb, a preposition or the end.
const PRONOUNS: [&str; 15] = [
    "this", "that", "these", "all", "both", "each", "either", "neither", "none", "one", "some", "others", "any",
    "many", "most",
];
/// Words that show that the word before is a pronoun.
const AFTER_PRONOUN: [&str; 40] = [
    "is", "are", "was", "were", "has", "have", "had", "may", "might", "must", "can", "could", "does", "do", "did",
    "would", "will", "should", "shall", "needs", "need", "makes", "make", "means", "says", "say", "takes", "take",
    "holds", "keeps", "goes", "comes", "that", "which", "who", "if", "in", "at", "by", "for",
];

/// A comment.
#[derive(Clone, Debug)]
pub struct Comment {
    /// File of the comment, in the crate.
    pub file: PathBuf,
    /// Number of the first line.
    pub line: usize,
    /// First line, without the comment mark.
    pub first: String,
    /// Number of words.
    pub words: usize,
}

impl Comment {
    /// Reports whether it is one word, and no name in code.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        let word = self.first.trim_end_matches(['.', ',', ':', ';', '?', '!']);
        let is_plain = |(at, letter): (usize, char)| letter.is_alphabetic() && (at == 0 || letter.is_lowercase());
        self.words == 1 && word.char_indices().all(is_plain)
    }
}

/// Comments of a crate.
#[derive(Clone, Debug)]
pub struct Crate {
    /// Name of the crate.
    pub name: String,
    /// Number of its comments.
    pub comments: usize,
    /// Comments that open headless.
    pub headless: Vec<Comment>,
    /// Comments of one word.
    pub fragments: Vec<Comment>,
}

/// Numbers that the list has of a crate.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// Comments that open headless.
    pub headless: usize,
    /// Comments of one word.
    pub one_word: usize,
}

/// Reports whether a comment with this first line opens without the noun or verb that it is about.
#[must_use]
pub fn is_headless(first: &str) -> bool {
    let text = first.trim();
    // The reason of an `unsafe` block has a form of its own.
    if text.starts_with("SAFETY:") {
        return false;
    }
    // A name in code is a noun.
    if text.starts_with(['`', '[', '<', '$']) {
        return false;
    }
    let plain = text.trim_start_matches(['*', '#', '-', '(', '…', '"', ' ']).to_lowercase();
    let mut words = plain.split_whitespace();
    let (opening, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let bare = |word: &str| word.trim_end_matches(['.', ',', ':', ';', '?', '!']).to_string();
    let (one, two) = (bare(opening), bare(second));
    let ends = one.len() < opening.len() || second.is_empty();
    let (one, two) = (one.as_str(), two.as_str());
    let is_relative = |word: &str| word != "it" && (HEADLESS.contains(&word) || CLAUSES.contains(&word));
    if HEADLESS.contains(&one) || HEADLESS_PAIRS.contains(&(one, two)) {
        return true;
    }
    if PREPOSITIONS.contains(&one) && is_relative(two) {
        return true;
    }
    if CLAUSES.contains(&one) {
        return !has_main_clause(&plain);
    }
    if PRONOUNS.contains(&one) {
        let third = words.next().map(bare).unwrap_or_default();
        let of_pronoun =
            two == "of" && ["it", "them", "these", "those", "this", "that", "us", "which"].contains(&third.as_str());
        let of_something = two == "of" && ["this", "that", "these"].contains(&one);
        return ends || of_something || AFTER_PRONOUN.contains(&two) || of_pronoun;
    }
    false
}

/// Reports whether a main clause follows the first clause: after a comma, and not after a further conjunction.
fn has_main_clause(text: &str) -> bool {
    let sentence = text.split(". ").next().unwrap_or(text);
    let behind = sentence.split(", ").skip(1).filter_map(|part| part.split_whitespace().next());
    let mut behind = behind
        .filter(|word| !["if", "or", "and", "but", "as", "which", "who", "while", "in", "by", "by"].contains(word));
    // A line that ends in a comma continues in the next.
    behind.next().is_some() || sentence.trim_end().ends_with(',')
}

/// Comments of a text.
#[must_use]
pub fn comments(file: &Path, text: &str) -> Vec<Comment> {
    let literal = lines_in_literals(text);
    let mut found: Vec<Comment> = Vec::new();
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let line = line.trim();
        let mark = ["///", "//!", "//"].into_iter().find(|mark| line.starts_with(mark));
        let Some(mark) = mark.filter(|_| !literal.contains(&number)) else {
            before = "";
            continue;
        };
        let content = line[mark.len()..].trim();
        let words = content.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
        match found.last_mut() {
            Some(comment) if before == mark => {
                comment.words += words;
                if comment.first.is_empty() {
                    comment.first = content.into();
                }
            }
            _ => found.push(Comment { file: file.into(), line: number, first: content.into(), words }),
        }
        before = mark;
    }
    // Headings between rules are no sentences.
    found.retain(|comment| comment.words > 0 && !comment.first.starts_with(['-', '=', '─']));
    found
}

/// Lines that begin inside a string literal, which may hold text of another language.
fn lines_in_literals(text: &str) -> std::collections::BTreeSet<usize> {
    fn visit(tokens: TokenStream, found: &mut std::collections::BTreeSet<usize>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => visit(group.stream(), found),
                TokenTree::Literal(literal) => {
                    let span = literal.span();
                    found.extend(span.start().line + 1..=span.end().line);
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
    let mut found = std::collections::BTreeSet::new();
    if let Ok(tokens) = text.parse() {
        visit(tokens, &mut found);
    }
    found
}

/// Counts the comments of all crates.
pub fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    crate::workspace::crates(root)?.iter().map(|folder| of_crate(folder)).collect()
}

fn of_crate(folder: &Path) -> Result<Crate, String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    rust_files(folder, &mut files)?;
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        all.extend(comments(file.strip_prefix(folder).unwrap_or(&file), &text));
    }
    let headless = all.iter().filter(|comment| is_headless(&comment.first)).cloned().collect();
    let fragments = all.iter().filter(|comment| comment.is_fragment()).cloned().collect();
    Ok(Crate { name, comments: all.len(), headless, fragments })
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            // A folder with a manifest is another crate.
            if !path.join("Cargo.toml").is_file() {
                rust_files(&path, found)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads the list.
pub fn listed(root: &Path) -> Result<BTreeMap<String, Allowed>, String> {
    let text = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))
}

/// Compares crates with the list; returns a line for each number that differs.
#[must_use]
pub fn compare(listed: &BTreeMap<String, Allowed>, crates: &[Crate]) -> Vec<String> {
    let mut wrong = Vec::new();
    for one in crates {
        let allowed = listed.get(&one.name).copied().unwrap_or_default();
        let numbers = [
            (one.headless.len(), allowed.headless, "open headless"),
            (one.fragments.len(), allowed.one_word, "are one word"),
        ];
        for (is, may, how) in numbers {
            let name = &one.name;
            if is > may {
                wrong.push(format!(
                    "{name}: {is} comments {how}, {may} are listed; `cargo xtask prose {name}` prints them"
                ));
            } else if is < may {
                wrong.push(format!(
                    "{name}: {is} comments {how}, {may} are listed; lower the list: cargo xtask prose --write"
                ));
            }
        }
    }
    let gone = listed.keys().filter(|name| !crates.iter().any(|one| one.name == **name));
    wrong.extend(gone.map(|name| format!("{name}: no such crate; delete its line from {LIST}")));
    wrong
}

/// Lowers both lists to the numbers that there are.
///
/// # Errors
/// A crate or page cannot be read, or a list cannot be written.
pub fn write(root: &Path) -> Result<(), String> {
    lower(root, &crates(root)?)?;
    pages::lower(root, &pages::all(root)?)
}

/// Prints the numbers of all crates and pages, or the headless comments or blocks of one.
///
/// # Errors
/// There is no such crate or page, or one cannot be read.
pub fn run(root: &Path, name: Option<&str>) -> Result<(), Failure> {
    if let Some(page) = name.filter(|name| name.ends_with(".md")) {
        return pages::print(root, page);
    }
    let crates = crates(root)?;
    let Some(name) = name else {
        print!("{}\n{}", table(&crates), pages::table(&pages::all(root)?));
        return Ok(());
    };
    let long = format!("xsched-{name}");
    let Some(one) = crates.iter().find(|one| one.name == name || one.name == long) else {
        return Err(Failure::Input(format!("no crate `{name}`; `cargo xtask prose` lists all")));
    };
    for (comments, how) in [(&one.headless, "headless"), (&one.fragments, "one word")] {
        for comment in comments {
            println!("{}:{}: {how}: {}", comment.file.display(), comment.line, comment.first);
        }
    }
    Ok(())
}

fn table(crates: &[Crate]) -> String {
    let mut text =
        format!("{:<20} {:>8} {:>9} {:>7} {:>9} {:>7}\n", "crate", "comments", "headless", "%", "one word", "%");
    let mut line = |name: &str, comments: usize, headless: usize, fragments: usize| {
        let share = |part: usize| if comments == 0 { 0.0 } else { 100.0 * part as f64 / comments as f64 };
        let (of_headless, of_fragments) = (share(headless), share(fragments));
        let _ = writeln!(
            text,
            "{name:<20} {comments:>8} {headless:>9} {of_headless:>7.1} {fragments:>9} {of_fragments:>7.1}"
        );
    };
    for one in crates {
        line(&one.name, one.comments, one.headless.len(), one.fragments.len());
    }
    let sum = |of: fn(&Crate) -> usize| crates.iter().map(of).sum();
    line("all", sum(|one| one.comments), sum(|one| one.headless.len()), sum(|one| one.fragments.len()));
    text
}

/// Writes the list with the present numbers, where they are lower.
fn lower(root: &Path, crates: &[Crate]) -> Result<(), String> {
    let listed = listed(root)?;
    let mut text = HEAD.to_string();
    for one in crates {
        let allowed = listed.get(&one.name).copied().unwrap_or_default();
        let (headless, words) = (one.headless.len().min(allowed.headless), one.fragments.len().min(allowed.one_word));
        if (headless, words) != (0, 0) {
            let _ = writeln!(text, "{} = {{ headless = {headless}, one_word = {words} }}", one.name);
        }
    }
    std::fs::write(root.join(LIST), text).map_err(|error| format!("{LIST}: {error}"))?;
    let still = compare(&self::listed(root)?, crates);
    if still.is_empty() { Ok(()) } else { Err(format!("{LIST} is written; more than listed:\n{}", still.join("\n"))) }
}
