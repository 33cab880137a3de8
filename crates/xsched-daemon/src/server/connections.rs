//! Connections: accepted, read from, written to, ended.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::trust;
use xsched_proto::wire::{self, ClientMsg, DaemonMsg};

use super::{Conn, LISTENER, Role, Server, UNREAD, kind};
use crate::Error;
use crate::closer::MAX_FDS;
use crate::identity::User;
use crate::rendezvous::News;
use crate::socket::{self, Passed, Received};
use crate::tuning::{
    ACCEPTED_MAX, CLIENT_OUT_MAX_BYTES, COMMAND_OUT_MAX_BYTES, KEPT_BYTES, OUT_MAX_BYTES, OWN_FDS, QUEUED_MAX,
    ROOT_PART, SILENT_NS, SOCKET_MAX_BYTES, UNREAD_NS, USER_OUT_MAX_BYTES, of_user,
};

impl Server {
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTED_MAX {
            if self.closer.is_full() {
                return self.listen(false);
            }
            let socket = match self.listener.accept() {
                Ok(socket) => socket,
                Err(Errno::MFILE | Errno::NFILE) => {
                    // Without this the listener would stay readable and the loop would spin.
                    self.spare = None;
                    if let Ok(socket) = self.listener.accept() {
                        self.closer.close_socket(socket);
                    }
                    self.spare = spare();
                    return;
                }
                Err(_) => return,
            };
            let Some((pid, uid)) = trust::peer(socket.as_fd()) else {
                self.closer.close_socket(socket);
                continue;
            };
            let user = User::unknown(uid);
            if let Some(why) = self.too_many_connections(pid, user) {
                self.record(uid, &format!("turned process {pid} of user {user} away: {why}"));
                self.closer.close_socket(socket);
                continue;
            }
            socket::bound_unread(&socket, SOCKET_MAX_BYTES);
            let id = self.next_id();
            let flags = EventFlags::IN | EventFlags::RDHUP;
            if self.watch(&socket, id, kind::SOCKET, flags).is_err() {
                self.closer.close_socket(socket);
                continue;
            }
            let (role, out) = (Role::Unknown, VecDeque::new());
            let since_ns = self.now_ns;
            let conn = Conn {
                socket,
                pid,
                user,
                who: None,
                since_ns,
                role,
                out,
                out_bytes: 0,
                unread_since_ns: 0,
                gone: false,
                unheard: false,
                flags,
            };
            self.conns.insert(id, conn);
            self.silent_at.get_or_insert(since_ns + SILENT_NS);
            self.idle_since = None;
        }
    }

    /// Why a user may not have a further connection.
    pub(super) fn too_many_connections(&self, pid: u32, user: User) -> Option<&'static str> {
        // Root finds a place whatever the others do. Whose a connection is takes a look at its process, for the last places only.
        let few = self.max_conns - self.max_conns / ROOT_PART;
        let is_root = self.conns.len() >= few && user.uid == 0 && User::of(pid, 0).is_root();
        let for_all = if is_root { self.max_conns } else { few };
        if self.conns.len() >= for_all {
            return Some("all connections are taken");
        }
        let own = user.uid == 0 || user.uid == rustix::process::geteuid().as_raw();
        let of_one = if own { for_all } else { self.max_conns / 4 };
        let most = self.config.bounds(user.uid, own).connections.min(of_one);
        let of_user = self.conns.values().filter(|c| c.user.uid == user.uid).count();
        (of_user >= most).then_some("its user has as many connections as a user may have")
    }

    /// Accepts connections, or lets them wait in the backlog.
    pub(super) fn listen(&mut self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        let watch = |socket| epoll::modify(&self.epoll, socket, EventData::new_u64(LISTENER), flags);
        let watched = self.listener.sockets().try_for_each(watch);
        match watched {
            Ok(()) => self.deaf = !on,
            Err(e) => self.log(&format!("cannot watch the socket: {e}")),
        }
    }

    /// Takes sockets whose files were made again.
    pub(super) fn hear_sites(&mut self) {
        for news in self.listener.rendezvous().take() {
            match news {
                News::Line(line) => self.say(&line),
                News::Listens(path, socket) => {
                    // What has connected to the one before, which goes now.
                    self.accept();
                    let flags = if self.deaf { EventFlags::empty() } else { EventFlags::IN };
                    if let Err(e) = epoll::add(&self.epoll, &socket, EventData::new_u64(LISTENER), flags) {
                        self.log(&format!("cannot watch the socket: {e}"));
                    }
                    self.listener.replace(path, socket);
                }
            }
        }
    }

    pub(crate) fn watch(&self, fd: &OwnedFd, conn: u64, kind: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(conn << 2 | kind), flags)
    }

    /// Watches a descriptor of the daemon's own.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn watch_own(&self, fd: &impl AsFd, token: u64) -> Result<(), Error> {
        let fail = |e| Error::environment(format!("cannot make an epoll entry: {e}"));
        epoll::add(&self.epoll, fd.as_fd(), EventData::new_u64(token), EventFlags::IN).map_err(fail)
    }

    pub(crate) fn unwatch(&self, fd: &OwnedFd) {
        // Gone already is as good.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Does one thing for a connection, see [`Work::Serve`]. Others have their turn before the next.
    pub(super) fn serve(&mut self, id: u64, buffer: &mut [u8]) {
        if self.conns.get(&id).is_some_and(|c| !c.out.is_empty()) {
            self.flush(id);
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.gone && !conn.is_changing() {
            return self.doomed.push((id, None));
        }
        let user = conn.user;
        if matches!(conn.role, Role::Command(_)) {
            // One that was refused at once has left its room to the next.
            self.answer_next();
        }
        let Some(conn) = self.conns.get(&id) else { return };
        match conn.answering() {
            (true, waits) if waits || !conn.out.is_empty() => return,
            (true, _) => self.go_on(id),
            (false, _) => {
                // Only a greeting carries any.
                let wanted = matches!(conn.role, Role::Unknown) && self.closer.admits(user.uid, user.is_own());
                match socket::receive(&conn.socket, buffer, user.uid, &self.closer, wanted) {
                    Received::Packet(len, _) if self.is_of_another_version(id, &buffer[..len]) => return,
                    Received::Packet(len, fds) => {
                        let taken = wire::decode(&buffer[..len]).and_then(|message| self.message(id, message, fds));
                        if let Err(why) = taken {
                            return self.doomed.push((id, Some(why)));
                        }
                    }
                    Received::Nothing => return,
                    Received::HangUp => {
                        self.conns.entry(id).and_modify(|conn| conn.gone = true);
                        return self.doomed.push((id, None));
                    }
                    Received::TooMuch => {
                        return self.doomed.push((id, Some(Error::input("its message is too large"))));
                    }
                    Received::Unwanted => {
                        let why = Error::input("its message carries descriptors for no purpose");
                        return self.doomed.push((id, Some(why)));
                    }
                }
            }
        }
        self.enqueue(id);
    }

    /// Whether a first packet is of another version, whose rest cannot be read: then its sender is told, and the connection ends.
    fn is_of_another_version(&mut self, id: u64, packet: &[u8]) -> bool {
        let is_first = self.conns.get(&id).is_some_and(|c| matches!(c.role, Role::Unknown));
        let other = wire::version_of(packet).filter(|version| is_first && *version != PROTOCOL_VERSION);
        if let Some(version) = other {
            let line = format!(
                "the daemon (xsched {}) speaks protocol {PROTOCOL_VERSION}, this program {version}: install one version, and restart \
                 the daemon",
                env!("CARGO_PKG_VERSION")
            );
            self.refuse(id, Error::Environment(line));
            self.doomed.push((id, None));
        }
        other.is_some()
    }

    /// Takes one message. An error is the sender's fault and ends its connection.
    fn message(&mut self, id: u64, message: ClientMsg, fds: Passed) -> Result<(), Error> {
        if !fds.is_empty() && !matches!(message, ClientMsg::Hello { .. }) {
            return Err(Error::input("its message carries descriptors for no purpose"));
        }
        let conn = self.conns.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        match (&conn.role, message) {
            (Role::Unknown, ClientMsg::Hello { options, .. }) => self.hello(id, options, fds),
            (Role::Unknown | Role::Command(_), ClientMsg::Control { request, .. }) => {
                self.ask(id, request);
                Ok(())
            }
            (Role::Client(_), message) => self.client_message(id, message),
            _ => Err(Error::input("its messages come in an order that makes no sense")),
        }
    }

    /// Sends without waiting. What the other side does not read yet is kept for it, up to a bound.
    pub(crate) fn send(&mut self, id: u64, message: &DaemonMsg, fds: &[BorrowedFd<'_>]) {
        let Some(conn) = self.conns.get(&id).filter(|conn| !conn.gone) else { return };
        let packet = match wire::encode(message) {
            Ok(packet) => packet,
            Err(e) => return self.log(&e.to_string()),
        };
        if conn.out.is_empty() {
            match socket::send(&conn.socket, &packet, fds) {
                Ok(()) => return,
                Err(Errno::AGAIN) => (),
                Err(why) => {
                    self.conns.entry(id).and_modify(|conn| conn.gone |= is_hang_up(why));
                    return self.doomed.push((id, None));
                }
            }
        }
        let most = if matches!(conn.role, Role::Client(_)) { CLIENT_OUT_MAX_BYTES } else { COMMAND_OUT_MAX_BYTES };
        let (user, bytes) = (conn.user, packet.len() + KEPT_BYTES);
        let kept = conn.out_bytes + bytes;
        let of_user_now: usize = self.conns.values().filter(|c| c.user == user).map(|c| c.out_bytes).sum();
        // Descriptors are not kept: they come with the first message, for which there is room.
        let of_all = || self.conns.values().filter(|c| !c.user.is_own()).map(|c| c.out_bytes).sum::<usize>();
        let too_much = kept > most
            || of_user_now + bytes > of_user(USER_OUT_MAX_BYTES, user.is_own())
            || !user.is_own() && of_all() + bytes > OUT_MAX_BYTES;
        if too_much || !fds.is_empty() {
            return self.doomed.push((id, Some(Error::input(UNREAD))));
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

    pub(crate) fn refuse(&mut self, id: u64, why: Error) {
        self.send(id, &DaemonMsg::Refused(why), &[]);
    }

    pub(super) fn flush(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.gone) else { return };
        while let Some(packet) = conn.out.front() {
            match socket::send(&conn.socket, packet, &[]) {
                Ok(()) => {
                    conn.unread_since_ns = self.now_ns;
                    conn.out_bytes -= packet.len() + KEPT_BYTES;
                    conn.out.pop_front();
                }
                Err(Errno::AGAIN) => return,
                Err(why) => {
                    conn.gone |= is_hang_up(why);
                    return self.doomed.push((id, None));
                }
            }
        }
        // Its memory goes, too.
        conn.out = VecDeque::new();
        self.watch_socket(id);
    }

    /// Listens for what can be acted on: a command that is being answered is not read from.
    pub(crate) fn watch_socket(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.unheard) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, !conn.answering().0);
        flags.set(EventFlags::OUT, !conn.out.is_empty());
        // A hang-up is always told: once is enough while nothing can be done about it, or what is to be done is put off.
        flags.set(EventFlags::ET, matches!(conn.role, Role::Unlisted(_)) || conn.is_rationed());
        if std::mem::replace(&mut conn.flags, flags) == flags {
            return;
        }
        if epoll::modify(&self.epoll, &conn.socket, EventData::new_u64(id << 2 | kind::SOCKET), flags).is_err() {
            self.doomed.push((id, None));
        }
    }

    /// Tells whether a connection that is to end changes programs: it goes on until that is done, hears nothing, and counts as one of its
    /// user's meanwhile.
    fn goes_on_unheard(&mut self, id: u64) -> bool {
        let is_stopping = self.stop;
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.is_changing() && !is_stopping) else {
            return false;
        };
        conn.gone = true;
        if !std::mem::replace(&mut conn.unheard, true) {
            (conn.out, conn.out_bytes) = (VecDeque::new(), 0);
            let _ = epoll::delete(&self.epoll, &conn.socket);
        }
        self.enqueue(id);
        true
    }

    /// Ends the connections marked for it; others may be marked on the way.
    pub(crate) fn bury(&mut self) {
        while let Some((id, fault)) = self.doomed.pop() {
            if self.goes_on_unheard(id) {
                continue;
            }
            self.note_kernels(id);
            let Some(conn) = self.conns.remove(&id) else { continue };
            self.found.remove(&id);
            self.counting.remove(&id);
            let left = conn.gone && fault.is_none();
            if let Some(fault) = fault {
                self.dropped_clients += 1;
                self.record(conn.user.uid, &format!("dropped process {} of user {}: {fault}", conn.pid, conn.user));
                let refused = DaemonMsg::Refused(fault);
                if let Ok(packet) = wire::encode(&refused) {
                    let _ = socket::send(&conn.socket, &packet, &[]);
                }
            }
            // Other processes may hold these files too, so that closing ours would not end the entries.
            let _ = epoll::delete(&self.epoll, &conn.socket);
            let was_client = matches!(conn.role, Role::Client(_));
            if let Role::Client(client) = conn.role {
                self.record(conn.user.uid, &format!("process {} of user {} has left", conn.pid, conn.user));
                let _ = epoll::delete(&self.epoll, &client.eventfd);
                self.forget(id, &client, left);
                self.abandon(id, *client);
                self.trim.left(self.now_ns);
            }
            self.closer.close_socket(conn.socket);
            self.questions.retain(|q| q.asker != id);
            self.waiting.retain(|(_, waiting)| *waiting != id);
            self.answer_next();
            if was_client || self.conns.is_empty() {
                self.settle();
            }
        }
    }
}

/// Whether a message cannot be sent since the other side has gone.
fn is_hang_up(why: Errno) -> bool {
    matches!(why, Errno::PIPE | Errno::CONNRESET)
}

/// How many connections there may be with this many descriptors. A client takes four and was perhaps announced; one more
/// passes by while it attaches. Besides there are the daemon's own, those of one packet, and those that wait to be closed.
pub(super) fn max_conns(descriptors: usize) -> usize {
    let besides = OWN_FDS + MAX_FDS + QUEUED_MAX;
    descriptors.saturating_sub(besides.min(descriptors / 2)) / 6
}

pub(super) fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Returns how many descriptors there may be.
pub(super) fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // No limit at all would still leave memory as one.
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16)
}
