//! The event loop: connections, wake-ups, timers.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use xsched_gatekeeper::Gatekeeper;
use xsched_policy::registry::Entry;
use xsched_policy::{Arbiter, Choice, Event, GroupId};
use xsched_proto::trust;
use xsched_proto::wire::{self, ClientMsg, DaemonMsg, MAX_PACKET};

use crate::bursts::Bursts;
use crate::client::{Client, Expected, Group, Question};
use crate::clock::now_ns;
use crate::closer::{Closer, MAX_FDS};
use crate::config::Config;
use crate::fair::FairQueue;
use crate::host::{self, Host};
use crate::memory::{GroupWords, HeartbeatPage};
use crate::pool::Pools;
use crate::socket::{self, Listener, Passed, Received};
use crate::tuning::{
    ACCEPTED_MAX, BEAT_NS, CLIENT_OUT_MAX_BYTES, COMMAND_OUT_MAX_BYTES, EVENTS_MAX, KEPT_BYTES, LOG_NS, LOOK_NS,
    NICE_NS, OWN_FDS, QUEUED_MAX, SLICE_NS, UNREAD_NS, USER_CONNS_MAX, USER_OUT_MAX_BYTES, of_user,
};
use crate::unsuitable::Unsuitable;
use crate::{Error, Options};

/// Kinds of descriptors, in the low bits of an epoll token; the connection's number is above.
pub(crate) mod kind {
    pub(crate) const SOCKET: u64 = 0;
    pub(crate) const WAKE: u64 = 1;
    pub(crate) const DEATH: u64 = 2;
    /// The daemon's own descriptors, told apart by number.
    pub(crate) const OWN: u64 = 3;
}
const LISTENER: u64 = kind::OWN;
const TIMER: u64 = 1 << 2 | kind::OWN;
const SIGNALS: u64 = 2 << 2 | kind::OWN;
pub(crate) const LOGS: u64 = 3 << 2 | kind::OWN;
const SCHEDULER: u64 = u64::MAX << 2 | kind::OWN;
/// Why a connection ends that takes nothing.
const UNREAD: &str = "it does not read its messages";
/// Announced processes are numbered from here.
pub(crate) const EXPECTED: u64 = 3;

/// The daemon.
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) gatekeeper: Gatekeeper<GroupWords>,
    /// Whose slices are to be set again, see [`Server::reassert_timeslice`].
    pub(crate) reassert: Vec<GroupId>,
    pub(crate) conns: HashMap<u64, Conn>,
    pub(crate) groups: HashMap<GroupId, Group>,
    pub(crate) heartbeat: HeartbeatPage,
    /// Connections of clients that have woken the daemon.
    wakes: FairQueue<u64>,
    /// What else is to be done for connections.
    pub(crate) work: FairQueue<Work>,
    /// Connections to end after the current event, and why if it is their fault.
    pub(crate) doomed: Vec<(u64, Option<Error>)>,
    /// Programs that were announced, by number.
    pub(crate) expected: HashMap<u64, Expected>,
    /// Those that do not suit others of a pool.
    pub(crate) unsuitable: Unsuitable,
    /// The operator's own scheduler, while it works.
    pub(crate) scheduler: Option<Host>,
    pub(crate) pools: Pools,
    /// Where bursts are written, if they are.
    pub(crate) bursts: Option<Bursts>,
    /// Questions passed on to clients.
    pub(crate) questions: Vec<Question>,
    /// Last number given to a connection, group, queue or question.
    pub(crate) last_id: u64,
    pub(crate) dropped_clients: u64,
    pub(crate) started_ns: u64,
    pub(crate) stop: bool,
    /// When the current events were received.
    pub(crate) now_ns: u64,
    pub(crate) beat_at: Option<u64>,
    look_at: Option<u64>,
    /// When to look for connections that do not read; perhaps too early.
    unread_at: Option<u64>,
    idle_exit_ns: Option<u64>,
    pub(crate) idle_since: Option<u64>,
    /// When to look at nice values.
    pub(crate) nice_at: Option<u64>,
    /// The process that each user's active window belongs to, as far as was said, by user id.
    pub(crate) active_windows: HashMap<u32, u32>,
    /// When the timer goes off.
    armed: Option<u64>,
    pub(crate) max_conns: usize,
    pub(crate) closer: Closer,
    /// When to look after it.
    tend_at: Option<u64>,
    /// Connections wait in the backlog until it has caught up.
    deaf: bool,
    /// Given up to be able to refuse a connection when no descriptor is left.
    spare: Option<OwnedFd>,
    last_log_ns: u64,
    pub(crate) epoll: OwnedFd,
    pub(crate) listener: Listener,
    timer: OwnedFd,
    _signals: Signals,
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) role: Role,
    /// What the other side has not taken yet.
    out: VecDeque<Vec<u8>>,
    out_bytes: usize,
    /// Since when it takes nothing of that.
    unread_since_ns: u64,
    /// Nothing is to be taken from it or said to it any more.
    gone: bool,
    /// What is listened for.
    flags: EventFlags,
}

/// A piece of work for a connection, of bounded size.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// Send what is kept for it; else go on with its answer; else take one packet.
    Serve(u64),
    /// Look at the counters of its groups.
    Look(u64),
}

/// What a command is still to be told: a message at a time, each when it has taken the one before. What it has to say meanwhile
/// stays in its socket.
pub(crate) enum Answer {
    /// A message for each of these clients.
    Programs(VecDeque<u64>),
    /// One for each of these policies.
    Policies(std::slice::Iter<'static, &'static Entry>),
    /// What a client says.
    OfClient,
    /// Whether there is a pool.
    OfPool,
}

/// What a connection turned out to be.
pub(crate) enum Role {
    Unknown,
    Client(Box<Client>),
    /// With what is still to be answered.
    Command(Option<Answer>),
}

impl Conn {
    pub(crate) fn client(&self) -> Option<&Client> {
        match &self.role {
            Role::Client(client) => Some(client),
            _ => None,
        }
    }

    pub(crate) fn client_mut(&mut self) -> Option<&mut Client> {
        match &mut self.role {
            Role::Client(client) => Some(client),
            _ => None,
        }
    }

    /// Whether something is still to be answered, and whether that waits for something else than for the other side.
    fn answering(&self) -> (bool, bool) {
        match &self.role {
            Role::Command(Some(answer)) => (true, matches!(answer, Answer::OfClient | Answer::OfPool)),
            _ => (false, false),
        }
    }
}

impl Server {
    pub(crate) fn new(options: &Options) -> Result<Server, Error> {
        let config = Config::read(&options.config)?;
        let without = if options.scheduler.is_some() { host::POLICY } else { xsched_policy::registry::DEFAULT };
        let policy = match (&options.policy, &config.policy) {
            (Some(name), _) => Choice::named(name)?,
            (None, Some(choice)) => choice.clone(),
            (None, None) => Choice::named(without)?,
        };
        if policy.entry.name == host::POLICY && options.scheduler.is_none() {
            return Err(Error::Input("the policy external needs a scheduler: --scheduler FILE".into()));
        }
        let host = options.scheduler.as_deref().map(Host::start).transpose()?;
        let bursts = options.bursts.as_deref().map(Bursts::create).transpose()?;
        let mut arbiter = Arbiter::new(policy, options.seed);
        arbiter.set_classes(0, config.class_rules(), &mut Vec::new());
        arbiter.set_guard(config.guard_us());
        arbiter.set_evenness(config.pool_evenness());
        for (device, choice) in &config.devices {
            arbiter.set_policy(0, Some(device), choice.clone(), &mut Vec::new());
        }
        let fail = |what: &str, e: Errno| Error::Environment(format!("cannot make {what}: {e}"));
        let listener = Listener::new(&options.socket)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| fail("an epoll instance", e))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(|e| fail("a timer", e))?;
        let signals = Signals::new().map_err(|e| fail("a signal descriptor", e))?;
        let heartbeat = HeartbeatPage::new().map_err(|e| fail("the heartbeat page", e))?;
        let add = |fd: BorrowedFd<'_>, token, flags| {
            epoll::add(&epoll, fd, EventData::new_u64(token), flags).map_err(|e| fail("an epoll entry", e))
        };
        add(listener.as_fd(), LISTENER, EventFlags::IN)?;
        add(timer.as_fd(), TIMER, EventFlags::IN | EventFlags::ET)?;
        add(signals.fd.as_fd(), SIGNALS, EventFlags::IN)?;
        let now_ns = now_ns();
        let from_config = config.idle_exit_s.map(Duration::from_secs);
        let idle_exit = options.idle_exit.or(from_config);
        let server = Server {
            gatekeeper: Gatekeeper::new(arbiter, config.budget_us()),
            config,
            reassert: Vec::new(),
            conns: HashMap::new(),
            groups: HashMap::new(),
            heartbeat,
            wakes: FairQueue::new(),
            work: FairQueue::new(),
            doomed: Vec::new(),
            expected: HashMap::new(),
            unsuitable: Unsuitable::read(options.state.as_deref()),
            scheduler: host,
            pools: Pools::new(options.library.clone()),
            bursts,
            questions: Vec::new(),
            last_id: 0,
            dropped_clients: 0,
            started_ns: now_ns,
            stop: false,
            now_ns,
            beat_at: None,
            look_at: None,
            unread_at: None,
            idle_exit_ns: idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
            idle_since: Some(now_ns),
            nice_at: None,
            active_windows: HashMap::new(),
            armed: None,
            max_conns: max_conns(raise_descriptor_limit() as usize),
            closer: Closer::new(),
            tend_at: None,
            deaf: false,
            spare: spare(),
            last_log_ns: 0,
            epoll,
            listener,
            timer,
            _signals: signals,
        };
        server.config.notices.iter().for_each(|line| server.say(line));
        server.watch_scheduler_socket(SCHEDULER)?;
        Ok(server)
    }

    /// Serves until told to stop.
    pub(crate) fn run(&mut self) -> Result<(), Error> {
        let mut buffer = vec![0; MAX_PACKET];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        while !self.stop {
            self.turn(&mut events, &mut buffer)?;
        }
        self.let_all_go();
        self.closer.end();
        Ok(())
    }

    /// Waits for events unless there is work, and does a slice of it.
    fn turn(&mut self, events: &mut Vec<epoll::Event>, buffer: &mut [u8]) -> Result<(), Error> {
        self.arm();
        events.clear();
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = (!self.wakes.is_empty() || !self.work.is_empty()).then_some(&at_once);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok(()),
            Err(e) => return Err(Error::Environment(format!("cannot wait for events: {e}"))),
        }
        self.now_ns = now_ns();
        for event in events.iter() {
            let (token, flags) = (event.data.u64(), event.flags);
            match token & 3 {
                kind::OWN => (),
                kind => self.note(token >> 2, kind, flags),
            }
        }
        // Gates first: a program waits for each of these.
        self.in_slices(|server| {
            let Some(id) = server.wakes.pop() else { return false };
            server.scan(id);
            true
        });
        for event in events.iter() {
            match event.data.u64() {
                LISTENER => self.accept(),
                TIMER => self.armed = None,
                SIGNALS => self.stop = true,
                SCHEDULER => self.hear_scheduler(),
                LOGS => self.hear_logs(),
                token if token & 3 == kind::OWN => self.expected_ended((token >> 2) - EXPECTED),
                _ => continue,
            }
            self.bury();
        }
        self.in_slices(|server| {
            match server.work.pop() {
                Some(Work::Serve(id)) => server.serve(id, buffer),
                Some(Work::Look(id)) => server.look(id),
                None => return false,
            }
            true
        });
        self.timers();
        self.bury();
        self.ask_scheduler();
        Ok(())
    }

    /// Notes that there is something to do for a connection.
    fn note(&mut self, id: u64, kind: u64, flags: EventFlags) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if kind == kind::WAKE {
            return self.wakes.push(conn.uid, id);
        }
        // What was sent before a hang-up is still taken; an answer has nobody to go to.
        let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR) && conn.answering().0;
        conn.gone |= kind == kind::DEATH || hung_up;
        self.work.push(conn.uid, Work::Serve(id));
    }

    /// Does pieces of work while there are some and a slice of time lasts, one at least.
    fn in_slices(&mut self, mut piece: impl FnMut(&mut Server) -> bool) {
        let until = self.now_ns + SLICE_NS;
        while piece(self) {
            self.bury();
            self.now_ns = now_ns();
            if self.now_ns >= until || self.stop {
                return;
            }
        }
    }

    /// The attached processes.
    pub(crate) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.conns.values().filter_map(Conn::client)
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Tells the arbiter and does what it says.
    pub(crate) fn event(&mut self, event: Event) {
        self.gatekeeper.event(self.now_us(), event);
        self.act();
    }

    fn accept(&mut self) {
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
            let own = is_own(uid);
            let of_user = self.conns.values().filter(|c| c.uid == uid).count();
            if self.conns.len() >= self.max_conns || !own && of_user >= USER_CONNS_MAX.min(self.max_conns / 4) {
                self.log("too many connections, one was turned away");
                self.closer.close_socket(socket);
                continue;
            }
            let id = self.next_id();
            let flags = EventFlags::IN | EventFlags::RDHUP;
            if self.watch(&socket, id, kind::SOCKET, flags).is_err() {
                self.closer.close_socket(socket);
                continue;
            }
            let (role, out) = (Role::Unknown, VecDeque::new());
            let conn = Conn { socket, pid, uid, role, out, out_bytes: 0, unread_since_ns: 0, gone: false, flags };
            self.conns.insert(id, conn);
            self.idle_since = None;
        }
    }

    /// Accepts connections, or lets them wait in the backlog.
    fn listen(&mut self, on: bool) {
        let flags = if on { EventFlags::IN } else { EventFlags::empty() };
        match epoll::modify(&self.epoll, &self.listener, EventData::new_u64(LISTENER), flags) {
            Ok(()) => self.deaf = !on,
            Err(e) => self.log(&format!("cannot watch the socket: {e}")),
        }
    }

    pub(crate) fn watch(&self, fd: &OwnedFd, conn: u64, kind: u64, flags: EventFlags) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(conn << 2 | kind), flags)
    }

    pub(crate) fn unwatch(&self, fd: &OwnedFd) {
        // Gone already is as good.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Does one thing for a connection, see [`Work::Serve`]. Others have their turn before the next.
    fn serve(&mut self, id: u64, buffer: &mut [u8]) {
        if self.conns.get(&id).is_some_and(|c| !c.out.is_empty()) {
            self.flush(id);
        }
        let Some(conn) = self.conns.get(&id) else { return };
        if conn.gone {
            return self.doomed.push((id, None));
        }
        let (uid, answering) = (conn.uid, conn.answering());
        match answering {
            (true, waits) if waits || !conn.out.is_empty() => return,
            (true, _) => self.go_on(id),
            (false, _) => {
                // Only a greeting carries any.
                let wanted = matches!(conn.role, Role::Unknown) && self.closer.admits(uid, is_own(uid));
                match socket::receive(&conn.socket, buffer, uid, &self.closer, wanted) {
                    Received::Packet(len, fds) => {
                        let taken = wire::decode(&buffer[..len]).and_then(|message| self.message(id, message, fds));
                        if let Err(why) = taken {
                            return self.doomed.push((id, Some(why)));
                        }
                    }
                    Received::Nothing => return,
                    Received::HangUp => return self.doomed.push((id, None)),
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
        self.work.push(uid, Work::Serve(id));
    }

    /// Takes one message. An error is the sender's fault and ends its connection.
    fn message(&mut self, id: u64, message: ClientMsg, fds: Passed) -> Result<(), Error> {
        if !fds.is_empty() && !matches!(message, ClientMsg::Hello { .. }) {
            return Err(Error::input("its message carries descriptors for no purpose"));
        }
        let conn = self.conns.get(&id).ok_or_else(|| Error::input("it is gone"))?;
        match (&conn.role, message) {
            (Role::Unknown, ClientMsg::Hello { version, options }) => self.hello(id, version, options, fds),
            (Role::Unknown | Role::Command(_), ClientMsg::Control { version, request }) => {
                self.control(id, version, request);
                Ok(())
            }
            (Role::Client(_), message) => self.client_message(id, message),
            _ => Err(Error::input("its messages come in an order that makes no sense")),
        }
    }

    /// Sends without waiting. What the other side does not read yet is kept for it, up to a bound.
    pub(crate) fn send(&mut self, id: u64, message: &DaemonMsg, fds: &[BorrowedFd<'_>]) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let packet = match wire::encode(message) {
            Ok(packet) => packet,
            Err(e) => return self.log(&e.to_string()),
        };
        if conn.out.is_empty() {
            match socket::send(&conn.socket, &packet, fds) {
                Ok(()) => return,
                Err(Errno::AGAIN) => (),
                Err(_) => return self.doomed.push((id, None)),
            }
        }
        let most = if matches!(conn.role, Role::Client(_)) { CLIENT_OUT_MAX_BYTES } else { COMMAND_OUT_MAX_BYTES };
        let (uid, bytes) = (conn.uid, packet.len() + KEPT_BYTES);
        let kept = conn.out_bytes + bytes;
        let of_user_now: usize = self.conns.values().filter(|c| c.uid == uid).map(|c| c.out_bytes).sum();
        // Descriptors are not kept: they come with the first message, for which there is room.
        let too_much = kept > most || of_user_now + bytes > of_user(USER_OUT_MAX_BYTES, is_own(uid));
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

    fn flush(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        while let Some(packet) = conn.out.front() {
            match socket::send(&conn.socket, packet, &[]) {
                Ok(()) => {
                    conn.unread_since_ns = self.now_ns;
                    conn.out_bytes -= packet.len() + KEPT_BYTES;
                    conn.out.pop_front();
                }
                Err(Errno::AGAIN) => return,
                Err(_) => return self.doomed.push((id, None)),
            }
        }
        // Its memory goes, too.
        conn.out = VecDeque::new();
        self.watch_socket(id);
    }

    /// Listens for what can be acted on: a command that is being answered is not read from.
    pub(crate) fn watch_socket(&mut self, id: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, !conn.answering().0);
        flags.set(EventFlags::OUT, !conn.out.is_empty());
        if std::mem::replace(&mut conn.flags, flags) == flags {
            return;
        }
        if epoll::modify(&self.epoll, &conn.socket, EventData::new_u64(id << 2 | kind::SOCKET), flags).is_err() {
            self.doomed.push((id, None));
        }
    }

    /// Ends connections for which something is kept and that have taken nothing of it for some time.
    fn end_unread(&mut self) {
        let since = self.conns.iter().filter(|(_, c)| !c.out.is_empty()).map(|(id, c)| (c.unread_since_ns, *id));
        let (over, others): (Vec<_>, Vec<_>) = since.partition(|(since, _)| since + UNREAD_NS <= self.now_ns);
        self.unread_at = others.into_iter().min().map(|(since, _)| since + UNREAD_NS);
        self.doomed.extend(over.into_iter().map(|(_, id)| (id, Some(Error::input(UNREAD)))));
    }

    /// Ends the connections marked for it; others may be marked on the way.
    pub(crate) fn bury(&mut self) {
        while let Some((id, fault)) = self.doomed.pop() {
            self.note_kernels(id);
            let Some(conn) = self.conns.remove(&id) else { continue };
            if let Some(fault) = fault {
                self.dropped_clients += 1;
                self.log(&format!("dropped process {}: {fault}", conn.pid));
                let refused = DaemonMsg::Refused(fault);
                if let Ok(packet) = wire::encode(&refused) {
                    let _ = socket::send(&conn.socket, &packet, &[]);
                }
            }
            // Other processes may hold these files too, so that closing ours would not end the entries.
            let _ = epoll::delete(&self.epoll, &conn.socket);
            let was_client = matches!(conn.role, Role::Client(_));
            if let Role::Client(client) = conn.role {
                let _ = epoll::delete(&self.epoll, &client.eventfd);
                let _ = epoll::delete(&self.epoll, &client.pidfd);
                self.forget(id, *client);
            }
            self.closer.close_socket(conn.socket);
            self.questions.retain(|q| q.asker != id);
            if was_client || self.conns.is_empty() {
                self.settle();
            }
        }
    }

    fn timers(&mut self) {
        let due = |at: Option<u64>| at.is_some_and(|at| at <= self.now_ns);
        let (policy, look, beat) = (due(self.next_policy_ns()), due(self.look_at), due(self.beat_at));
        let (tend, nice, unread) = (due(self.tend_at), due(self.nice_at), due(self.unread_at));
        let pools = due(self.pools.look_at);
        if policy {
            self.event(Event::Timer);
        }
        if look {
            self.look_at = None;
            self.look_soon();
        }
        if beat {
            self.heartbeat.beat(self.now_ns);
            self.beat_at = None;
        }
        if nice {
            self.look_at_nice();
        }
        if unread {
            self.end_unread();
        }
        if pools {
            self.look_at_pools();
        }
        if tend {
            self.tend_at = None;
            if self.deaf && !self.closer.is_full() {
                self.listen(true);
            }
        }
        self.time_out_questions();
        self.watch_scheduler();
        if self.idle_deadline().is_some_and(|at| at <= self.now_ns) {
            self.stop = true;
        }
    }

    fn next_policy_ns(&self) -> Option<u64> {
        self.gatekeeper.arbiter().next_timer().map(|us| us.saturating_mul(1_000))
    }

    fn idle_deadline(&self) -> Option<u64> {
        Some(self.idle_since?.saturating_add(self.idle_exit_ns?))
    }

    /// Sets the timer for what comes first. One set too early is left alone: it costs a wake-up, once.
    fn arm(&mut self) {
        let keep = |at: Option<u64>, wanted: bool, period| wanted.then(|| at.unwrap_or(self.now_ns + period));
        let arbiter = self.gatekeeper.arbiter();
        self.beat_at = keep(self.beat_at, arbiter.any_closed(), BEAT_NS);
        self.look_at = keep(self.look_at, arbiter.any_scrutinised(), LOOK_NS);
        self.nice_at = keep(self.nice_at, self.follows_nice(), NICE_NS);
        // Kept while it is still to come, so that events do not put it off for ever.
        self.tend_at = self.tend_at.filter(|at| *at > self.now_ns).or_else(|| self.closer.tend());
        let pools = self.next_look_at_pools();
        let question = self.questions.iter().map(|q| q.until_ns).min();
        let overdue = self.scheduler.as_ref().and_then(Host::deadline_ns);
        let own = [self.beat_at, self.look_at, self.nice_at, self.tend_at, self.unread_at, pools, self.idle_deadline()];
        let all = [self.next_policy_ns(), question, overdue].into_iter().chain(own);
        let Some(next) = all.flatten().min() else { return };
        if self.armed.is_some_and(|armed| armed <= next) {
            return;
        }
        // All zero would switch the timer off.
        let at = Timespec { tv_sec: (next / 1_000_000_000) as i64, tv_nsec: (next % 1_000_000_000).max(1) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once) {
            Ok(_) => self.armed = Some(next),
            Err(e) => self.log(&format!("cannot set the timer: {e}")),
        }
    }

    /// Tells the operator, at most once a second.
    pub(crate) fn log(&mut self, line: &str) {
        if self.last_log_ns == 0 || self.now_ns.saturating_sub(self.last_log_ns) >= LOG_NS {
            self.last_log_ns = self.now_ns;
            self.say(line);
        }
    }

    /// Tells the operator.
    pub(crate) fn say(&self, line: &str) {
        // A closed stderr is no reason to stop.
        let _ = writeln!(std::io::stderr(), "xsched: {}", line.replace(char::is_control, " "));
    }
}

/// Whether a user is root or the daemon's own.
pub(crate) fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// How many connections there may be with this many descriptors. A client takes three and was perhaps announced; one more
/// passes by while it attaches. Besides there are the daemon's own, those of one packet, and those that wait to be closed.
fn max_conns(descriptors: usize) -> usize {
    let besides = OWN_FDS + MAX_FDS + QUEUED_MAX;
    descriptors.saturating_sub(besides.min(descriptors / 2)) / 5
}

fn spare() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Returns how many descriptors there may be.
fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // No limit at all would still leave memory as one.
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 16).min(1 << 16)
}

/// SIGTERM and SIGINT as a descriptor; as they were before when dropped.
struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    fn new() -> rustix::io::Result<Signals> {
        // SAFETY: a signal set is plain bits, and all-zero is one; it is initialised by sigemptyset all the same.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: all pointers are to the two sets above.
        let fd = unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
        // SAFETY: just made, and not owned elsewhere.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before })
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // A signal that was taken in is read, so that it does not strike when the mask is put back.
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the buffer is as large as said; the mask was filled in by the kernel.
        unsafe {
            while libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), info.len()) > 0 {}
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}
