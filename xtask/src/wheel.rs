//! `cargo xtask wheel DIR`: one wheel with the command, its libraries, the simulated device, the C headers and the Python packages.

use std::path::Path;
use std::process::Command;

use crate::bundle::{self, LIBRARIES};
use crate::release;

/// Newest glibc that the wheel's files may need: the tag `manylinux_2_28` promises it.
const GLIBC: (u32, u32) = (2, 28);

/// Builds the wheel into a folder.
pub(crate) fn run(root: &Path, folder: &Path) -> Result<(), String> {
    release::build(root)?;
    let release = bundle::target_folder(root).join("release");
    let stage = bundle::target_folder(root).join("wheel");
    bundle::remove(&stage)?;
    bundle::create(&stage)?;
    for name in ["xsched", "libsimdev.so"].iter().chain(&LIBRARIES) {
        let to = stage.join(name);
        bundle::copy(&release.join(name), &to)?;
        bundle::strip(&to)?;
        bundle::glibc_is_old_enough(&to, GLIBC)?;
    }
    let status = Command::new("python3")
        .arg(root.join("python/wheel.py"))
        .args(["--version", env!("CARGO_PKG_VERSION"), "--bin"])
        .arg(&stage)
        .arg("--out")
        .arg(folder)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("python/wheel.py: {status}")),
        Err(error) => Err(format!("python3: {error}; apt-get install python3")),
    }
}
