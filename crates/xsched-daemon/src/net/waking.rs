//! Wake-ups of the daemon by programs' eventfds.

use std::os::fd::AsFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::{Net, Token};

impl Net {
    /// Notes that a program has woken the daemon.
    pub(crate) fn note_wake(&mut self, id: u64) {
        let Some(user) = self.conns.get(&id).map(|conn| conn.user) else { return };
        self.rations.wakes.push(user, id);
        if !self.rations.wakes.has_time(user, self.now_ns) {
            self.mute(id, true);
        }
    }

    /// Keeps writes of a program from waking the loop while its user has no time left: the program waits for its turn already.
    pub(crate) fn mute(&mut self, id: u64, on: bool) {
        let Some(wake) = self.conns.get_mut(&id).and_then(|conn| conn.wake.as_mut()) else { return };
        if wake.is_muted == on {
            return;
        }
        // Clears the count of past writes, which would otherwise be reported again when the program is no longer muted. The read does not
        // wait: where the kernel cannot read without waiting (before Linux 5.8), nothing is muted.
        let (mut count, nowhere) = ([0; 8], u64::MAX);
        let taken = rustix::io::preadv2(
            &wake.eventfd,
            &mut [std::io::IoSliceMut::new(&mut count)],
            nowhere,
            rustix::io::ReadWriteFlags::NOWAIT,
        );
        if on && taken.is_err_and(|e| e != Errno::AGAIN) {
            return;
        }
        wake.is_muted = on;
        let flags = if on { EventFlags::ET } else { EventFlags::IN | EventFlags::ET };
        let Some(wake) = self.conns.get(&id).and_then(|conn| conn.wake.as_ref()) else { return };
        if self.rewatch(wake.eventfd.as_fd(), Token::Wake(id), flags).is_err() {
            self.doom(id, None);
        }
    }
}
