//! Progress of a command that takes long.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::failure::say;

/// Shortest time between two lines on the progress, elsewhere than on a terminal.
const LINES_EVERY: Duration = Duration::from_secs(10);

/// Progress of a measurement, on stderr: on a terminal one line that changes, elsewhere a line now and then.
pub struct Progress {
    name: &'static str,
    on_terminal: bool,
    last: Cell<Instant>,
}

impl Progress {
    /// Begins the progress of the command `name`; `about` is the first line of a command that takes long.
    pub fn new(name: &'static str, about: Option<&str>) -> Progress {
        let on_terminal = std::io::stderr().is_terminal();
        match (on_terminal, about) {
            (true, about) => eprintln!("xsched {name} {}", about.unwrap_or_default()),
            (false, Some(about)) => say(&format!("{name} {about}")),
            (false, None) => {}
        }
        Progress { name, on_terminal, last: Cell::new(Instant::now()) }
    }

    /// Shows the present step.
    pub fn show(&self, what: &str) {
        if self.on_terminal {
            eprint!("\r\x1b[K  {what} …");
            let _ = std::io::stderr().flush();
        } else if self.last.get().elapsed() >= LINES_EVERY {
            self.last.set(Instant::now());
            say(&format!("{}: {what}", self.name));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
