//! `cargo xtask test`: everything that must hold, in one command.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::{generate, hip_runtime, packages};

/// How a step ended; `Skipped` says why.
enum Verdict {
    Passed,
    Failed,
    Skipped(String),
}

/// The run so far.
struct Run {
    root: PathBuf,
    steps: Vec<(&'static str, Verdict, f64)>,
    /// What could not run within the current step, by the reasons that its programs printed.
    skips: RefCell<Vec<String>>,
    /// The same of all steps so far.
    all_skips: Vec<(&'static str, String)>,
}

/// What a line says about a test that was skipped: `SKIPPED: REASON` of a Rust test or a ladder, `NAME ... skipped 'REASON'`
/// of a Python test.
fn skip_in(line: &str) -> Option<String> {
    if let Some(reason) = line.trim().strip_prefix("SKIPPED: ") {
        return Some(reason.to_owned());
    }
    let (test, reason) = line.split_once(" ... skipped ")?;
    Some(format!("{}: {}", test.trim(), reason.trim().trim_matches(['\'', '"'])))
}

/// Runs all steps, also after a failed one, and sums up. False if any failed.
pub(crate) fn run(root: &Path) -> bool {
    let mut run = Run { root: root.to_path_buf(), steps: Vec::new(), skips: RefCell::default(), all_skips: Vec::new() };
    let missing = packages::install();
    let target = target_folder(root);

    run.step("format", |r| r.component("fmt", &["fmt", "--all", "--check"]));
    run.step("build", |r| r.cargo(&["build", "--release"]));
    run.step("lint", |r| {
        r.component("clippy", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
    run.step("generated files", |r| r.generated());
    // The libraries that tests preload into other programs are not dependencies of the tests: build them first.
    run.step("tests", |r| match r.cargo(&["build", "--workspace"]) {
        Verdict::Passed => r.with_hip_runtime(&target, || r.cargo(&["test", "--workspace", "--no-fail-fast"])),
        other => other,
    });
    for (name, script) in [
        ("OpenCL ladder's tests", "testing/opencl/test_ladder.py"),
        ("CUDA ladder's tests", "testing/cuda/test_ladder.py"),
        ("co-location's tests", "benches/cuda/test_coloc.py"),
        ("benchmarks' tests", "benches/cuda/test_conduct.py"),
        ("HIP benchmark's tests", "benches/hip/test_bench.py"),
        ("AMD kit's tests", "testing/hip/kit/test_kit.py"),
    ] {
        run.step(name, |r| r.python(&["-m", "unittest", "-v", script].map(Into::into)));
    }
    run.step("programs side by side", |r| {
        let built = target.join("debug").into_os_string();
        r.python(&["testing/side_by_side.py".into(), "--trials".into(), "6".into(), "--bin".into(), built])
    });
    run.step("OpenCL ladder", |r| r.ladder(&target));
    run.step("HIP ladder", |r| r.hip_ladder(&target));
    run.sum_up(&missing)
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    // A relative CARGO_TARGET_DIR counts from where cargo is called, which is the root for the steps below.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

impl Run {
    fn step(&mut self, name: &'static str, body: impl FnOnce(&Run) -> Verdict) {
        println!("\n== {name}");
        let begin = Instant::now();
        let verdict = body(self);
        self.steps.push((name, verdict, begin.elapsed().as_secs_f64()));
        let skips = self.skips.take().into_iter();
        self.all_skips.extend(skips.map(|reason| (name, reason)));
    }

    /// The cargo that runs us, in the root.
    fn cargo_command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(&self.root);
        command
    }

    fn cargo(&self, args: &[&str]) -> Verdict {
        self.verdict(self.cargo_command().args(args), &[])
    }

    /// A cargo command that comes as a component of its own, which may not be installed.
    fn component(&self, name: &str, args: &[&str]) -> Verdict {
        match self.cargo_command().args([name, "--version"]).output() {
            Ok(output) if output.status.success() => self.cargo(args),
            _ => Verdict::Skipped(format!("no cargo {name}; rustup component add {name}")),
        }
    }

    /// Lays out the software HIP runtime where tests look for it, and goes on.
    fn with_hip_runtime(&self, target: &Path, then: impl FnOnce() -> Verdict) -> Verdict {
        match hip_runtime::run(&self.root, &target.join("hip-runtime")) {
            Ok(()) => then(),
            Err(error) => {
                println!("{error}");
                Verdict::Failed
            }
        }
    }

    /// Skipped only as far as headers are missing, and then with the reason; a stale file fails whatever else is missing.
    fn generated(&self) -> Verdict {
        match generate::check(&self.root) {
            Ok(skipped) if skipped.is_empty() => Verdict::Passed,
            Ok(skipped) => Verdict::Skipped(skipped.join("; ")),
            Err(error) => {
                println!("{error}");
                Verdict::Failed
            }
        }
    }

    fn python(&self, args: &[std::ffi::OsString]) -> Verdict {
        let mut command = Command::new("python3");
        command.args(args).current_dir(&self.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        let target = target_folder(&self.root);
        command.env("XSCHED_BIN", target.join("release")).env("HIP_RUNTIME", target.join("hip-runtime"));
        // Exit code 3 of our scripts: nothing could run here; they have said why.
        self.verdict(&mut command, &[3])
    }

    fn ladder(&self, target: &Path) -> Verdict {
        let work = target.join("ladder");
        if let Err(error) = std::fs::create_dir_all(&work) {
            println!("{}: {error}", work.display());
            return Verdict::Failed;
        }
        let mut args = vec!["testing/opencl/ladder.py".into(), "--work".into(), work.clone().into_os_string()];
        args.extend(["--bin".into(), target.join("release").into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        if let Some(examples) = packages::pyopencl_examples(&work) {
            args.extend(["--examples".into(), examples.into_os_string()]);
        }
        self.python(&args)
    }

    /// On the software runtime that the step "tests" has laid out.
    fn hip_ladder(&self, target: &Path) -> Verdict {
        let (work, runtime) = (target.join("hip-ladder"), target.join("hip-runtime"));
        if !runtime.join("libamdhip64.so.7").exists() {
            return Verdict::Skipped("the software HIP runtime was not laid out, see above".into());
        }
        let mut args = vec!["testing/hip/ladder.py".into(), "--bin".into(), target.join("release").into_os_string()];
        args.extend(["--runtime".into(), runtime.into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        args.extend(["--work".into(), work.into_os_string()]);
        self.python(&args)
    }

    /// Runs a command; the exit codes in `skip_codes` mean that it could not do its work here.
    fn verdict(&self, command: &mut Command, skip_codes: &[i32]) -> Verdict {
        let program = command.get_program().to_string_lossy().into_owned();
        match watched(command) {
            Ok((status, skips)) => {
                self.skips.borrow_mut().extend(skips);
                match status.code() {
                    Some(0) => Verdict::Passed,
                    Some(code) if skip_codes.contains(&code) => Verdict::Skipped("see its output above".into()),
                    _ => Verdict::Failed,
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Verdict::Skipped(format!("{program} is missing"))
            }
            Err(error) => {
                println!("{program}: {error}");
                Verdict::Failed
            }
        }
    }

    fn sum_up(&self, missing: &[String]) -> bool {
        println!("\n== summary");
        for line in missing {
            println!("missing  {line}");
        }
        let mut passed = true;
        for (name, verdict, seconds) in &self.steps {
            let (word, why) = match verdict {
                Verdict::Passed => ("passed ", String::new()),
                Verdict::Failed => ("FAILED ", String::new()),
                Verdict::Skipped(why) => ("skipped", format!("  {why}")),
            };
            passed &= !matches!(verdict, Verdict::Failed);
            println!("{word}  {name:20} {seconds:6.1} s{why}");
        }
        println!("{} skipped within these steps", self.all_skips.len());
        for (step, reason) in &self.all_skips {
            println!("skipped  {step}: {reason}");
        }
        passed
    }
}

/// Copies a program's output to ours, line by line as it comes, and returns what it says about skipped tests.
fn shown(from: impl Read, mut to: impl Write) -> Vec<String> {
    let (mut from, mut line, mut skips) = (BufReader::new(from), Vec::new(), Vec::new());
    while from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A terminal that is gone is no reason to stop the program.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        skips.extend(skip_in(&String::from_utf8_lossy(&line)));
        line.clear();
    }
    skips
}

/// Runs a command with its output shown, and returns how it ended and what it skipped.
fn watched(command: &mut Command) -> std::io::Result<(ExitStatus, Vec<String>)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let errors = std::thread::spawn(move || err.map(|err| shown(err, std::io::stderr())).unwrap_or_default());
    let mut skips = out.map(|out| shown(out, std::io::stdout())).unwrap_or_default();
    skips.extend(errors.join().unwrap_or_default());
    Ok((child.wait()?, skips))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_skipped_tests_are_known() {
        let of = |line| skip_in(line);
        assert_eq!(of("SKIPPED: needs root\n").as_deref(), Some("needs root"));
        let python = "test_it (__main__.Tests.test_it)\nWhat it shows. ... skipped 'no gcc'\n";
        assert_eq!(of(python.lines().last().expect("a line")).as_deref(), Some("What it shows.: no gcc"));
        assert_eq!(
            of("test_it (t.Tests.test_it) ... skipped \"isn't there\"\n").as_deref(),
            Some("test_it (t.Tests.test_it): isn't there")
        );
        assert_eq!(of("test it ... ok\n"), None);
    }

    #[test]
    fn output_is_shown_and_skips_are_gathered() {
        let (said, mut out) = (b"one\nSKIPPED: a\n\xff\nSKIPPED: b".as_slice(), Vec::new());
        assert_eq!(shown(said, &mut out), ["a", "b"]);
        assert_eq!(out, said);
    }
}
