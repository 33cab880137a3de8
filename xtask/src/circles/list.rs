//! The list of circles that are allowed, each with its reason.

use std::path::Path;

use serde::Deserialize;

use super::Package;

/// Place of the list in the workspace.
pub const LIST: &str = "xtask/circles.toml";

const HEAD: &str = "\
# Files that call each other in a circle: each circle of files that is allowed, and its reason. `cargo xtask circles` prints those
# that there are, `cargo xtask circles CRATE --calls` the calls that make them, `cargo xtask circles --write` shortens this list.
";

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    circle: Vec<Circle>,
}

#[derive(Clone, Deserialize)]
struct Circle {
    #[serde(rename = "crate")]
    package: String,
    reason: String,
    files: Vec<String>,
}

fn read(root: &Path) -> Result<Vec<Circle>, String> {
    let text = std::fs::read_to_string(root.join(LIST)).map_err(|error| format!("{LIST}: {error}"))?;
    let list: List = toml::from_str(&text).map_err(|error| format!("{LIST}: {error}"))?;
    match list.circle.iter().find(|circle| circle.reason.trim().is_empty()) {
        Some(circle) => Err(format!("{LIST}: a circle of {} has no reason", circle.package)),
        None => Ok(list.circle),
    }
}

/// Compares the circles of all crates with the list; returns a line for each that differs.
pub fn check(root: &Path, packages: &[Package]) -> Result<Vec<String>, String> {
    Ok(compare(&read(root)?, packages))
}

fn compare(listed: &[Circle], packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let name = &package.name;
        let listed: Vec<_> = listed.iter().filter(|circle| circle.package == *name).collect();
        let found: Vec<_> = package.circles.iter().map(|circle| package.named(circle)).collect();
        for files in &found {
            if listed.iter().any(|circle| files.iter().all(|file| circle.files.contains(file))) {
                continue;
            }
            let near =
                listed.iter().max_by_key(|circle| files.iter().filter(|file| circle.files.contains(file)).count());
            let new: Vec<_> = files.iter().filter(|file| near.is_none_or(|near| !near.files.contains(file))).collect();
            wrong.push(format!(
                "{name}: a circle of {} files is not listed: {}; not in a circle so far: {new:?}; cut it: `cargo xtask circles {name} --calls`",
                files.len(),
                files.join(", ")
            ));
        }
        for circle in listed {
            if !found.iter().any(|files| circle.files.iter().all(|file| files.contains(file))) {
                wrong.push(format!(
                    "{name}: the listed circle of {} is smaller now: shorten the list: cargo xtask circles --write",
                    circle.files.join(", ")
                ));
            }
        }
    }
    for circle in listed.iter().filter(|circle| !packages.iter().any(|package| package.name == circle.package)) {
        wrong.push(format!("{}: no such crate; delete its circle from {LIST}", circle.package));
    }
    wrong
}

/// Writes the list again, see [`shortened`].
pub(super) fn shorten(root: &Path, packages: &[Package]) -> Result<(), String> {
    let text: String = shortened(&read(root)?, packages).iter().map(entry).collect();
    std::fs::write(root.join(LIST), HEAD.to_string() + &text).map_err(|error| format!("{LIST}: {error}"))?;
    let still = check(root, packages)?;
    if still.is_empty() { Ok(()) } else { Err(format!("{LIST} is written; not in it:\n{}", still.join("\n"))) }
}

/// The present circles, each with the reason of the listed circle that contains it. Of a circle that grew, the part that is listed stays.
fn shortened(listed: &[Circle], packages: &[Package]) -> Vec<Circle> {
    let mut kept = Vec::new();
    for package in packages {
        let listed: Vec<_> = listed.iter().filter(|circle| circle.package == package.name).collect();
        for circle in &package.circles {
            let files = package.named(circle);
            let common = |listed: &Circle| -> Vec<String> {
                files.iter().filter(|file| listed.files.contains(file)).cloned().collect()
            };
            let whole = listed.iter().find(|listed| common(listed).len() == files.len());
            let parts = listed.iter().filter(|listed| whole.is_none() && common(listed).len() > 1);
            kept.extend(
                whole.into_iter().chain(parts).map(|listed| Circle { files: common(listed), ..(*listed).clone() }),
            );
        }
    }
    kept
}

fn entry(circle: &Circle) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_string()).to_string();
    let (package, reason) = (quoted(&circle.package), quoted(&circle.reason));
    let mut text = format!("\n[[circle]]\ncrate = {package}\nreason = {reason}\nfiles = [\n");
    for file in &circle.files {
        text += &format!("    {},\n", quoted(file));
    }
    text + "]\n"
}

#[cfg(test)]
mod tests {
    use super::{Circle, compare, shortened};
    use crate::circles::Package;

    fn package(circles: &[&[usize]]) -> Package {
        Package {
            name: "own".into(),
            files: ["a", "b", "c", "d"].map(String::from).to_vec(),
            circles: circles.iter().map(|circle| circle.to_vec()).collect(),
            resolved: 0,
            unresolved: Vec::new(),
            edges: Vec::new(),
        }
    }

    fn listed(files: &[&str]) -> Vec<Circle> {
        let files = files.iter().map(ToString::to_string).collect();
        vec![Circle { package: "own".into(), reason: "some".into(), files }]
    }

    #[test]
    fn a_circle_that_grew_and_one_that_shrank_are_told_apart() {
        let wrong = |list: &[&str], circles: &[&[usize]]| compare(&listed(list), &[package(circles)]).join("\n");
        assert_eq!(wrong(&["a", "b", "c"], &[&[0, 1, 2]]), "");
        assert!(wrong(&["a", "b"], &[&[0, 1, 2]]).contains("is not listed"));
        assert!(wrong(&["a", "b", "c"], &[&[0, 1]]).contains("shorten the list"));
        assert!(wrong(&["a", "b"], &[]).contains("shorten the list"));
        assert!(wrong(&["a", "b", "c", "d"], &[&[0, 1], &[2, 3]]).contains("shorten the list"));
        assert!(wrong(&["a", "b"], &[&[0, 1], &[2, 3]]).contains("is not listed"));
    }

    #[test]
    fn a_shortened_list_keeps_a_circle_that_grew_and_drops_one_that_is_gone() {
        let kept = |list: &[&str], circles: &[&[usize]]| -> Vec<Vec<String>> {
            let kept = shortened(&listed(list), &[package(circles)]);
            assert!(kept.iter().all(|circle| circle.reason == "some"));
            kept.into_iter().map(|circle| circle.files).collect()
        };
        assert_eq!(kept(&["a", "b"], &[&[0, 1, 2]]), [["a", "b"]], "it grew");
        assert_eq!(kept(&["a", "b", "d"], &[&[0, 1, 2]]), [["a", "b"]], "it grew and lost a file");
        assert_eq!(kept(&["a", "b", "c"], &[&[0, 1]]), [["a", "b"]], "it shrank");
        assert_eq!(kept(&["a", "b", "c", "d"], &[&[0, 1], &[2, 3]]), [["a", "b"], ["c", "d"]], "it fell apart");
        assert!(kept(&["a", "b"], &[]).is_empty(), "it is gone");
        assert!(kept(&["a", "b"], &[&[1, 2]]).is_empty(), "another one");
    }
}
