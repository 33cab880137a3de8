//! `cargo xtask test`: everything that must hold, in one command; `cargo xtask test --long`: and for how long it holds.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::{generate, hip_runtime, kubernetes, packages, rocm};

mod targets;

/// What `--help` says.
pub(crate) const HELP: &str = "\
usage: cargo xtask test [--long]

Without an option: format, build, lint, generated files, licences of dependencies, all Rust and Python tests, programs side by
side, and the OpenCL and HIP ladders, each once; that of AMD's newer libraries where `cargo xtask rocm` has made a folder of them.
At most a quarter of an hour on two processors with nothing else to do.

--long: all that, and then what looks for rarer faults by chance and repetition, in an hour or so: many random cases of the
policies, 100 trials side by side, unit tests under the thread and the address sanitizer, the long programs of the OpenCL ladder,
both ladders under other orders of suspension, each call of the library's own failing in each way, `cargo xtask kubernetes`,
random kills, and the end-to-end tests that depend on time, over and over, also beside programs that keep every processor busy.

A target of tests that fails is tried once more, if few do; the summary names one that passes then as unsteady.

As root on Debian it installs what tests need; otherwise it names what it leaves out. It goes on after a failure, prints a
summary, and ends with 0 if all is well, 1 if something failed, 2 for a wrong argument.";

/// Seeds besides the one that all tests begin with.
const MORE_SEEDS: [&str; 3] = ["2", "3", "4"];
/// Files of end-to-end tests that depend on time, and hold on a busy machine.
const HOLD_WHEN_BUSY: [&str; 8] =
    ["bound", "counts", "cuda_groups", "daemon_lost", "hazards", "late_fences", "programs_lost", "streams"];
/// Those that measure what a busy machine changes.
const HOLD_WHEN_QUIET: [&str; 3] = ["levels", "rules", "shares"];
/// How often those are repeated.
const REPETITIONS: u32 = 3;

/// How a step ended; `Skipped` says why.
enum Verdict {
    Passed,
    Failed,
    Skipped(String),
}

/// What a step does.
type Body<'a> = Box<dyn FnOnce(&Step) -> Verdict + Send + 'a>;

/// A step that runs.
struct Step<'a> {
    root: &'a Path,
    target: &'a Path,
    /// What its programs printed of that kind.
    notes: Mutex<Notes>,
    /// What it says, if that is shown only once it has ended.
    kept: Option<Mutex<Vec<u8>>>,
}

/// What programs of a step print that is for the summary.
#[derive(Debug, Default)]
struct Notes {
    /// Why something could not run.
    skips: Vec<String>,
    /// Targets of tests, as cargo takes them, that failed and passed when they were tried once more.
    unsteady: Vec<String>,
}

/// How a step ended, in seconds.
struct Ended {
    name: String,
    verdict: Verdict,
    seconds: f64,
    notes: Notes,
}

/// The run so far.
struct Run {
    root: PathBuf,
    target: PathBuf,
    steps: Vec<Ended>,
}

/// A lock whose holder may have panicked: what it guards is only appended to.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A shell's job in the background ignores SIGINT and SIGQUIT, and so would the programs that tests start and then interrupt. This
/// program starts anew without that.
fn heed_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // Bit n - 1 is signal n: 2 and 3.
    if ignored.is_some_and(|mask| mask & 0b110 != 0)
        && let Ok(own) = std::env::current_exe()
    {
        let error =
            Command::new("env").arg("--default-signal=INT,QUIT").arg(own).args(std::env::args_os().skip(1)).exec();
        eprintln!("xtask: env: {error}; SIGINT stays ignored, and tests that send it fail");
    }
}

/// Runs all steps, also after a failed one, and sums up. False if any failed.
pub(crate) fn run(root: &Path, long: bool) -> bool {
    heed_signals();
    let mut run = Run { root: root.to_path_buf(), target: target_folder(root), steps: Vec::new() };
    let missing = packages::install();
    run.all_once();
    if long {
        run.more_of_all();
    }
    run.sum_up(&missing)
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    // A relative CARGO_TARGET_DIR counts from where cargo is called, which is the root for the steps below.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

impl Run {
    fn all_once(&mut self) {
        self.step("format", |s| s.component("fmt", &["fmt", "--all", "--check"]));
        self.step("build", |s| s.hip_runtime());
        self.step("generated files", |s| s.generated());
        let checks = ["deny", "--offline", "check", "licenses", "bans", "sources"];
        self.step("dependencies", |s| s.component("deny", &checks));
        let script = |script: &'static str| -> Body<'static> {
            Box::new(move |s| s.python(&["-m", "unittest", "-v", script].map(Into::into)))
        };
        let lint: Body<'static> = Box::new(|s| {
            s.component("clippy", &["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"])
        });
        let package: Body<'static> = Box::new(|s| {
            // This program's own file may have been built anew by a step before.
            s.cargo(&["run", "--quiet", "--package", "xtask", "--", "package", "--check"])
        });
        // The first, lint and the package compute; the others wait more than they compute, and what they compare is no time: three at a
        // time, the longest first.
        self.at_once(
            3,
            [
                ("tests' programs", Box::new(targets::build) as Body),
                ("benchmarks' tests", script("benches/cuda/test_conduct.py")),
                ("lint", lint),
                ("package", package),
                ("Kubernetes' tools", Box::new(|s| s.kubernetes_tools())),
                ("AMD kit's tests", script("testing/hip/kit/test_kit.py")),
                ("co-location's tests", script("benches/cuda/test_coloc.py")),
                ("HIP ladder", Box::new(|s| s.hip_ladder(&[]))),
                ("ROCm ladder", Box::new(|s| s.rocm_ladder())),
                ("HIP benchmark's tests", script("benches/hip/test_bench.py")),
                ("CUDA ladder's tests", script("testing/cuda/test_ladder.py")),
                ("OpenCL ladder's tests", script("testing/opencl/test_ladder.py")),
            ],
        );
        self.step("tests", targets::run);
        self.at_once(
            2,
            [
                ("programs side by side", Box::new(|s: &Step| s.side_by_side("debug", &["--trials", "6"])) as Body),
                ("containers", Box::new(|s: &Step| s.containers())),
            ],
        );
        // PoCL's devices are the processors.
        self.step("OpenCL ladder", |s| s.ladder(&[]));
    }

    fn more_of_all(&mut self) {
        for seed in MORE_SEEDS {
            self.step(&format!("policies, seed {seed}"), |s| {
                let mut command = s.cargo_command();
                command.args(["test", "-p", "xsched-policy", "--test", "invariants"]);
                s.verdict(command.env("PROPTEST_RNG_SEED", seed).env("PROPTEST_CASES", "4000"), &[])
            });
        }
        self.step("side by side, seed 2", |s| match s.cargo(&["build", "--release", "--workspace"]) {
            Verdict::Passed => s.side_by_side("release", &["--trials", "100", "--seed", "2"]),
            failed => failed,
        });
        self.step("thread sanitizer", |s| s.sanitized("thread", &["core", "proto", "agent"]));
        self.step("address sanitizer", |s| s.sanitized("address", &["core", "proto", "agent", "daemon", "gatekeeper"]));
        self.step("OpenCL ladder, full", |s| s.ladder(&["--full"]));
        for seed in MORE_SEEDS {
            self.step(&format!("OpenCL ladder, seed {seed}"), |s| s.ladder(&["--rungs", "chaos", "--seed", seed]));
            self.step(&format!("HIP ladder, seed {seed}"), |s| {
                s.hip_ladder(&["--modes", "chaos-1,chaos-2", "--seed", seed])
            });
        }
        self.step("every call fails", |s| {
            s.cargo(&["test", "-p", "xsched-e2e", "--test", "faults", "--", "--ignored", "--nocapture"])
        });
        self.step("Kubernetes' peers", |s| s.cargo(&["run", "--quiet", "--package", "xtask", "--", "kubernetes"]));
        self.step("random kills", |s| {
            s.cargo(&["run", "-p", "xsched-e2e", "--example", "kills", "--", "2", "300", "hpf", "cfs"])
        });
        for time in 1..=REPETITIONS {
            self.step(&format!("end to end, quiet, {time}"), |s| s.end_to_end(&HOLD_WHEN_QUIET));
            self.step(&format!("end to end, busy, {time}"), |s| {
                let _busy = Busy::everywhere();
                s.end_to_end(&HOLD_WHEN_BUSY)
            });
        }
    }

    /// Runs a step, whose output is shown as it comes.
    fn step(&mut self, name: &str, body: impl FnOnce(&Step) -> Verdict) {
        println!("\n== {name}");
        let ended = self.started(None).run(name, body);
        self.steps.push(ended);
    }

    /// Runs steps on so many threads; what each says is shown when it has ended.
    fn at_once<'a>(&mut self, threads: usize, steps: impl IntoIterator<Item = (&'a str, Body<'a>)>) {
        let (left, ended) = (Mutex::new(VecDeque::from_iter(steps)), Mutex::new(Vec::new()));
        let work = || {
            while let Some((name, body)) = { locked(&left).pop_front() } {
                let step = self.started(Some(Mutex::default()));
                let done = step.run(name, body);
                // Held while it is shown, so that two do not mix.
                let mut ended = locked(&ended);
                println!("\n== {name}");
                let _ = std::io::stdout().write_all(&step.kept.map(|kept| locked(&kept).clone()).unwrap_or_default());
                ended.push(done);
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
        self.steps.append(&mut locked(&ended));
    }

    fn started(&self, kept: Option<Mutex<Vec<u8>>>) -> Step<'_> {
        Step { root: &self.root, target: &self.target, notes: Mutex::default(), kept }
    }

    fn sum_up(&self, missing: &[String]) -> bool {
        println!("\n== summary");
        for line in missing {
            println!("missing  {line}");
        }
        let mut passed = true;
        for Ended { name, verdict, seconds, .. } in &self.steps {
            let (word, why) = match verdict {
                Verdict::Passed => ("passed ", String::new()),
                Verdict::Failed => ("FAILED ", String::new()),
                Verdict::Skipped(why) => ("skipped", format!("  {why}")),
            };
            passed &= !matches!(verdict, Verdict::Failed);
            println!("{word}  {name:22} {seconds:6.1} s{why}");
        }
        let unsteady = self.steps.iter().flat_map(|s| s.notes.unsteady.iter().map(move |target| (&s.name, target)));
        for (step, target) in unsteady {
            println!("UNSTEADY {step}: cargo test {target} failed, and passed when it was tried once more: mend it");
        }
        let skips: Vec<_> =
            self.steps.iter().flat_map(|s| s.notes.skips.iter().map(move |why| (&s.name, why))).collect();
        println!("{} skipped within these steps", skips.len());
        for (step, reason) in skips {
            println!("skipped  {step}: {reason}");
        }
        passed
    }
}

/// Programs that keep every processor busy, until it is dropped.
struct Busy(Vec<Child>);

impl Busy {
    fn everywhere() -> Busy {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().ok();
        Busy((0..processors).filter_map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Step<'_> {
    fn run(&self, name: &str, body: impl FnOnce(&Step) -> Verdict) -> Ended {
        let begin = Instant::now();
        let verdict = body(self);
        let (seconds, notes) = (begin.elapsed().as_secs_f64(), std::mem::take(&mut *locked(&self.notes)));
        Ended { name: name.to_owned(), verdict, seconds, notes }
    }

    /// Says a line.
    fn say(&self, line: &str) {
        match &self.kept {
            Some(kept) => locked(kept).extend_from_slice(format!("{line}\n").as_bytes()),
            None => println!("{line}"),
        }
    }

    fn failed(&self, why: &str) -> Verdict {
        self.say(why);
        Verdict::Failed
    }

    /// The cargo that runs us, in the root.
    fn cargo_command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.root);
        command
    }

    fn cargo(&self, args: &[&str]) -> Verdict {
        self.verdict(self.cargo_command().args(args), &[])
    }

    /// A cargo command that comes as a component of its own, which may not be installed.
    fn component(&self, name: &str, args: &[&str]) -> Verdict {
        match self.cargo_command().args([name, "--version"]).output() {
            Ok(output) if output.status.success() => self.cargo(args),
            _ if name == "deny" => Verdict::Skipped("no cargo deny; cargo install cargo-deny --locked".into()),
            _ => Verdict::Skipped(format!("no cargo {name}; rustup component add {name}")),
        }
    }

    /// The unit tests of some crates, built to find races or misuse of memory. The compiler's own switch for that is not stable: a
    /// variable lets this one take it.
    fn sanitized(&self, kind: &str, crates: &[&str]) -> Verdict {
        let mut command = self.cargo_command();
        command.args(["test", "--lib", "--no-fail-fast", "--target", "x86_64-unknown-linux-gnu", "--target-dir"]);
        command.arg(self.target.join(format!("sanitizer-{kind}")));
        command.args(crates.iter().flat_map(|name| ["-p".to_owned(), format!("xsched-{name}")]));
        let flags = format!("-Zsanitizer={kind} -Cunsafe-allow-abi-mismatch=sanitizer");
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
        let suppressions = self.root.join("testing/sanitizers/thread.supp");
        command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
        // Tests keep what a process keeps until its end.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        self.verdict(&mut command, &[])
    }

    /// Files of the end-to-end tests.
    fn end_to_end(&self, files: &[&str]) -> Verdict {
        let files = files.iter().flat_map(|file| ["--test", file]);
        self.cargo(&["test", "-p", "xsched-e2e", "--no-fail-fast"].into_iter().chain(files).collect::<Vec<_>>())
    }

    /// Lays out the software HIP runtime where tests look for it.
    fn hip_runtime(&self) -> Verdict {
        match hip_runtime::run(self.root, &self.target.join("hip-runtime")) {
            Ok(()) => Verdict::Passed,
            Err(error) => self.failed(&error),
        }
    }

    /// Skipped only as far as headers are missing, and then with the reason; a stale file fails whatever else is missing.
    fn generated(&self) -> Verdict {
        match generate::check(self.root) {
            Ok(skipped) if skipped.is_empty() => Verdict::Passed,
            Ok(skipped) => Verdict::Skipped(skipped.join("; ")),
            Err(error) => self.failed(&error),
        }
    }

    fn python(&self, args: &[std::ffi::OsString]) -> Verdict {
        let mut command = Command::new("python3");
        command.args(args).current_dir(self.root).env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUNBUFFERED", "1");
        command.env("XSCHED_BIN", self.target.join("release")).env("HIP_RUNTIME", self.target.join("hip-runtime"));
        // Exit code 3 of our scripts: nothing could run here; they have said why.
        self.verdict(&mut command, &[3])
    }

    /// With what was built so.
    fn side_by_side(&self, built: &str, options: &[&str]) -> Verdict {
        let mut args = vec!["testing/side_by_side.py".into(), "--bin".into(), self.target.join(built).into_os_string()];
        args.extend(options.iter().map(Into::into));
        self.python(&args)
    }

    /// What the tests of `xsched-kube` skip some of their parts without.
    fn kubernetes_tools(&self) -> Verdict {
        kubernetes::fetch(self.root).map_or_else(Verdict::Skipped, |()| Verdict::Passed)
    }

    /// Those that are made in a moment; `cargo xtask containers` has the others.
    fn containers(&self) -> Verdict {
        let mut args = vec!["testing/containers/containers.py".into(), "--bin".into()];
        args.push(self.target.join("debug").into_os_string());
        args.extend(["--kept".into(), self.target.join("containers").into_os_string()]);
        self.python(&args)
    }

    fn ladder(&self, options: &[&str]) -> Verdict {
        let work = self.target.join("ladder");
        if let Err(error) = std::fs::create_dir_all(&work) {
            return self.failed(&format!("{}: {error}", work.display()));
        }
        let mut args = vec!["testing/opencl/ladder.py".into(), "--work".into(), work.clone().into_os_string()];
        args.extend(["--bin".into(), self.target.join("release").into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        if let Some(examples) = packages::pyopencl_examples(&work) {
            args.extend(["--examples".into(), examples.into_os_string()]);
        }
        args.extend(options.iter().map(Into::into));
        self.python(&args)
    }

    /// On the software runtime that the step "build" has laid out.
    fn hip_ladder(&self, options: &[&str]) -> Verdict {
        let (work, runtime) = (self.target.join("hip-ladder"), self.target.join("hip-runtime"));
        if !runtime.join("libamdhip64.so.7").exists() {
            return Verdict::Skipped("the software HIP runtime was not laid out, see above".into());
        }
        let mut args =
            vec!["testing/hip/ladder.py".into(), "--bin".into(), self.target.join("release").into_os_string()];
        args.extend(["--runtime".into(), runtime.into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        args.extend(["--work".into(), work.into_os_string()]);
        args.extend(options.iter().map(Into::into));
        self.python(&args)
    }

    /// AMD's own libraries, of each folder that `cargo xtask rocm` has made: those in the variable ROCM, or in target/rocm.
    fn rocm_ladder(&self) -> Verdict {
        let (runtime, release) = (self.target.join("hip-runtime"), self.target.join("release"));
        let folders = rocm::folders(self.target);
        if folders.is_empty() {
            return Verdict::Skipped("no folder with AMD's libraries; cargo xtask rocm target/rocm/sid".into());
        }
        for (number, folder) in folders.iter().enumerate() {
            let work = self.target.join(format!("rocm-ladder-{number}"));
            let mut args = vec!["testing/hip/rocm/rocm.py".into()];
            let json = work.join("results.json");
            let paths: [(&str, &Path); 5] = [
                ("--bin", &release),
                ("--runtime", &runtime),
                ("--rocm", folder),
                ("--work", &work),
                ("--json", &json),
            ];
            args.extend(paths.iter().flat_map(|(name, path)| [(*name).into(), path.as_os_str().to_owned()]));
            let verdict = self.python(&args);
            if !matches!(verdict, Verdict::Passed) {
                return verdict;
            }
        }
        Verdict::Passed
    }

    /// Runs a command; the exit codes in `skip_codes` mean that it could not do its work here.
    fn verdict(&self, command: &mut Command, skip_codes: &[i32]) -> Verdict {
        let program = command.get_program().to_string_lossy().into_owned();
        match self.watched(command) {
            Ok(status) => match status.code() {
                Some(0) => Verdict::Passed,
                Some(code) if skip_codes.contains(&code) => Verdict::Skipped("see its output above".into()),
                _ => Verdict::Failed,
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Verdict::Skipped(format!("{program} is missing"))
            }
            Err(error) => self.failed(&format!("{program}: {error}")),
        }
    }

    /// Runs a command with its output shown or kept, notes what it skipped, and returns how it ended.
    fn watched(&self, command: &mut Command) -> std::io::Result<ExitStatus> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            if let Some(err) = err {
                scope.spawn(|| self.pass_on(err, std::io::stderr()));
            }
            if let Some(out) = out {
                self.pass_on(out, std::io::stdout());
            }
        });
        child.wait()
    }

    /// Copies what a program says to where it belongs, and notes what was skipped.
    fn pass_on(&self, from: impl Read, to: impl Write) {
        let notes = match &self.kept {
            Some(kept) => shown(from, Kept(kept)),
            None => shown(from, to),
        };
        locked(&self.notes).skips.extend(notes);
    }
}

/// A program's output, kept line by line.
struct Kept<'a>(&'a Mutex<Vec<u8>>);

impl Write for Kept<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        locked(self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Copies a program's output to ours, line by line as it comes, and returns what it says about skipped tests.
fn shown(from: impl Read, mut to: impl Write) -> Vec<String> {
    let (mut from, mut line, mut skips) = (BufReader::new(from), Vec::new(), Vec::new());
    while from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A terminal that is gone is no reason to stop the program.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        skips.extend(skip_in(&text));
        line.clear();
    }
    skips
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
    fn steps_at_once_all_run_and_keep_what_they_say() {
        let mut run = Run { root: ".".into(), target: "target".into(), steps: Vec::new() };
        let both_run = std::sync::Barrier::new(2);
        let body = |verdict| {
            let both_run = &both_run;
            let body = move |step: &Step| {
                both_run.wait();
                let said = step.verdict(Command::new("echo").arg("a part"), &[]);
                assert!(matches!(said, Verdict::Passed) && step.kept.as_ref().is_some_and(|k| !locked(k).is_empty()));
                verdict
            };
            Box::new(body) as Body<'_>
        };
        run.at_once(2, [("one", body(Verdict::Passed)), ("two", body(Verdict::Failed))]);
        assert_eq!(run.steps.len(), 2);
        assert!(!run.sum_up(&[]), "one of them failed");
    }

    #[test]
    fn output_is_shown_and_skips_are_gathered() {
        let said = b"one\nSKIPPED: a\n\xff\nSKIPPED: b".as_slice();
        let mut out = Vec::new();
        assert_eq!(shown(said, &mut out), ["a", "b"]);
        assert_eq!(out, said);
    }
}
