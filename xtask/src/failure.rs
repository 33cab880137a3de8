//! Failures of a task.

/// A task that was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was asked for something that there is not; one line. Exit code 2.
    Input(String),
    /// It failed; one line. Exit code 1.
    Work(String),
}

impl From<String> for Failure {
    fn from(line: String) -> Failure {
        Failure::Work(line)
    }
}
