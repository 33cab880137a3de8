//! Errors as an operator reads them: one line, and the exit code that belongs to it.

use core::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::similar::nearest;

/// Reason for which something was not done. Displays as one line without control characters.
///
/// A daemon answers with the first two variants only; the others exist in commands only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Error {
    /// The request makes no sense. The line names the fault and the accepted values. Exit code 2.
    Input(String),
    /// The machine or its state is the obstacle: no device, no daemon, no permission. The line says what to do next. Exit code 3.
    Environment(String),
    /// The program exists and cannot be executed. Exit code 126, as a shell's.
    NotExecutable(String),
    /// The program does not exist. Exit code 127, as in a shell.
    NotFound(String),
    /// SIGINT arrived. Exit code 130, as a shell's.
    Interrupted(String),
}

impl Error {
    /// Makes an [`Error::Input`].
    pub fn input(line: impl Display) -> Error {
        Error::Input(line.to_string())
    }

    /// Makes an [`Error::Environment`].
    pub fn environment(line: impl Display) -> Error {
        Error::Environment(line.to_string())
    }

    /// Makes the error for a value that is not accepted: `'fifo' is no policy: use one of hpf, up`.
    pub fn value(given: impl Display, what: &str, accepted: impl Display) -> Error {
        Error::Input(format!("'{given}' is no {what}: use {accepted}"))
    }

    /// Makes the error for a value that is not accepted, with the one of the `known` words that was probably meant.
    pub fn word<'a>(
        given: &str,
        what: &str,
        accepted: impl Display,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Error {
        let meant = nearest(given, known).map_or_else(String::new, |known| format!("; did you mean {known}?"));
        Error::Input(format!("'{given}' is no {what}: use {accepted}{meant}"))
    }

    /// Puts `place` and a colon before the error's line.
    #[must_use]
    pub fn within(mut self, place: impl Display) -> Error {
        let line = self.line_mut();
        *line = format!("{place}: {line}");
        self
    }

    /// Exit code of a command that fails with this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Input(_) => 2,
            Error::Environment(_) => 3,
            Error::NotExecutable(_) => 126,
            Error::NotFound(_) => 127,
            Error::Interrupted(_) => 130,
        }
    }

    /// Text of the line.
    pub fn line(&self) -> &str {
        match self {
            Error::Input(line)
            | Error::Environment(line)
            | Error::NotExecutable(line)
            | Error::NotFound(line)
            | Error::Interrupted(line) => line,
        }
    }

    fn line_mut(&mut self) -> &mut String {
        match self {
            Error::Input(line)
            | Error::Environment(line)
            | Error::NotExecutable(line)
            | Error::NotFound(line)
            | Error::Interrupted(line) => line,
        }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line().replace(char::is_control, " "))
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_its_code() {
        let error = Error::value("fifo", "policy", "one of a, b").within("x.toml:2");
        assert_eq!(error.to_string(), "x.toml:2: 'fifo' is no policy: use one of a, b");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(Error::environment("two\nlines\x1b[2J").to_string(), "two lines [2J");
        assert_eq!(Error::environment("").exit_code(), 3);
    }
}
