//! `cargo xtask package --check`: checks that package and archive have the right contents, are byte-identical when made again, and leave
//! nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::bundle::{create, remove, target_folder};
use crate::package::tree::{binaries, read, walk};
use crate::package::{Release, deb, write};

/// Files that must be in the package besides the binaries.
const CONTENTS: [&str; 20] = [
    "usr/bin/xsched",
    "usr/lib/xsched/xcli",
    "usr/lib/xsched/libshimcuda.so",
    "usr/include/xsched/xsched.h",
    "usr/include/xsched/cuda/hal.h",
    "usr/lib/systemd/system/xsched.service",
    "usr/lib/systemd/user/xsched.service",
    "usr/lib/systemd/system-preset/50-xsched.preset",
    "usr/lib/systemd/user-preset/50-xsched.preset",
    "usr/share/man/man1/xsched.1.gz",
    "usr/share/bash-completion/completions/xsched",
    "usr/share/zsh/vendor-completions/_xsched",
    "usr/share/doc/xsched/sbom.cdx.json",
    "usr/share/doc/xsched/README.md",
    "usr/share/doc/xsched/guide/getting-started.md",
    "usr/share/doc/xsched/examples/config.toml",
    "usr/share/doc/xsched/examples/grafana/xsched.json",
    "usr/share/doc/xsched/examples/prometheus/xsched.rules.yml",
    "usr/share/doc/xsched/examples/tour/serve.py",
    "usr/share/pkgconfig/xsched-cuda.pc",
];

/// Makes the package and the archive twice, compares and tests them.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let (built, work) = (super::build(root)?, target_folder(root).join("package-check"));
    let release = Release::of(root);
    remove(&work)?;
    let made = |name: &str| write(root, &built, &work.join(name), &work.join(name).join("out"), &release);
    let (one, other) = (made("one")?, made("other")?);
    for (one, other) in [(&one.deb, &other.deb), (&one.archive, &other.archive)] {
        if read(one)? != read(other)? {
            return Err(format!("{} differs when it is made again: {}", one.display(), other.display()));
        }
    }
    println!("both files are the same when they are made again");
    let listed = listing(&one.deb)?;
    let wanted = CONTENTS.into_iter().map(str::to_owned).chain(binaries().map(|name| format!("usr/lib/xsched/{name}")));
    let missing: Vec<String> = wanted.filter(|name| !listed.contains(name)).collect();
    if !missing.is_empty() {
        return Err(format!("{} lacks {}", one.deb.display(), missing.join(", ")));
    }
    match deb::lintian(&one.deb) {
        Some(verdict) => {
            verdict?;
            println!("lintian has nothing to say");
        }
        None => println!("SKIPPED: lintian is not installed; apt-get install lintian"),
    }
    installs(root, &work, &one.archive)
}

/// Types the commands of the installed pages, in their order, as one does who has just installed xsched. The screens are kept.
fn first_minutes(root: &Path, work: &Path, way: &str, prefix: &Path, pages: &Path) -> Result<(), String> {
    let screens = work.join(format!("{way}.typescript"));
    let mut play = Command::new("python3");
    play.arg(root.join("testing/machines/minutes/play.py")).args(["--way", way]).env("PYTHONDONTWRITEBYTECODE", "1");
    play.arg("--prefix").arg(prefix).arg("--pages").arg(pages).arg("--screens").arg(&screens);
    match play.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => {
            Err(format!("a newcomer's first minutes with the {way} fail; the screens are in {}", screens.display()))
        }
        Err(error) => Err(format!("python3: {error}; apt-get install python3")),
    }
}

/// Makes the wheel, and plays the first minutes with it in a virtual environment.
fn wheel_minutes(root: &Path, work: &Path, pages: &Path) -> Result<(), String> {
    let (folder, environment) = (work.join("wheel"), work.join("environment"));
    crate::wheel::run(root, &folder)?;
    let venv = Command::new("python3").args(["-m", "venv"]).arg(&environment).output();
    if !venv.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: the first minutes with the wheel: python3 -m venv fails; apt-get install python3-venv");
        return Ok(());
    }
    let wheels = walk(&folder)?.into_iter().filter(|path| path.is_file());
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index"]).args(wheels);
    done(&mut pip)?;
    first_minutes(root, work, "wheel", &environment, pages)
}

fn listing(package: &Path) -> Result<BTreeSet<String>, String> {
    let fields =
        Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(std::process::Stdio::piped()).spawn();
    let fields = fields.map_err(|e| format!("dpkg-deb: {e}"))?.stdout.ok_or("dpkg-deb tells nothing")?;
    let output = Command::new("tar").arg("-t").stdin(fields).output().map_err(|e| format!("tar: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_start_matches("./").to_owned()).collect())
}

/// Tests the archive's scripts: installation into a fresh folder, again over itself, and removal.
fn installs(root: &Path, work: &Path, archive: &Path) -> Result<(), String> {
    done(Command::new("tar").arg("-C").arg(work).arg("-xzf").arg(archive))?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let folder = work.join(name.trim_end_matches(".tar.gz"));
    // The prefix contains a folder that other software uses, too.
    let prefix = work.join("prefix");
    create(&prefix.join("share/man/man1"))?;
    let before = walk(&prefix)?;
    let install = || done(Command::new(folder.join("install.sh")).arg(&prefix));
    install()?;
    let library = prefix.join("lib/xsched/libxsched.so");
    let inode = || fs::metadata(&library).map(|meta| meta.ino()).map_err(|e| format!("{}: {e}", library.display()));
    // A running program keeps the library open; then the inode is not used again.
    let held = fs::File::open(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    let (first, links) = (inode()?, |file: &fs::File| file.metadata().map_or(1, |meta| meta.nlink()));
    install()?;
    if inode()? == first || links(&held) != 0 {
        return Err("install.sh writes into a library that programs have mapped".into());
    }
    let says = Command::new(prefix.join("bin/xsched")).arg("--version").output().map_err(|e| format!("xsched: {e}"))?;
    if !says.status.success() {
        return Err("what install.sh has installed does not start".into());
    }
    first_minutes(root, work, "archive", &prefix, &prefix.join("share/doc/xsched"))?;
    wheel_minutes(root, work, &prefix.join("share/doc/xsched"))?;
    let unit = prefix.join("lib/systemd/system/xsched.service");
    let unit = fs::read_to_string(&unit).map_err(|e| format!("{}: {e}", unit.display()))?;
    if !unit.contains(&format!("ExecStart={}/bin/xsched daemon", prefix.display())) {
        return Err("install.sh leaves another prefix in the unit".into());
    }
    done(Command::new(prefix.join("lib/xsched/uninstall.sh")).arg(&prefix))?;
    let after = walk(&prefix)?;
    if after != before {
        return Err(format!("uninstall.sh leaves {after:?}, where there was {before:?}"));
    }
    println!("the first minutes go well with archive and wheel; their screens are in {}", work.display());
    println!("install.sh installs, replaces by renaming, and uninstall.sh leaves nothing");
    Ok(())
}

fn done(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}
