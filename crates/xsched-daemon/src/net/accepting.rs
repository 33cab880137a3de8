//! Accepting of connections, within limits by user.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use xsched_engine::has_place;
use xsched_proto::trust;
use xsched_proto::wire::{self, DaemonMsg};

use super::conn::{Conn, Stage};
use super::rendezvous::News;
use super::{Net, Own, Token, descriptors, socket};
use crate::Error;
use crate::identity::{self, User};
use crate::tuning::{ACCEPTED_MAX, COMMANDS_ROOM, ROOT_PART, SILENT_NS, SOCKET_MAX_BYTES};

/// Number of connections that a user may have, by user id; `true` = root or the daemon's own user.
pub(crate) type Limits<'a> = &'a dyn Fn(u32, bool) -> usize;

impl Net {
    /// Accepts waiting connections, but no more than [`ACCEPTED_MAX`].
    pub(crate) fn accept(&mut self, limits: Limits<'_>) {
        for _ in 0..ACCEPTED_MAX {
            if self.reaper.is_full() {
                return self.listen(false);
            }
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) => {
                    // No descriptor is left: the spare one serves to accept and close one connection. Otherwise the listener would stay
                    // readable and the loop would spin.
                    self.spare = None;
                    if let Ok(socket) = self.listener.accept() {
                        self.reaper.close_socket(socket);
                    }
                    self.spare = descriptors::spare();
                    return;
                }
                Err(_) => return,
            };
            let Some((pid, uid)) = trust::peer(socket.as_fd()) else {
                self.reaper.close_socket(socket);
                continue;
            };
            let user = User::unknown(uid);
            if let Some(why) = self.too_many_connections(pid, user, limits) {
                self.lines.push((Some(user), format!("turned process {pid} of user {user} away: {why}")));
                let refusal = Error::environment(format!("{why}: see xsched ps"));
                // A new socket has room.
                for message in [self.ask_again(uid), DaemonMsg::Refused(refusal)] {
                    if let Ok(packet) = wire::encode(&message) {
                        let _ = socket::send(&socket, &packet, &[]);
                    }
                }
                self.reaper.close_socket(socket);
                continue;
            }
            self.take_in(socket, pid, user);
        }
    }

    fn take_in(&mut self, socket: OwnedFd, pid: u32, user: User) {
        socket::bound_unread(&socket, SOCKET_MAX_BYTES);
        let id = self.next_id();
        let flags = EventFlags::IN | EventFlags::RDHUP;
        if self.watch(&socket, Token::Socket(id), flags).is_err() {
            return self.reaper.close_socket(socket);
        }
        let since_ns = self.now_ns;
        let conn = Conn {
            socket,
            pid,
            user,
            since_ns,
            stage: Stage::Silent,
            wake: None,
            out: VecDeque::new(),
            out_bytes: 0,
            unread_since_ns: 0,
            gone: false,
            unheard: false,
            is_put_off: false,
            flags,
        };
        self.conns.insert(id, conn);
        self.silent_at.get_or_insert(since_ns + SILENT_NS);
    }

    /// Reason for which a user may not have a further connection.
    pub(crate) fn too_many_connections(&self, pid: u32, user: User, limits: Limits<'_>) -> Option<&'static str> {
        // Root gets a connection whatever the others do. Identifying the user of a connection reads files of its process, so it is done for
        // the last places only.
        let few = self.max_conns - self.max_conns / ROOT_PART;
        let is_root = self.conns.len() >= few && user.uid == 0 && identity::user_of(pid, 0).is_root();
        let for_all = if is_root { self.max_conns } else { few };
        if self.conns.len() >= for_all {
            return Some("all connections are taken");
        }
        let of_user = self.conns.values().filter(|c| c.user.uid == user.uid).count();
        // Programs are refused at their first message, commands are not.
        let most = |own| {
            let of_one = if own { for_all } else { self.most_of_one(own) };
            limits(user.uid, own).min(of_one).saturating_add(COMMANDS_ROOM)
        };
        // The number may be a container's root's. That is read once as many have it as another user may have.
        let own = identity::has_own_uid(user) && (of_user < most(false) || identity::user_of(pid, user.uid).is_own());
        if of_user >= most(own) {
            return Some("its user has as many connections as a user may have");
        }
        // The last quarter is for users with few, as of other tables: some users with all that each may have lock nobody out.
        let is_much = !has_place(User::unknown(user.uid), of_user, self.conns.len(), few);
        let is_kept = is_much && !own && !identity::user_of(pid, user.uid).is_own();
        is_kept.then_some("the connections that are left are for users with few")
    }

    /// Largest number of programs of one user, whatever the configuration allows. `own` = root or the daemon's own user.
    pub(crate) fn most_of_one(&self, own: bool) -> usize {
        if own { self.max_conns } else { self.max_conns / 4 }
    }

    /// Begins to accept connections, or leaves them in the backlog.
    pub(crate) fn listen(&mut self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        let watch = |socket: &OwnedFd| self.rewatch(socket.as_fd(), Token::Own(Own::Listener), flags);
        let watched = self.listener.sockets().try_for_each(watch);
        match watched {
            Ok(()) => self.deaf = !on,
            Err(e) => self.lines.push((None, format!("cannot watch the socket: {e}"))),
        }
    }

    /// Accepts connections again once the reaper has caught up.
    pub(crate) fn listen_again(&mut self) {
        if self.deaf && !self.reaper.is_full() {
            self.listen(true);
        }
    }

    /// Takes over sockets whose files were made again.
    pub(crate) fn take_sites(&mut self, limits: Limits<'_>) {
        for news in self.listener.rendezvous().take() {
            match news {
                News::Line(line) => self.lines.push((None, line)),
                News::Listens(path, socket) => {
                    // Accepts connections to the socket before, which is closed now.
                    self.accept(limits);
                    let flags = if self.deaf { EventFlags::empty() } else { EventFlags::IN };
                    if let Err(e) = self.watch(&socket, Token::Own(Own::Listener), flags) {
                        self.lines.push((None, format!("cannot watch the socket: {e}")));
                    }
                    self.listener.replace(path, socket);
                }
            }
        }
    }

    /// Ends listening, and closes connections that were never accepted: they may hold descriptors too.
    pub(crate) fn refuse_all(&mut self) {
        self.listener.refuse();
        while let Ok(socket) = self.listener.accept() {
            self.reaper.close_socket(socket);
        }
    }
}
