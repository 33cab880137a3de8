//! Requests to the daemon, with its failures as a command reports them.

use std::path::Path;
use std::time::Duration;

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

/// Socket of the daemon, for a command that does not start one.
fn find(socket: Option<&Path>) -> Result<std::path::PathBuf, Error> {
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
    path: std::path::PathBuf,
}

impl Connection {
    /// Connects to the daemon at a socket; none = the one that is found by itself.
    pub fn open(socket: Option<&Path>) -> Result<Connection, Error> {
        let path = find(socket)?;
        let fd = connect(&path).map_err(|why| told(&path, why))?;
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
    match connect(&path).and_then(|fd| xsched_proto::ask::ask_on(&fd, request, PATIENCE)) {
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
