//! The archive for systems without Debian's packages: the tree, `install.sh` and `uninstall.sh`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle::{copy_tree, create, quietly, remove};
use crate::package::Release;
use crate::package::tree::{chmod, put};

/// Lays out the archive's contents in a folder: the tree below `prefix`, and the scripts.
pub(crate) fn lay_out(root: &Path, prefix: &Path, folder: &Path) -> Result<(), String> {
    remove(folder)?;
    create(folder)?;
    let uninstall = super::script(root, "uninstall.sh")?;
    copy_tree(prefix, &folder.join("files"))?;
    put(folder, "files/lib/xsched/uninstall.sh", &uninstall)?;
    chmod(&folder.join("files/lib/xsched/uninstall.sh"), 0o755)?;
    for (name, text) in [("uninstall.sh", uninstall), ("install.sh", super::script(root, "install.sh")?)] {
        put(folder, name, &text)?;
        chmod(&folder.join(name), 0o755)?;
    }
    Ok(())
}

/// Writes the archive into a folder.
pub(crate) fn write(root: &Path, prefix: &Path, work: &Path, out: &Path, release: &Release) -> Result<PathBuf, String> {
    let name = format!("xsched-{}-x86_64-linux", release.version);
    lay_out(root, prefix, &work.join(&name))?;
    let plain = out.join(format!("{name}.tar"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--format=ustar", "--owner=0", "--group=0", "--numeric-owner", "--mode=go-w"]);
    tar.arg(format!("--mtime=@{}", release.epoch)).arg("-C").arg(work).arg("-cf").arg(&plain).arg(&name);
    quietly(&mut tar, "apt-get install tar")?;
    super::tree::compress(&plain)?;
    Ok(out.join(format!("{name}.tar.gz")))
}
