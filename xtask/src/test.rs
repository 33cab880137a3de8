//! `cargo xtask test`: the tests that must pass after each change, in one command. `cargo xtask ci`: checks that take longer or need a
//! release build. `cargo xtask test --long`: both, and searches for rarer faults by chance and repetition.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Instant;

use crate::hip_runtime::Built;
use crate::{generate, hip_runtime, packages, rocm};

pub(crate) mod step;
mod targets;

use step::{Body, Ended, Step, Verdict, locked};

/// Text of `cargo xtask test --help`.
pub(crate) const HELP: &str = "\
Without an option: format, build, generated files, all Rust and Python tests, and programs side by side, each once, on one debug
build. On two processors with nothing else to do: some 18 minutes from a fresh clone, 8 when all is built.

--long: that, what `cargo xtask ci` does, and then what looks for rarer faults by chance and repetition, in an hour or so: many
random cases of the policies, 100 trials side by side, unit tests under the thread and the address sanitizer, the long programs of
the OpenCL ladder, both ladders under other orders of suspension, each call of the library's own failing in each way, random kills,
and the end-to-end tests that depend on time, over and over beside programs that keep every processor busy.

A target of tests that fails is tried once more, if few do; the summary names one that passes then as unsteady.

As root on Debian it installs what tests need; otherwise it names what it leaves out. It goes on after a failure and prints a
summary with the time of each step, whose last line is `N passed, N failed, N skipped`. Ends with 0 if all is well, 1 if something
failed, 2 for a wrong argument.";

/// Text of `cargo xtask ci --help`.
pub(crate) const HELP_CI: &str = "\
The checks beside the tests of `cargo xtask test`, after which continuous integration runs it: subjects of commits, lint, licences of dependencies, the
Debian package and the archive, containers of Podman, a Kubernetes node's programs against real peers, the kit for AMD GPUs, and the
OpenCL and HIP ladders of real programs, also under random suspension; that of AMD's newer libraries where `cargo xtask rocm` has made
a folder of them. It makes a release build. On two processors with nothing else to do: at most 18 minutes, half of them to compile.

Installs, goes on, sums up and ends as `cargo xtask test` does.";

/// Random seeds besides the tests' default one.
const MORE_SEEDS: [&str; 3] = ["2", "3", "4"];
/// Files of end-to-end tests that depend on time, and must pass on a busy machine, too.
const HOLD_WHEN_BUSY: [&str; 14] = [
    "accounting",
    "bound",
    "counts",
    "cuda_groups",
    "daemon_lost",
    "hazards",
    "late_fences",
    "levels",
    "policies",
    "programs_lost",
    "rules",
    "shares",
    "streams",
    "top",
];
/// Number of repetitions of such tests.
const REPETITIONS: u32 = 3;

/// Exit code of our scripts where nothing could run; they have printed the reason.
const NOTHING_RAN: i32 = 3;
/// Tests of the measuring scripts, and tests of programs that run side by side.
const SCRIPTS: [&[&str]; 7] = [
    &["-m", "unittest", "-v", "benches/cuda/test_conduct.py"],
    &["testing/ladders/side_by_side.py", "--trials", "6"],
    &["-m", "unittest", "-v", "benches/cuda/test_coloc.py"],
    &["-m", "unittest", "-v", "benches/cuda/test_engines.py"],
    &["-m", "unittest", "-v", "benches/hip/test_bench.py"],
    &["-m", "unittest", "-v", "testing/ladders/cuda/test_ladder.py"],
    &["-m", "unittest", "-v", "testing/ladders/opencl/test_ladder.py"],
];

/// Tests that a run includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// `cargo xtask test`.
    Tests,
    /// `cargo xtask ci`.
    Rest,
    /// `cargo xtask test --long`.
    Long,
}

/// State of the run.
struct Run {
    root: PathBuf,
    target: PathBuf,
    begun: Instant,
    steps: Vec<Ended>,
}

/// A background job of a shell ignores SIGINT and SIGQUIT, and so would the programs that tests start and then interrupt. This function
/// starts the program again with these signals at their defaults.
fn heed_signals() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    // Bit n - 1 stands for signal n: here 2 and 3.
    if ignored.is_some_and(|mask| mask & 0b110 != 0)
        && let Ok(own) = std::env::current_exe()
    {
        let error =
            Command::new("env").arg("--default-signal=INT,QUIT").arg(own).args(std::env::args_os().skip(1)).exec();
        eprintln!("xtask: env: {error}; SIGINT stays ignored, and tests that send it fail");
    }
}

/// Runs all steps, whether or not earlier ones fail, and prints the summary. Returns false if any failed.
pub(crate) fn run(root: &Path, extent: Extent) -> bool {
    heed_signals();
    let mut run =
        Run { root: root.to_path_buf(), target: target_folder(root), begun: Instant::now(), steps: Vec::new() };
    if extent != Extent::Rest {
        run.tests();
    }
    if extent != Extent::Tests {
        run.rest();
    }
    if extent == Extent::Long {
        run.more_of_all();
    }
    run.sum_up()
}

/// Environment of scripts for a build: `debug` or `release`.
fn script_variables(target: &Path, built: &str) -> [(&'static str, OsString); 4] {
    let runtime = if built == "release" { "release/hip-runtime" } else { "hip-runtime" };
    [
        ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ("PYTHONUNBUFFERED", "1".into()),
        ("XSCHED_BIN", target.join(built).into()),
        ("HIP_RUNTIME", target.join(runtime).into()),
    ]
}

/// Folder of cargo's build output.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    // A relative CARGO_TARGET_DIR counts from the folder where cargo was called: the root, for the steps below.
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

impl Run {
    fn tests(&mut self) {
        // Installation mostly waits for the network, which leaves the processors to the compiler.
        self.beside(
            ("build", Box::new(targets::build)),
            [
                ("packages", Box::new(|s: &Step| s.installed(&packages::FOR_TESTS)) as Body),
                ("format", Box::new(|s: &Step| s.component("fmt", &["fmt", "--all", "--check"]))),
                ("generated files", Box::new(|s: &Step| s.generated())),
            ],
        );
        self.step("HIP runtime", |s| s.hip_runtime(Built::Debug));
        self.step("tests", |s| targets::run(s, &SCRIPTS));
    }

    fn rest(&mut self) {
        // Takes a moment only where the tests have run before.
        self.beside(
            ("build", Box::new(targets::build)),
            [(
                "packages",
                Box::new(|s: &Step| s.installed(&[&packages::FOR_TESTS[..], &packages::FOR_CI].concat())) as Body,
            )],
        );
        self.step("commits", |s| s.task(&["commits"]));
        self.step("release build", |s| s.hip_runtime(Built::Release));
        let checks = ["deny", "--offline", "check", "licenses", "bans", "sources"];
        self.step("dependencies", |s| s.component("deny", &checks));
        let clippy = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
        let kit = ["-m", "unittest", "-v", "testing/ladders/hip/kit/test_kit.py"].map(OsString::from);
        // Three steps run at a time, the longest first: some mainly wait, others compute, and none compares times.
        self.at_once(
            3,
            [
                ("lint", Box::new(|s: &Step| s.component("clippy", &clippy)) as Body),
                ("package", Box::new(|s: &Step| s.task(&["package", "--check"]))),
                ("HIP ladder", Box::new(|s: &Step| s.hip_ladder(&[]))),
                ("containers", Box::new(|s: &Step| s.containers())),
                ("Kubernetes", Box::new(|s: &Step| s.kubernetes())),
                // Its simulated device computes for minutes in a debug build.
                ("AMD kit's tests", Box::new(|s: &Step| s.python("release", &kit))),
                ("ROCm ladder", Box::new(|s: &Step| s.rocm_ladder())),
            ],
        );
        // PoCL's devices are the processors, so that this step runs alone.
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
        self.step("random kills", |s| {
            s.cargo(&["run", "-p", "xsched-e2e", "--example", "kills", "--", "2", "300", "hpf", "cfs"])
        });
        for time in 1..=REPETITIONS {
            self.step(&format!("end to end, quiet, {time}"), |s| s.end_to_end(&HOLD_WHEN_BUSY));
            self.step(&format!("end to end, busy, {time}"), |s| {
                let _busy = Busy::everywhere();
                s.end_to_end(&HOLD_WHEN_BUSY)
            });
        }
    }

    /// Runs a step, and shows its output as it comes.
    fn step(&mut self, name: &str, body: impl FnOnce(&Step) -> Verdict) {
        println!("\n== {name}");
        let ended = self.started(None).run(name, body);
        self.steps.push(ended);
    }

    /// Runs a step whose output is shown as it comes, and others beside it, one after the other; the output of each of these is shown at
    /// its end.
    fn beside<'a>(
        &mut self,
        (name, body): (&'a str, Body<'a>),
        others: impl IntoIterator<Item = (&'a str, Body<'a>)> + Send,
    ) {
        println!("\n== {name}");
        let mut ended = Vec::new();
        let first = std::thread::scope(|scope| {
            scope.spawn(|| others.into_iter().for_each(|(name, body)| ended.push(self.kept(name, body))));
            self.started(None).run(name, body)
        });
        self.steps.push(first);
        self.steps.append(&mut ended);
    }

    /// Runs a step, and prints its output when it has ended.
    fn kept(&self, name: &str, body: Body) -> Ended {
        let step = self.started(Some(Mutex::default()));
        let ended = step.run(name, body);
        // One write, so that the output of two steps does not mix.
        let mut said = format!("\n== {name}\n").into_bytes();
        said.append(&mut step.kept.map(|kept| std::mem::take(&mut *locked(&kept))).unwrap_or_default());
        let _ = std::io::stdout().lock().write_all(&said);
        ended
    }

    /// Runs steps on this many threads; the output of each is shown at its end.
    fn at_once<'a>(&mut self, threads: usize, steps: impl IntoIterator<Item = (&'a str, Body<'a>)>) {
        let (left, ended) = (Mutex::new(VecDeque::from_iter(steps)), Mutex::new(Vec::new()));
        let work = || {
            while let Some((name, body)) = { locked(&left).pop_front() } {
                let done = self.kept(name, body);
                locked(&ended).push(done);
            }
        };
        std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
        self.steps.append(&mut locked(&ended));
    }

    fn started(&self, kept: Option<Mutex<Vec<u8>>>) -> Step<'_> {
        Step { root: &self.root, target: &self.target, notes: Mutex::default(), kept }
    }

    fn sum_up(&self) -> bool {
        println!("\n== summary");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for Ended { name, verdict, seconds, notes } in &self.steps {
            let (word, why) = match verdict {
                Verdict::Passed => ("passed ", String::new()),
                Verdict::Failed => ("FAILED ", String::new()),
                Verdict::Skipped(why) => ("skipped", format!("  {why}")),
            };
            println!("{word}  {name:22} {seconds:6.1} s{why}");
            // A step without tests counts as one check.
            let has_tests = notes.passed + notes.failed != 0;
            passed += notes.passed + usize::from(!has_tests && matches!(verdict, Verdict::Passed));
            failed += notes.failed + usize::from(notes.failed == 0 && matches!(verdict, Verdict::Failed));
            skipped +=
                notes.skips.len() + usize::from(notes.skips.is_empty() && matches!(verdict, Verdict::Skipped(_)));
        }
        let seconds: f64 = self.begun.elapsed().as_secs_f64();
        println!("all      {:22} {seconds:6.1} s", "");
        for (step, target) in
            self.steps.iter().flat_map(|s| s.notes.unsteady.iter().map(move |target| (&s.name, target)))
        {
            println!("UNSTEADY {step}: {target} failed, and passed when it was tried once more: mend it");
        }
        for (step, reason) in self.steps.iter().flat_map(|s| s.notes.skips.iter().map(move |why| (&s.name, why))) {
            println!("skipped  {step}: {reason}");
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        failed == 0
    }
}

/// Programs that keep all processors busy until this is dropped.
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
    /// Runs the unit tests of some crates, built to detect data races or memory errors. The compiler's option for that is unstable: an
    /// environment variable makes the stable compiler accept it.
    fn sanitized(&self, kind: &str, crates: &[&str]) -> Verdict {
        let mut command = self.cargo_command();
        command.args(["test", "--lib", "--no-fail-fast", "--target", "x86_64-unknown-linux-gnu", "--target-dir"]);
        command.arg(self.target.join(format!("sanitizer-{kind}")));
        command.args(crates.iter().flat_map(|name| ["-p".to_owned(), format!("xsched-{name}")]));
        let flags = format!("-Zsanitizer={kind} -Cunsafe-allow-abi-mismatch=sanitizer");
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", flags);
        let suppressions = self.root.join("testing/lib/thread.supp");
        command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
        // Tests keep some memory until the process ends.
        command.env("ASAN_OPTIONS", "detect_leaks=0");
        self.verdict(&mut command, &[])
    }

    /// Runs files of the end-to-end tests.
    fn end_to_end(&self, files: &[&str]) -> Verdict {
        let files = files.iter().flat_map(|file| ["--test", file]);
        self.cargo(&["test", "-p", "xsched-e2e", "--no-fail-fast"].into_iter().chain(files).collect::<Vec<_>>())
    }

    /// Lays out the software HIP runtime: in the folder where tests search it, or for the ladders, which compute more.
    fn hip_runtime(&self, built: Built) -> Verdict {
        match hip_runtime::run(self.root, &self.hip_runtime_folder(built), built) {
            Ok(()) => Verdict::Passed,
            Err(error) => self.failed(&error),
        }
    }

    fn hip_runtime_folder(&self, built: Built) -> PathBuf {
        match built {
            Built::Debug => self.target.join("hip-runtime"),
            Built::Release => self.target.join("release/hip-runtime"),
        }
    }

    /// Compares the generated files with the headers. Missing headers are reported as skipped, but a stale file fails all the same.
    fn generated(&self) -> Verdict {
        match generate::check(self.root) {
            Ok(skipped) if skipped.is_empty() => Verdict::Passed,
            Ok(skipped) => Verdict::Skipped(skipped.join("; ")),
            Err(error) => self.failed(&error),
        }
    }

    /// Runs programs side by side, from this build.
    fn side_by_side(&self, built: &str, options: &[&str]) -> Verdict {
        let mut args =
            vec!["testing/ladders/side_by_side.py".into(), "--bin".into(), self.target.join(built).into_os_string()];
        args.extend(options.iter().map(Into::into));
        self.python(built, &args)
    }

    /// Builds the containers that take a moment; `cargo xtask containers` builds the others.
    fn containers(&self) -> Verdict {
        let mut args = vec!["testing/machines/containers/containers.py".into(), "--bin".into()];
        args.push(self.target.join("debug").into_os_string());
        args.extend(["--kept".into(), self.target.join("containers").into_os_string()]);
        self.python("debug", &args)
    }

    fn ladder(&self, options: &[&str]) -> Verdict {
        let work = self.target.join("ladder");
        if let Err(error) = std::fs::create_dir_all(&work) {
            return self.failed(&format!("{}: {error}", work.display()));
        }
        let mut args = vec!["testing/ladders/opencl/ladder.py".into(), "--work".into(), work.clone().into_os_string()];
        args.extend(["--bin".into(), self.target.join("release").into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        if let Some(examples) = packages::pyopencl_examples(&work) {
            args.extend(["--examples".into(), examples.into_os_string()]);
        }
        args.extend(options.iter().map(Into::into));
        self.python("release", &args)
    }

    /// Runs the HIP ladder on the software runtime of the release build.
    fn hip_ladder(&self, options: &[&str]) -> Verdict {
        let (work, runtime) = (self.target.join("hip-ladder"), self.hip_runtime_folder(Built::Release));
        if !runtime.join("libamdhip64.so.7").exists() {
            return Verdict::Skipped("the software HIP runtime was not laid out, see above".into());
        }
        let mut args =
            vec!["testing/ladders/hip/ladder.py".into(), "--bin".into(), self.target.join("release").into_os_string()];
        args.extend(["--runtime".into(), runtime.into_os_string()]);
        args.extend(["--json".into(), work.join("results.json").into_os_string()]);
        args.extend(["--work".into(), work.into_os_string()]);
        args.extend(options.iter().map(Into::into));
        self.python("release", &args)
    }

    /// Runs AMD's own libraries from each folder that `cargo xtask rocm` made: those in the variable ROCM, or in target/rocm.
    fn rocm_ladder(&self) -> Verdict {
        let (runtime, release) = (self.hip_runtime_folder(Built::Release), self.target.join("release"));
        let folders = rocm::folders(self.target);
        if folders.is_empty() {
            return Verdict::Skipped("no folder with AMD's libraries; cargo xtask rocm target/rocm/sid".into());
        }
        for (number, folder) in folders.iter().enumerate() {
            let work = self.target.join(format!("rocm-ladder-{number}"));
            let mut args = vec!["testing/ladders/hip/rocm/rocm.py".into()];
            let json = work.join("results.json");
            let paths: [(&str, &Path); 5] = [
                ("--bin", &release),
                ("--runtime", &runtime),
                ("--rocm", folder),
                ("--work", &work),
                ("--json", &json),
            ];
            args.extend(paths.iter().flat_map(|(name, path)| [(*name).into(), path.as_os_str().to_owned()]));
            let verdict = self.python("release", &args);
            if !matches!(verdict, Verdict::Passed) {
                return verdict;
            }
        }
        Verdict::Passed
    }

    /// Installs packages, and unpacks the one whose installation would start a service.
    fn installed(&self, packages: &[packages::Package]) -> Verdict {
        let verdict = packages::install(self, packages);
        if matches!(verdict, Verdict::Passed) { packages::unpack(self, self.target) } else { verdict }
    }

    /// Tests the programs of a Kubernetes node against fetched peers, then runs the tests that need them.
    fn kubernetes(&self) -> Verdict {
        match self.task(&["kubernetes"]) {
            Verdict::Passed => targets::run_with_peers(self),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_once_all_run_and_keep_what_they_say() {
        let mut run = Run { root: ".".into(), target: "target".into(), begun: Instant::now(), steps: Vec::new() };
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
        assert!(!run.sum_up(), "one of them failed");
    }
}
