//! Comments that open headless or are one word, by crate, against `xtask/prose.toml`.

use std::path::Path;

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
