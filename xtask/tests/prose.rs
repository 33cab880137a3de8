//! Comments that open headless or are one word, by crate, against `xtask/prose.toml`; blocks of documents, by page, against `xtask/pages.toml`.

use std::path::Path;

use xtask::prose::pages::{self, Kind};
use xtask::prose::{self, is_headless};

#[test]
fn numbers_are_those_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = prose::crates(&root).unwrap();
    assert!(crates.iter().map(|one| one.comments).sum::<usize>() > 1000, "the crates have comments");
    let wrong = prose::compare(&prose::listed(&root).unwrap(), &crates);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn clauses_and_pronouns_are_headless() {
    for first in [
        "What is left.",
        "Whose they are, of those that it was found out of.",
        "Whom.",
        "By whom it was started.",
        "Since when it is ready.",
        "The same for all users together.",
        "As above.",
        "How many queues the programs of a user have.",
        "Whether it runs, or nothing.",
        "Those within a runtime.",
        "It is gone.",
        "When the timer goes off.",
        "Where bursts are written, if they are.",
        "This is one.",
        "That of this process.",
        "All of them.",
        "None.",
        "(What others see.)",
    ] {
        assert!(is_headless(first), "{first}");
    }
}

#[test]
fn nouns_verbs_and_whole_sentences_are_not() {
    for first in [
        "Results of identification, by connection.",
        "Waits until the group may run.",
        "When the daemon stops, programs go on unscheduled.",
        "Where a user has several, the first counts.",
        "This process, as the kernel names it.",
        "All of the queues of a group.",
        "One of the devices.",
        "Each queue has a fence.",
        "`What` is the name of a type.",
        "SAFETY: as above.",
        "Item of a list.",
    ] {
        assert!(!is_headless(first), "{first}");
    }
}

#[test]
fn a_comment_counts_once_and_literals_do_not() {
    let text = "//! What a file is.\n//! Whom.\n\n/// Whom.\nconst C: u8 = 1;\n/// hipError_t.\nfn f() {\n    // One.\n    // Two.\n    let x = \"\n// What\n/// Who\";\n} // What\n// ---- Rest ----\n///\n/// Two words.\n";
    let found = prose::comments(Path::new("f.rs"), text);
    let short: Vec<_> = found.iter().map(|one| (one.line, one.first.as_str(), one.is_fragment())).collect();
    assert_eq!(
        short,
        [
            (1, "What a file is.", false),
            (4, "Whom.", true),
            (6, "hipError_t.", false),
            (8, "One.", false),
            (15, "Two words.", false)
        ]
    );
}

#[test]
fn pages_keep_to_the_limit_or_to_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let all = pages::all(&root).unwrap();
    assert!(all.len() > 40 && all.iter().all(|page| page.blocks > 0), "{} pages", all.len());
    let wrong = pages::compare(&pages::listed(&root).unwrap(), &all);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_are_paragraphs_items_and_cells() {
    let text = "# What a heading says\n\nWhat it is,\nin two lines.\n<!-- What\nremark -->\n\n- **Those** of `x`.\n  More.\n1. Item.\n\n\
                ```sh\nWhat\n```\n\n| file | what |\n| --- | --- |\n| `a|b` | none |\n\n[It is a link](x.md).\n";
    let found = pages::blocks(text);
    let short: Vec<_> = found.iter().map(|one| (one.line, one.text.as_str(), one.is_headless())).collect();
    assert_eq!(
        short,
        [
            (3, "What it is, in two lines.", true),
            (8, "**Those** of `x`. More.", true),
            (10, "Item.", false),
            (16, "file", false),
            (16, "what", true),
            (18, "`a|b`", false),
            (18, "none", false),
            (20, "[It is a link](x.md).", true),
        ]
    );
    assert_eq!((found[0].kind, found[1].kind, found[3].kind), (Kind::Paragraph, Kind::Item, Kind::Cell));
}

#[test]
fn a_listed_page_has_exactly_its_number() {
    let block = pages::blocks("What it is.\n");
    let page = |headless: usize| pages::Page {
        name: "docs/a.md".into(),
        blocks: 40,
        headless: vec![block[0].clone(); headless],
    };
    let wrong = |list: Option<usize>, headless: usize| {
        let listed = list.map(|number| ("docs/a.md".to_string(), number)).into_iter().collect();
        pages::compare(&listed, &[page(headless)]).join("\n")
    };
    assert_eq!((wrong(None, 2), wrong(Some(5), 5)), (String::new(), String::new()));
    assert!(wrong(None, 3).contains("3 of 40 blocks open headless, 2 may"));
    assert!(wrong(Some(5), 6).contains("5 are listed"));
    assert!(wrong(Some(5), 4).contains("lower the list") && wrong(Some(2), 2).contains("lower the list"));
    assert!(pages::compare(&[("docs/b.md".to_string(), 1)].into(), &[page(0)])[0].contains("no such page"));
}
