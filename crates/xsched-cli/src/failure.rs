//! How a command fails: one line on stderr and an exit code that says whose fault it was.

use std::process::ExitCode;

/// The request made no sense.
pub(crate) const BAD_INPUT: u8 = 2;
/// The machine or its state does not allow it.
pub(crate) const ENVIRONMENT: u8 = 3;
/// As a shell: found, but it cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// As a shell: not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// What a subcommand returns.
pub(crate) type Result<T = ExitCode> = std::result::Result<T, Failure>;

/// Ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Bad input: says what was wrong and what is accepted.
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Failure { code: BAD_INPUT, message: message.into() }
    }

    /// The environment's fault: says what to do next.
    pub(crate) fn environment(message: impl Into<String>) -> Self {
        Failure { code: ENVIRONMENT, message: message.into() }
    }

    /// Any other exit code.
    pub(crate) fn with_code(code: u8, message: impl Into<String>) -> Self {
        Failure { code, message: message.into() }
    }

    /// The line.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the line.
    pub(crate) fn report(self) -> ExitCode {
        say(&self.message);
        ExitCode::from(self.code)
    }
}

/// One line for the user, on stderr.
pub(crate) fn say(message: &str) {
    use std::io::Write;
    let line = message.replace('\n', " ");
    // Nobody is left to be told when stderr is gone.
    let _ = writeln!(std::io::stderr().lock(), "xsched: {line}");
}

/// Writes the answer to stdout. A reader that left early (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(Failure::environment(format!("cannot write to standard output: {e}"))),
    }
}

/// Writes `value` to stdout as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::environment(format!("cannot write the answer as JSON: {e}")))?;
    print(&format!("{text}\n"))
}
