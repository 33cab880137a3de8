//! `nvidia-cuda-mps-server`: creates a context on each device, and lets clients join.
//!
//! One thread serves the control daemon, on descriptor 0, and the clients. It waits only for the device.

use super::log::Log;
use super::packet;
use crate::result::{Error, Result};
use crate::rm::Group;
use crate::visible::visible;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use xsched_sim::client::{self, Context, Ordering};

/// Default limit of clients' contexts on a device, as NVIDIA documents it for GPUs since Volta.
const CONTEXTS: usize = 48;

/// A context that clients join.
struct Shared {
    sim: &'static Context,
    group: Arc<Group>,
}

impl Shared {
    /// Creates the context on one of the machine's devices. `news` is signalled when it ends.
    fn new(device: usize, news: &Arc<OwnedFd>) -> Result<Self> {
        let number = u8::try_from(device).map_err(|_| Error::INVALID_DEVICE)?;
        let sim = Context::new(number, Ordering::Barrier)?;
        let group = Group::new(sim)?;
        let news = news.clone();
        client::spawn("mps-watch", move || {
            sim.outlast();
            let _ = rustix::io::write(&*news, &1_u64.to_ne_bytes());
        })?;
        Ok(Self { sim, group })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.group.end();
        self.sim.close();
    }
}

struct Device {
    /// The machine's number of the device.
    number: usize,
    shared: Shared,
    /// After a fault: keys of the clients whose contexts it ended. The next context is created when all of them are
    /// gone.
    affected: Option<BTreeSet<u64>>,
}

struct Client {
    connection: OwnedFd,
    pid: i32,
    /// Index of the device, by invitation.
    contexts: BTreeMap<u64, usize>,
    terminated: bool,
}

struct Server {
    control: OwnedFd,
    news: Arc<OwnedFd>,
    log: Log,
    devices: Vec<Device>,
    clients: BTreeMap<u64, Client>,
    next_client: u64,
    /// Limit of clients' contexts on a device.
    most: usize,
    /// Set if the server is to end with its last client.
    quitting: bool,
}

/// Runs the server, with the control daemon at descriptor 0. Returns the exit status.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) extern "C" fn fakeMpsServe() -> c_int {
    let served = Server::new().and_then(Server::serve);
    match served {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("nvidia-cuda-mps-server: {error}");
            1
        }
    }
}

fn failed(error: Error) -> io::Error {
    io::Error::other(format!("no context: CUDA error {}", error.0))
}

impl Server {
    fn new() -> io::Result<Self> {
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let log = Log::open("server.log", "Server")?;
        let news = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let there = client::device_count().map_err(|error| failed(error.into()))? as usize;
        let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let mut devices = Vec::new();
        for number in visible(there, chosen.as_deref()) {
            devices.push(Device { number, shared: Shared::new(number, &news).map_err(failed)?, affected: None });
        }
        let most = match std::env::var("FAKECUDA_MPS_CONTEXTS") {
            Ok(text) => text.parse().map_err(|_| io::Error::other("FAKECUDA_MPS_CONTEXTS: expected a whole number"))?,
            Err(_) => CONTEXTS,
        };
        let (clients, next_client) = (BTreeMap::new(), 1);
        Ok(Self { control, news, log, devices, clients, next_client, most, quitting: false })
    }

    fn serve(mut self) -> io::Result<()> {
        self.log.line("Volta MPS Server: ready");
        packet::send(&self.control, "ready", None)?;
        loop {
            let (ended, talking, told) = self.look()?;
            self.note_faults()?;
            // Ends are handled before requests, so that an answer takes them into account.
            for key in ended {
                self.end_client(key)?;
            }
            for key in talking {
                self.hear_client(key)?;
            }
            if (told && !self.hear_control()?) || (self.quitting && self.clients.is_empty()) {
                self.log.line("Volta MPS Server: exiting");
                return Ok(());
            }
        }
    }

    /// Waits for events. Returns clients that have ended, clients with a request, and whether the control daemon has
    /// one.
    fn look(&self) -> io::Result<(Vec<u64>, Vec<u64>, bool)> {
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN), PollFd::new(&*self.news, PollFlags::IN)];
        fds.extend(self.clients.values().map(|client| PollFd::new(&client.connection, PollFlags::IN)));
        while let Err(error) = poll(&mut fds, None) {
            if error != rustix::io::Errno::INTR {
                return Err(error.into());
            }
        }
        let _ = rustix::io::read(&*self.news, &mut [0; 8]);
        let (mut ended, mut talking) = (Vec::new(), Vec::new());
        for (fd, &key) in fds[2..].iter().zip(self.clients.keys()) {
            if fd.revents().intersects(PollFlags::HUP | PollFlags::ERR) {
                ended.push(key);
            } else if !fd.revents().is_empty() {
                talking.push(key);
            }
        }
        Ok((ended, talking, !fds[0].revents().is_empty()))
    }

    /// Handles kernels that have faulted.
    fn note_faults(&mut self) -> io::Result<()> {
        for (index, device) in self.devices.iter_mut().enumerate() {
            let sim = device.shared.sim;
            if device.affected.is_some() || !sim.has_faulted() {
                if sim.is_lost() {
                    return Err(io::Error::other("the device has ended"));
                }
                continue;
            }
            let here = |client: &Client| client.contexts.values().any(|&other| other == index);
            let affected: BTreeSet<u64> =
                self.clients.iter().filter(|(_, client)| here(client)).map(|(&key, _)| key).collect();
            let (culprit, number) = (sim.culprit(), device.number);
            self.log.line(&format!("Client {{PID: {culprit}, Context: 1}} encountered a fatal GPU error."));
            self.log.line("Server is handling a fatal GPU error.");
            self.log.line(&format!("Client {{PID: {culprit}, Context ID: 1}} on device {number} to be torn down"));
            for client in affected.iter().filter_map(|key| self.clients.get(key)) {
                self.log.line(&format!("Volta MPS: status of client {{{}, 1}} is INACTIVE", client.pid));
            }
            self.log.line("Volta MPS Server: status is FAULT");
            device.affected = Some(affected);
        }
        self.recover()
    }

    /// Creates new contexts on the devices whose affected clients are all gone.
    fn recover(&mut self) -> io::Result<()> {
        for device in &mut self.devices {
            if device.affected.as_ref().is_some_and(BTreeSet::is_empty) {
                device.shared = Shared::new(device.number, &self.news).map_err(failed)?;
                device.affected = None;
                self.log.line(&format!("Volta MPS Server: device {} is ACTIVE again", device.number));
            }
        }
        Ok(())
    }

    fn is_faulted(&self) -> bool {
        self.devices.iter().any(|device| device.affected.is_some())
    }

    fn end_client(&mut self, key: u64) -> io::Result<()> {
        let Some(client) = self.clients.remove(&key) else { return Ok(()) };
        for (&number, &device) in &client.contexts {
            // The device may have noticed earlier, or the context may be gone.
            let _ = self.devices[device].shared.sim.expel(number, false);
        }
        self.log.line(&format!("Client {{{}, 1}} has ended", client.pid));
        for affected in self.devices.iter_mut().filter_map(|device| device.affected.as_mut()) {
            affected.remove(&key);
        }
        self.recover()
    }

    fn hear_client(&mut self, key: u64) -> io::Result<()> {
        let Some(client) = self.clients.get(&key) else { return Ok(()) };
        let Ok((text, _)) = packet::receive(&client.connection) else { return self.end_client(key) };
        let answer = match text.split_once(' ') {
            Some(("context", device)) => match self.context(key, device) {
                Ok(client::Invitation { number, secret }) => format!("ok {number} {secret}"),
                Err(Error(code)) => format!("error {code}"),
            },
            Some(("end", number)) => {
                self.end_context(key, number);
                "ok".into()
            }
            _ => format!("error {}", Error::MPS_RPC_FAILURE.0),
        };
        match self.clients.get(&key).map(|client| packet::send(&client.connection, &answer, None)) {
            Some(Err(_)) => self.end_client(key),
            _ => Ok(()),
        }
    }

    /// Invites a client to create a context on one of the machine's devices.
    fn context(&mut self, key: u64, device: &str) -> Result<client::Invitation> {
        let number: usize = device.parse().map_err(|_| Error::INVALID_DEVICE)?;
        let index = self.devices.iter().position(|device| device.number == number).ok_or(Error::INVALID_DEVICE)?;
        let (device, used) = (&self.devices[index], self.contexts_on(index));
        let client = self.clients.get_mut(&key).ok_or(Error::MPS_RPC_FAILURE)?;
        if client.terminated {
            return Err(Error::MPS_CLIENT_TERMINATED);
        }
        match &device.affected {
            Some(affected) if affected.contains(&key) => return Err(Error::ILLEGAL_ADDRESS),
            Some(_) => return Err(Error::MPS_SERVER_NOT_READY),
            None if used >= self.most => return Err(Error::MPS_MAX_CLIENTS_REACHED),
            None => {}
        }
        let invitation = device.shared.sim.invite().map_err(|_| Error::MPS_SERVER_NOT_READY)?;
        client.contexts.insert(invitation.number, index);
        Ok(invitation)
    }

    fn contexts_on(&self, index: usize) -> usize {
        let all = self.clients.values().flat_map(|client| client.contexts.values());
        all.filter(|&&device| device == index).count()
    }

    fn end_context(&mut self, key: u64, number: &str) {
        let Some(client) = self.clients.get_mut(&key) else { return };
        let Ok(number) = number.parse() else { return };
        if let Some(device) = client.contexts.remove(&number) {
            let _ = self.devices[device].shared.sim.expel(number, false);
        }
    }

    /// Handles a request of the control daemon. Returns false if the server is to end.
    fn hear_control(&mut self) -> io::Result<bool> {
        // A failure means that the control daemon has ended, and the server ends with it.
        let Ok((text, fd)) = packet::receive(&self.control) else { return Ok(false) };
        let answer = match (text.as_str(), fd) {
            ("client", Some(connection)) => {
                self.new_client(connection);
                return Ok(true);
            }
            ("quit", _) => {
                self.quitting = true;
                return Ok(true);
            }
            ("end", _) => return Ok(false),
            ("status", _) => if self.is_faulted() { "ok\nFAULT" } else { "ok\nACTIVE" }.to_string(),
            ("clients", _) => {
                let pids: BTreeSet<i32> = self.clients.values().map(|client| client.pid).collect();
                pids.iter().fold("ok".to_string(), |list, pid| format!("{list}\n{pid}"))
            }
            ("slices", _) => {
                let slice =
                    |device: &Device| format!("\n{} {}", device.number, device.shared.sim.timeslice_ns() / 1000);
                self.devices.iter().fold("ok".to_string(), |list, device| list + &slice(device))
            }
            (other, _) => self.terminate(other.strip_prefix("terminate ").and_then(|pid| pid.parse().ok())),
        };
        packet::send(&self.control, &answer, None)?;
        Ok(true)
    }

    fn new_client(&mut self, connection: OwnedFd) {
        let pid = peer(connection.as_fd());
        let answer = if self.is_faulted() {
            self.log.line(&format!("Client {{{pid}, 1}} is refused: status is FAULT"));
            format!("error {}", Error::MPS_SERVER_NOT_READY.0)
        } else {
            self.devices.iter().fold("ok".to_string(), |list, device| format!("{list} {}", device.number))
        };
        if packet::send(&connection, &answer, None).is_ok() && answer.starts_with("ok") {
            self.log.line(&format!("Volta MPS Server: Received new client request from {{{pid}, 1}}"));
            let client = Client { connection, pid, contexts: BTreeMap::new(), terminated: false };
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
        }
    }

    /// Ends the contexts of a client.
    fn terminate(&mut self, pid: Option<i32>) -> String {
        let mut known = false;
        for client in self.clients.values_mut().filter(|client| Some(client.pid) == pid) {
            known = true;
            client.terminated = true;
            for (number, device) in std::mem::take(&mut client.contexts) {
                let _ = self.devices[device].shared.sim.expel(number, true);
            }
            self.log.line(&format!("Client {{{}, 1}} is terminated", client.pid));
        }
        if known { "ok".into() } else { "error\nno such client".into() }
    }
}

/// Process ID of the other end.
fn peer(connection: BorrowedFd<'_>) -> i32 {
    rustix::net::sockopt::socket_peercred(connection).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}
