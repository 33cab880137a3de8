//! Giver of a ticket: the user and the process that serve its socket, as the opener can check them.
//!
//! The socket has an abstract name, which any user may take once the giver has ended. The kernel tells the opener the user and the process
//! that listen there (`SO_PEERCRED`), as numbers of the opener's own namespaces. The ticket has them as numbers of the giver's. So it names
//! these namespaces, too:
//!
//! - **User.** In one user namespace the two numbers must be equal. In another one the giver's number means nothing, and what listens must be
//!   of the opener's own user. The overflow number stands for many users, and is refused.
//! - **Process.** In one pid namespace the two numbers must be equal. Below the opener's namespace, the number is that of `NSpid` in
//!   `/proc`. A process that the opener cannot see has the number 0; then the user alone is compared, and other processes of that user
//!   may pass: they could as well trace the giver, or the opener.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use xsched_proto::trust;

/// User and process that gave a ticket out.
#[derive(Clone, Copy)]
pub(super) struct Giver {
    pub(super) uid: u32,
    pub(super) pid: u32,
    /// User namespace of `uid`; 0 = unknown.
    pub(super) users: u32,
    /// Pid namespace of `pid`; 0 = unknown.
    pub(super) pids: u32,
}

impl Giver {
    /// Describes this process.
    pub(super) fn here() -> Giver {
        let uid = rustix::process::geteuid().as_raw();
        Giver { uid, pid: std::process::id(), users: own_namespace("user"), pids: own_namespace("pid") }
    }

    /// Reports whether this process is the giver: a forked child is not.
    pub(super) fn is_this_process(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Two words of a ticket.
    pub(super) fn words(&self) -> [u64; 2] {
        let joined = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [joined(self.uid, self.pid), joined(self.users, self.pids)]
    }

    /// Reads two words of a ticket.
    pub(super) fn of([who, place]: [u64; 2]) -> Giver {
        let [low, high] = [|word: u64| word as u32, |word: u64| (word >> 32) as u32];
        Giver { uid: low(who), pid: high(who), users: low(place), pids: high(place) }
    }

    /// Reports whether the process that listens at the other end of a socket may be the giver.
    pub(super) fn listens_at(&self, socket: &OwnedFd) -> bool {
        trust::peer(socket.as_fd()).is_some_and(|(pid, uid)| self.is_of_user(uid) && self.is_process(pid))
    }

    /// Compares the giver's user with one that the kernel shows here.
    fn is_of_user(&self, uid: u32) -> bool {
        if self.users != 0 && self.users == own_namespace("user") {
            uid == self.uid && trust::is_one_user(uid)
        } else {
            trust::is_own_user(uid)
        }
    }

    /// Compares the giver's process with one that the kernel shows here; 0 = none is seen.
    fn is_process(&self, pid: u32) -> bool {
        if pid == 0 {
            true
        } else if self.pids != 0 && self.pids == own_namespace("pid") {
            pid == self.pid
        } else {
            innermost_number(pid).is_none_or(|number| number == self.pid)
        }
    }
}

/// Number of the namespace of a kind that this process is in; 0 = unknown. The kernel's numbers of namespaces have 32 bits.
fn own_namespace(kind: &str) -> u32 {
    std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |meta| meta.ino() as u32)
}

/// Number of a process in the innermost pid namespace that it is in. `None`: unknown, also where `/proc` is that of another pid namespace,
/// in which the number means another process.
fn innermost_number(pid: u32) -> Option<u32> {
    let shown: u32 = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
    if shown != std::process::id() {
        return None;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_giver_is_as_the_ticket_names_it() {
        let here = Giver::here();
        let read = Giver::of(here.words());
        assert_eq!((read.uid, read.pid, read.users, read.pids), (here.uid, here.pid, here.users, here.pids));
        assert!(here.users != 0 && here.pids != 0 && read.is_this_process());
    }

    #[test]
    fn a_process_is_compared_as_far_as_it_is_seen() {
        let here = Giver::here();
        let own = std::process::id();
        assert!(here.is_process(own) && !here.is_process(own + 1));
        assert!(here.is_process(0), "it cannot be seen from here");
        let below = Giver { pids: 1, ..here };
        assert_eq!(innermost_number(own), Some(own));
        assert!(below.is_process(own) && !Giver { pid: own + 1, ..below }.is_process(own));
    }

    #[test]
    fn a_user_is_compared_in_one_namespace_and_must_be_ones_own_in_another() {
        let here = Giver::here();
        let other = Giver { uid: here.uid + 1, ..here };
        assert!(here.is_of_user(here.uid) && !here.is_of_user(here.uid + 1));
        assert!(other.is_of_user(here.uid + 1) && !other.is_of_user(here.uid));
        let elsewhere = Giver { users: 1, ..other };
        assert!(elsewhere.is_of_user(here.uid) && !elsewhere.is_of_user(here.uid + 1));
    }
}
