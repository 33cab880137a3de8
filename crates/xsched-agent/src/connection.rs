//! Connection to the daemon over its socket.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use xsched_core::{Descriptor, now_ns};
use xsched_proto::Error;
use xsched_proto::program::{own_command, own_title};
use xsched_proto::wire::{ClientMsg, DaemonMsg, MAX_PACKET, ProgramOptions, decode, encode};
use xsched_proto::{PROTOCOL_VERSION, rendezvous, trust};

/// Longest time that a daemon may take to end a connection, in ns.
const PARTING_NS: u64 = 500_000_000;

/// Longest wait for a daemon to listen again at a socket whose file is gone: a first launch waits 100 ms for its registration.
const RETURN: Duration = Duration::from_millis(50);
const CLOSED: &str = "the program closed the connection to the daemon";

/// A connection on which [`ClientMsg::Hello`] was sent.
pub(crate) struct Connection {
    socket: Descriptor,
    waiting: VecDeque<Vec<u8>>,
    buffer: Vec<u8>,
    is_refused: bool,
    /// Time from its refusal after which this program is to ask again, in ns, as the daemon wants it.
    ask_again_ns: Option<u64>,
}

/// Message from the daemon, and the descriptor that came with it.
pub(crate) type Received = (DaemonMsg, Option<OwnedFd>);

impl Connection {
    /// Connects to a daemon of this user or root and introduces this process. Does not wait for the answer.
    pub(crate) fn open(
        path: &Path,
        options: &ProgramOptions,
        segment: BorrowedFd<'_>,
        event: BorrowedFd<'_>,
    ) -> Result<Connection, Error> {
        let fail = |what: &str, e: Errno| Error::environment(format!("{what} {}: {e}", path.display()));
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
                .map_err(|e| fail("cannot make a socket for", e))?;
        let address = SocketAddrUnix::new(path).map_err(|e| fail("bad socket path", e))?;
        let mut connected = connect(&socket, &address);
        if matches!(connected, Err(Errno::NOENT | Errno::CONNREFUSED)) && rendezvous::call(path, RETURN) {
            connected = connect(&socket, &address);
        }
        connected.map_err(|e| fail("no daemon at", e))?;
        trust::check_daemon(socket.as_fd(), path)?;
        // Some kernels have no pidfds: the daemon does without.
        let me = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy().into_owned();
        let mut options = ProgramOptions { exe, ..options.clone() };
        if options.command.is_empty() {
            options.command = own_command();
        }
        options.title = own_title(&options.command);
        let hello = encode(&ClientMsg::Hello { version: PROTOCOL_VERSION, options })?;
        let fds: Vec<_> = [segment, event].into_iter().chain(me.as_ref().map(|me| me.as_fd())).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(&socket, &[IoSlice::new(&hello)], &mut ancillary, SendFlags::NOSIGNAL);
        let (waiting, buffer) = (VecDeque::new(), vec![0; MAX_PACKET]);
        let mut connection = Connection { socket: Descriptor::new(socket), waiting, buffer, is_refused: false, ask_again_ns: None };
        match sent {
            // A daemon that has turned this process away has said why before: that is received next.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(connection),
            Err(e) => Err(connection.last_words().unwrap_or_else(|| fail("cannot greet the daemon at", e))),
        }
    }

    /// True once the daemon has refused this program.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Time after which a program that was refused for want of room is to ask again, in ns; none = the daemon gave none.
    pub(crate) fn ask_again_ns(&self) -> Option<u64> {
        self.ask_again_ns
    }

    /// Reason that the daemon gave before it ended the connection; none = it gave none.
    fn last_words(&mut self) -> Option<Error> {
        while let Ok(Some((message, _))) = self.receive() {
            if let DaemonMsg::Refused(why) = message {
                return Some(why.within("refused by the daemon"));
            }
        }
        None
    }

    /// The socket, unless the application closed it.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get()
    }

    /// True: messages wait for room in the socket.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends a message, or keeps it for later when the socket is full. An error means that the connection is over.
    pub(crate) fn send(&mut self, message: &ClientMsg) -> Result<(), Error> {
        self.waiting.push_back(encode(message)?);
        self.push()
    }

    /// Sends the messages that wait.
    pub(crate) fn push(&mut self) -> Result<(), Error> {
        while let Some(packet) = self.waiting.front() {
            match rustix::net::send(
                self.socket.get().ok_or_else(|| Error::environment(CLOSED))?,
                packet,
                SendFlags::NOSIGNAL,
            ) {
                Ok(_) => {
                    self.waiting.pop_front();
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => {
                    let gone = || Error::environment(format!("the daemon is gone: {e}"));
                    return Err(self.last_words().unwrap_or_else(gone));
                }
            }
        }
        Ok(())
    }

    /// Ends the connection. Returns once the daemon has released this process's resources, or after [`PARTING_NS`].
    pub(crate) fn end(mut self) {
        let until = now_ns() + PARTING_NS;
        let shut = self.socket.get().is_some_and(|s| rustix::net::shutdown(s, rustix::net::Shutdown::Write).is_ok());
        while shut && self.receive().is_ok() {
            let left = until.saturating_sub(now_ns());
            let Some(socket) = self.socket.get().filter(|_| left > 0) else { return };
            let timeout = Timespec { tv_sec: (left / 1_000_000_000) as _, tv_nsec: (left % 1_000_000_000) as _ };
            let _ = poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&timeout));
        }
    }

    /// The next message, if one is there. The time for the next attempt is kept for [`Connection::ask_again_ns`].
    pub(crate) fn receive(&mut self) -> Result<Option<Received>, Error> {
        loop {
            match self.receive_any()? {
                Some((DaemonMsg::AskAgain { after_ms }, _)) => {
                    self.ask_again_ns = Some(u64::from(after_ms) * 1_000_000);
                }
                message => return Ok(message),
            }
        }
    }

    fn receive_any(&mut self) -> Result<Option<Received>, Error> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            match recvmsg(
                self.socket.get().ok_or_else(|| Error::environment(CLOSED))?,
                &mut [IoSliceMut::new(&mut self.buffer)],
                &mut ancillary,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                // The error is reported once when a daemon ends the connection with a packet unread; its last messages come after.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(e) => return Err(Error::environment(format!("the daemon is gone: {e}"))),
                Ok(got) => break got,
            }
        };
        if got.bytes == 0 {
            return Err(Error::environment("the daemon is gone"));
        }
        let mut fd = None;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                fd = fds.last();
            }
        }
        let another = "the daemon is of another version: install one, and restart the daemon";
        let message = decode(&self.buffer[..got.bytes]).map_err(|e| e.within(another))?;
        self.is_refused |= matches!(message, DaemonMsg::Refused(_));
        Ok(Some((message, fd)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Connects to a socket that is listened on. Returns the bytes of the greeting, or the reason why there was none.
    fn attempt(listener: &OwnedFd, path: &Path) -> Result<usize, Error> {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let opened = Connection::open(path, &ProgramOptions::default(), event.as_fd(), event.as_fd());
        let accepted = rustix::net::accept(listener).unwrap();
        let mut buffer = vec![0; MAX_PACKET];
        let (bytes, _) = rustix::net::recv(&accepted, buffer.as_mut_slice(), RecvFlags::empty()).unwrap();
        match opened {
            Ok(_) => Ok(bytes),
            Err(why) => {
                assert_eq!(bytes, 0, "it is told nothing");
                Err(why)
            }
        }
    }

    fn listen(path: &Path) -> OwnedFd {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&socket, 8).unwrap();
        socket
    }

    #[test]
    fn the_time_to_ask_again_comes_with_the_refusal_and_is_no_message_of_its_own() {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (daemon, ours) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let (waiting, buffer) = (VecDeque::new(), vec![0; MAX_PACKET]);
        let socket = Descriptor::new(ours);
        let mut connection = Connection { socket, waiting, buffer, is_refused: false, ask_again_ns: None };
        let why = Error::environment("all are taken");
        for message in [DaemonMsg::AskAgain { after_ms: 1_700 }, DaemonMsg::Refused(why.clone())] {
            rustix::net::send(&daemon, &encode(&message).unwrap(), SendFlags::NOSIGNAL).unwrap();
        }
        let received = connection.receive().unwrap().map(|(message, _)| message);
        assert_eq!(received, Some(DaemonMsg::Refused(why)));
        assert_eq!((connection.is_refused(), connection.ask_again_ns()), (true, Some(1_700_000_000)));
    }

    #[test]
    fn only_a_daemon_of_this_user_or_root_is_told_anything() {
        let folder = std::env::temp_dir().join(format!("xsched-agent-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mode = |mode| std::fs::set_permissions(&folder, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o700);
        let path = folder.join("own");
        let own = listen(&path);
        assert!(attempt(&own, &path).unwrap() > 0);
        mode(0o777);
        assert!(attempt(&own, &path).unwrap_err().line().contains("others may write to the folder"));
        if rustix::process::geteuid().is_root() {
            // A thread of another user begins to listen.
            mode(0o1777);
            let path = folder.join("other");
            let other = std::thread::scope(|scope| {
                let body = || {
                    // SAFETY: the bare call changes this thread alone, which ends soon.
                    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, 12_345, 12_345, 12_345) }, 0);
                    listen(&path)
                };
                scope.spawn(body).join().unwrap()
            });
            mode(0o700);
            assert!(attempt(&other, &path).unwrap_err().line().contains("belongs to user 12345"));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
