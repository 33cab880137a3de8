//! A file of bursts: when each group wanted its device. For measurements that go by what the scheduler sees of a program.
//!
//! A line of JSON for each burst, as soon as the daemon learns of its end. A program that begins the next burst before the daemon
//! has looked loses the time, not the count: `missed`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use xsched_policy::GroupId;
use xsched_proto::segment::{GroupSlot, state};

use crate::Error;

/// Where bursts are written, and what is known of the groups.
pub(crate) struct Bursts {
    file: File,
    groups: HashMap<GroupId, Seen>,
}

/// A group as last seen.
#[derive(Clone, Copy)]
struct Seen {
    /// Bursts that were complete.
    complete: u64,
    /// When the burst after those began, on CLOCK_MONOTONIC, in ns; 0 = not known.
    began_ns: u64,
}

/// Whose bursts they are.
#[derive(Clone, Copy)]
pub(crate) struct Whose<'a> {
    pub(crate) pid: u32,
    /// The program's own priority.
    pub(crate) priority: i32,
    pub(crate) device: &'a str,
}

impl Bursts {
    /// Opens the file, empty.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Bursts, Error> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(path);
        let file = file.map_err(|e| Error::Input(format!("cannot write {}: {e}", path.display())))?;
        Ok(Bursts { file, groups: HashMap::new() })
    }

    /// Takes a group on: its bursts so far are not ours.
    pub(crate) fn add(&mut self, id: GroupId, words: &GroupSlot) {
        self.groups.insert(id, Seen { complete: words.bursts.load(Acquire), began_ns: 0 });
    }

    /// Forgets a group.
    pub(crate) fn remove(&mut self, id: GroupId) {
        self.groups.remove(&id);
    }

    /// Looks at a group, and writes what burst it has completed since the last look.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn look(&mut self, id: GroupId, words: &GroupSlot, whose: Whose<'_>) -> std::io::Result<()> {
        let Some(seen) = self.groups.get_mut(&id) else { return Ok(()) };
        let line = seen.look(words, whose);
        line.map_or(Ok(()), |line| self.file.write_all(line.as_bytes()))
    }
}

impl Seen {
    fn look(&mut self, words: &GroupSlot, whose: Whose<'_>) -> Option<String> {
        let complete = words.bursts.load(Acquire);
        let burst_us = words.burst_us.load(Relaxed);
        let is_ready = words.state.load(Acquire) == state::READY;
        let ready_at_ns = words.ready_at_ns.load(Relaxed);
        // A client that counts on meanwhile will wake the daemon again.
        let is_settled = words.bursts.load(Acquire) == complete;
        let ended = complete.wrapping_sub(self.complete);
        let known = match ended {
            1 if self.began_ns != 0 => self.began_ns,
            // Nothing has begun since: the time is still the burst's.
            _ if is_settled && !is_ready => ready_at_ns,
            _ => 0,
        };
        let began_ns = if is_ready && is_settled { ready_at_ns } else { 0 };
        let before = std::mem::replace(self, Seen { complete, began_ns });
        if ended == 0 {
            self.began_ns = if before.began_ns != 0 { before.began_ns } else { began_ns };
            return None;
        }
        let missed = if known == 0 { ended } else { ended - 1 };
        Some(format!(
            "{{\"pid\":{},\"priority\":{},\"device\":{:?},\"from_us\":{},\"us\":{},\"missed\":{missed}}}\n",
            whose.pid,
            whose.priority,
            whose.device,
            known / 1_000,
            if known == 0 { 0 } else { burst_us },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const WHOSE: Whose<'_> = Whose { pid: 7, priority: 128, device: "sim:0" };

    fn words() -> Box<GroupSlot> {
        // SAFETY: a slot is plain atomics, for which all-zero is a value, as in a fresh segment.
        unsafe { Box::new(std::mem::zeroed()) }
    }

    fn begin(words: &GroupSlot, at_us: u64) {
        words.ready_at_ns.store(at_us * 1_000, Relaxed);
        words.state.store(state::READY, Relaxed);
    }

    fn end(words: &GroupSlot, us: u64) {
        words.state.store(state::IDLE, Relaxed);
        words.burst_us.store(us, Relaxed);
        words.bursts.fetch_add(1, Relaxed);
    }

    fn line(from_us: u64, us: u64, missed: u64) -> Option<String> {
        let of = "\"pid\":7,\"priority\":128,\"device\":\"sim:0\"";
        Some(format!("{{{of},\"from_us\":{from_us},\"us\":{us},\"missed\":{missed}}}\n"))
    }

    #[test]
    fn a_burst_has_its_beginning_and_length_also_when_the_next_has_begun() {
        let (words, mut seen) = (words(), Seen { complete: 0, began_ns: 0 });
        begin(&words, 100);
        assert_eq!(seen.look(&words, WHOSE), None);
        assert_eq!(seen.look(&words, WHOSE), None);
        end(&words, 20);
        assert_eq!(seen.look(&words, WHOSE), line(100, 20, 0));
        begin(&words, 200);
        seen.look(&words, WHOSE);
        end(&words, 30);
        begin(&words, 300);
        assert_eq!(seen.look(&words, WHOSE), line(200, 30, 0));
        end(&words, 40);
        assert_eq!(seen.look(&words, WHOSE), line(300, 40, 0));
    }

    #[test]
    fn bursts_that_came_between_two_looks_are_counted() {
        let (words, mut seen) = (words(), Seen { complete: 0, began_ns: 0 });
        for at in [100, 200, 300] {
            begin(&words, at);
            end(&words, 10);
        }
        assert_eq!(seen.look(&words, WHOSE), line(300, 10, 2));
        begin(&words, 400);
        end(&words, 10);
        begin(&words, 500);
        assert_eq!(seen.look(&words, WHOSE), line(0, 0, 1));
    }
}
