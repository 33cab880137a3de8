//! Build and test tasks: `cargo xtask generate [--check]`, `cargo xtask test`, `cargo xtask replay FILE…`, `cargo xtask bundle DIR`.
#![forbid(unsafe_code)]

mod bundle;
mod c;
mod cuda;
mod generate;
mod hip;
mod hip_runtime;
mod opencl;
mod packages;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str =
    "usage: cargo xtask generate [--check] | test | replay FILE… | hip-runtime DIR | bundle [--hip] DIR";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["generate"] => generate::write(&root()),
        ["generate", "--check"] => generate::check(&root()).map(drop),
        ["bundle", folder] if !folder.starts_with('-') => bundle::run(&root(), folder.as_ref(), &bundle::CUDA),
        ["bundle", "--hip", folder] if !folder.starts_with('-') => bundle::run(&root(), folder.as_ref(), &bundle::HIP),
        ["hip-runtime", folder] if !folder.starts_with('-') => hip_runtime::run(&root(), folder.as_ref()),
        ["replay", files @ ..] => return replay(files),
        ["test"] if test::run(&root()) => Ok(()),
        ["test"] => Err("something failed, see the summary".into()),
        _ => {
            eprintln!("xtask: unknown task `{}`; {USAGE}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Holds journals against the models.
fn replay(files: &[&str]) -> ExitCode {
    let mut command = std::process::Command::new("cargo");
    command.args(["run", "--quiet", "--package", "xsched-flow", "--example", "replay", "--"]).args(files);
    let code = command.status().ok().and_then(|status| status.code());
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The workspace's root, the folder above this package. Cargo says where that is now; where it was when this was compiled
/// may be another checkout that shares its target folder.
fn root() -> PathBuf {
    let now = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut path = now.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    path.pop();
    path
}
