//! Subjects of commits, on repositories of the test's own.

use std::path::Path;
use std::process::Command;

use xtask::commits;

fn git(folder: &Path, words: &[&str]) {
    let who = ["-c", "user.name=n", "-c", "user.email=e@example", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").current_dir(folder).args(who).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
}

fn commit(folder: &Path, subject: &str) {
    git(folder, &["commit", "--quiet", "--allow-empty", "--message", subject]);
}

#[test]
fn subjects_since_the_check_are_judged_by_columns() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    git(folder, &["init", "--quiet"]);
    commit(folder, &"o".repeat(90));
    assert_eq!(commits::run(folder), Ok(()), "a history without the check");
    std::fs::create_dir_all(folder.join("xtask/src")).unwrap();
    std::fs::write(folder.join("xtask/src/commits.rs"), "").unwrap();
    git(folder, &["add", "."]);
    commit(folder, "Check of subjects");
    commit(folder, &"ä".repeat(72));
    assert_eq!(commits::run(folder), Ok(()), "72 columns of two bytes each");
    commit(folder, &"n".repeat(73));
    let said = commits::run(folder).unwrap_err();
    assert!(said.contains(&format!(" {}", "n".repeat(73))) && said.contains("73: "), "{said}");
    assert!(!said.contains("ooo"), "{said}");
}

#[test]
fn a_folder_without_history_says_so() {
    let place = tempfile::tempdir().unwrap();
    // A repository above must not answer for it.
    std::fs::write(place.path().join(".git"), "nothing").unwrap();
    assert!(commits::run(place.path()).unwrap_err().starts_with("git: "));
}
