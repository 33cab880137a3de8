//! `cargo xtask release DIR`: all files of a release, of the commit that is checked out, with checksums.
//!
//! Package, archive and wheel are made by this program's other tasks, in a target folder of their own: the compiler is told to name the
//! machine's folders by others that are the same everywhere, so that the bytes do not depend on the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle::{copy, copy_tree, create, quietly, remove, target_folder};
use crate::package::tree::walk;
use crate::package::{Release, documents, tree};

/// Text of `cargo xtask release --help`.
pub(crate) const HELP: &str = "\
Makes a release of the commit that is checked out, in DIR: Debian package, archive, wheel, image for containers, bill of materials,
manual pages, completions, upgrade notes, licence, SHA256SUMS. The working tree must be as in the commit. --check makes all but the image
a second time, from a clone in another folder, and compares. The image needs mmdebstrap, and is left out without it.";

/// Target folder of a release's build, below that of the checkout.
const TARGET: &str = "target/distribution";
/// List of checksums: its presence shows that a folder is a release's.
const SUMS: &str = "SHA256SUMS";
/// Suite of Debian below the programs in the image.
const SUITE: &str = "bookworm";

/// Makes a release in a folder; with `check`, a second time elsewhere.
pub(crate) fn run(root: &Path, out: &Path, check: bool) -> Result<(), String> {
    unchanged(root)?;
    refuse_foreign(out)?;
    let out = std::path::absolute(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let release = Release::of(root);
    remove(&out)?;
    let of = commit(root)?;
    make(root, &out, &release)?;
    // The files are of the commit only if nothing was changed while they were built.
    unchanged(root)?;
    if commit(root)? != of {
        return Err("another commit was checked out meanwhile: again".into());
    }
    let sums = sums(&out)?;
    if check {
        let again = again(root, &release)?;
        let differ: Vec<&str> = sums.lines().filter(|line| !again.lines().any(|other| other == *line)).collect();
        if !differ.is_empty() {
            return Err(format!("made again in another folder, these differ:\n{}", differ.join("\n")));
        }
        println!("{} files are the same when they are made again in another folder", sums.lines().count());
    }
    image(root, &out, &release)?;
    let sums = self::sums(&out)?;
    let list = out.join(SUMS);
    fs::write(&list, &sums).map_err(|e| format!("{}: {e}", list.display()))?;
    println!("{}: {} files, {SUMS} beside them", out.display(), sums.lines().count());
    Ok(())
}

/// Fails if the working tree differs from its commit.
fn unchanged(root: &Path) -> Result<(), String> {
    let output = Command::new("git").args(["status", "--porcelain"]).current_dir(root).output();
    let output = output.map_err(|e| format!("git: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().next() {
        _ if !output.status.success() => Err("a release is made of a commit, and this is no checkout of git".into()),
        Some(line) => Err(format!("the working tree differs from its commit ({}): commit or stash first", line.trim())),
        None => Ok(()),
    }
}

/// Hash of the commit that is checked out.
fn commit(root: &Path) -> Result<Vec<u8>, String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output();
    output.map(|output| output.stdout).map_err(|e| format!("git: {e}"))
}

/// Refuses a folder with other files than a release's, since a release replaces them.
fn refuse_foreign(out: &Path) -> Result<(), String> {
    let has_files = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some());
    if has_files && !out.join(SUMS).exists() {
        return Err(format!("{} is not empty and no release: name another folder", out.display()));
    }
    Ok(())
}

/// Makes all files but the image in `out`, from the checkout in `root`.
fn make(root: &Path, out: &Path, release: &Release) -> Result<(), String> {
    create(out)?;
    for task in ["package", "wheel"] {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.arg(task).arg(out);
        surround(&mut command, root, release);
        let status = command.status().map_err(|e| format!("{task}: {e}"))?;
        if !status.success() {
            return Err(format!("cargo xtask {task}: {status}"));
        }
    }
    let files = root.join(TARGET).join("package/tree");
    copy_tree(&files.join("share/man"), &out.join("man"))?;
    create(&out.join("completions"))?;
    for (shell, path) in tree::COMPLETIONS {
        copy(&files.join(path), &out.join("completions").join(completion(shell)))?;
    }
    copy(&files.join("share/doc/xsched/sbom.cdx.json"), &out.join(format!("xsched-{}.cdx.json", release.version)))?;
    copy(&root.join("LICENSE"), &out.join("LICENSE"))?;
    let page = Path::new("docs/guide/upgrading.md");
    let text = String::from_utf8(tree::read(&root.join(page))?).map_err(|e| format!("{}: {e}", page.display()))?;
    tree::put(out, "UPGRADING.md", documents::alone(&text, page).as_bytes())
}

/// Name of a shell's completions among the files of a release.
fn completion(shell: &str) -> String {
    if shell == "zsh" { "_xsched".into() } else { format!("xsched.{shell}") }
}

/// Sets what a release's files may depend on, and removes what they may not.
fn surround(command: &mut Command, root: &Path, release: &Release) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PROFILE_") || text.starts_with("CARGO_BUILD_") || text.ends_with("RUSTFLAGS") {
            command.env_remove(&name);
        }
    }
    command.current_dir(root);
    command.env("CARGO_MANIFEST_DIR", root.join("xtask")).env("CARGO_TARGET_DIR", root.join(TARGET));
    command.env("CARGO_INCREMENTAL", "0").env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    let flags: Vec<String> =
        renamed(root, &release.version).iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")).collect();
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
}

/// Folders of this machine, and their names in the files.
fn renamed(root: &Path, version: &str) -> [(String, String); 2] {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    [
        (cargo.display().to_string(), "/usr/src/cargo".into()),
        (root.display().to_string(), format!("/usr/src/xsched-{version}")),
    ]
}

/// Makes the files once more, from a clone in another folder; returns their checksums.
fn again(root: &Path, release: &Release) -> Result<String, String> {
    let place = target_folder(root).join("made-again");
    remove(&place)?;
    let (clone, out) = (place.join("another/checkout"), place.join("out"));
    let mut git = Command::new("git");
    quietly(git.args(["clone", "--quiet"]).arg(root).arg(&clone), "apt-get install git")?;
    make(&clone, &out, release)?;
    // The clone has a build of its own, which is large.
    let sums = sums(&out)?;
    remove(&clone)?;
    Ok(sums)
}

/// Makes the image for containers.
fn image(root: &Path, out: &Path, release: &Release) -> Result<(), String> {
    let there = Command::new("mmdebstrap").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("SKIPPED: the image for containers needs mmdebstrap; apt-get install mmdebstrap");
        return Ok(());
    }
    let mut make = Command::new("python3");
    make.arg(root.join("dist/kubernetes/image.py"));
    make.arg(out.join(format!("xsched_{}-1_amd64.deb", release.version)));
    make.arg(out.join(format!("xsched-{}-image.tar", release.version))).args(["--suite", SUITE]);
    quietly(make.env("SOURCE_DATE_EPOCH", release.epoch.to_string()), "apt-get install python3")
}

/// Checksums of all files of a folder but the list itself, in the form that `sha256sum --check` reads.
fn sums(out: &Path) -> Result<String, String> {
    let files = walk(out)?.into_iter().filter(|path| path.is_file() && !path.ends_with(SUMS));
    let names = files.filter_map(|path| path.strip_prefix(out).ok().map(Path::to_owned));
    let output = Command::new("sha256sum").args(names).current_dir(out).output();
    let output = output.map_err(|e| format!("sha256sum: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("sha256sum: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
    }

    #[test]
    fn a_folder_with_other_files_is_refused_and_a_release_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(refuse_foreign(place.path()), Ok(()));
        fs::write(place.path().join("mine"), "").unwrap();
        assert!(
            refuse_foreign(place.path()).unwrap_err().ends_with("is not empty and no release: name another folder")
        );
        fs::write(place.path().join(SUMS), "").unwrap();
        assert_eq!(refuse_foreign(place.path()), Ok(()));
    }

    #[test]
    fn a_changed_working_tree_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(words).current_dir(place.path());
            quietly(&mut git, "apt-get install git").unwrap();
        };
        git(&["init", "--quiet"]);
        git(&["commit", "--quiet", "--allow-empty", "--message=first"]);
        assert_eq!(unchanged(place.path()), Ok(()));
        fs::write(place.path().join("new.rs"), "").unwrap();
        let line = unchanged(place.path()).unwrap_err();
        assert_eq!(line, "the working tree differs from its commit (?? new.rs): commit or stash first");
    }

    #[test]
    fn checksums_are_those_of_sha256sum_in_order() {
        let place = tempfile::tempdir().unwrap();
        for name in ["b", "a", SUMS] {
            fs::write(place.path().join(name), "").unwrap();
        }
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sums(place.path()).unwrap(), format!("{empty}  a\n{empty}  b\n"));
    }

    /// One version, wherever it is written down; the chart and its guide have tests of their own.
    #[test]
    fn the_version_is_the_same_everywhere() {
        let version = env!("CARGO_PKG_VERSION");
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        assert!(read("python/xsched/__init__.py").contains(&format!("\n__version__ = \"{version}\"\n")), "Python");
        let chart = format!("\nversion: {version}\nappVersion: \"{version}-1\"\n");
        assert!(read("dist/kubernetes/helm/Chart.yaml").contains(&chart), "the chart");
        assert!(read("docs/guide/upgrading.md").contains(&format!("\n## To {version}")), "the upgrade notes");
        for lock in ["Cargo.lock", "testing/xsched-fuzz/libfuzzer/Cargo.lock"] {
            for part in read(lock).split("[[package]]").filter(|part| part.contains("\nname = \"xsched-")) {
                let is_own = !part.contains("\nsource = ") && !part.contains("name = \"xsched-fuzz-libfuzzer\"");
                assert!(!is_own || part.contains(&format!("\nversion = \"{version}\"\n")), "{lock}: {part}");
            }
        }
        // Screens of the pages.
        for page in ["docs/guide/tasks.md", "docs/pictures/doctor.svg"] {
            let text = read(page);
            let shown = text.split("process ").filter_map(|rest| rest.split_once(", version ")?.1.split(',').next());
            let shown: Vec<&str> = shown.collect();
            assert!(!shown.is_empty() && shown.iter().all(|is| *is == version), "{page}: {shown:?}");
        }
    }

    #[test]
    fn what_depends_on_the_machine_is_taken_from_the_environment_and_folders_get_other_names() {
        let release = Release { version: "1.2.3".into(), epoch: 77 };
        let mut command = Command::new("true");
        surround(&mut command, Path::new("/somewhere/xsched"), &release);
        let value = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name).and_then(|(_, value)| value);
            found.map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(value("SOURCE_DATE_EPOCH").as_deref(), Some("77"));
        assert_eq!(value("CARGO_TARGET_DIR").as_deref(), Some("/somewhere/xsched/target/distribution"));
        let flags = value("CARGO_ENCODED_RUSTFLAGS").unwrap();
        assert!(flags.ends_with("--remap-path-prefix=/somewhere/xsched=/usr/src/xsched-1.2.3"), "{flags}");
    }
}
