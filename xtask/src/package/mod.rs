//! `cargo xtask package DIR`: a Debian package and an archive. `cargo xtask install PREFIX`: the same files, installed directly. [`tree`]
//! lists the files and their places.

mod archive;
pub(crate) mod check;
mod deb;
pub(crate) mod documents;
mod sbom;
pub(crate) mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle::{create, remove, target_folder};
use crate::release;

/// Text of `cargo xtask package --help`.
pub(crate) const HELP: &str = "\
Builds xsched and writes into DIR a Debian package, and an archive with install.sh and uninstall.sh: the command, its libraries, C
headers, systemd's units, manual pages, completions, guide, examples, the bill of materials. The same checkout, compiler
and SOURCE_DATE_EPOCH (default: the time of the commit) give the same bytes.";

/// Text of `cargo xtask install --help`.
pub(crate) const HELP_INSTALL: &str = "\
Installs what a package has below PREFIX, such as /usr/local, also while programs run under an earlier version;
PREFIX/lib/xsched/uninstall.sh PREFIX removes it.";

/// Facts about a release besides its files.
pub(crate) struct Release {
    pub(crate) version: String,
    /// Modification time of all files, in seconds since 1970.
    pub(crate) epoch: u64,
}

impl Release {
    pub(crate) fn of(root: &Path) -> Release {
        Release { version: env!("CARGO_PKG_VERSION").to_owned(), epoch: epoch(root) }
    }

    /// Returns the release under another version, for tests of an upgrade.
    pub(crate) fn called(self, version: &str) -> Release {
        Release { version: version.to_owned(), ..self }
    }
}

/// Time from SOURCE_DATE_EPOCH, or of the commit.
fn epoch(root: &Path) -> u64 {
    let set = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|value| value.parse().ok());
    let commit = || {
        let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    // Without git: 1980, the earliest time that the oldest archive formats can hold.
    set.or_else(commit).unwrap_or(315_532_800)
}

/// Package and archive.
pub(crate) struct Written {
    pub(crate) deb: PathBuf,
    pub(crate) archive: PathBuf,
}

/// Builds and writes package and archive.
pub(crate) fn run(root: &Path, out: &Path) -> Result<(), String> {
    let built = build(root)?;
    let written = write(root, &built, &target_folder(root).join("package"), out, &Release::of(root))?;
    if let Some(verdict) = deb::lintian(&written.deb) {
        verdict?;
    }
    println!("{}\n{}", written.deb.display(), written.archive.display());
    Ok(())
}

/// Installs below a folder, by the archive's script.
pub(crate) fn install(root: &Path, prefix: &Path) -> Result<(), String> {
    let built = build(root)?;
    let work = target_folder(root).join("package");
    let (tree, folder) = (work.join("tree"), work.join("install"));
    remove(&tree)?;
    tree::lay_out(root, &built, &tree, &Release::of(root))?;
    archive::lay_out(root, &tree, &folder)?;
    let prefix = std::path::absolute(prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
    match Command::new(folder.join("install.sh")).arg(&prefix).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("install.sh: {status}")),
        Err(error) => Err(format!("install.sh: {error}")),
    }
}

fn build(root: &Path) -> Result<PathBuf, String> {
    release::build(root)?;
    // In a call of its own: gRPC needs other features of shared crates than the rest.
    release::build_more(root, &["-p", "xsched-kube"])?;
    Ok(target_folder(root).join("release"))
}

/// Writes package and archive into a folder, from the files built in another; `work` holds the files that are laid out.
pub(crate) fn write(root: &Path, built: &Path, work: &Path, out: &Path, release: &Release) -> Result<Written, String> {
    create(out)?;
    let tree = work.join("tree");
    remove(&tree)?;
    tree::lay_out(root, built, &tree, release)?;
    Ok(Written {
        deb: deb::write(root, &tree, work, out, release)?,
        archive: archive::write(root, &tree, work, out, release)?,
    })
}

/// Text of a script of `dist/`, with the part that both scripts share.
fn script(root: &Path, name: &str) -> Result<Vec<u8>, String> {
    let text = |name: &str| {
        let path = root.join("dist").join(name);
        std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
    };
    Ok(text(name)?.replace("#FORGET\n", &text("forget.sh")?).into_bytes())
}
