//! Requests to the daemon, with its failures as a command reports them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
pub use xsched_proto::ask::{NoAnswer, readable, tell};
use xsched_proto::paths::{self, Origin};
use xsched_proto::rendezvous;
use xsched_proto::wire::{DaemonMsg, Request};

use crate::failure::Error;
use crate::folders;

/// Longest time between two parts of an answer of the daemon.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest such time where programs move memory before the daemon answers: it gives up after 120 s.
const MOVE_PATIENCE: Duration = Duration::from_secs(150);

/// Longest time to wait for a daemon to listen again at a socket whose file was removed.
const RETURN: Duration = Duration::from_secs(2);
/// Longest wait for a daemon that another command starts: that gives up after 10 s.
const START: Duration = Duration::from_secs(11);
/// Pause between two looks for it.
const STEP: Duration = Duration::from_millis(2);

/// Connects to the socket of a daemon of this user or root. A daemon whose socket's file is gone is asked to make it again.
///
/// # Errors
/// [`NoAnswer::NotConnected`], [`NoAnswer::Distrusted`].
pub fn connect(socket: &Path) -> Result<std::os::fd::OwnedFd, NoAnswer> {
    use rustix::io::Errno;
    match xsched_proto::ask::connect(socket) {
        Err(NoAnswer::NotConnected(Errno::NOENT | Errno::CONNREFUSED)) if rendezvous::call(socket, RETURN) => {
            xsched_proto::ask::connect(socket)
        }
        answer => answer,
    }
}

/// File that a command locks while it starts the daemon of a socket.
pub fn starters_lock(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".lock");
    path.into()
}

/// Reports whether a command starts the daemon of a socket just now.
fn is_being_started(socket: &Path) -> bool {
    let locked = |file: File| rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    // In a folder of others there may be a link, or a FIFO, which would block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(starters_lock(socket)).is_ok_and(locked)
}

/// Connects as [`connect`] does; to a daemon that is being started, once it answers.
fn connect_once_started(socket: &Path) -> Result<std::os::fd::OwnedFd, NoAnswer> {
    use rustix::io::Errno;
    let give_up = Instant::now() + START;
    loop {
        // A starter that is gone by the next look has left a daemon.
        let waits = is_being_started(socket) && Instant::now() < give_up;
        match connect(socket) {
            Err(NoAnswer::NotConnected(Errno::NOENT | Errno::CONNREFUSED)) if waits => std::thread::sleep(STEP),
            answer => return answer,
        }
    }
}

/// Socket of the daemon, for a command that does not start one.
fn find(socket: Option<&Path>) -> Result<PathBuf, Error> {
    let (path, origin) = paths::socket_path(socket.map(Path::to_owned));
    if origin == Origin::User {
        // A folder of another user would lead to another user's daemon.
        if let Some(folder) = path.parent().filter(|f| f.symlink_metadata().is_ok()) {
            folders::private(folder)?;
        }
    }
    Ok(path)
}

/// Error for a daemon that exists and does not answer.
pub fn stopped(socket: &Path) -> Error {
    Error::environment(format!("the daemon at {} does not answer; is it stopped (`ps` state T)?", socket.display()))
}

/// Sends one request and gathers the answer.
///
/// # Errors
/// Exit code 2 for a request that the daemon rejects as faulty; 3 when there is no daemon, no permission, or no answer.
pub fn ask(socket: Option<&Path>, request: Request) -> Result<Vec<DaemonMsg>, Error> {
    Connection::open(socket)?.ask(request)
}

/// Process id of the daemon that serves at a socket, as seen from here; none where there is none.
pub fn server(socket: &Path) -> Option<u32> {
    use std::os::fd::AsFd;
    let fd = connect(socket).ok()?;
    xsched_proto::trust::peer(fd.as_fd()).map(|(pid, _)| pid)
}

/// Connection for several requests.
pub struct Connection {
    fd: std::os::fd::OwnedFd,
    path: PathBuf,
}

impl Connection {
    /// Connects to the daemon at a socket; none = the one that is found by itself.
    pub fn open(socket: Option<&Path>) -> Result<Connection, Error> {
        let path = find(socket)?;
        let fd = connect_once_started(&path).map_err(|why| told(&path, why))?;
        Ok(Connection { fd, path })
    }

    /// Sends a request as [`ask`] does. After a failure that the daemon did not report itself the connection must not be used again.
    pub fn ask(&self, request: Request) -> Result<Vec<DaemonMsg>, Error> {
        let patience = match request {
            Request::Freeze { .. } | Request::Thaw { .. } => MOVE_PATIENCE,
            _ => PATIENCE,
        };
        xsched_proto::ask::ask_on(&self.fd, request, patience).map_err(|why| told(&self.path, why))
    }
}

/// Sends one request and gathers the answer; none where nothing listens.
pub fn ask_if_there(socket: Option<&Path>, request: Request) -> Result<Option<Vec<DaemonMsg>>, Error> {
    use rustix::io::Errno;
    let path = find(socket)?;
    match connect_once_started(&path).and_then(|fd| xsched_proto::ask::ask_on(&fd, request, PATIENCE)) {
        Ok(answer) => Ok(Some(answer)),
        Err(NoAnswer::NotConnected(Errno::NOENT | Errno::CONNREFUSED)) => Ok(None),
        Err(why) => Err(told(&path, why)),
    }
}

/// Error where nothing listens at a socket; none = the one that is found by itself.
pub fn absent(socket: Option<&Path>) -> Error {
    let path = paths::socket_path(socket.map(Path::to_owned)).0;
    told(&path, NoAnswer::NotConnected(rustix::io::Errno::NOENT))
}

/// Error for a missing answer, as a command reports it.
fn told(path: &Path, why: NoAnswer) -> Error {
    use rustix::io::Errno;
    let at = path.display();
    match why {
        NoAnswer::NotConnected(Errno::NOENT | Errno::CONNREFUSED) => Error::environment(format!(
            "no daemon answers at {at}: start one with `xsched daemon`; `xsched run` starts one by itself"
        )),
        NoAnswer::Refused(why) => why,
        NoAnswer::Distrusted(why) => Error::environment(why),
        NoAnswer::NotConnected(Errno::ACCESS | Errno::PERM) => {
            Error::environment(format!("no permission to talk to the daemon at {at}"))
        }
        NoAnswer::NotConnected(Errno::AGAIN) | NoAnswer::Silent => stopped(path),
        NoAnswer::NotConnected(e) => Error::environment(format!("the daemon at {at} cannot be connected to: {e}")),
        NoAnswer::Lost(e) => Error::environment(format!("lost the daemon at {at}: {e}")),
        NoAnswer::HungUp => {
            Error::environment(format!("the daemon at {at} hung up; is it of another version? See its log"))
        }
        NoAnswer::Unreadable(e) => Error::environment(format!(
            "the daemon at {at} speaks another language ({e}); restart it with this version"
        )),
    }
}
