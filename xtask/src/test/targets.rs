//! The test programs of the workspace: two at a time, since most wait more than they compute, and those that measure what others
//! on the machine change by themselves at the end. What a program says is kept in a file and shown if it fails.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{HOLD_WHEN_QUIET, Step, Verdict, locked, skip_in};

/// So many targets that failed are tried once more; where more fail it is not for want of processors.
const ONCE_MORE_MAX: usize = 3;
/// A program that takes longer is ended with what it has started: five times what the longest takes on two processors.
const LONGEST: Duration = Duration::from_secs(400);
/// How often it is looked whether a program has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The package whose tests take longest: begun first, so that none of them is left at the end.
const LONG: &str = "xsched-e2e";

/// A program of tests.
#[derive(Debug, PartialEq)]
struct Target {
    package: String,
    /// What cargo takes for it after the package, such as `--test shares`.
    words: String,
    command: Vec<String>,
    /// Where it runs.
    folder: PathBuf,
}

impl Target {
    fn name(&self) -> String {
        format!("-p {} {}", self.package, self.words)
    }

    /// Whether it measures what a busy machine changes.
    fn needs_quiet(&self) -> bool {
        HOLD_WHEN_QUIET.iter().any(|name| self.words == format!("--test {name}"))
    }
}

/// Builds all there is to run, and runs it.
pub(super) fn run(step: &Step) -> Verdict {
    let logs = step.target.join("test-output");
    let targets = match listed(step).and_then(|targets| std::fs::create_dir_all(&logs).map(|()| targets)) {
        Ok(targets) if !targets.is_empty() => targets,
        Ok(_) => return step.failed("cargo names no program of tests, or did not build them: see above"),
        Err(error) => return step.failed(&format!("programs of tests: {error}")),
    };
    let (alone, mut beside): (Vec<_>, Vec<_>) = targets.into_iter().partition(Target::needs_quiet);
    beside.sort_by_key(|target| target.package != LONG);
    beside.push(documents(step));
    let mut failed = at_once(step, &logs, beside, 2);
    failed.extend(at_once(step, &logs, alone, 1));
    if failed.len() > ONCE_MORE_MAX {
        return step.failed(&format!("{} targets failed", failed.len()));
    }
    // Some compare times, and a machine that others load at the wrong moment is no fault of theirs. The summary names them all
    // the same.
    let tried: Vec<_> = failed.iter().map(Target::name).collect();
    let failed = at_once(step, &logs, failed, 1);
    let passed = tried.into_iter().filter(|name| failed.iter().all(|target| target.name() != *name));
    locked(&step.notes).unsteady.extend(passed);
    if failed.is_empty() { Verdict::Passed } else { Verdict::Failed }
}

/// The examples in the documents of all crates.
fn documents(step: &Step) -> Target {
    let cargo = step.cargo_command().get_program().to_string_lossy().into_owned();
    let command = [&cargo, "test", "--quiet", "--workspace", "--doc"].map(str::to_owned).to_vec();
    Target { package: "all".into(), words: "--doc".into(), command, folder: step.root.to_path_buf() }
}

/// Builds all there is to run, and the libraries that tests preload into other programs, which are not dependencies of the tests: all
/// at once, or some would be built a second time for the tests, which ask for more of what both depend on.
pub(super) fn build(step: &Step) -> Verdict {
    step.cargo(&["build", "--workspace", "--all-targets"])
}

/// What `cargo test` would run, but for documents, once it is built.
fn listed(step: &Step) -> io::Result<Vec<Target>> {
    if !matches!(build(step), Verdict::Passed) {
        return Ok(Vec::new());
    }
    let args = ["test", "--workspace", "--no-run", "--message-format", "json"];
    let output = step.cargo_command().args(args).stderr(Stdio::inherit()).output()?;
    Ok(if output.status.success() { targets_in(&String::from_utf8_lossy(&output.stdout)) } else { Vec::new() })
}

/// The programs of tests among the messages of cargo, one a line.
fn targets_in(messages: &str) -> Vec<Target> {
    let target = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |pointer: &str| message.pointer(pointer).and_then(|value| value.as_str());
        let test = message.pointer("/profile/test").and_then(|value| value.as_bool());
        let program = text("/executable").filter(|_| test == Some(true))?;
        // A package's folder bears its name.
        let folder = Path::new(text("/manifest_path")?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let name = text("/target/name")?;
        let words = match text("/target/kind/0")? {
            kind @ ("test" | "bin" | "example" | "bench") => format!("--{kind} {name}"),
            _ => "--lib".into(),
        };
        Some(Target { package, words, command: vec![program.into()], folder })
    };
    messages.lines().filter_map(target).collect()
}

/// Runs the targets, so many at a time, and gives those that failed.
fn at_once(step: &Step, logs: &Path, targets: Vec<Target>, workers: usize) -> Vec<Target> {
    let (left, failed) = (Mutex::new(VecDeque::from(targets)), Mutex::new(Vec::new()));
    let work = || {
        while let Some(target) = { locked(&left).pop_front() } {
            if !passes(step, logs, &target) {
                locked(&failed).push(target);
            }
        }
    };
    std::thread::scope(|scope| (0..workers).for_each(|_| _ = scope.spawn(work)));
    failed.into_inner().unwrap_or_default()
}

/// Runs one target, and says how it ended.
fn passes(step: &Step, logs: &Path, target: &Target) -> bool {
    let (name, begin) = (target.name(), Instant::now());
    let log = logs.join(format!("{}.txt", name.trim_start_matches("-p ").replace(" --", "-").replace(' ', "-")));
    let ended = ended(target, &log);
    let seconds = begin.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let passed = ended.as_ref().is_ok_and(ExitStatus::success);
    let tests: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("test result: ok. ")).collect();
    let counts = tests.first().and_then(|line| line.split("; 0 measured").next()).unwrap_or_default();
    // One at a time, or what two say would mix.
    let mut notes = locked(&step.notes);
    match ended {
        Ok(_) if passed => step.say(&format!("ok     {seconds:6.1} s  {name}: {counts}")),
        Ok(status) => step.say(&format!("{said}FAILED {seconds:6.1} s  {name}: {status}")),
        Err(error) => step.say(&format!("{said}FAILED {seconds:6.1} s  {name}: {error}")),
    }
    notes.skips.extend(said.lines().filter_map(skip_in));
    passed
}

/// Runs one target with its output in a file. One that takes too long is ended with all that it has started.
fn ended(target: &Target, log: &Path) -> io::Result<ExitStatus> {
    let (program, args) = target.command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let out = File::create(log)?;
    let mut command = Command::new(program);
    command.args(args).current_dir(&target.folder).env("CARGO_MANIFEST_DIR", &target.folder);
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
                r#"{{"reason":"compiler-artifact","manifest_path":"/a/crates/xsched-e2e/Cargo.toml","target":{target},{rest}}}"#
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
        let words: Vec<_> = found.iter().map(Target::name).collect();
        assert_eq!(words, ["-p xsched-e2e --test shares", "-p xsched-e2e --lib"]);
        assert_eq!(
            (found[0].command[0].as_str(), found[0].folder.as_path()),
            ("/t/shares-1", Path::new("/a/crates/xsched-e2e"))
        );
        assert!(found[0].needs_quiet() && !found[1].needs_quiet());
    }

    #[test]
    fn what_a_program_says_is_kept_and_how_it_ends_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = |script: &str| {
            let command = ["sh", "-c", script].map(str::to_owned).to_vec();
            Target { package: "one".into(), words: "--lib".into(), command, folder: folder.path().into() }
        };
        let log = folder.path().join("log");
        assert!(ended(&target("pwd; echo said >&2"), &log).expect("runs").success());
        let said = std::fs::read_to_string(&log).expect("a log");
        assert!(
            said.starts_with(&*folder.path().canonicalize().expect("a path").to_string_lossy())
                && said.ends_with("said\n")
        );
        assert_eq!(ended(&target("exit 3"), &log).expect("runs").code(), Some(3));
    }
}
