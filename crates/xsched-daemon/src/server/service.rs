//! Messages to a service manager by the protocol of sd_notify(3): the daemon serves, reads its configuration again or ends, and its loop
//! turns. The loop itself reports its turns: the manager ends and restarts a daemon that hangs.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// First passed descriptor, `SD_LISTEN_FDS_START`.
const FIRST_PASSED: RawFd = 3;
/// Limit of passed sockets, more than any unit has.
const PASSED_MAX: RawFd = 64;

/// Connection to the manager; none outside of a service.
pub(crate) struct Service {
    to: Option<(OwnedFd, SocketAddrUnix)>,
    /// Half of the interval at which the manager expects a report of the loop, and the time of the next one, both in ns.
    every_ns: Option<u64>,
    next_ns: u64,
}

impl Service {
    /// Makes the connection to this process's service manager, as the environment names it.
    pub(crate) fn new() -> Service {
        let var = |name: &str| std::env::var(name).ok();
        let number = |name: &str| var(name)?.parse::<u64>().ok();
        let to = var("NOTIFY_SOCKET").as_deref().and_then(address).and_then(|address| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
            Some((socket, address))
        });
        let for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let every_us = number("WATCHDOG_USEC").filter(|us| *us > 0 && for_us && to.is_some());
        Service { to, every_ns: every_us.map(|us| us.saturating_mul(1_000) / 2), next_ns: 0 }
    }

    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports that the configuration is read again; [`Service::ready`] reports the end of that.
    pub(crate) fn reloading(&self, now_ns: u64) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now_ns / 1_000));
    }

    pub(crate) fn ending(&self) {
        self.tell("STOPPING=1");
    }

    /// Reports that the loop has turned, if a report is due.
    pub(crate) fn turned(&mut self, now_ns: u64) {
        if let Some(every_ns) = self.every_ns.filter(|_| now_ns >= self.next_ns) {
            self.tell("WATCHDOG=1");
            self.next_ns = now_ns.saturating_add(every_ns);
        }
    }

    /// Time at which the loop has to turn next, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.every_ns.map(|_| self.next_ns)
    }

    fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.to {
            // The daemon does not wait for a manager that does not listen.
            let _ = rustix::net::sendto(socket, what.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT, address);
        }
    }
}

/// Takes the listening socket of an address that the manager has passed to this process, by the protocol of sd_listen_fds(3). Sockets are
/// passed once: a second call finds none.
pub(crate) fn passed_listener(address: SocketAddr) -> Option<TcpListener> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Relaxed) {
        return None;
    }
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0).min(PASSED_MAX);
    let sockets = (FIRST_PASSED..FIRST_PASSED + count).map(|fd| {
        // SAFETY: the manager has opened it for this process, which nothing else of it knows of, and this is done once.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let _ = rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC);
        TcpListener::from(fd)
    });
    // All sockets are taken over, so that no child process inherits the others.
    let sockets: Vec<TcpListener> = sockets.collect();
    let listener = sockets.into_iter().find(|socket| socket.local_addr().is_ok_and(|own| own == address))?;
    listener.set_nonblocking(false).ok()?;
    Some(listener)
}

/// Reports whether no port of this service can be reached: it is confined to unix sockets (`RestrictAddressFamilies=`), or to a network
/// that the rest of the machine does not reach (`PrivateNetwork=`).
pub(crate) fn has_no_port_of_its_own() -> bool {
    let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let has_other_network = || matches!((of("self"), of("1")), (Some(own), Some(first)) if own != first);
    let has_no_internet = || {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        socket.is_err_and(|e| e == rustix::io::Errno::AFNOSUPPORT)
    };
    std::env::var_os("INVOCATION_ID").is_some() && (has_no_internet() || has_other_network())
}

/// Address of a path, or of `@` and an abstract name.
fn address(text: &str) -> Option<SocketAddrUnix> {
    match text.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()).ok(),
        None => SocketAddrUnix::new(text).ok().filter(|_| text.starts_with('/')),
    }
}

/// Reports whether there was a terminal when the daemon started.
pub(crate) fn has_terminal() -> bool {
    terminal().is_some_and(|is| is.is_ok())
}

/// Reports whether that terminal is gone: it was closed, so that nothing ends a daemon in the foreground any more.
pub(crate) fn terminal_is_gone() -> bool {
    terminal().is_some_and(|is| is == Err(rustix::io::Errno::IO))
}

/// State of a terminal among the first three descriptors; none where there is none.
fn terminal() -> Option<rustix::io::Result<()>> {
    let asked = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()]
        .map(|fd| rustix::termios::tcgetattr(fd).map(|_| ()));
    asked.into_iter().find(|answer| matches!(answer, Ok(()) | Err(rustix::io::Errno::IO)))
}
