//! The device as a process: one thread with one epoll loop.
//!
//! Each round reads everything that clients have stored, plays the models up to the present in exact virtual time,
//! wakes waiting threads, and sleeps until the next event is due or a client rings. The server takes no lock that a
//! client can hold, and waits for no client.

mod client;
mod effect;
mod ledger;
mod lock;
mod settings;

use crate::command::Fault;
use crate::memory::now_ns;
use crate::model::{Board, ContextId, Model, Timing, Work, member_of, own_number, stream_of};
use crate::wire::{self, Request, status};
use client::{Client, Peer, Seat};
use effect::Effect;
use ledger::Ledger;
use lock::Listener;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use settings::Settings;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

/// Interval of polls of blocked waits, in ns: the lower value at first, then a sixteenth of the time waited so far, up
/// to the higher value. A gate that stays closed for long costs about a twentieth of a core instead of a whole one.
const POLL_NS: RangeInclusive<u64> = 10_000..=200_000;
/// Upper limit of all clients' exports.
const MOST_EXPORTS: usize = 65_536;
/// Upper limit of all clients' invitations.
const MOST_INVITATIONS: usize = 65_536;
/// Time from a member's end to its removal, in ns, if it has work in its streams. From the lower value on it is removed
/// as soon as the device executes nothing more of it. At the upper value, the context faults if the device still does.
/// NVIDIA's MPS server does so after 140 to 260 ms (H100, driver 580); the lower value is a guess.
const TEARDOWN_NS: RangeInclusive<u64> = 5_000_000..=150_000_000;
/// First epoll key of a client. Lower ones are the server's own.
const FIRST_KEY: u64 = 16;
const LISTENER: u64 = 0;
const TIMER: u64 = 1;
/// Bit of a key that marks a client's doorbell. Its event only has to wake the server.
const DOORBELL: u64 = 1 << 63;

/// Serves the device on `socket`. Returns after no client has been connected for `idle_exit`, if that is given.
///
/// Reads `SIMDEV_TIMESLICE_US` (2000), `SIMDEV_SWITCH_US` (50), `SIMDEV_SHARES` (0), `SIMDEV_DEVICES` (1) and
/// `SIMDEV_MEMORY_MIB` (256; several for several devices, with commas) from the environment; an error of kind `InvalidInput` names a wrong one. `AddrInUse`: another server uses this socket.
pub fn run(socket: &Path, idle_exit: Option<Duration>) -> io::Result<()> {
    let settings = Settings::from_env()?;
    // Only this thread sleeps in this process. With the default timer slack of 50 µs every completion would be late.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    Server::new(socket, settings)?.serve(idle_exit)
}

/// An input from a client, with its time.
struct Arrival {
    stamp: u64,
    key: u64,
    input: Input,
}

enum Input {
    /// A command: stream, demand on the device, effect, and whether it counts as a launch.
    Command(u32, Work, Effect, bool),
    Returned(u32),
    Timeslice(u64),
    Runnable(bool),
}

/// Pages of a client's arena that others may import.
struct Exported {
    /// Key of the client.
    owner: u64,
    secret: u64,
    /// Memory file of the arena.
    arena: Rc<OwnedFd>,
    offset: u64,
    bytes: u64,
}

/// Keys of clients by context and member.
type Keys = BTreeMap<(ContextId, u32), u64>;

/// Permission for another client to join a client's context.
struct Invitation {
    /// Key of the context's owner.
    owner: u64,
    secret: u64,
    /// Key of the client that has joined.
    joined: Option<u64>,
}

type Device = Model<(Effect, bool)>;

struct Server {
    listener: Listener,
    epoll: OwnedFd,
    timer: OwnedFd,
    timing: Timing,
    devices: Vec<Device>,
    /// Number of launches received, by device.
    launched: Vec<u64>,
    /// Memory in use.
    ledger: Ledger,
    /// Connections that have not sent their greeting.
    greeting: BTreeMap<u64, OwnedFd>,
    clients: BTreeMap<u64, Client>,
    /// Exports by number.
    exports: BTreeMap<u64, Exported>,
    /// Number of the next export; numbers are never reused.
    next_export: u64,
    /// Invitations by number.
    invitations: BTreeMap<u64, Invitation>,
    /// Number of the next invitation; numbers are never reused.
    next_invitation: u64,
    /// Keys of the clients by context and member, for each device.
    keys: Vec<Keys>,
    next_key: u64,
    /// Time since when polls have been unsuccessful, and time of the next poll, in ns.
    poll: Option<(u64, u64)>,
}

impl Server {
    fn new(socket: &Path, settings: Settings) -> io::Result<Self> {
        let listener = Listener::new(socket)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener.socket, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN | EventFlags::ET)?;
        let now = now_ns();
        let device = || {
            let mut device = Device::new(settings.timing);
            device.run_until(now, &mut Bus { clients: &mut BTreeMap::new(), keys: &BTreeMap::new() });
            device
        };
        Ok(Self {
            listener,
            epoll,
            timer,
            timing: settings.timing,
            devices: (0..settings.devices).map(|_| device()).collect(),
            launched: vec![0; settings.devices],
            ledger: Ledger::new(settings.memory.clone()),
            greeting: BTreeMap::new(),
            clients: BTreeMap::new(),
            exports: BTreeMap::new(),
            next_export: 1,
            invitations: BTreeMap::new(),
            next_invitation: 1,
            keys: vec![BTreeMap::new(); settings.devices],
            next_key: FIRST_KEY,
            poll: None,
        })
    }

    fn serve(mut self, idle_exit: Option<Duration>) -> io::Result<()> {
        let idle_ns = idle_exit.map(|d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
        let mut last_client = now_ns();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        loop {
            let now = self.play();
            let busy = !self.clients.is_empty() || !self.greeting.is_empty();
            if busy {
                last_client = now;
            }
            let idle_end = idle_ns.filter(|_| !busy).map(|idle| last_client.saturating_add(idle));
            if idle_end.is_some_and(|end| end <= now) {
                // Checks for a new client in the queue. One that connects from here on finds the socket closed, and
                // starts another server.
                if !self.accept()? {
                    return Ok(());
                }
                continue;
            }
            events.clear();
            self.sleep(idle_end, &mut events)?;
            if !events.is_empty() {
                self.play();
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => drop(self.accept()?),
                    key if key & DOORBELL != 0 || key < FIRST_KEY => {}
                    key => self.hear(key, event.flags),
                }
            }
        }
    }

    /// Reads all clients' inputs and plays the devices up to the present. Returns that time.
    fn play(&mut self) -> u64 {
        let mut arrivals = Vec::new();
        let (mut dead, before) = (Vec::new(), now_ns());
        for (&key, client) in &mut self.clients {
            if client.drain(key, before, &mut arrivals).is_err() {
                dead.push(key);
            }
        }
        arrivals.sort_by_key(|a| a.stamp);
        let now = now_ns();
        for Arrival { stamp, key, input } in arrivals {
            let Some(client) = self.clients.get(&key).filter(|client| client.faulted.is_none()) else { continue };
            let Seat { device: index, context: id, member } = client.seat;
            let device = &mut self.devices[index];
            let bus = &mut Bus { clients: &mut self.clients, keys: &self.keys[index] };
            // Neither earlier than the time already played, nor in the future.
            device.run_until(stamp.min(now), bus);
            match input {
                Input::Command(stream, work, effect, counted) => {
                    self.launched[index] += u64::from(counted);
                    let work = match work {
                        Work::After { stream, count } => Work::After { stream: stream_of(member, stream), count },
                        other => other,
                    };
                    device.submit(id, stream_of(member, stream), work, (effect, counted), bus);
                }
                Input::Returned(stream) => device.returned(id, stream_of(member, stream), bus),
                // The slices of a context and its eviction are up to its owner.
                Input::Timeslice(_) | Input::Runnable(_) if member != 0 => {}
                Input::Timeslice(ns) => device.set_timeslice(id, ns),
                Input::Runnable(on) => device.set_runnable(id, on, bus),
            }
        }
        let look = self.poll.is_some_and(|(_, next)| next <= now);
        for (index, device) in self.devices.iter_mut().enumerate() {
            let bus = &mut Bus { clients: &mut self.clients, keys: &self.keys[index] };
            device.run_until(now, bus);
            if look {
                device.poll(bus);
            }
        }
        self.plan_poll(now, look);
        let leaving: Vec<u64> = self.clients.iter().filter(|(_, c)| c.leaves.is_some()).map(|(&key, _)| key).collect();
        for key in leaving {
            self.see_off(key, now);
        }
        for client in self.clients.values_mut() {
            client.tell();
            let Seat { device, context, member } = client.seat;
            let device = &mut self.devices[device];
            match client.faulted {
                None => {}
                Some(Fault::Assert) if member != 0 => device.clear_member(context, member),
                Some(_) => device.remove_context(context),
            }
        }
        for key in dead {
            self.remove(key);
        }
        now
    }

    fn plan_poll(&mut self, now: u64, looked: bool) {
        if !self.devices.iter().any(Model::polls) {
            self.poll = None;
            return;
        }
        let (since, next) = self.poll.unwrap_or((now, 0));
        if looked || next == 0 {
            let pause = ((now - since) / 16).clamp(*POLL_NS.start(), *POLL_NS.end());
            self.poll = Some((since, now + pause));
        }
    }

    /// Sleeps until something is due or a client rings or sends; fills `events`.
    fn sleep(&mut self, idle_end: Option<u64>, events: &mut Vec<epoll::Event>) -> io::Result<()> {
        let due = self.devices.iter().filter_map(Model::next_event);
        let now = now_ns();
        let leave = self.clients.values().filter_map(|client| client.leaves.as_ref());
        let leave = leave.map(|time| if now < *time.start() { *time.start() } else { *time.end() });
        let due = due.chain(self.poll.map(|(_, next)| next)).chain(leave).chain(idle_end).min();
        for client in self.clients.values() {
            client.shared().device.asleep.store(1, Relaxed);
        }
        // Orders "asleep" and the completions before the last read of the rings. A client stores first, and then reads
        // both.
        fence(SeqCst);
        let news = self.clients.values().any(Client::has_news);
        // If there is something to do, only collects the sockets' events, without waiting.
        let mut timeout = None;
        if news || due.is_some_and(|due| due <= now_ns()) {
            timeout = Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        } else {
            self.set_timer(due)?;
        }
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for client in self.clients.values() {
            client.shared().device.asleep.store(0, Relaxed);
        }
        Ok(())
    }

    fn set_timer(&self, due: Option<u64>) -> io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = due.map_or(zero, |ns| Timespec {
            tv_sec: (ns / 1_000_000_000).cast_signed(),
            tv_nsec: (ns % 1_000_000_000).cast_signed(),
        });
        let spec = Itimerspec { it_interval: zero, it_value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        Ok(())
    }

    /// Accepts waiting clients. Returns whether there were any.
    fn accept(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match rustix::net::accept_with(&self.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    any = true;
                    let key = self.next_key;
                    self.next_key += 1;
                    epoll::add(&self.epoll, &socket, EventData::new_u64(key), EventFlags::IN)?;
                    self.greeting.insert(key, socket);
                }
                // Out of descriptors, for instance: clients in the queue wait until another leaves.
                Err(_) => return Ok(any),
            }
        }
    }

    /// Handles a message or the end of a connection.
    fn hear(&mut self, key: u64, flags: EventFlags) {
        let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if let Some(socket) = self.greeting.remove(&key) {
            if !gone {
                let _ = self.greet(key, socket);
            }
        } else if let Some(client) = self.clients.get(&key)
            && (gone || client.peer.has_ended() || self.answer(key).is_err())
        {
            self.leave(key);
        }
    }

    fn greet(&mut self, key: u64, socket: OwnedFd) -> io::Result<()> {
        let (words, _) = wire::receive(&socket)?;
        let peer = Peer::new(socket);
        match Request::decode(words) {
            Some(Request::Count) => peer.reply(status::OK, [self.devices.len() as u64, 0, 0, 0]),
            Some(Request::MemoryOf { device }) => {
                match usize::try_from(device).ok().filter(|&d| d < self.devices.len()) {
                    Some(device) => {
                        peer.reply(status::OK, [self.ledger.capacity(device), self.ledger.used(device), 0, 0])
                    }
                    None => peer.reply(status::NO_DEVICE, [0; 4]),
                }
            }
            Some(Request::ProcessOf { device, place }) => {
                let mut processes: BTreeMap<u32, u64> = BTreeMap::new();
                for (key, client) in self.clients.iter().filter(|(_, client)| client.seat.device as u64 == device) {
                    *processes.entry(client.peer.pid).or_default() += self.ledger.own(*key);
                }
                let (pid, bytes) = processes.iter().nth(place as usize).map_or((0, 0), |(pid, bytes)| (*pid, *bytes));
                peer.reply(status::OK, [processes.len() as u64, pid.into(), bytes, 0])
            }
            Some(Request::Context { device }) => {
                let Some(device) = usize::try_from(device).ok().filter(|&d| d < self.devices.len()) else {
                    return peer.reply(status::NO_DEVICE, [0; 4]);
                };
                let context = self.devices[device].add_context();
                let made = self.welcome(key, peer, Seat { device, context, member: 0 });
                if made.is_err() {
                    self.devices[device].remove_context(context);
                }
                made
            }
            Some(Request::Join { number, secret, width, below }) => {
                let open = |invitation: &&mut Invitation| invitation.secret == secret && invitation.joined.is_none();
                let invitation = self.invitations.get_mut(&number).filter(open);
                let owner = invitation.as_ref().and_then(|invitation| self.clients.get(&invitation.owner));
                let (Some(invitation), Some(owner)) = (invitation, owner) else {
                    return peer.reply(status::INVALID_VALUE, [0; 4]);
                };
                let Seat { device, context, .. } = owner.seat;
                let Some(member) = self.devices[device].add_member_with(context, width, below) else {
                    return peer.reply(status::OUT_OF_MEMORY, [0; 4]);
                };
                invitation.joined = Some(key);
                let made = self.welcome(key, peer, Seat { device, context, member });
                if made.is_err() {
                    self.devices[device].remove_member(context, member);
                }
                made
            }
            _ => peer.reply(status::INVALID_VALUE, [0; 4]),
        }
    }

    /// Makes a process a client in a seat.
    fn welcome(&mut self, key: u64, peer: Peer, seat: Seat) -> io::Result<()> {
        let (client, fds) = Client::new(peer, seat, self.timing.timeslice_ns)?;
        let bell = EventData::new_u64(key | DOORBELL);
        // Edge-triggered, so that the doorbell need not be read.
        epoll::add(&self.epoll, &client.doorbell, bell, EventFlags::IN | EventFlags::ET)?;
        if let Some(pidfd) = &client.peer.pidfd {
            epoll::add(&self.epoll, pidfd, EventData::new_u64(key), EventFlags::IN)?;
        }
        let words = [status::OK, self.timing.timeslice_ns, 0, 0, 0, 0, 0, 0];
        wire::send(&client.peer.socket, words, &[fds[0].as_fd(), fds[1].as_fd(), client.doorbell.as_fd()])?;
        self.keys[seat.device].insert((seat.context, seat.member), key);
        self.clients.insert(key, client);
        Ok(())
    }

    fn answer(&mut self, key: u64) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&key) else { return Ok(()) };
        let (words, fds) = match wire::receive(&client.peer.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            other => other?,
        };
        match Request::decode(words) {
            Some(Request::Register { region, offset, bytes }) => {
                let done = fds.first().is_some_and(|fd| client.memory.register(region, fd, offset, bytes).is_ok());
                client.peer.reply(if done { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Unregister { region }) => {
                let known = client.memory.unregister(region);
                client.peer.reply(if known { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Invite) => self.invite(key),
            Some(Request::Expel { number, at_once }) => self.expel(key, number, at_once),
            Some(Request::Export { offset, bytes }) => self.export(key, offset, bytes),
            Some(Request::Unexport { number }) => {
                let own = self.exports.get(&number).is_some_and(|export| export.owner == key);
                if own {
                    self.exports.remove(&number);
                }
                client.peer.reply(if own { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Import { number, secret, at, bytes }) => {
                let of = |export: &&Exported| (export.secret, export.bytes) == (secret, bytes) && export.owner != key;
                let export = self.exports.get(&number).filter(of);
                match export.filter(|export| client.memory.import(at, &export.arena, export.offset, bytes).is_ok()) {
                    Some(export) => {
                        let words = [status::OK, export.offset, 0, 0, 0, 0, 0, 0];
                        wire::send(&client.peer.socket, words, &[export.arena.as_fd()])
                    }
                    None => client.peer.reply(status::INVALID_VALUE, [0; 4]),
                }
            }
            Some(Request::Restore { at }) => match client.memory.restore(at) {
                Ok(()) => {
                    wire::send(&client.peer.socket, [status::OK, 0, 0, 0, 0, 0, 0, 0], &[client.memory.arena().as_fd()])
                }
                Err(_) => client.peer.reply(status::INVALID_VALUE, [0; 4]),
            },
            Some(Request::Map { at, offset, bytes }) => {
                let done = fds.first().is_some_and(|fd| client.memory.map(at, fd, offset, bytes).is_ok());
                client.peer.reply(if done { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Take { bytes }) => {
                let taken = self.ledger.take(key, client.seat.device, bytes);
                client.peer.reply(if taken { status::OK } else { status::OUT_OF_MEMORY }, [0; 4])
            }
            Some(Request::Give { bytes }) => {
                let given = self.ledger.give(key, bytes);
                client.peer.reply(if given { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Hold) => {
                let Some((number, bytes)) = fds.first().and_then(client::held) else {
                    return client.peer.reply(status::INVALID_VALUE, [0; 4]);
                };
                match self.ledger.hold(key, client.seat.device, number, bytes) {
                    Some(device) => client.peer.reply(status::OK, [number, device as u64, 0, 0]),
                    None => client.peer.reply(status::OUT_OF_MEMORY, [0; 4]),
                }
            }
            Some(Request::Drop { number }) => {
                let dropped = self.ledger.drop_hold(key, number);
                client.peer.reply(if dropped { status::OK } else { status::INVALID_VALUE }, [0; 4])
            }
            Some(Request::Memory) => {
                let device = client.seat.device;
                let memory = [self.ledger.capacity(device), self.ledger.used(device), self.ledger.own(key), 0];
                client.peer.reply(status::OK, memory)
            }
            Some(Request::Counters) => {
                let (device, total) = (&self.devices[client.seat.device], self.launched[client.seat.device]);
                let counters = [client.launched(), client.completed, device.switches(), total];
                client.peer.reply(status::OK, counters)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Lets one more client join a client's context.
    fn invite(&mut self, key: u64) -> io::Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        if client.seat.member != 0 || self.invitations.len() >= MOST_INVITATIONS {
            return client.peer.reply(status::INVALID_VALUE, [0; 4]);
        }
        let number = self.next_invitation;
        self.next_invitation += 1;
        let secret = secret();
        self.invitations.insert(number, Invitation { owner: key, secret, joined: None });
        client.peer.reply(status::OK, [number, secret, 0, 0])
    }

    /// Withdraws a client's invitation, and ends the membership of the client that joined by it.
    fn expel(&mut self, key: u64, number: u64, at_once: bool) -> io::Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        let own = self.invitations.get(&number).is_some_and(|invitation| invitation.owner == key);
        let joined = own.then(|| self.invitations.remove(&number)).flatten().and_then(|one| one.joined);
        let replied = client.peer.reply(if own { status::OK } else { status::INVALID_VALUE }, [0; 4]);
        match joined {
            Some(member) if at_once => self.remove(member),
            Some(member) => self.leave(member),
            None => (),
        }
        replied
    }

    /// Lets other clients import pages of a client's arena.
    fn export(&mut self, key: u64, offset: u64, bytes: u64) -> io::Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        if !client.memory.may_export(offset, bytes) || self.exports.len() >= MOST_EXPORTS {
            return client.peer.reply(status::INVALID_VALUE, [0; 4]);
        }
        let number = self.next_export;
        self.next_export += 1;
        let secret = secret();
        let arena = client.memory.arena().clone();
        self.exports.insert(number, Exported { owner: key, secret, arena, offset, bytes });
        client.peer.reply(status::OK, [number, secret, 0, 0])
    }

    /// Handles the end of a client. If it is a member of another's context, work that the device executes for it
    /// finishes first.
    fn leave(&mut self, key: u64) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Seat { device, context, member } = client.seat;
        let has_work = member != 0 && self.devices[device].has_work(context, member);
        if !has_work || client.faulted.is_some() {
            return self.remove(key);
        }
        if client.leaves.is_none() {
            let now = now_ns();
            client.leaves = Some(now + TEARDOWN_NS.start()..=now + TEARDOWN_NS.end());
            // Its socket needs no more attention.
            let _ = epoll::delete(&self.epoll, &client.peer.socket);
            if let Some(pidfd) = &client.peer.pidfd {
                let _ = epoll::delete(&self.epoll, pidfd);
            }
        }
    }

    /// Removes a client that is gone once the device executes nothing more of it. If that takes too long, its context
    /// faults.
    fn see_off(&mut self, key: u64, now: u64) {
        let Some(client) = self.clients.get(&key) else { return };
        let Seat { device: index, context: id, member } = client.seat;
        let Some(time) = client.leaves.clone().filter(|time| *time.start() <= now) else { return };
        if client.faulted.is_none() && self.devices[index].executes(id, member) {
            if now < *time.end() {
                return;
            }
            let all: Vec<u64> = of_context(&self.keys[index], id, 0..=u32::MAX).collect();
            // NVIDIA's server blames one of the remaining clients.
            let blamed =
                all.iter().filter_map(|other| self.clients.get(other)).find(|c| ![0, member].contains(&c.seat.member));
            let blamed = blamed.map_or(0, |client| client.peer.pid);
            for other in all {
                self.clients.entry(other).and_modify(|client| client.fault(Fault::Address, blamed));
                self.clients.get(&other).iter().for_each(|client| client.tell_of_fault());
            }
        }
        self.remove(key);
    }

    /// Ends a client's context with all clients that joined it, or its membership in another's. Its work is dropped.
    fn remove(&mut self, key: u64) {
        let Some(client) = self.clients.remove(&key) else { return };
        let Seat { device: index, context: id, member } = client.seat;
        self.exports.retain(|_, export| export.owner != key);
        self.ledger.remove(key);
        self.keys[index].remove(&(id, member));
        if member != 0 {
            self.devices[index].remove_member(id, member);
            self.invitations.retain(|_, invitation| invitation.joined != Some(key));
            return;
        }
        self.devices[index].remove_context(id);
        self.invitations.retain(|_, invitation| invitation.owner != key);
        let joined: Vec<u64> = of_context(&self.keys[index], id, 0..=u32::MAX).collect();
        joined.into_iter().for_each(|member| self.remove(member));
    }
}

/// Keys of the clients that are these members of a context.
fn of_context(keys: &Keys, id: ContextId, members: RangeInclusive<u32>) -> impl Iterator<Item = u64> + '_ {
    keys.range((id, *members.start())..=(id, *members.end())).map(|(_, &key)| key)
}

/// Random number that only a client which was sent it can know.
fn secret() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Connects a model to the memory of its clients.
struct Bus<'a> {
    clients: &'a mut BTreeMap<u64, Client>,
    keys: &'a Keys,
}

impl Bus<'_> {
    fn client(&mut self, context: ContextId, stream: u32) -> Option<&mut Client> {
        self.clients.get_mut(self.keys.get(&(context, member_of(stream)))?)
    }
}

impl Board<(Effect, bool)> for Bus<'_> {
    fn complete(&mut self, at: u64, context: ContextId, stream: u32, count: u64, command: (Effect, bool)) {
        let (effect, counted) = command;
        let Some(client) = self.client(context, stream).filter(|client| client.faulted.is_none()) else { return };
        if let Effect::Fault(fault) = effect {
            let (pid, culprit) = (client.peer.pid, client.seat.member);
            let alone = fault == Fault::Assert && culprit != 0;
            let members = if alone { culprit..=culprit } else { 0..=u32::MAX };
            let mut keys: Vec<u64> = of_context(self.keys, context, members).collect();
            // The culprit is marked last, and no thread is woken before, so that the fault is visible to all others
            // when the culprit reports it.
            keys.sort_by_key(|key| self.keys.get(&(context, culprit)) == Some(key));
            for key in &keys {
                self.clients.entry(*key).and_modify(|client| client.fault(fault, pid));
            }
            keys.iter().filter_map(|key| self.clients.get(key)).for_each(Client::tell_of_fault);
            return;
        }
        effect.apply(at);
        if let Effect::Record { event, record } = effect {
            let words = &client.shared().events[event];
            // Records of one event in two streams may complete in the other order; the later record counts.
            if words.record.load(Relaxed) < record {
                words.at_ns.store(at, Relaxed);
                words.record.store(record, Relaxed);
            }
        }
        client.completed += u64::from(counted);
        client.completed(own_number(stream), count);
    }

    fn holds(&mut self, command: &(Effect, bool)) -> bool {
        command.0.holds()
    }

    fn call(&mut self, context: ContextId, stream: u32, count: u64) {
        if let Some(client) = self.client(context, stream).filter(|client| client.faulted.is_none()) {
            client.call_due(own_number(stream), count);
        }
    }
}
