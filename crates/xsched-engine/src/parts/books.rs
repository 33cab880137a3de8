//! Books: the ledger's accounts that are open, one for each program on each device, by user. A book stays open until the time in it is
//! recorded, also when its program has left.

use std::collections::HashMap;
use std::sync::Arc;

use xsched_policy::ProgramId;

use crate::user::User;

/// The books that are open.
#[derive(Debug, Default)]
pub struct Books {
    open: HashMap<(ProgramId, Arc<str>), User>,
    of_user: HashMap<User, OfUser>,
    /// Number of books by device.
    devices: HashMap<Arc<str>, usize>,
}

/// The books of one user.
#[derive(Debug, Default)]
struct OfUser {
    books: usize,
    /// Number of books by device.
    devices: HashMap<Arc<str>, usize>,
}

impl Books {
    /// Opens the book of a program of a user on a device.
    pub(crate) fn open(&mut self, program: ProgramId, device: &Arc<str>, user: User) {
        if self.open.insert((program, device.clone()), user).is_none() {
            let theirs = self.of_user.entry(user).or_default();
            theirs.books += 1;
            *theirs.devices.entry(device.clone()).or_default() += 1;
            *self.devices.entry(device.clone()).or_default() += 1;
        }
    }

    /// Closes a book.
    pub(crate) fn close(&mut self, program: ProgramId, device: &str) {
        let Some(((_, device), user)) = self.open.remove_entry(&(program, Arc::from(device))) else { return };
        one_less(&mut self.devices, &device);
        let Some(theirs) = self.of_user.get_mut(&user) else { return };
        theirs.books -= 1;
        one_less(&mut theirs.devices, &device);
        if theirs.books == 0 {
            self.of_user.remove(&user);
        }
    }

    /// Number of books that a user has, and of devices other than this one that they are of.
    pub fn of(&self, user: User, device: &str) -> (usize, usize) {
        let Some(theirs) = self.of_user.get(&user) else { return (0, 0) };
        (theirs.books, theirs.devices.len() - usize::from(theirs.devices.contains_key(device)))
    }

    /// Number of books of all users.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Number of devices that books are of; none = this one is among them.
    pub(crate) fn devices_beside(&self, device: &str) -> Option<usize> {
        (!self.devices.contains_key(device)).then_some(self.devices.len())
    }

    /// All books that are open.
    pub fn keys(&self) -> impl Iterator<Item = &(ProgramId, Arc<str>)> {
        self.open.keys()
    }
}

fn one_less(counts: &mut HashMap<Arc<str>, usize>, device: &str) {
    if let Some(count) = counts.get_mut(device) {
        *count -= 1;
        if *count == 0 {
            counts.remove(device);
        }
    }
}
