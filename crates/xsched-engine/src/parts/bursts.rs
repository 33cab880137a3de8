//! Bursts: the times in which groups wanted their devices, for measurements that go by what the scheduler sees of a program.
//!
//! A line of JSON for each burst, as soon as the daemon learns of its end. A program that begins the next burst before the daemon
//! reads its words loses the time, not the count: `missed`.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use xsched_policy::GroupId;
use xsched_proto::segment::{GroupSlot, state};

/// Bursts of all groups, as last read.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    groups: HashMap<GroupId, Read>,
}

/// A group as last read.
#[derive(Clone, Copy, Debug)]
struct Read {
    /// Bursts that were complete.
    complete: u64,
    /// The begin of the burst after those, on CLOCK_MONOTONIC, in ns; 0 = unknown.
    began_ns: u64,
}

/// The owner of bursts, as a line tells it.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) pid: u32,
    /// The program's own priority.
    pub(crate) priority: i32,
    pub(crate) device: &'a str,
}

impl Bursts {
    /// Adds a group. Its bursts so far are not told.
    pub(crate) fn add(&mut self, id: GroupId, words: &GroupSlot) {
        self.groups.insert(id, Read { complete: words.bursts.load(Acquire), began_ns: 0 });
    }

    /// Removes a group.
    pub(crate) fn remove(&mut self, id: GroupId) {
        self.groups.remove(&id);
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Reads a group's words. Returns the line of a burst that is complete.
    pub(crate) fn read(&mut self, id: GroupId, words: &GroupSlot, owner: Owner<'_>) -> Option<String> {
        self.groups.get_mut(&id)?.read(words, owner)
    }
}

impl Read {
    fn read(&mut self, words: &GroupSlot, owner: Owner<'_>) -> Option<String> {
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
        let before = std::mem::replace(self, Read { complete, began_ns });
        if ended == 0 {
            self.began_ns = if before.began_ns != 0 { before.began_ns } else { began_ns };
            return None;
        }
        let missed = if known == 0 { ended } else { ended - 1 };
        Some(format!(
            "{{\"pid\":{},\"priority\":{},\"device\":{:?},\"from_us\":{},\"us\":{},\"missed\":{missed}}}\n",
            owner.pid,
            owner.priority,
            owner.device,
            known / 1_000,
            if known == 0 { 0 } else { burst_us },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const OWNER: Owner<'_> = Owner { pid: 7, priority: 128, device: "sim:0" };

    fn words() -> Box<GroupSlot> {
        Box::default()
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
        let (words, mut read) = (words(), Read { complete: 0, began_ns: 0 });
        begin(&words, 100);
        assert_eq!(read.read(&words, OWNER), None);
        assert_eq!(read.read(&words, OWNER), None);
        end(&words, 20);
        assert_eq!(read.read(&words, OWNER), line(100, 20, 0));
        begin(&words, 200);
        read.read(&words, OWNER);
        end(&words, 30);
        begin(&words, 300);
        assert_eq!(read.read(&words, OWNER), line(200, 30, 0));
        end(&words, 40);
        assert_eq!(read.read(&words, OWNER), line(300, 40, 0));
    }

    #[test]
    fn bursts_that_came_between_two_looks_are_counted() {
        let (words, mut read) = (words(), Read { complete: 0, began_ns: 0 });
        for at in [100, 200, 300] {
            begin(&words, at);
            end(&words, 10);
        }
        assert_eq!(read.read(&words, OWNER), line(300, 10, 2));
        begin(&words, 400);
        end(&words, 10);
        begin(&words, 500);
        assert_eq!(read.read(&words, OWNER), line(0, 0, 1));
    }
}
