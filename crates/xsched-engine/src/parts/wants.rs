//! Questions of programs for room on a device, which wait until others have given theirs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::user::User;

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

/// Number of a question that waits, in the order in which they came.
pub(crate) type WantId = u64;

/// Question that waits.
#[derive(Debug)]
struct Waiting {
    program: u64,
    user: User,
    device: Arc<str>,
    want: Want,
    /// Sum of the memory that had been given on the device when it began to wait, in bytes.
    given_before: u64,
}

/// Questions about one device.
#[derive(Debug, Default)]
struct OnDevice {
    waiting: BTreeSet<WantId>,
    /// Number of those for which the driver lacked room, by program.
    lacking: BTreeMap<u64, usize>,
    /// Memory that programs have given while questions waited, in bytes.
    given: u64,
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
    waiting: BTreeMap<WantId, Waiting>,
    programs: HashMap<u64, BTreeSet<WantId>>,
    devices: BTreeMap<Arc<str>, OnDevice>,
    users: HashMap<User, usize>,
    last: WantId,
    promises: Vec<Promise>,
}

impl Wants {
    /// Number of questions that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a question of a program about a device.
    pub(crate) fn add(&mut self, program: u64, user: User, device: Arc<str>, want: Want) {
        self.last += 1;
        let id = self.last;
        let on = self.devices.entry(device.clone()).or_default();
        on.waiting.insert(id);
        if want.lacking > 0 {
            *on.lacking.entry(program).or_default() += 1;
        }
        let given_before = on.given;
        self.programs.entry(program).or_default().insert(id);
        *self.users.entry(user).or_default() += 1;
        self.waiting.insert(id, Waiting { program, user, device, want, given_before });
    }

    /// Devices about which questions wait.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Arc<str>> {
        self.devices.keys()
    }

    /// Questions about a device, the oldest first: their numbers and programs.
    pub(crate) fn on(&self, device: &str) -> impl Iterator<Item = (WantId, u64)> {
        let ids = self.devices.get(device).into_iter().flat_map(|on| &on.waiting);
        ids.filter_map(|id| Some((*id, self.waiting.get(id)?.program)))
    }

    /// Number of questions about a device.
    pub(crate) fn count_on(&self, device: &str) -> usize {
        self.devices.get(device).map_or(0, |on| on.waiting.len())
    }

    /// A question that waits still, and its program.
    pub(crate) fn get(&self, id: WantId) -> Option<(u64, Want)> {
        let waiting = self.waiting.get(&id)?;
        let given = self.devices.get(&waiting.device).map_or(0, |on| on.given);
        Some((waiting.program, Want { freed: given.saturating_sub(waiting.given_before), ..waiting.want.clone() }))
    }

    /// Number of questions of a program.
    pub(crate) fn count_of(&self, program: u64) -> usize {
        self.programs.get(&program).map_or(0, BTreeSet::len)
    }

    /// Number of questions of a user's programs.
    pub(crate) fn count_of_user(&self, user: User) -> usize {
        self.users.get(&user).copied().unwrap_or(0)
    }

    /// Notes that a program is told of its wait. False: it was before.
    pub(crate) fn note_told(&mut self, id: WantId) -> bool {
        self.waiting.get_mut(&id).is_some_and(|waiting| !std::mem::replace(&mut waiting.want.told, true))
    }

    /// Removes a question.
    pub(crate) fn remove(&mut self, id: WantId) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        let program = waiting.program;
        if let Some(ids) = self.programs.get_mut(&program) {
            ids.remove(&id);
            if ids.is_empty() {
                self.programs.remove(&program);
            }
        }
        if let Some(on) = self.devices.get_mut(&waiting.device) {
            on.waiting.remove(&id);
            if waiting.want.lacking > 0 {
                count_down(&mut on.lacking, program);
            }
            if on.waiting.is_empty() {
                self.devices.remove(&waiting.device);
            }
        }
        if let Some(of_user) = self.users.get_mut(&waiting.user) {
            *of_user -= 1;
            if *of_user == 0 {
                self.users.remove(&waiting.user);
            }
        }
    }

    /// Removes the questions of a program. True: there were some.
    pub(crate) fn remove_of(&mut self, program: u64) -> bool {
        let ids = self.programs.get(&program).cloned().unwrap_or_default();
        ids.iter().for_each(|id| self.remove(*id));
        !ids.is_empty()
    }

    /// Promises a program the room that was made for it.
    pub(crate) fn promise(&mut self, id: u64, device: Arc<str>, until_ns: u64) {
        self.promises.push(Promise { id, device, until_ns });
    }

    /// Returns true if room of a device is, or will be, another program's.
    pub(crate) fn is_promised(&self, id: u64, device: &str, now_ns: u64) -> bool {
        let is_promised =
            |promise: &Promise| promise.id != id && *promise.device == *device && promise.until_ns > now_ns;
        let lacking = self.devices.get(device).map(|on| &on.lacking);
        let is_wanted = lacking.is_some_and(|lacking| lacking.keys().take(2).any(|other| *other != id));
        is_wanted || self.promises.iter().any(is_promised)
    }

    /// Drops promises that are too old, and those of a program.
    pub(crate) fn drop_promises(&mut self, id: u64, now_ns: u64) {
        self.promises.retain(|promise| promise.id != id && promise.until_ns > now_ns);
    }

    /// Notes that a program has given memory of a device.
    pub(crate) fn freed(&mut self, device: &str, bytes: u64) {
        if let Some(on) = self.devices.get_mut(device) {
            on.given = on.given.saturating_add(bytes);
        }
    }
}

/// Counts one of a program's questions less.
fn count_down(counts: &mut BTreeMap<u64, usize>, program: u64) {
    if let Some(count) = counts.get_mut(&program) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&program);
        }
    }
}
