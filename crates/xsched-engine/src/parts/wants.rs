//! Questions of programs for room on a device, which wait until others have given theirs.

use std::sync::Arc;

/// Question for room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Want {
    /// Slot of the device.
    pub(crate) slot: u16,
    /// Number of the question.
    pub(crate) number: u32,
    /// Bytes of room.
    pub(crate) bytes: u64,
    /// Room that the driver lacked, in bytes; 0 = it was not asked.
    pub(crate) lacking: u64,
    /// Memory that has left is to come back.
    pub(crate) returns: bool,
    /// The memory is a part for which nobody leaves and the program does not wait.
    pub(crate) part: bool,
    /// Time at which it began to wait, in ns.
    pub(crate) since_ns: u64,
    /// Bytes that others have given since.
    pub(crate) freed: u64,
    /// The program was told that it waits.
    pub(crate) told: bool,
}

/// Room that a program was promised and has yet to take.
#[derive(Debug)]
struct Promise {
    id: u64,
    device: Arc<str>,
    until_ns: u64,
}

/// Questions that wait, and promises.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    waiting: Vec<(u64, Arc<str>, Want)>,
    promises: Vec<Promise>,
}

impl Wants {
    /// Returns true if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a question of a program about a device.
    pub(crate) fn add(&mut self, id: u64, device: Arc<str>, want: Want) {
        self.waiting.push((id, device, want));
    }

    /// All questions, the oldest first.
    pub(crate) fn all(&self) -> Vec<(u64, Arc<str>, Want)> {
        self.waiting.clone()
    }

    /// Number of questions of a program.
    pub(crate) fn count_of(&self, id: u64) -> usize {
        self.waiting.iter().filter(|(other, ..)| *other == id).count()
    }

    /// Notes that a program is told of its wait. False: it was before.
    pub(crate) fn note_told(&mut self, id: u64, number: u32) -> bool {
        let waiting = self.waiting.iter_mut().find(|(other, _, want)| (*other, want.number) == (id, number));
        waiting.is_some_and(|(.., want)| !std::mem::replace(&mut want.told, true))
    }

    /// Removes a question.
    pub(crate) fn remove(&mut self, id: u64, number: u32) {
        self.waiting.retain(|(other, _, want)| (*other, want.number) != (id, number));
    }

    /// Removes the questions of a program. True: there were some.
    pub(crate) fn remove_of(&mut self, id: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(other, ..)| *other != id);
        self.waiting.len() < before
    }

    /// Promises a program the room that was made for it.
    pub(crate) fn promise(&mut self, id: u64, device: Arc<str>, until_ns: u64) {
        self.promises.push(Promise { id, device, until_ns });
    }

    /// Returns true if room of a device is, or will be, another program's.
    pub(crate) fn is_promised(&self, id: u64, device: &str, now_ns: u64) -> bool {
        let is_promised =
            |promise: &Promise| promise.id != id && *promise.device == *device && promise.until_ns > now_ns;
        let is_wanted = |(other, on, want): &(u64, Arc<str>, Want)| *other != id && **on == *device && want.lacking > 0;
        self.promises.iter().any(is_promised) || self.waiting.iter().any(is_wanted)
    }

    /// Drops promises that are too old, and those of a program.
    pub(crate) fn drop_promises(&mut self, id: u64, now_ns: u64) {
        self.promises.retain(|promise| promise.id != id && promise.until_ns > now_ns);
    }

    /// Notes that a program has given memory of a device.
    pub(crate) fn freed(&mut self, device: &str, bytes: u64) {
        for (_, _, want) in self.waiting.iter_mut().filter(|(_, other, _)| **other == *device) {
            want.freed = want.freed.saturating_add(bytes);
        }
    }
}
