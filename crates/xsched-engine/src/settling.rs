//! Work on the memory of devices: terms, grants and words are brought up to date, and questions for room are decided anew.
//!
//! A piece of work has a bound, whatever the number of programs and questions: a device is settled in one scan of its programs, and its
//! questions are decided by one scan for each piece, in order, until the piece is long enough. Departures and messages that come while a
//! device waits for its turn lead to one piece of work.

use std::collections::VecDeque;
use std::sync::Arc;

use core::cmp::Reverse;

use crate::memory::Memory;
use crate::parts::memory_work::Pass;
use crate::parts::wants::WantId;
use crate::program::Move;
use crate::state::Engine;
use crate::tuning::{AT_ONCE_STEPS, STEPS_OF_HOLDER, STEPS_OF_QUESTION};

impl<M: Memory> Engine<M> {
    /// Brings limits and reserves up to date with what programs hold, and with changes of the configuration and of priorities; decides anew
    /// on all questions that wait.
    pub(crate) fn look_at_memory(&mut self) {
        let devices: Vec<Arc<str>> = self.ledger.devices().cloned().collect();
        devices.iter().for_each(|device| self.memory_work.settle(device));
        let asked: Vec<Arc<str>> = self.wants.devices().cloned().collect();
        asked.iter().for_each(|device| self.memory_work.decide(device));
        self.begin_memory_work();
    }

    /// Decides anew on questions about the devices of a program: its memory has moved. Memory that moves may leave room in the host store,
    /// too, for which programs on other devices wait.
    pub(crate) fn decide_on_devices_of(&mut self, id: u64) {
        let devices: Vec<Arc<str>> = match self.settings.memory.host_limit {
            Some(_) => self.wants.devices().cloned().collect(),
            None => self.ledger.of(id).map(|(_, holder)| holder.device().clone()).collect(),
        };
        let asked = devices.iter().filter(|device| self.wants.count_on(device) > 0);
        asked.for_each(|device| self.memory_work.decide(device));
        self.begin_memory_work();
    }

    /// The driver of a device has told how much memory that has.
    pub(crate) fn note_size(&mut self, device: &str, bytes: Option<u64>) {
        if bytes.is_some_and(|bytes| self.ledger.note_size(device, bytes)) {
            self.memory_work.settle(&device.into());
            self.begin_memory_work();
        }
    }

    /// Memory of a program leaves in pieces from now on.
    pub(crate) fn memory_leaving(&mut self, id: u64, number: u32) {
        let moving = self.programs.get_mut(&id).and_then(|program| program.moving.as_mut());
        if let Some(moving) = moving.filter(|moving| moving.open.contains(&number)) {
            moving.has_begun = true;
            self.decide_on_devices_of(id);
        }
    }

    /// A program has left the device, or has not.
    pub(crate) fn end_leave(&mut self, id: u64, moving: &Move) {
        let now_ns = self.now_ns;
        let left: Vec<(Arc<str>, u64)> =
            self.ledger.of(id).map(|(_, holder)| (holder.device().clone(), holder.present_bytes())).collect();
        for (device, now) in left {
            self.wants.freed(&device, moving.held.saturating_sub(now));
        }
        if let Some(program) = self.programs.get_mut(&id) {
            program.idling.ended(moving.why.is_none());
            program.refused_ns = if moving.why.is_some() { Some(now_ns) } else { program.refused_ns };
        }
        self.decide_on_devices_of(id);
    }

    /// Returns true while work on the memory of devices is left, for [`crate::Input::MemoryWork`].
    pub fn has_memory_work(&self) -> bool {
        !self.memory_work.is_empty()
    }

    /// Longest piece of work on the memory of devices so far, in steps.
    pub fn longest_memory_piece(&self) -> usize {
        self.memory_work.longest()
    }

    /// Does work at once that is short, so that all that follows from an input follows with it. More is left to further pieces, as is all
    /// that comes while some is left.
    pub(crate) fn begin_memory_work(&mut self) {
        let is_short = |device: &Arc<str>| self.steps_on(device) <= AT_ONCE_STEPS;
        if !self.memory_work.is_left() && self.memory_work.next().is_some_and(|device| is_short(&device)) {
            self.continue_memory_work(AT_ONCE_STEPS);
        }
        self.memory_work.leave();
    }

    /// Work on a device in steps, by the number of its programs and questions.
    fn steps_on(&self, device: &str) -> usize {
        2 * self.ledger.len_on(device) * STEPS_OF_HOLDER + self.wants.count_on(device) * STEPS_OF_QUESTION
    }

    /// Does a piece of the work on the memory of devices: one device after the other, until so many steps are done.
    pub(crate) fn continue_memory_work(&mut self, steps: usize) {
        let mut done = 0;
        while done < steps
            && let Some(device) = self.memory_work.next()
        {
            done += self.work_on_device(&device, steps - done).max(1);
            self.memory_work.end_turn(&device);
        }
        self.memory_work.note_piece(done);
        self.memory_work.leave();
    }

    /// Does work on a device. Returns its steps.
    fn work_on_device(&mut self, device: &Arc<str>, steps: usize) -> usize {
        let mut done = 0;
        if self.memory_work.take_settle(device) {
            self.settle_memory(device);
            done += self.ledger.len_on(device) * STEPS_OF_HOLDER;
        }
        // The scan for questions is as long as that.
        if done > 0 && 2 * done >= steps {
            return done;
        }
        let under_way = self.memory_work.take_pass(device);
        let pass = under_way.or_else(|| self.memory_work.take_questions(device).then(|| self.new_pass(device)));
        if let Some(pass) = pass {
            let (left, more) = self.pass_questions(device, pass);
            if let Some(left) = left {
                self.memory_work.keep(device, left);
            }
            done += more;
        }
        done
    }

    /// Pass over the questions about a device: the most urgent ones first, then the oldest.
    fn new_pass(&self, device: &str) -> Pass {
        let priority = |id: u64| self.programs.get(&id).map(|program| program.priority());
        let mut left: Vec<(WantId, Reverse<Option<i32>>)> =
            self.wants.on(device).map(|(question, id)| (question, Reverse(priority(id)))).collect();
        left.sort_by_key(|(_, priority)| *priority);
        let left: VecDeque<WantId> = left.into_iter().map(|(question, _)| question).collect();
        Pass { left, has_waiting: false }
    }
}
