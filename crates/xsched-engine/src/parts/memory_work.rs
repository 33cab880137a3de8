//! Work on the memory of devices that is not done yet, device by device.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::wants::WantId;

/// Work on the memory of one device.
#[derive(Debug, Default)]
struct DeviceWork {
    /// Terms, grants and words of its programs are to be brought up to date.
    settle: bool,
    /// Questions for room are to be decided anew.
    questions: bool,
    /// Pass over the questions that is under way.
    pass: Option<Pass>,
}

/// Pass over the questions about a device: each is decided once, in order.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Questions that are still to be decided, the next one first.
    pub(crate) left: VecDeque<WantId>,
    /// True once a question was decided that goes on waiting: memory that comes back does not overtake it.
    pub(crate) has_waiting: bool,
}

/// Work on the memory of devices.
#[derive(Debug, Default)]
pub(crate) struct MemoryWork {
    devices: BTreeMap<Arc<str>, DeviceWork>,
    /// Devices in the order in which they are worked on.
    order: VecDeque<Arc<str>>,
    /// True while work was left to further pieces.
    is_left: bool,
    /// Longest piece so far, in steps.
    longest: usize,
}

impl MemoryWork {
    /// Returns true if there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Notes the steps of a piece.
    pub(crate) fn note_piece(&mut self, steps: usize) {
        self.longest = self.longest.max(steps);
    }

    /// Longest piece so far, in steps.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns true while work was left to further pieces.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Leaves to further pieces whatever is not done.
    pub(crate) fn leave(&mut self) {
        self.is_left = !self.is_empty();
    }

    fn of(&mut self, device: &Arc<str>) -> &mut DeviceWork {
        if !self.devices.contains_key(device) {
            self.order.push_back(device.clone());
        }
        self.devices.entry(device.clone()).or_default()
    }

    /// Terms, grants and words of a device are to be brought up to date.
    pub(crate) fn settle(&mut self, device: &Arc<str>) {
        self.of(device).settle = true;
    }

    /// Questions about a device are to be decided anew. A pass that is under way goes on, and another one follows.
    pub(crate) fn decide(&mut self, device: &Arc<str>) {
        self.of(device).questions = true;
    }

    /// Device whose turn it is.
    pub(crate) fn next(&self) -> Option<Arc<str>> {
        self.order.front().cloned()
    }

    /// Returns true, once, if terms, grants and words of a device are to be brought up to date.
    pub(crate) fn take_settle(&mut self, device: &str) -> bool {
        self.devices.get_mut(device).is_some_and(|work| std::mem::take(&mut work.settle))
    }

    /// Takes the pass that is under way, to go on with it.
    pub(crate) fn take_pass(&mut self, device: &str) -> Option<Pass> {
        self.devices.get_mut(device)?.pass.take()
    }

    /// Returns true, once, if another pass is to begin.
    pub(crate) fn take_questions(&mut self, device: &str) -> bool {
        self.devices.get_mut(device).is_some_and(|work| std::mem::take(&mut work.questions))
    }

    /// A pass could not be ended in this piece.
    pub(crate) fn keep(&mut self, device: &Arc<str>, pass: Pass) {
        self.of(device).pass = Some(pass);
    }

    /// Ends the turn of a device: others are next. Work that is left of it has its turn after them.
    pub(crate) fn end_turn(&mut self, device: &Arc<str>) {
        if self.order.front() == Some(device) {
            self.order.pop_front();
        }
        match self.devices.get(device) {
            Some(work) if work.settle || work.questions || work.pass.is_some() => self.order.push_back(device.clone()),
            _ => _ = self.devices.remove(device),
        }
    }

    /// Number of devices with work.
    pub(crate) fn len(&self) -> usize {
        self.devices.len()
    }
}
