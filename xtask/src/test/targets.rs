//! Test programs of the workspace, and scripts beside them. As many run at a time as keep the processors busy, since most wait more than
//! they compute. The output of a program goes to a file, and is printed if the program fails.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::step::{Notes, Step, Verdict, locked};
use super::{NOTHING_RAN, script_variables};
use crate::{packages, release};

/// Largest number of failed targets that are tried once more; where more fail, the cause is not a lack of processors.
const ONCE_MORE_MAX: usize = 3;
/// Time limit of a program, after which it is killed with all that it started: several times what the longest takes on two busy processors.
const LONGEST: Duration = Duration::from_secs(400);
/// Interval at which it is checked whether a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Part of the processors' time (of 1) that must have been idle since the last program began, for another to begin.
const IDLE_PART: f64 = 0.2;
/// Time after the start of a program from which on its use of processors is known.
const SETTLES: Duration = Duration::from_millis(1_000);
/// Targets that take longest. They begin first, in this order, so that none of them is left for the end.
const LONG: [&str; 14] = [
    "python3 -m unittest -v benches/cuda/test_conduct.py",
    "-p xsched-e2e --test policies",
    "-p xsched-e2e --test cuda",
    "python3 -m unittest -v benches/cuda/test_coloc.py",
    "-p xsched-e2e --test capi",
    "-p xsched-e2e --test faults",
    "-p xsched-e2e --test platform_suite",
    "-p xsched-e2e --test pool",
    "-p xsched-e2e --test schedulers",
    "-p xsched-e2e --test compare",
    "-p xsched-e2e --test hip",
    "-p xsched-e2e --test kfd",
    "-p xsched-fakecuda --test mps",
    "-p xsched-shim --test loader",
];
/// Targets that need peers fetched by `cargo xtask kubernetes`, and are part of `cargo xtask ci`.
const WITH_PEERS: [&str; 2] = ["-p xsched-kube --test peers", "-p xsched-kube --test manifests"];

/// Test program.
#[derive(Debug, PartialEq)]
struct Target {
    /// Name of the target in a call by hand, without `cargo test` if it is one of cargo's.
    name: String,
    command: Vec<String>,
    /// Folder in which it runs.
    folder: PathBuf,
}

/// Runs all test programs that need no peers, and the scripts.
pub(super) fn run(step: &Step, scripts: &[&[&str]]) -> Verdict {
    let mut targets = match listed(step, &["--workspace"]) {
        Ok(targets) => targets,
        Err(error) => return step.failed(&format!("programs of tests: {error}")),
    };
    targets.retain(|target| !WITH_PEERS.contains(&target.name.as_str()));
    targets.extend(documents(step));
    targets.extend(scripts.iter().map(|words| script(step, words)));
    let rank = |target: &Target| {
        let long = LONG.iter().position(|name| *name == target.name);
        // End-to-end tests mostly wait and the others compute, but alternating between them would not be faster.
        long.map_or((1, usize::from(!target.name.starts_with("-p xsched-e2e"))), |place| (0, place))
    };
    targets.sort_by_key(rank);
    all_pass(step, targets)
}

/// Runs the targets that need peers.
pub(super) fn run_with_peers(step: &Step) -> Verdict {
    match listed(step, &["--workspace"]) {
        Ok(mut targets) => {
            targets.retain(|target| WITH_PEERS.contains(&target.name.as_str()));
            all_pass(step, targets)
        }
        Err(error) => step.failed(&format!("programs of tests: {error}")),
    }
}

/// Runs targets, tries the failed ones once more if they are few, and sums up.
fn all_pass(step: &Step, targets: Vec<Target>) -> Verdict {
    let logs = step.target.join("test-output");
    if let Err(error) = std::fs::create_dir_all(&logs) {
        return step.failed(&format!("{}: {error}", logs.display()));
    }
    if targets.is_empty() {
        return step.failed("cargo names no program of tests");
    }
    let (mut failed, mut notes) =
        at_once(step, &logs, targets, Room::here()).into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    let are_many = failed.len() > ONCE_MORE_MAX;
    if !are_many {
        // A test that fails only sometimes is a fault, too: the summary names it, and the run goes on.
        let tried: Vec<_> = failed.iter().map(|target| target.name.clone()).collect();
        (failed, notes) = at_once(step, &logs, failed, Room::ONE).into_iter().unzip();
        let passed = tried.into_iter().filter(|name| failed.iter().all(|target| target.name != *name));
        locked(&step.notes).unsteady.extend(passed);
    }
    notes.into_iter().for_each(|notes| locked(&step.notes).add(notes));
    match failed.len() {
        0 => Verdict::Passed,
        n => step.failed(&format!("{n} targets failed")),
    }
}

/// Target for the examples in the documentation of the crates that have some. For a crate without one, cargo would only read all of it
/// again.
fn documents(step: &Step) -> Option<Target> {
    let folders = std::fs::read_dir(step.root.join("crates")).into_iter().flatten().flatten();
    let mut packages: Vec<String> = folders
        .filter(|folder| has_example(&folder.path().join("src")))
        .map(|folder| folder.file_name().to_string_lossy().into_owned())
        .collect();
    packages.sort();
    let cargo = step.cargo_command().get_program().to_string_lossy().into_owned();
    let named = packages.iter().flat_map(|package| ["-p".to_owned(), package.clone()]);
    let command = [cargo, "test".into(), "--quiet".into(), "--doc".into()].into_iter().chain(named).collect();
    (!packages.is_empty()).then(|| Target { name: "--doc".into(), command, folder: step.root.to_path_buf() })
}

/// Reports whether a file in a folder of Rust has a piece of code in its documentation that is run as a test.
fn has_example(folder: &Path) -> bool {
    let is_run = |word: &str| ["", "rust", "no_run", "should_panic", "compile_fail"].contains(&word);
    let has_one = |text: &str| {
        let lines = text.lines().map(str::trim_start);
        let said = lines.filter_map(|line| line.strip_prefix("///").or_else(|| line.strip_prefix("//!")));
        // Every other fence begins a piece of code, and names its language.
        let fences = said.filter_map(|line| line.trim().strip_prefix("```"));
        fences.step_by(2).any(|words| words.split(',').all(is_run))
    };
    std::fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let is_rust = path.extension().is_some_and(|kind| kind == "rs");
        path.is_dir() && has_example(&path)
            || is_rust && std::fs::read_to_string(&path).is_ok_and(|text| has_one(&text))
    })
}

/// Target for a Python script, or a file of its tests.
fn script(step: &Step, words: &[&str]) -> Target {
    let variables = script_variables(step.target, "debug");
    let variables = variables.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy()));
    let command = std::iter::once("env".to_owned()).chain(variables).chain(["python3".to_owned()]);
    let command = command.chain(words.iter().map(ToString::to_string)).collect();
    Target { name: format!("python3 {}", words.join(" ")), command, folder: step.root.to_path_buf() }
}

/// Builds all test programs, and the libraries that tests preload into other programs, which are no dependencies of the tests. Built in two
/// calls, some crates would be compiled twice, since the tests ask for more of their features.
pub(super) fn build(step: &Step) -> Verdict {
    step.cargo(&release::DEBUG)
}

/// Programs that `cargo test` would run for these packages, except documentation tests. Builds them.
fn listed(step: &Step, packages: &[&str]) -> io::Result<Vec<Target>> {
    let args = [&["test"], packages, &["--no-run", "--message-format", "json"]].concat();
    let output = step.cargo_command().args(args).stderr(Stdio::piped()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(targets_in(&String::from_utf8_lossy(&output.stdout)))
}

/// Test programs named in cargo's messages, which are one a line.
fn targets_in(messages: &str) -> Vec<Target> {
    let target = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| message.pointer(pointer).and_then(|value| value.as_str());
        let test = message.pointer("/profile/test").and_then(|value| value.as_bool());
        let program = text("/executable").filter(|_| test == Some(true))?;
        // The folder of a package has its name.
        let folder = Path::new(text("/manifest_path")?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let name = text("/target/name")?;
        let words = match text("/target/kind/0")? {
            kind @ ("test" | "bin" | "example" | "bench") => format!("--{kind} {name}"),
            _ => "--lib".into(),
        };
        Some(Target { name: format!("-p {package} {words}"), command: vec![program.into()], folder })
    };
    messages.lines().filter_map(target).collect()
}

/// Number of programs that may run at a time.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Number that may always run.
    least: usize,
    /// Number that may run while the processors have time left.
    most: usize,
}

impl Room {
    const ONE: Room = Room { least: 1, most: 1 };

    /// Room on this machine: on a few processors, always one program more than processors, since a waiting program leaves its processor to
    /// the others. Beside other work on the machine there are no more than that.
    fn here() -> Room {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Room { least: (processors + 1).min(4), most: (4 * processors).clamp(8, 16) }
    }

    /// Reports whether another program may begin beside `running` ones, when this part of the processors' time had no use.
    fn has_one_more(self, running: usize, idle: Option<f64>) -> bool {
        running < self.least || running < self.most && idle.is_some_and(|part| part >= IDLE_PART)
    }
}

/// Time of all processors since the machine's start, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    /// Reads the text of `/proc/stat`.
    fn of(text: &str) -> Option<Ticks> {
        // The fields are user, nice, system, idle, waiting for a disk, interrupts and so on; the last two are contained in others.
        let line = text.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        Some(Ticks { all: ticks.iter().sum(), idle: ticks.get(3)? + ticks.get(4)? })
    }

    fn now() -> Option<Ticks> {
        Ticks::of(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// Idle part of the time since `then`, of 1.
    fn idle_since(self, then: Ticks) -> f64 {
        self.idle.saturating_sub(then.idle) as f64 / self.all.saturating_sub(then.all).max(1) as f64
    }
}

/// Runs the targets, as many at a time as there is room for. Returns those that failed, with their notes.
fn at_once(step: &Step, logs: &Path, targets: Vec<Target>, room: Room) -> Vec<(Target, Notes)> {
    let (running, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let one = |target: Target| {
        match passes(step, logs, &target) {
            Ok(notes) => locked(&step.notes).add(notes),
            Err(notes) => locked(&failed).push((target, notes)),
        }
        running.fetch_sub(1, SeqCst);
    };
    std::thread::scope(|scope| {
        let (mut since, mut begun) = (Ticks::now(), Instant::now());
        for target in targets {
            loop {
                let has_settled = begun.elapsed() >= SETTLES;
                let now = Ticks::now().filter(|_| has_settled);
                let idle = now.zip(since).map(|(now, since)| now.idle_since(since));
                if room.has_one_more(running.load(SeqCst), idle) {
                    break;
                }
                if has_settled {
                    (since, begun) = (now, Instant::now());
                }
                std::thread::sleep(LOOK_EVERY);
            }
            running.fetch_add(1, SeqCst);
            (since, begun) = (Ticks::now(), Instant::now());
            let one = &one;
            scope.spawn(move || one(target));
        }
    });
    failed.into_inner().unwrap_or_default()
}

/// Lock of the target that prints its result.
static SAYS: Mutex<()> = Mutex::new(());

/// Runs one target, and prints its result. Returns its notes, as an error if it failed.
fn passes(step: &Step, logs: &Path, target: &Target) -> Result<Notes, Notes> {
    let (name, begin) = (&target.name, Instant::now());
    let log = logs.join(format!("{}.txt", name.trim_start_matches("-p ").replace(" --", "-").replace([' ', '/'], "-")));
    let ended = ended(step.target, target, &log);
    let seconds = begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let mut own = Notes::default();
    said.lines().for_each(|line| own.read(line));
    let ran = ended.as_ref().is_ok_and(|status| status.code() != Some(NOTHING_RAN));
    let passed = ended.as_ref().is_ok_and(|status| status.success() || status.code() == Some(NOTHING_RAN));
    // A script that is no list of tests is one check; and a program that died has not reported the test that it died in.
    if passed && ran && own.passed + own.failed + own.skips.len() == 0 && !said.contains("test result: ok") {
        own.passed = 1;
    } else if !passed && own.failed == 0 {
        own.failed = 1;
    }
    // One target at a time, or the output of two would mix.
    let _one = locked(&SAYS);
    match ended {
        Ok(_) if passed => step.say(&format!("ok     {seconds:6.1} s  {name}: {} passed", own.passed)),
        Ok(status) => step.say(&format!("{said}FAILED {seconds:6.1} s  {name}: {status}")),
        Err(error) => step.say(&format!("{said}FAILED {seconds:6.1} s  {name}: {error}")),
    }
    if passed { Ok(own) } else { Err(own) }
}

/// Runs one target with its output in a file. Kills it after the time limit, with all that it started.
fn ended(built: &Path, target: &Target, log: &Path) -> io::Result<ExitStatus> {
    let (program, args) = target.command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let out = File::create(log)?;
    let mut command = Command::new(program);
    command.args(args).current_dir(&target.folder).env("CARGO_MANIFEST_DIR", &target.folder);
    // Programs of the machine come first.
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&usual).chain([packages::unpacked_programs(built)]);
    command.env("PATH", std::env::join_paths(folders).unwrap_or(usual));
    let mut child = command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).process_group(0).spawn()?;
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begin.elapsed() > LONGEST {
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
            child.wait()?;
            return Err(io::Error::other(format!("not ended after {} s", LONGEST.as_secs())));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_cargos_messages() {
        let of = |kind: &str, name: &str, test: bool, program: &str| {
            let target = format!(r#"{{"kind":["{kind}"],"name":"{name}"}}"#);
            let rest = format!(r#""profile":{{"test":{test}}},"executable":{program}"#);
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/testing/xsched-e2e/Cargo.toml","target":{target},{rest}}}"#
            )
        };
        let lines = [
            of("test", "shares", true, r#""/t/shares-1""#),
            of("lib", "xsched_e2e", true, r#""/t/lib-1""#),
            of("bin", "tool", false, r#""/t/tool""#),
            of("lib", "xsched_e2e", false, "null"),
            r#"{"reason":"build-finished","success":true}"#.into(),
            "not a message".into(),
        ];
        let found = targets_in(&lines.join("\n"));
        let words: Vec<_> = found.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(words, ["-p xsched-e2e --test shares", "-p xsched-e2e --lib"]);
        assert_eq!(
            (found[0].command[0].as_str(), found[0].folder.as_path()),
            ("/t/shares-1", Path::new("/a/testing/xsched-e2e"))
        );
    }

    #[test]
    fn examples_in_documentation_are_found_and_other_text_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("inner/one.rs");
        std::fs::create_dir(file.parent().expect("a folder")).expect("a folder");
        let has = |text: &str| {
            std::fs::write(&file, text).expect("a file");
            has_example(folder.path())
        };
        assert!(has("//! ```\n//! let a = 1;\n//! ```\n") && has("    /// ```no_run\n    /// ```\n"));
        assert!(!has("/// ```text\n/// a ``` b\n/// ```\nlet a = \"```\";\n"));
    }

    #[test]
    fn more_programs_begin_while_the_processors_have_time_left() {
        let ticks = |text: &str| Ticks::of(text).expect("ticks");
        let then = ticks("cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3 4 5\n");
        assert_eq!(then, Ticks { all: 1_000, idle: 800 });
        let idle = |text: &str| Some(ticks(text).idle_since(then));
        let (busy, half) = (idle("cpu  200 0 190 705 105 0 0 0\n"), idle("cpu  150 0 100 750 100 0 0 0\n"));
        assert_eq!((busy, half), (Some(0.05), Some(0.5)));
        assert_eq!(Ticks::of("cpu0 1 2 3 4 5 6 7 8\n"), None);
        let room = Room { least: 3, most: 5 };
        assert!(room.has_one_more(2, busy) && room.has_one_more(2, None), "so many always");
        assert!(!room.has_one_more(3, busy) && !room.has_one_more(3, None));
        assert!(room.has_one_more(4, half) && !room.has_one_more(5, half));
    }

    #[test]
    fn as_many_programs_run_at_once_as_there_is_room_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let step = Step {
            root: folder.path(),
            target: folder.path(),
            notes: Default::default(),
            kept: Some(Mutex::default()),
        };
        let target = |number: usize| {
            // Each program waits until another one has begun, or is the last.
            let script =
                format!("touch {number}; [ {number} = 2 ] || until [ -e {} ]; do sleep 0.01; done", number + 1);
            let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
            Target { name: format!("{number}"), command, folder: folder.path().into() }
        };
        let room = Room { least: 2, most: 2 };
        assert!(at_once(&step, folder.path(), (0..3).map(target).collect(), room).is_empty());
        assert_eq!(locked(&step.notes).passed, 3);
        let fails = Target { name: "fails".into(), command: vec!["false".into()], folder: folder.path().into() };
        let failed = at_once(&step, folder.path(), vec![target(2), fails], Room::ONE);
        assert_eq!(failed.iter().map(|(target, _)| target.name.as_str()).collect::<Vec<_>>(), ["fails"]);
    }

    #[test]
    fn what_a_program_says_is_kept_and_how_it_ends_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = |script: &str| {
            let command = ["sh", "-c", script].map(str::to_owned).to_vec();
            Target { name: "one".into(), command, folder: folder.path().into() }
        };
        let log = folder.path().join("log");
        assert!(ended(folder.path(), &target("pwd; echo said >&2"), &log).expect("runs").success());
        let said = std::fs::read_to_string(&log).expect("a log");
        assert!(
            said.starts_with(&*folder.path().canonicalize().expect("a path").to_string_lossy())
                && said.ends_with("said\n")
        );
        assert_eq!(ended(folder.path(), &target("exit 3"), &log).expect("runs").code(), Some(3));
    }
}
