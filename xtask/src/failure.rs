//! Failures of a task.

/// A task that was not done.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A word asks for something that there is not; one line. Exit code 2.
    Input(String),
    /// The work failed; one line. Exit code 1.
    Work(String),
}

impl From<String> for Failure {
    fn from(line: String) -> Failure {
        Failure::Work(line)
    }
}
