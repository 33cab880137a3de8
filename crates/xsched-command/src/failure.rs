//! End of a command: its answer on stdout, or one line on stderr and an exit code.

use std::process::ExitCode;

pub use xsched_proto::Error;
use xsched_proto::text::{escaped, escaped_json};

/// Result of a subcommand.
pub type Result<T = ExitCode> = std::result::Result<T, Error>;

/// Prints the reason for which a command fails and returns its exit code.
pub fn report(error: &Error) -> ExitCode {
    say(&error.to_string());
    ExitCode::from(error.exit_code())
}

/// Prints one line for the user on stderr.
pub fn say(message: &str) {
    use std::io::Write;
    let line = message.replace('\n', " ");
    // A failed write to stderr is ignored: there is no other place for the line.
    let _ = writeln!(std::io::stderr().lock(), "xsched: {}", escaped(&shortened(&line)));
}

/// Longest word of a message, in characters. Names of files are shorter, but for few.
const WORD: usize = 240;

/// Message with the middle of each longer word left out: a value that was given by mistake may be a whole file.
fn shortened(line: &str) -> String {
    let short = |word: &str| -> String {
        let chars: Vec<char> = word.chars().collect();
        if chars.len() <= WORD {
            return word.to_owned();
        }
        chars[..WORD / 2].iter().chain(&['…']).chain(&chars[chars.len() - WORD / 4..]).collect()
    };
    line.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

/// Writes the answer to stdout. A reader that left early (`| head`) is no failure.
pub fn print(text: &str) -> Result {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(Error::environment(format!("cannot write to standard output: {e}"))),
    }
}

/// Writes `value` to stdout as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::environment(format!("cannot write the answer as JSON: {e}")))?;
    print(&format!("{}\n", escaped_json(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_lose_their_middle_and_lines_nothing_else() {
        let line = "'a  b' is no  weight: use ½";
        assert_eq!(shortened(line), line);
        let long = shortened(&format!("'{}' is no level", "x".repeat(5_000)));
        assert!(long.starts_with("'xxx") && long.ends_with("xxx' is no level") && long.contains('…'), "{long}");
        assert!(long.chars().count() < 220, "{long}");
    }
}
