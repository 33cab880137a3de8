//! Driver's library in a process of its own, so that the daemon opens no device: if the library crashes or hangs, only that process is
//! affected. The process lives as long as the daemon holds the pipe for its questions.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::driver::{Driver, Look};
use super::nvml;
use crate::Error;
use crate::identity::rights;

/// Command of this program that runs such a process.
const COMMAND: &str = "device-host";

struct Process {
    child: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// NVIDIA's library, used through a process.
struct Remote {
    program: PathBuf,
    /// Running process; none = it has ended, and is started again for the next question.
    process: Option<Process>,
}

/// Starts the program in a process that opens NVIDIA's library. Returns none if this machine has no such library.
pub(super) fn open(program: &Path) -> Option<Box<dyn Driver>> {
    // The reason for which it cannot answer goes to the daemon's output, once.
    static TOLD: AtomicBool = AtomicBool::new(false);
    let errors = if TOLD.swap(true, Relaxed) { Stdio::null() } else { Stdio::inherit() };
    let process = Process::start(program, errors).ok()?;
    Some(Box::new(Remote { program: program.to_owned(), process: Some(process) }))
}

impl Process {
    fn start(program: &Path, errors: Stdio) -> io::Result<Process> {
        let mut command = Command::new(program);
        command.arg(COMMAND).env("XSCHED_DISABLE", "1").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn()?;
        let questions = child.stdin.take();
        let answers = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut process = Process { child, questions, answers: BufReader::new(answers) };
        // Before the first question, the process reports whether it has the library.
        let has_library: bool = process.answer()?;
        if has_library { Ok(process) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn answer<T: serde::de::DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    fn ask(&mut self, wanted: &BTreeSet<String>) -> io::Result<Vec<Look>> {
        let questions = self.questions.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        questions.write_all(line(wanted)?.as_bytes())?;
        self.answer()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process ends when there are no more questions.
        self.questions = None;
        let _ = self.child.wait();
    }
}

impl Driver for Remote {
    fn look(&mut self, wanted: &BTreeSet<String>) -> Vec<Look> {
        if self.process.is_none() {
            self.process = Process::start(&self.program, Stdio::null()).ok();
        }
        let looks = self.process.as_mut().and_then(|process| process.ask(wanted).ok());
        if looks.is_none() {
            self.process = None;
        }
        looks.unwrap_or_default()
    }
}

fn line(value: &impl serde::Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// Answers a daemon's questions from standard input, until the daemon hangs up. Gives up capabilities first.
///
/// # Errors
/// Fails if capabilities cannot be given up, or the daemon is gone in the middle of an answer.
pub fn serve() -> Result<(), Error> {
    let fail = |e: &dyn std::fmt::Display| Error::environment(format!("device-host: {e}"));
    rights::give_up_capabilities().map_err(|e| fail(&format!("cannot give up capabilities: {e}")))?;
    let mut driver = nvml::open();
    let mut answers = io::stdout();
    let mut say = |text: io::Result<String>| {
        text.and_then(|text| answers.write_all(text.as_bytes()).and_then(|()| answers.flush())).map_err(|e| fail(&e))
    };
    say(line(&driver.is_some()))?;
    let Some(driver) = &mut driver else { return Ok(()) };
    for question in io::stdin().lines() {
        let wanted: BTreeSet<String> = serde_json::from_str(&question.map_err(|e| fail(&e))?).map_err(|e| fail(&e))?;
        say(line(&driver.look(&wanted)))?;
    }
    Ok(())
}
