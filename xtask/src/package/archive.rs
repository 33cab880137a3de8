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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{documents, tree};

    /// The scripts with pages, examples and the files for pkg-config; no build is needed for these.
    #[test]
    fn pkg_config_knows_the_prefix_and_nothing_of_the_examples_is_left() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let place = tempfile::tempdir().unwrap();
        let [files, folder, prefix] = ["tree", "archive", "prefix"].map(|name| place.path().join(name));
        put(&files, "lib/xsched/libpreempt.so", b"").unwrap();
        tree::pkg_config(&root, &files, "1.2.3").unwrap();
        documents::lay_out(&root, &files).unwrap();
        lay_out(&root, &files, &folder).unwrap();
        let install = |path: &str| {
            let output = Command::new(folder.join("install.sh")).arg(&prefix).env("PATH", path).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let bin = prefix.join("bin").display().to_string();
        assert!(install("/usr/bin:/bin").contains(&format!("put {bin} into PATH")));
        // Again, with the folder in PATH.
        assert!(!install(&format!("{bin}:/usr/bin:/bin")).contains("PATH"));
        let module = std::fs::read_to_string(prefix.join("share/pkgconfig/xsched-cuda.pc")).unwrap();
        assert!(module.starts_with(&format!("prefix={}\n", prefix.display())), "{module}");
        assert!(module.contains("Version: 1.2.3\n") && module.contains("Requires: xsched = 1.2.3\n"), "{module}");
        // Root has run an example.
        put(&prefix, "share/doc/xsched/examples/pytorch/__pycache__/pace.cpython-311.pyc", b"").unwrap();
        quietly(Command::new(prefix.join("lib/xsched/uninstall.sh")).arg(&prefix), "uninstall.sh").unwrap();
        assert!(!prefix.exists(), "{:?}", tree::walk(&prefix));
    }
}
