//! Installed files, below a folder that represents the prefix: equal for package, archive and `cargo xtask install`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle::{self, LIBRARIES, ORIGINAL, copy, create};
use crate::package::{Release, documents, sbom};

/// Newest glibc that the files may need; the package depends on this version.
pub(crate) const GLIBC: (u32, u32) = (2, 28);

/// Packages of the workspace whose products are included.
const PACKAGES: [&str; 8] = [
    "xsched-cli",
    "xsched-kube",
    "xsched-shim",
    "xsched-simdev",
    "xsched-preempt",
    "xsched-halcuda",
    "xsched-halhip",
    "xsched-halopencl",
];

/// Files that are copied as they are: path in the repository, and path below the prefix.
const CARRIED: [(&str, &str); 14] = [
    ("dist/xsched.service", "lib/systemd/system/xsched.service"),
    ("dist/user/xsched.service", "lib/systemd/user/xsched.service"),
    ("dist/xsched-pool.socket", "lib/systemd/system/xsched-pool.socket"),
    ("dist/xsched-pool@.service", "lib/systemd/system/xsched-pool@.service"),
    ("dist/run-xsched_pool.mount", "lib/systemd/system/run-xsched_pool.mount"),
    ("dist/xsched-metrics.socket", "lib/systemd/system/xsched-metrics.socket"),
    ("dist/user/xsched-metrics.socket", "lib/systemd/user/xsched-metrics.socket"),
    ("dist/user/xsched-pool.socket", "lib/systemd/user/xsched-pool.socket"),
    ("dist/user/xsched-pool@.service", "lib/systemd/user/xsched-pool@.service"),
    ("dist/xsched.preset", "lib/systemd/system-preset/50-xsched.preset"),
    ("dist/xsched.preset", "lib/systemd/user-preset/50-xsched.preset"),
    ("CHANGELOG.md", "share/doc/xsched/CHANGELOG.md"),
    ("dist/debian/copyright", "share/doc/xsched/copyright"),
    ("crates/xsched-simdev/include/simdev.h", "include/xsched/simdev.h"),
];

/// Folder of the files for pkg-config, in the repository.
const PKG_CONFIG: &str = "dist/pkgconfig";

/// Paths of completions, by shell.
pub(crate) const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/xsched"),
    ("zsh", "share/zsh/site-functions/_xsched"),
    ("fish", "share/fish/vendor_completions.d/xsched.fish"),
];

/// Names of the files in `lib/xsched` that can be started or loaded.
pub(crate) fn binaries() -> impl Iterator<Item = &'static str> {
    ["xsched", "xsched-kube", "libsimdev.so"].into_iter().chain(LIBRARIES)
}

/// Lays out all files below `prefix`, from the files built in a folder.
pub(crate) fn lay_out(root: &Path, built: &Path, prefix: &Path, release: &Release) -> Result<(), String> {
    let library = prefix.join("lib/xsched");
    create(&library)?;
    for name in binaries() {
        let to = library.join(name);
        copy(&built.join(name), &to)?;
        bundle::strip(&to)?;
        bundle::glibc_is_old_enough(&to, GLIBC)?;
    }
    for (name, target) in ORIGINAL {
        link(target, &library.join(name))?;
    }
    create(&prefix.join("bin"))?;
    link("../lib/xsched/xsched", &prefix.join("bin/xsched"))?;
    bundle::copy_tree(&root.join("include"), &prefix.join("include"))?;
    for (from, to) in CARRIED {
        put(prefix, to, &read(&root.join(from))?)?;
    }
    pkg_config(root, prefix, &release.version)?;
    documents::lay_out(root, prefix)?;
    let bill = sbom::of(root, &PACKAGES, &release.version, release.epoch)?;
    put(prefix, "share/doc/xsched/sbom.cdx.json", bill.as_bytes())?;
    let command = library.join("xsched");
    for (shell, to) in COMPLETIONS {
        put(prefix, to, &said(&command, &["completions", shell])?)?;
    }
    pages(&command, prefix)?;
    modes(prefix)
}

/// Writes the files for pkg-config. The archive's script changes the prefix in them.
pub(crate) fn pkg_config(root: &Path, prefix: &Path, version: &str) -> Result<(), String> {
    for from in walk(&root.join(PKG_CONFIG))?.iter().filter(|path| path.is_file()) {
        let text = String::from_utf8_lossy(&read(from)?).replace("@VERSION@", version);
        let name = from.file_name().unwrap_or_default().to_string_lossy();
        put(prefix, &format!("share/pkgconfig/{name}"), text.as_bytes())?;
    }
    Ok(())
}

/// Writes the manual pages with the command: a folder for each section.
fn pages(command: &Path, prefix: &Path) -> Result<(), String> {
    let folder = prefix.join("share/man");
    create(&folder)?;
    said(command, &["man", "--dir", &folder.to_string_lossy()])?;
    walk(&folder)?.iter().filter(|path| path.is_file()).try_for_each(|page| compress(page))
}

/// Replaces a file by a compressed one without a time stamp.
pub(crate) fn compress(file: &Path) -> Result<(), String> {
    bundle::quietly(Command::new("gzip").arg("-9nf").arg(file), "apt-get install gzip")
}

/// Output of the command, run without the variables of this environment.
fn said(command: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(command).args(args).env_clear().output();
    let output = output.map_err(|e| format!("{}: {e}", command.display()))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{} {}: {}", command.display(), args.join(" "), String::from_utf8_lossy(&output.stderr)))
}

/// Writes a file and makes the folders above it.
pub(crate) fn put(prefix: &Path, name: &str, bytes: &[u8]) -> Result<(), String> {
    let path = prefix.join(name);
    create(path.parent().unwrap_or(prefix))?;
    fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn link(target: &str, link: &Path) -> Result<(), String> {
    symlink(target, link).map_err(|e| format!("{}: {e}", link.display()))
}

/// Sets modes that do not depend on the user who builds.
fn modes(folder: &Path) -> Result<(), String> {
    for path in walk(folder)? {
        let is_program = path.is_dir()
            || path.file_name().is_some_and(|name| name == "xsched" || name == "xsched-kube" || name == "uninstall.sh");
        if !path.is_symlink() {
            chmod(&path, if is_program && !path.ends_with("completions/xsched") { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

pub(crate) fn chmod(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| format!("{}: {e}", path.display()))
}

/// Folder and everything below it, in order.
pub(crate) fn walk(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        if path.is_dir() && !path.is_symlink() {
            let entries = fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            all.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    all.sort();
    Ok(all)
}
