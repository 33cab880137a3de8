//! Steps of a run: verdict, output, and notes for the summary.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Result of a step; `Skipped` has the reason.
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped(String),
}

/// The work of a step.
pub(super) type Body<'a> = Box<dyn FnOnce(&Step) -> Verdict + Send + 'a>;

/// Running step.
pub(crate) struct Step<'a> {
    pub(super) root: &'a Path,
    pub(super) target: &'a Path,
    /// Notes for the summary.
    pub(super) notes: Mutex<Notes>,
    /// Output of the step, if it is printed only at the end.
    pub(super) kept: Option<Mutex<Vec<u8>>>,
}

/// Notes from the output of a step's programs.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Reasons for which something could not run.
    pub(super) skips: Vec<String>,
    /// Commands of tests that failed first and passed when tried again.
    pub(super) unsteady: Vec<String>,
    /// Number of tests that passed.
    pub(super) passed: usize,
    /// Number of tests that failed.
    pub(super) failed: usize,
}

/// Result of a step, and its time in seconds.
pub(super) struct Ended {
    pub(super) name: String,
    pub(super) verdict: Verdict,
    pub(super) seconds: f64,
    pub(super) notes: Notes,
}

/// Locks a mutex whose holder may have panicked: its data is only appended to.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    /// Notes what a line reports: `SKIPPED: REASON` of a Rust test or a ladder, `NAME ... skipped 'REASON'` of a Python test, and the
    /// totals of either.
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(reason) = line.strip_prefix("SKIPPED: ") {
            self.skips.push(reason.to_owned());
        } else if let Some((test, reason)) = line.split_once(" ... skipped ") {
            self.skips.push(format!("{}: {}", test.trim(), reason.trim().trim_matches(['\'', '"'])));
        } else if let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) {
            self.passed += count(counts, " passed");
            self.failed += count(counts, " failed");
        } else if let Some(counts) = line.strip_prefix("Ran ").filter(|rest| rest.contains(" test")) {
            self.passed += count(counts, " test");
        } else if let Some(counts) = line.strip_prefix("FAILED (").or_else(|| line.strip_prefix("OK (")) {
            // Python's totals: the number of tests that ran, printed before, includes these.
            let of = |name: &str| {
                let mut parts = counts.trim_end_matches(')').split(", ");
                parts.find_map(|part| part.strip_prefix(name)?.parse::<usize>().ok()).unwrap_or(0)
            };
            let failed = of("failures=") + of("errors=");
            self.failed += failed;
            self.passed = self.passed.saturating_sub(failed + of("skipped="));
        }
    }

    /// Adds other notes to these.
    pub(super) fn add(&mut self, more: Notes) {
        self.skips.extend(more.skips);
        self.unsteady.extend(more.unsteady);
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

/// Number before a word, in a line of numbers and words.
fn count(line: &str, word: &str) -> usize {
    let before = line.split_once(word).map_or("", |(before, _)| before);
    before.rsplit([' ', ';']).next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl Step<'_> {
    pub(super) fn run(&self, name: &str, body: impl FnOnce(&Step) -> Verdict) -> Ended {
        let begin = Instant::now();
        let verdict = body(self);
        let (seconds, notes) = (begin.elapsed().as_secs_f64(), std::mem::take(&mut *locked(&self.notes)));
        Ended { name: name.to_owned(), verdict, seconds, notes }
    }

    /// Prints or keeps a line.
    pub(crate) fn say(&self, line: &str) {
        match &self.kept {
            Some(kept) => locked(kept).extend_from_slice(format!("{line}\n").as_bytes()),
            None => println!("{line}"),
        }
    }

    /// Notes and prints that something could not run.
    pub(crate) fn skip(&self, why: &str) {
        self.say(&format!("SKIPPED: {why}"));
        locked(&self.notes).skips.push(why.to_owned());
    }

    pub(super) fn failed(&self, why: &str) -> Verdict {
        self.say(why);
        Verdict::Failed
    }

    /// Command of the cargo that runs this program, in the root.
    pub(super) fn cargo_command(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.root);
        command
    }

    pub(super) fn cargo(&self, args: &[&str]) -> Verdict {
        self.verdict(self.cargo_command().args(args), &[])
    }

    /// Runs a cargo command that is a separate component, or reports that it is not installed.
    pub(super) fn component(&self, name: &str, args: &[&str]) -> Verdict {
        match self.cargo_command().args([name, "--version"]).output() {
            Ok(output) if output.status.success() => self.cargo(args),
            _ if name == "deny" => Verdict::Skipped("no cargo deny; cargo install cargo-deny --locked".into()),
            _ => Verdict::Skipped(format!("no cargo {name}; rustup component add {name}")),
        }
    }

    /// Runs another task of this program, whose own file may have been built anew by a step before.
    pub(super) fn task(&self, words: &[&str]) -> Verdict {
        self.cargo(&[&["run", "--quiet", "--package", "xtask", "--"], words].concat())
    }

    /// Runs a script on a build: `debug` or `release`.
    pub(super) fn python(&self, built: &str, args: &[std::ffi::OsString]) -> Verdict {
        let mut command = Command::new("python3");
        command.args(args).current_dir(self.root);
        for (name, value) in super::script_variables(self.target, built) {
            command.env(name, value);
        }
        // Exit code 3 of our scripts: nothing could run here; they have printed the reason.
        self.verdict(&mut command, &[super::NOTHING_RAN])
    }

    /// Runs a command. Exit codes in `skip_codes` mean that it could not work here.
    pub(super) fn verdict(&self, command: &mut Command, skip_codes: &[i32]) -> Verdict {
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

    /// Runs a command, shows or keeps its output, takes notes from it, and returns the exit status.
    pub(crate) fn watched(&self, command: &mut Command) -> std::io::Result<ExitStatus> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
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

    /// Shows or keeps the output of a program, and takes notes from it.
    fn pass_on(&self, from: impl Read, to: impl Write) {
        let notes = match &self.kept {
            Some(kept) => shown(from, Kept(kept)),
            None => shown(from, to),
        };
        locked(&self.notes).add(notes);
    }
}

/// Writer that keeps a program's output.
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

/// Copies a program's output line by line as it comes, and returns the notes from it.
fn shown(from: impl Read, mut to: impl Write) -> Notes {
    let (mut from, mut line, mut notes) = (BufReader::new(from), Vec::new(), Notes::default());
    while from.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // A closed terminal is no reason to stop the program.
        let _ = to.write_all(&line).and_then(|()| to.flush());
        notes.read(&String::from_utf8_lossy(&line));
        line.clear();
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(text: &str) -> Notes {
        shown(text.as_bytes(), std::io::sink())
    }

    #[test]
    fn lines_about_skipped_tests_are_known() {
        let of = |text| notes(text).skips.join("|");
        assert_eq!(of("SKIPPED: needs root\n"), "needs root");
        let python = "test_it (__main__.Tests.test_it)\nWhat it shows. ... skipped 'no gcc'\n";
        assert_eq!(of(python), "What it shows.: no gcc");
        assert_eq!(
            of("test_it (t.Tests.test_it) ... skipped \"isn't there\"\n"),
            "test_it (t.Tests.test_it): isn't there"
        );
        assert_eq!(of("test it ... ok\n"), "");
    }

    #[test]
    fn tests_are_counted_in_the_totals_of_rust_and_of_python() {
        let of = |text| {
            let notes = notes(text);
            (notes.passed, notes.failed)
        };
        assert_eq!(of("test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out\n"), (12, 0));
        // Totals of the documentation tests of two crates.
        let two = "test result: ok. 1 passed; 0 failed;\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        assert_eq!(of(two), (3, 1));
        assert_eq!(of("Ran 5 tests in 0.1s\n\nOK\n"), (5, 0));
        assert_eq!(of("Ran 1 test in 0.1s\n\nOK (skipped=1)\n"), (0, 0));
        assert_eq!(of("Ran 9 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=3)\n"), (3, 3));
    }

    #[test]
    fn output_is_shown_and_skips_are_gathered() {
        let said = b"one\nSKIPPED: a\n\xff\nSKIPPED: b".as_slice();
        let mut out = Vec::new();
        assert_eq!(shown(said, &mut out).skips, ["a", "b"]);
        assert_eq!(out, said);
    }
}
