//! Folders of the workspace's crates, as the members in `Cargo.toml` name them.

use std::path::{Path, PathBuf};

/// Returns the folders of all crates, sorted by the crates' names. A member ends in a name, or in the beginning of one and `*`.
pub fn crates(root: &Path) -> Result<Vec<PathBuf>, String> {
    let file = root.join("Cargo.toml");
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(&file).map_err(|error| of_file(&error))?;
    let manifest: toml::Table = toml::from_str(&text).map_err(|error| of_file(&error))?;
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members")?.as_array());
    let mut folders = Vec::new();
    for member in members.ok_or_else(|| of_file(&"no workspace.members"))? {
        let member = member.as_str().ok_or_else(|| of_file(&"a member that is no text"))?;
        match member.strip_suffix('*') {
            Some(pattern) => folders.extend(below(root, pattern)?),
            None => folders.push(root.join(member)),
        }
    }
    folders.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    Ok(folders)
}

/// Returns the crates in the folder of a path whose names begin as the path ends.
fn below(root: &Path, pattern: &str) -> Result<Vec<PathBuf>, String> {
    let (folder, beginning) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let folder = root.join(folder);
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let begins = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning));
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| begins(path) && path.join("Cargo.toml").is_file()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_those_that_the_manifest_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = crates(&root).unwrap();
        for folder in
            ["crates/xsched-core", "crates/xsched-capi/libraries/xsched-preempt", "testing/xsched-e2e", "xtask"]
        {
            assert_eq!(found.iter().filter(|path| **path == root.join(folder)).count(), 1, "{folder} in {found:?}");
        }
        assert!(!found.iter().any(|path| path.ends_with("libfuzzer")), "another workspace: {found:?}");
        assert!(found.is_sorted_by_key(|path| path.file_name()), "{found:?}");
    }
}
