//! `cargo xtask containers`: containers of a real engine under one daemon ([`containers.py`](../../testing/machines/containers/containers.py)).

use std::path::Path;
use std::process::Command;

use crate::test::target_folder;

pub(crate) const HELP: &str = "\
Builds xsched and tries it in containers of Podman: images of many kinds, Debian's releases among them, other namespaces, two containers
and a program outside on one simulated device, restarts of the daemon and of the engine. Ends with a table. --cost measures what a
container's start takes with and without a class, too. Needs root, podman, runc, mmdebstrap, musl-tools, libjemalloc2,
qemu-user-static and gcc-aarch64-linux-gnu with libc6-dev-arm64-cross; what is missing is named and left out.";

/// Builds xsched, and runs all cases.
pub(crate) fn run(root: &Path, costs: bool) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    succeed(Command::new(cargo).args(["build", "--release"]).current_dir(root))?;
    let target = target_folder(root);
    let floor = target.join("containers/floor");
    std::fs::create_dir_all(&floor).map_err(|e| format!("{}: {e}", floor.display()))?;
    xsched_floor::make(&floor);
    let mut script = Command::new("python3");
    script.arg("testing/machines/containers/containers.py").arg("--bin").arg(target.join("release"));
    script
        .arg("--kept")
        .arg(target.join("containers"))
        .arg("--full")
        .arg("--floor")
        .arg(floor)
        .args(costs.then_some("--cost"));
    succeed(script.current_dir(root).env("PYTHONDONTWRITEBYTECODE", "1"))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
