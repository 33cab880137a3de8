//! The Debian package. `dpkg-deb` writes it; the same files give the same bytes.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bundle::{copy_tree, create, quietly, remove};
use crate::package::Release;
use crate::package::tree::{GLIBC, chmod, compress, put, read, walk};

const DESCRIPTION: &str = "preemptive scheduler for GPUs and other accelerators
 Programs that share a GPU get it by priority, without being changed: a
 library that is preloaded into them decides when a launch goes on, and a
 daemon decides which program has the device. A program that must answer in
 milliseconds does not wait for another that computes for hours.
 .
 CUDA, HIP and OpenCL are scheduled, and a simulated device to try it on.";

/// Maintainer, if DEBFULLNAME and DEBEMAIL are not set. The host cannot exist (RFC 2606).
const MAINTAINER: &str = "xsched maintainers <maintainers@xsched.invalid>";

/// Writes the package into a folder, from the tree laid out below `prefix`.
pub(crate) fn write(root: &Path, prefix: &Path, work: &Path, out: &Path, release: &Release) -> Result<PathBuf, String> {
    let stage = work.join("deb");
    remove(&stage)?;
    let usr = stage.join("usr");
    create(&usr)?;
    copy_tree(prefix, &usr)?;
    // Folder that Debian's zsh searches.
    let vendor = usr.join("share/zsh/vendor-completions");
    std::fs::rename(usr.join("share/zsh/site-functions"), &vendor).map_err(|e| format!("{}: {e}", vendor.display()))?;
    let documents = usr.join("share/doc/xsched");
    // Upstream's changelog; the package's own is written beside it.
    let changes = read(&documents.join("CHANGELOG.md"))?;
    std::fs::remove_file(documents.join("CHANGELOG.md")).map_err(|e| e.to_string())?;
    let version = format!("{}-1", release.version);
    let maintainer = maintainer();
    let own = format!(
        "xsched ({version}) unstable; urgency=medium\n\n  * Made by `cargo xtask package`; changelog.gz has what changed.\n\n -- {maintainer}  {}\n",
        date(release.epoch)?
    );
    for (name, text) in [("changelog", changes), ("changelog.Debian", own.into_bytes())] {
        put(&documents, name, &text)?;
        compress(&documents.join(name))?;
        chmod(&documents.join(format!("{name}.gz")), 0o644)?;
    }
    let overrides = super::script(root, "debian/lintian-overrides")?;
    put(&usr, "share/lintian/overrides/xsched", &overrides)?;
    chmod(&usr.join("share/lintian/overrides/xsched"), 0o644)?;
    let size = installed_kib(&usr)?;
    let (major, minor) = GLIBC;
    let control = format!(
        "Package: xsched\nVersion: {version}\nArchitecture: amd64\nMaintainer: {maintainer}\nInstalled-Size: {size}\n\
         Depends: libc6 (>= {major}.{minor})\nSection: utils\nPriority: optional\nDescription: {DESCRIPTION}\n"
    );
    put(&stage, "DEBIAN/control", control.as_bytes())?;
    put(&stage, "DEBIAN/md5sums", &sums(&stage)?)?;
    for name in ["postinst", "prerm", "postrm"] {
        put(&stage, &format!("DEBIAN/{name}"), &super::script(root, &format!("debian/{name}"))?)?;
        chmod(&stage.join("DEBIAN").join(name), 0o755)?;
    }
    for path in walk(&stage)?.iter().filter(|path| path.is_dir() && !path.is_symlink()) {
        chmod(path, 0o755)?;
    }
    let package = out.join(format!("xsched_{version}_amd64.deb"));
    let mut build = Command::new("dpkg-deb");
    // With several threads the bytes would depend on how the work is divided.
    build.args(["--root-owner-group", "--uniform-compression", "-Zxz", "--threads-max=1", "--build"]);
    build.arg(&stage).arg(&package).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    quietly(&mut build, "apt-get install dpkg")?;
    Ok(package)
}

fn maintainer() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (set("DEBFULLNAME"), set("DEBEMAIL")) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        _ => MAINTAINER.to_owned(),
    }
}

/// Size of the installed files in KiB, in the way of dpkg-gencontrol: a file takes whole KiB, folders and links one each.
fn installed_kib(folder: &Path) -> Result<u64, String> {
    let size = |path: &PathBuf| match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => meta.len().div_ceil(1024),
        _ => 1,
    };
    Ok(walk(folder)?.iter().map(size).sum())
}

/// Date in the form of Debian's changelogs.
fn date(epoch: u64) -> Result<String, String> {
    let mut date = Command::new("date");
    date.args(["-u", "-R", "-d", &format!("@{epoch}")]).env("LC_ALL", "C");
    let output = date.output().map_err(|e| format!("date: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Checksums for `dpkg --verify`.
fn sums(stage: &Path) -> Result<Vec<u8>, String> {
    let files = walk(&stage.join("usr"))?.into_iter().filter(|path| path.is_file() && !path.is_symlink());
    let names = files.filter_map(|path| path.strip_prefix(stage).ok().map(Path::to_owned));
    let output = Command::new("md5sum").args(names).current_dir(stage).output().map_err(|e| format!("md5sum: {e}"))?;
    Ok(output.stdout)
}

/// Complaints of lintian about a package, at the level of a warning and above; none = it is not installed.
pub(crate) fn lintian(package: &Path) -> Option<Result<(), String>> {
    let mut lintian = Command::new("lintian");
    // In containers the build runs as root.
    lintian.args(["--fail-on", "error,warning", "--allow-root", "--tag-display-limit", "0"]).arg(package);
    match lintian.output() {
        Ok(output) if output.status.success() && output.stdout.trim_ascii().is_empty() => Some(Ok(())),
        Ok(output) => Some(Err(format!(
            "lintian: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_do_not_count_as_what_they_lead_to() {
        let place = tempfile::tempdir().unwrap();
        put(place.path(), "lib/large", &[0; 10_000]).unwrap();
        std::os::unix::fs::symlink("large", place.path().join("lib/link")).unwrap();
        // Two folders, a link, and ten KiB.
        assert_eq!(installed_kib(place.path()), Ok(13));
    }
}
