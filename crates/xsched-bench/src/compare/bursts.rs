//! Requests of a program that prints nothing about them: the times when it was busy, as the daemon recorded them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Deserialize;

use crate::failure::{Error, Result};

/// Line of the daemon's file.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Burst {
    /// Priority of the program itself.
    priority: i32,
    /// Begin of the burst, CLOCK_MONOTONIC in µs; 0 = not known.
    from_us: u64,
    us: u64,
    /// Number of bursts that ended unseen.
    missed: u64,
}

/// File of bursts, and its unread part.
pub(super) struct Log {
    file: BufReader<File>,
    /// Beginning of an incomplete line.
    rest: String,
}

/// Requests of a program in some time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Busy {
    /// Length of each request, in ms.
    pub(super) latencies_ms: Vec<f64>,
    /// Number of bursts whose time is not known.
    pub(super) missed: u64,
}

impl Log {
    /// Opens the file that a daemon writes.
    pub(super) fn open(path: &Path) -> Result<Log> {
        let file = File::open(path).map_err(|e| Error::environment(format!("cannot read {}: {e}", path.display())))?;
        Ok(Log { file: BufReader::new(file), rest: String::new() })
    }

    /// Bursts written since the last call.
    pub(super) fn read(&mut self) -> Result<Vec<Burst>> {
        let mut bursts = Vec::new();
        while self.file.read_line(&mut self.rest).map_err(Error::environment)? > 0 {
            if !self.rest.ends_with('\n') {
                break;
            }
            let burst = serde_json::from_str(&self.rest)
                .map_err(|e| Error::environment(format!("the daemon wrote '{}': {e}", self.rest.trim())))?;
            bursts.push(burst);
            self.rest.clear();
        }
        Ok(bursts)
    }
}

/// Requests that lie within a time as a whole. Bursts less than a gap apart are one request. `urgent`: only those of programs above normal
/// priority.
pub(super) fn requests(bursts: &[Burst], urgent: bool, gap_us: u64, from_us: u64, to_us: u64) -> Busy {
    let of_high = || bursts.iter().filter(|b| !urgent || b.priority > 0);
    let mut known: Vec<(u64, u64)> =
        of_high().filter(|b| b.from_us > 0).map(|b| (b.from_us, b.from_us + b.us)).collect();
    known.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (from, to) in known {
        match spans.last_mut() {
            Some(last) if from < last.1.saturating_add(gap_us) => last.1 = last.1.max(to),
            _ => spans.push((from, to)),
        }
    }
    // A request that was still going on at the end might have grown.
    let within = |&(from, to): &(u64, u64)| from >= from_us && to + gap_us <= to_us;
    let latencies_ms = spans.into_iter().filter(within).map(|(from, to)| (to - from) as f64 / 1e3).collect();
    Busy { latencies_ms, missed: of_high().map(|b| b.missed).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn burst(priority: i32, from_us: u64, us: u64) -> Burst {
        Burst { priority, from_us, us, missed: 0 }
    }

    #[test]
    fn bursts_close_together_are_one_request_and_only_whole_ones_count() {
        let bursts = [
            burst(128, 900, 200),   // began before
            burst(128, 5_000, 500), // 500 to the next: one request of 1.5 ms
            burst(128, 6_000, 500),
            burst(-128, 10_000, 9_000),
            burst(128, 20_000, 2_000),
            Burst { missed: 2, ..burst(128, 0, 0) },
            burst(128, 29_500, 400), // may go on
        ];
        let busy = requests(&bursts, true, 1_000, 1_000, 30_000);
        assert_eq!(busy, Busy { latencies_ms: vec![1.5, 2.0], missed: 2 });
        let all = requests(&bursts, false, 1_000, 1_000, 30_000);
        assert_eq!(all.latencies_ms, [1.5, 9.0, 2.0]);
    }

    #[test]
    fn a_line_that_is_not_complete_is_read_later() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = Log::open(file.path()).unwrap();
        let line = "{\"pid\":1,\"priority\":0,\"device\":\"sim:0\",\"from_us\":7,\"us\":3,\"missed\":0}\n";
        file.write_all(format!("{line}{}", &line[..20]).as_bytes()).unwrap();
        assert_eq!(log.read().unwrap().len(), 1);
        assert!(log.read().unwrap().is_empty());
        file.write_all(&line.as_bytes()[20..]).unwrap();
        assert_eq!(log.read().unwrap()[0].from_us, 7);
    }
}
