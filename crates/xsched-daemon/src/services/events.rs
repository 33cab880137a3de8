//! Event log: programs that came and went, connections that were refused and the reason, and changes with their authors. One line each.

use std::collections::HashMap;
use std::path::Path;

use xsched_proto::Error;
use xsched_proto::text::escaped;

use crate::identity::User;
use crate::services::writer::{LogFile, Sink, Writer};
use crate::tuning::{LOG_NS, USER_LINES_MAX, USER_LINES_NS};

/// Writer of the log, and the number of lines that each user has caused lately.
pub(crate) struct EventLog {
    pub(crate) writer: Writer,
    /// True if the log also has details for an investigation.
    pub(crate) has_details: bool,
    users: HashMap<User, Lines>,
    complained_ns: Option<u64>,
}

struct Lines {
    since_ns: u64,
    written: u32,
    suppressed: u64,
}

impl EventLog {
    /// Opens the log: a file, or stderr, which a service manager keeps.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(crate) fn new(file: Option<&Path>, has_details: bool) -> Result<EventLog, Error> {
        let sink = match file {
            Some(path) => Sink::File(LogFile::open(path)?),
            None => Sink::Stderr,
        };
        Ok(EventLog { writer: Writer::new(sink)?, has_details, users: HashMap::new(), complained_ns: None })
    }

    /// Writes a line that concerns the daemon as a whole.
    pub(crate) fn say(&self, line: &str) {
        self.writer.line(escaped(&line.replace(char::is_control, " ")).into_owned());
    }

    /// Writes a line about trouble of the daemon's own, at most once a second.
    pub(crate) fn complain(&mut self, now_ns: u64, line: &str) {
        if self.complained_ns.is_none_or(|at| now_ns.saturating_sub(at) >= LOG_NS) {
            self.complained_ns = Some(now_ns);
            self.say(line);
        }
    }

    /// Writes a line about an event that a user has caused. Each user has a limited number of lines for some time, so that a user who
    /// causes many hides none of the others', not even a container's root those of the machine's.
    pub(crate) fn of_user(&mut self, now_ns: u64, user: User, line: &str) {
        self.tend(now_ns);
        let lines = self.users.entry(user).or_insert(Lines { since_ns: now_ns, written: 0, suppressed: 0 });
        if lines.written >= USER_LINES_MAX {
            lines.suppressed += 1;
            return;
        }
        lines.written += 1;
        self.say(line);
    }

    /// Time at which [`EventLog::tend`] has something to report, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let with_more = self.users.values().filter(|lines| lines.suppressed > 0);
        with_more.map(|lines| lines.since_ns + USER_LINES_NS).min()
    }

    /// Reports how many lines were left out, and forgets users whose interval is over.
    pub(crate) fn tend(&mut self, now_ns: u64) {
        let over = |lines: &Lines| now_ns.saturating_sub(lines.since_ns) >= USER_LINES_NS;
        let mut left_out: Vec<(User, u64)> = Vec::new();
        self.users.retain(|user, lines| {
            if over(lines) && lines.suppressed > 0 {
                left_out.push((*user, lines.suppressed));
            }
            !over(lines)
        });
        for (user, suppressed) in left_out {
            self.say(&format!("user {user}: {suppressed} more lines were left out"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Rank, pretended};

    #[test]
    fn a_user_who_causes_many_lines_hides_none_of_the_others_and_is_told_of() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = EventLog::new(Some(&path), false).unwrap();
        let [one, other] = [60_001, 60_002].map(pretended);
        for n in 0..USER_LINES_MAX + 7 {
            log.of_user(1_000, one, &format!("noise {n}"));
        }
        log.of_user(1_001, other, "a word\nof another");
        assert_eq!(log.deadline_ns(), Some(1_000 + USER_LINES_NS));
        log.tend(999 + USER_LINES_NS);
        assert!(log.deadline_ns().is_some());
        log.tend(1_000 + USER_LINES_NS);
        assert_eq!(log.deadline_ns(), None);
        log.of_user(1_001 + USER_LINES_NS, one, "again");
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
        assert_eq!(lines.len(), USER_LINES_MAX as usize + 3);
        assert_eq!(
            lines[USER_LINES_MAX as usize..],
            ["a word of another", "user 60001: 7 more lines were left out", "again"]
        );
    }

    #[test]
    fn a_containers_root_hides_no_lines_of_root_and_is_named_as_that_container() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = EventLog::new(Some(&path), false).unwrap();
        let contained = User { uid: 0, rank: Rank::Other, within: 77 };
        for n in 0..USER_LINES_MAX + 3 {
            log.of_user(1_000, contained, &format!("noise {n}"));
        }
        log.of_user(1_001, pretended(0), "of root");
        log.tend(1_000 + USER_LINES_NS);
        drop(log);
        let text = std::fs::read_to_string(&path).unwrap();
        let last: Vec<&str> = text.lines().rev().take(2).filter_map(|line| Some(line.split_once(' ')?.1)).collect();
        assert_eq!(last, ["user 0 of container 77: 3 more lines were left out", "of root"]);
    }
}
