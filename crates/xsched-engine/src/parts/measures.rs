//! Questions of programs for what they hold by a driver's newest figure.

use std::sync::Arc;

use crate::tuning::WANTS_MAX;

/// Question of a program.
#[derive(Debug)]
struct Question {
    id: u64,
    slot: u16,
    number: u32,
    device: Arc<str>,
    since_ns: u64,
}

/// Questions that wait for a driver.
#[derive(Debug, Default)]
pub(crate) struct Measures {
    waiting: Vec<Question>,
}

impl Measures {
    /// Adds a question that came at this time. Returns false if too many of the program wait.
    pub(crate) fn add(&mut self, (id, slot): (u64, u16), number: u32, device: Arc<str>, since_ns: u64) -> bool {
        let has_room = self.waiting.iter().filter(|question| question.id == id).count() < WANTS_MAX;
        if has_room {
            self.waiting.push(Question { id, slot, number, device, since_ns });
        }
        has_room
    }

    /// Removes the questions about a device that a figure of this time answers. Returns program, slot and number of each.
    pub(crate) fn answered(&mut self, device: &str, at_ns: u64) -> Vec<(u64, u16, u32)> {
        let is_answered = |question: &mut Question| *question.device == *device && question.since_ns <= at_ns;
        let answered = self.waiting.extract_if(.., is_answered);
        answered.map(|question| (question.id, question.slot, question.number)).collect()
    }

    /// Removes the questions of a program.
    pub(crate) fn remove_of(&mut self, id: u64) {
        self.waiting.retain(|question| question.id != id);
    }
}
