//! The release build, in one call of cargo. In several calls, crates that several packages depend on would be compiled again with other
//! features, or to machine code where the rest needs only input for link-time optimisation.

use std::path::Path;
use std::process::Command;

/// Packages that a plain `cargo build --release` builds, and the archive of the software HIP runtime.
const PACKAGES: [&str; 8] = ["cli", "shim", "simdev", "preempt", "halcuda", "halhip", "halopencl", "fakehip"];

/// Arguments of cargo for the whole release build.
pub(crate) fn words() -> Vec<String> {
    let packages = PACKAGES.iter().map(|name| format!("-pxsched-{name}"));
    ["build", "--release"].into_iter().map(str::to_owned).chain(packages).collect()
}

/// Arguments of cargo for the whole debug build, with tests.
pub(crate) const DEBUG: [&str; 3] = ["build", "--workspace", "--all-targets"];

/// Builds everything of the debug build.
pub(crate) fn build_debug(root: &Path) -> Result<(), String> {
    cargo(root, &DEBUG.map(str::to_owned))
}

/// Builds everything of the release.
pub(crate) fn build(root: &Path) -> Result<(), String> {
    cargo(root, &words())
}

/// Builds further packages in release mode, in a call of their own.
pub(crate) fn build_more(root: &Path, what: &[&str]) -> Result<(), String> {
    let words: Vec<String> = ["build", "--release"].iter().chain(what).map(|word| (*word).to_owned()).collect();
    cargo(root, &words)
}

fn cargo(root: &Path, words: &[String]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).args(words).current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(error) => Err(format!("cargo: {error}")),
    }
}
