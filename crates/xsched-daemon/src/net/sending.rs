//! Sending of messages without waiting. Messages that the other side does not read yet are kept, up to limits.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use xsched_proto::wire::{self, DaemonMsg};

use super::conn::Stage;
use super::{Net, socket};
use crate::Error;
use crate::tuning::{
    CLIENT_OUT_MAX_BYTES, COMMAND_OUT_MAX_BYTES, KEPT_BYTES, OUT_MAX_BYTES, UNREAD_NS, USER_OUT_MAX_BYTES, of_user,
};

/// Fault of a connection that reads nothing.
pub(crate) const UNREAD: &str = "it does not read its messages";

impl Net {
    /// Sends a message, or keeps it until the connection can take it.
    pub(crate) fn send(&mut self, id: u64, message: &DaemonMsg, fds: &[BorrowedFd<'_>]) {
        let Some(conn) = self.conns.get(&id).filter(|conn| !conn.gone) else { return };
        let packet = match wire::encode(message) {
            Ok(packet) => packet,
            Err(e) => return self.lines.push((Some(conn.user), e.to_string())),
        };
        if conn.out.is_empty() {
            match socket::send(&conn.socket, &packet, fds) {
                Ok(()) => return,
                Err(Errno::AGAIN) => (),
                Err(why) => {
                    self.conns.entry(id).and_modify(|conn| conn.gone |= is_hang_up(why));
                    return self.doom(id, None);
                }
            }
        }
        let most = if conn.stage == Stage::Program { CLIENT_OUT_MAX_BYTES } else { COMMAND_OUT_MAX_BYTES };
        let (user, bytes) = (conn.user, packet.len() + KEPT_BYTES);
        let kept = conn.out_bytes + bytes;
        let of_user_now: usize = self.conns.values().filter(|c| c.user == user).map(|c| c.out_bytes).sum();
        // Descriptors are not kept: they go with the first message, for which there is room.
        let of_all = || self.conns.values().filter(|c| !c.user.is_own()).map(|c| c.out_bytes).sum::<usize>();
        let too_much = kept > most
            || of_user_now + bytes > of_user(USER_OUT_MAX_BYTES, user.is_own())
            || !user.is_own() && of_all() + bytes > OUT_MAX_BYTES;
        if too_much || !fds.is_empty() {
            return self.doom(id, Some(Error::input(UNREAD)));
        }
        let now_ns = self.now_ns;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.out_bytes = kept;
        if conn.out.is_empty() {
            conn.unread_since_ns = now_ns;
            self.unread_at.get_or_insert(now_ns + UNREAD_NS);
        }
        conn.out.push_back(packet);
        self.watch_socket(id);
    }

    /// Sends a refusal.
    pub(crate) fn refuse(&mut self, id: u64, why: Error) {
        self.send(id, &DaemonMsg::Refused(why), &[]);
    }

    /// Sends a refusal for want of room, with the time at which the program is to ask again.
    pub(crate) fn refuse_for_now(&mut self, id: u64, why: Error) {
        if let Some(uid) = self.conns.get(&id).map(|conn| conn.user.uid) {
            let message = self.ask_again(uid);
            self.send(id, &message, &[]);
        }
        self.refuse(id, why);
    }

    /// Message with the time at which a program of this user, refused now, is to ask again.
    pub(super) fn ask_again(&mut self, uid: u32) -> DaemonMsg {
        let after_ns = self.rations.appointments.next(self.now_ns, uid);
        DaemonMsg::AskAgain { after_ms: u32::try_from(after_ns.div_ceil(1_000_000)).unwrap_or(u32::MAX) }
    }

    /// Sends messages that are kept for a connection, as many as the other side takes.
    pub(crate) fn flush(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.gone && !conn.out.is_empty()) else { return };
        while let Some(packet) = conn.out.front() {
            match socket::send(&conn.socket, packet, &[]) {
                Ok(()) => {
                    conn.unread_since_ns = now_ns;
                    conn.out_bytes -= packet.len() + KEPT_BYTES;
                    conn.out.pop_front();
                }
                Err(Errno::AGAIN) => return,
                Err(why) => {
                    conn.gone |= is_hang_up(why);
                    return self.doom(id, None);
                }
            }
        }
        // The memory of the queue is released, too.
        conn.out = VecDeque::new();
        self.watch_socket(id);
    }

    /// Ends a connection that has kept messages and has read none for some time.
    pub(crate) fn end_unread(&mut self) {
        let since = self.conns.iter().filter(|(_, c)| !c.out.is_empty()).map(|(id, c)| (c.unread_since_ns, *id));
        let mut since: Vec<(u64, u64)> = since.collect();
        since.sort_unstable();
        // The end of a program is a piece of work, with its groups: other work comes in between.
        let over = since.first().copied().filter(|(since, _)| since + UNREAD_NS <= self.now_ns);
        self.unread_at = since.get(usize::from(over.is_some())).map(|(since, _)| since + UNREAD_NS);
        self.doomed.extend(over.map(|(_, id)| (id, Some(Error::input(UNREAD)))));
    }
}

/// Reports whether a message cannot be sent because the other side has gone.
fn is_hang_up(why: Errno) -> bool {
    matches!(why, Errno::PIPE | Errno::CONNRESET)
}
