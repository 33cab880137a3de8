//! `cargo xtask fuzz`: libFuzzer searches for bytes on which a target (testing/xsched-fuzz) panics.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Text of `--help`.
pub(crate) const HELP: &str = "\
Lets libFuzzer try a target, or one after the other, N seconds each (60 unless told), from its seeds in testing/xsched-fuzz/corpus and
from what earlier runs found, which is kept in target/fuzz/corpus. It is built with the stable compiler, whose switches for coverage
and the address sanitizer a variable (RUSTC_BOOTSTRAP) opens. Input on which a target fails is left in target/fuzz/artifacts, and the
way to try it again is printed: give the file to a seed folder once it is mended.

Ends with 0 if nothing was found (with --planted: if all was found), 1 if something failed, 2 for a wrong argument.";

const COMPILER: &str = "x86_64-unknown-linux-gnu";
/// Compiler flags for the coverage counters that libFuzzer reads, and for the address sanitizer.
const FLAGS: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
];
/// Output of a target that found its planted bug.
const PLANTED: &str = "the planted bug";

/// Options of the search.
#[derive(Debug)]
pub(crate) struct Wish {
    /// Name of the target to run, or none for each one in turn.
    pub(crate) target: Option<String>,
    /// Seconds for each target; none = the usual number.
    pub(crate) secs: Option<u64>,
    /// Each target has a bug that must be found.
    pub(crate) planted: bool,
}

/// Reads the name of a target.
///
/// # Errors
/// One line: there is no such target, and which there are.
pub(crate) fn target(text: &str) -> Result<String, String> {
    let targets = targets(&crate::root())?;
    match targets.iter().any(|target| target == text) {
        true => Ok(text.to_owned()),
        false => Err(format!("'{text}' is no target: use one of {}", targets.join(", "))),
    }
}

/// Names of all targets: each has a folder of seeds.
///
/// # Errors
/// One line, if there is no such folder.
fn targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = seeds(root);
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn seeds(root: &Path) -> PathBuf {
    root.join("testing/xsched-fuzz/corpus")
}

/// Builds the fuzzer and runs it.
///
/// # Errors
/// One line, if it cannot be built, a target fails, or a target misses its planted bug.
pub(crate) fn run(root: &Path, wish: &Wish) -> Result<(), String> {
    let targets = targets(root)?;
    let work = crate::test::target_folder(root).join("fuzz");
    let fuzzer = build(root, &work)?;
    let chosen = targets.iter().filter(|target| wish.target.as_ref().is_none_or(|wanted| wanted == *target));
    let mut failed = Vec::new();
    for target in chosen {
        println!("== {target}");
        if !one(root, &work, &fuzzer, target, wish)? {
            failed.push(target.as_str());
        }
    }
    match (failed.is_empty(), wish.planted) {
        (true, _) => Ok(()),
        (false, false) => Err(format!("found something: {}", failed.join(", "))),
        (false, true) => Err(format!("the planted bug was not found: {}", failed.join(", "))),
    }
}

fn build(root: &Path, work: &Path) -> Result<PathBuf, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(root.join("testing/xsched-fuzz/libfuzzer"))
        .args(["build", "--release", "--target", COMPILER, "--target-dir"])
        .arg(work);
    // Because a target is named, cargo does not apply the flags to build scripts and macros.
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS.join(" "));
    let status = command.status().map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("the fuzzer cannot be built".into());
    }
    Ok(work.join(COMPILER).join("release/fuzz"))
}

/// Fuzzes a target, and returns whether no fault was found.
fn one(root: &Path, work: &Path, fuzzer: &Path, target: &str, wish: &Wish) -> Result<bool, String> {
    // Inputs found while a bug was planted lead to that bug, so they would help the next search.
    let found = work.join(if wish.planted { "planted" } else { "corpus" }).join(target);
    let artifacts = work.join("artifacts");
    if wish.planted {
        let _ = std::fs::remove_dir_all(&found);
    }
    for folder in [&found, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let secs = wish.secs.unwrap_or(if wish.planted { 300 } else { 60 });
    let log = work.join(format!("{target}.log"));
    let file = std::fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let mut command = Command::new(fuzzer);
    command.env("XSCHED_FUZZ_TARGET", target).stderr(file);
    // A daemon's threads keep some memory until the process ends.
    command.env("ASAN_OPTIONS", "detect_leaks=0");
    if wish.planted {
        command.env("XSCHED_FUZZ_PLANTED", "1");
    }
    let artifact = artifacts.join(format!("{target}-"));
    command.arg(format!("-max_total_time={secs}")).arg(format!("-artifact_prefix={}", artifact.display()));
    command.args(["-timeout=60", "-print_final_stats=1", "-detect_leaks=0"]).arg(&found).arg(seeds(root).join(target));
    let begun = Instant::now();
    let status = command.status().map_err(|e| format!("{}: {e}", fuzzer.display()))?;
    let said = std::fs::read_to_string(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let took = Duration::from_secs(begun.elapsed().as_secs());
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).map_or("", str::trim);
    let is_planted = said.contains(PLANTED);
    match (status.success(), wish.planted) {
        (true, false) => println!("nothing found in {runs} runs and {took:?}"),
        (false, true) if is_planted => println!("found the planted bug in {took:?}"),
        (true, true) => println!("did not find the planted bug in {runs} runs and {took:?}"),
        (false, _) => {
            let lines: Vec<&str> = said.lines().filter(|line| !line.starts_with('#')).collect();
            lines[lines.len().saturating_sub(40)..].iter().for_each(|line| println!("{line}"));
            println!("try it again: XSCHED_FUZZ_TARGET={target} {} ARTIFACT; log: {}", fuzzer.display(), log.display());
        }
    }
    Ok(if wish.planted { is_planted } else { status.success() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_one_that_has_seeds() {
        assert_eq!(target("rules").as_deref(), Ok("rules"));
        assert!(target("nothing").unwrap_err().contains("use one of "));
    }

    #[test]
    fn each_target_has_seeds() {
        let root = crate::root();
        let targets = targets(&root).unwrap();
        assert!(targets.iter().any(|target| target == "daemon"), "{targets:?}");
        for target in targets {
            assert!(std::fs::read_dir(seeds(&root).join(&target)).unwrap().count() >= 2, "{target}");
        }
    }
}
