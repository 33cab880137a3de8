//! Subjects of commits: `cargo xtask commits`.
//!
//! A subject has at most [`WIDTH`] columns, so that `git log --oneline` shows it whole on a terminal of 80. Commits older than this file
//! are not judged.

use std::path::Path;
use std::process::Command;

/// Largest number of columns of a subject.
const WIDTH: usize = 72;

/// File whose addition begins the check.
const OWN: &str = "xtask/src/commits.rs";

/// Checks the commits since this check was added.
///
/// # Errors
/// A subject is too long; the folder is no checkout.
pub fn run(root: &Path) -> Result<(), String> {
    let subjects = subjects(root)?;
    let wrong = too_long(&subjects);
    if wrong.is_empty() {
        println!("{} commits, no subject above {WIDTH} columns", subjects.lines().count());
        return Ok(());
    }
    Err(format!("subjects of more than {WIDTH} columns:\n{}", wrong.join("\n")))
}

/// Commits since [`OWN`] was added, one a line: short name, subject.
///
/// # Errors
/// git fails, as outside of a checkout.
pub fn subjects(root: &Path) -> Result<String, String> {
    let added = git(root, &["log", "--diff-filter=A", "--format=%H", "--", OWN])?;
    // The file may have been added on several branches: the oldest counts.
    let Some(first) = added.lines().last() else { return Ok(String::new()) };
    git(root, &["log", "--no-merges", "--format=%h %s", &format!("{first}..HEAD")])
}

/// Lines of `subjects` whose subject is too long, with the number of its columns.
#[must_use]
pub fn too_long(subjects: &str) -> Vec<String> {
    let columns = |line: &str| line.split_once(' ').map_or(0, |(_, subject)| subject.chars().count());
    subjects.lines().filter(|line| columns(line) > WIDTH).map(|line| format!("{}: {line}", columns(line))).collect()
}

fn git(root: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new("git").current_dir(root).args(words).output().map_err(|error| format!("git: {error}"))?;
    if !output.status.success() {
        let line = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git: {}", line.lines().next().unwrap_or("it failed")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
