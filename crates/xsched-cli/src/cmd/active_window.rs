//! `xsched active-window`: tells the daemon to which process the active window belongs. It runs in the user's own session, so that the
//! daemon needs no access to any display.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{Atom, AtomEnum, ChangeWindowAttributesAux, ConnectionExt, EventMask, Window};
use x11rb::rust_connection::RustConnection;
use xsched_proto::wire::Request;

use crate::client;
use crate::failure::{Error, Result, say};
use crate::values;

/// Report the active window to the daemon, for the policy awf (X11)
///
/// Runs until the session ends, best started with it. Programs count as active when the active window belongs to them or to a
/// process that started them. In a Wayland session use `xsched hint --pid PID --active on`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The X display [default: $DISPLAY]
    #[arg(long, value_name = "NAME")]
    display: Option<String>,

    /// The daemon's socket [default: $XSCHED_SOCKET, the system's, the user's]
    #[arg(long, value_name = "PATH", value_parser = values::socket)]
    socket: Option<PathBuf>,
}

/// Time after which news that a daemon did not take are sent again.
const AGAIN: Duration = Duration::from_secs(2);

/// Longest wait for a display to take a connection and answer.
const PATIENCE: Duration = Duration::from_secs(5);

x11rb::atom_manager! {
    /// Properties of the Extended Window Manager Hints that window managers set.
    Atoms: AtomsCookie {
        _NET_ACTIVE_WINDOW,
        _NET_WM_PID,
        WM_CLIENT_MACHINE,
    }
}

struct Session {
    x: RustConnection,
    root: Window,
    atoms: Atoms,
    host: Vec<u8>,
}

/// Runs until the session ends.
pub(crate) fn main(args: Args) -> Result {
    let session = opened(args.display)?;
    let mut told: Option<Option<u32>> = None;
    let mut complained = false;
    loop {
        let pid = session.active_process()?;
        if told != Some(pid) {
            match client::ask(args.socket.as_deref(), Request::ActiveWindow { pid }) {
                Ok(_) => (told, complained) = (Some(pid), false),
                // A daemon may come later.
                Err(why) if !std::mem::replace(&mut complained, true) => {
                    say(&format!("{}; it is told as soon as it answers", why.line()));
                }
                Err(_) => {}
            }
        }
        session.wait((told != Some(pid)).then_some(AGAIN))?;
    }
}

/// Opens the session, if the display answers in time: one that hangs accepts a connection and sends nothing.
fn opened(display: Option<String>) -> std::result::Result<Session, Error> {
    let (done, opened) = std::sync::mpsc::channel();
    // The receiver may have stopped waiting.
    std::thread::spawn(move || drop(done.send(Box::new(Session::open(display.as_deref())))));
    match opened.recv_timeout(PATIENCE) {
        Ok(session) => *session,
        Err(_) => {
            let s = PATIENCE.as_secs();
            Err(Error::environment(format!("the X11 display does not answer within {s} s: set DISPLAY or --display")))
        }
    }
}

/// Error for a display that does not answer any more: the session is over.
fn over(why: impl std::fmt::Display) -> Error {
    Error::environment(format!("the X11 session has ended ({why})"))
}

impl Session {
    fn open(display: Option<&str>) -> std::result::Result<Session, Error> {
        let (x, screen) = RustConnection::connect(display).map_err(|why| {
            Error::environment(format!(
                "no X11 display answers ({why}): set DISPLAY, or use `xsched hint --pid PID --active on`"
            ))
        })?;
        let root = x.setup().roots[screen].root;
        let atoms = Atoms::new(&x).map_err(over)?.reply().map_err(over)?;
        let listen = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        x.change_window_attributes(root, &listen).map_err(over)?.check().map_err(over)?;
        let host = rustix::system::uname().nodename().to_bytes().to_vec();
        Ok(Session { x, root, atoms, host })
    }

    fn property(&self, window: Window, name: Atom, kind: AtomEnum) -> std::result::Result<Vec<u8>, Error> {
        let reply = self.x.get_property(false, window, name, kind, 0, 64).map_err(over)?.reply();
        match reply {
            Ok(property) => Ok(property.value),
            // The window no longer exists.
            Err(x11rb::errors::ReplyError::X11Error(_)) => Ok(Vec::new()),
            Err(why) => Err(over(why)),
        }
    }

    fn number(&self, window: Window, name: Atom, kind: AtomEnum) -> std::result::Result<Option<u32>, Error> {
        let bytes = self.property(window, name, kind)?;
        Ok(bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)).filter(|n| *n != 0))
    }

    /// Process of the active window; none if there is no such window, or its process is not of this machine.
    fn active_process(&self) -> std::result::Result<Option<u32>, Error> {
        let Some(window) = self.number(self.root, self.atoms._NET_ACTIVE_WINDOW, AtomEnum::WINDOW)? else {
            return Ok(None);
        };
        let machine = self.property(window, self.atoms.WM_CLIENT_MACHINE, AtomEnum::STRING)?;
        if !machine.is_empty() && machine != self.host {
            return Ok(None);
        }
        self.number(window, self.atoms._NET_WM_PID, AtomEnum::CARDINAL)
    }

    /// Waits for an event, up to a time limit.
    fn wait(&self, limit: Option<Duration>) -> std::result::Result<(), Error> {
        self.x.flush().map_err(over)?;
        let mut changed = false;
        while self.x.poll_for_event().map_err(over)?.is_some() {
            changed = true;
        }
        if changed {
            return Ok(());
        }
        let limit = limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.x.stream().as_fd(), PollFlags::IN)], limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(over(why)),
        }
        while self.x.poll_for_event().map_err(over)?.is_some() {}
        Ok(())
    }
}
