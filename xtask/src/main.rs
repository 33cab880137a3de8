//! Build and test tasks: `cargo xtask generate [--check]`, `cargo xtask test [--long]`, `cargo xtask ci`, `cargo xtask replay FILE…`, `cargo xtask bundle DIR`,
//! `cargo xtask fuzz [TARGET]`, `cargo xtask wheel DIR`, `cargo xtask package DIR`, `cargo xtask install PREFIX`,
//! `cargo xtask rocm [--suite SUITE] DIR`, `cargo xtask vm`,
//! `cargo xtask containers`, `cargo xtask kubernetes`, `cargo xtask circles [CRATE]`, `cargo xtask prose [CRATE]`.
#![forbid(unsafe_code)]

mod apt;
mod bundle;
mod c;
mod containers;
mod cuda;
mod fuzz;
mod generate;
mod hip;
mod hip_runtime;
mod kubernetes;
mod opencl;
mod package;
mod packages;
mod release;
mod rocm;
mod test;
mod vm;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use test::Extent;
use xtask::{circles, prose};

const USAGE: &str = "usage: cargo xtask generate [--check] | test [--long] | ci | circles [CRATE] | prose [CRATE] | replay FILE… | fuzz [TARGET] [--secs N] [--planted] | hip-runtime [--debug] DIR | rocm [--suite SUITE] DIR | bundle [--hip] DIR | wheel DIR | package DIR | install PREFIX | vm [--kvm] [--suite SUITE] | containers [--cost] | kubernetes";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["generate"] => generate::write(&root()),
        ["generate", "--check"] => generate::check(&root()).map(drop),
        ["bundle", folder] if !folder.starts_with('-') => bundle::run(&root(), folder.as_ref(), &bundle::CUDA),
        ["bundle", "--hip", folder] if !folder.starts_with('-') => bundle::run(&root(), folder.as_ref(), &bundle::HIP),
        ["hip-runtime", folder] if !folder.starts_with('-') => {
            hip_runtime::run(&root(), folder.as_ref(), hip_runtime::Built::Release)
        }
        ["hip-runtime", "--debug", folder] if !folder.starts_with('-') => {
            hip_runtime::run(&root(), folder.as_ref(), hip_runtime::Built::Debug)
        }
        ["wheel", folder] if !folder.starts_with('-') => wheel::run(&root(), folder.as_ref()),
        ["package" | "install", "--help" | "-h"] => {
            println!("{}", package::HELP);
            Ok(())
        }
        ["package", "--check"] => package::check::run(&root()),
        ["package", folder] if !folder.starts_with('-') => package::run(&root(), folder.as_ref()),
        ["install", prefix] if !prefix.starts_with('-') => package::install(&root(), prefix.as_ref()),
        ["vm", "--help" | "-h"] => {
            println!("{}", vm::HELP);
            Ok(())
        }
        ["vm", options @ ..] if vm::Options::of(options).is_some() => {
            vm::run(&root(), vm::Options::of(options).unwrap_or_default())
        }
        ["containers", "--help" | "-h"] => {
            println!("{}", containers::HELP);
            Ok(())
        }
        ["containers"] => containers::run(&root(), &[]),
        ["containers", "--cost"] => containers::run(&root(), &["--cost"]),
        ["kubernetes", "--help" | "-h"] => {
            println!("{}", kubernetes::HELP);
            Ok(())
        }
        ["kubernetes"] => kubernetes::run(&root()),
        ["rocm", folder] if !folder.starts_with('-') => rocm::run(rocm::SUITE, folder.as_ref()),
        ["rocm", "--suite", suite, folder] if rocm::is_suite(suite) && !folder.starts_with('-') => {
            rocm::run(suite, folder.as_ref())
        }
        ["rocm", ..] => {
            eprintln!(
                "xtask: cargo xtask rocm takes [--suite SUITE] DIR; SUITE is one of Debian: sid (ROCm 6.4), experimental (7.2)"
            );
            return ExitCode::from(2);
        }
        ["fuzz", "--help" | "-h"] => {
            println!("{}", fuzz::HELP);
            Ok(())
        }
        ["fuzz", words @ ..] => match fuzz::targets(&root()) {
            Ok(targets) => match fuzz::Wish::read(words, &targets) {
                Ok(wish) => fuzz::run(&root(), &targets, &wish),
                Err(wrong) => {
                    eprintln!("xtask: {wrong}");
                    return ExitCode::from(2);
                }
            },
            Err(why) => Err(why),
        },
        ["circles", "--help" | "-h"] => {
            println!("{}", circles::HELP);
            Ok(())
        }
        ["circles", words @ ..] => match circles::run(&root(), words) {
            Ok(result) => result,
            Err(wrong) => {
                eprintln!("xtask: {wrong}");
                return ExitCode::from(2);
            }
        },
        ["prose", "--help" | "-h"] => {
            println!("{}", prose::HELP);
            Ok(())
        }
        ["prose", words @ ..] => match prose::run(&root(), words) {
            Ok(result) => result,
            Err(wrong) => {
                eprintln!("xtask: {wrong}");
                return ExitCode::from(2);
            }
        },
        ["replay", files @ ..] => return replay(files),
        ["test", "--help" | "-h"] => {
            println!("{}", test::HELP);
            Ok(())
        }
        ["test"] => tested(Extent::Tests),
        ["test", "--long"] => tested(Extent::Long),
        ["ci", "--help" | "-h"] => {
            println!("{}", test::HELP_CI);
            Ok(())
        }
        ["ci"] => tested(Extent::Rest),
        ["ci", wrong @ ..] => {
            eprintln!("xtask: `cargo xtask ci` takes --help, not `{}`", wrong.join(" "));
            return ExitCode::from(2);
        }
        ["test", wrong @ ..] => {
            eprintln!("xtask: `cargo xtask test` takes --long or --help, not `{}`", wrong.join(" "));
            return ExitCode::from(2);
        }
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

fn tested(extent: Extent) -> Result<(), String> {
    if test::run(&root(), extent) { Ok(()) } else { Err("something failed, see the summary".into()) }
}

/// Checks recorded journals against the models.
fn replay(files: &[&str]) -> ExitCode {
    let mut command = std::process::Command::new("cargo");
    command.args(["run", "--quiet", "--package", "xsched-flow", "--example", "replay", "--"]).args(files);
    let code = command.status().ok().and_then(|status| status.code());
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Root of the workspace: the folder above this package. Cargo names it at run time; the path at compile time may be of another checkout
/// that shares its target folder.
fn root() -> PathBuf {
    let now = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let mut path = now.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    path.pop();
    path
}
