//! Asking the daemon, with its failures as a command tells them.

use std::path::Path;
use std::time::Duration;

pub(crate) use xsched_proto::ask::{NoAnswer, connect, readable, tell};
use xsched_proto::paths::{self, Origin};
use xsched_proto::wire::{DaemonMsg, Request};

use crate::failure::Error;
use crate::folders;

/// Longest silence of the daemon in the middle of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the daemon is, for a command that only talks to it.
fn find(socket: Option<&Path>) -> Result<std::path::PathBuf, Error> {
    let (path, origin) = paths::socket_path(socket.map(Path::to_owned));
    if origin == Origin::User {
        // Another user's folder would mean another user's daemon.
        if let Some(folder) = path.parent().filter(|f| f.symlink_metadata().is_ok()) {
            folders::private(folder)?;
        }
    }
    Ok(path)
}

/// Why a daemon that is there says nothing.
pub(crate) fn stopped(socket: &Path) -> Error {
    Error::environment(format!("the daemon at {} does not answer; is it stopped (`ps` state T)?", socket.display()))
}

/// Sends one request and gathers the answer.
///
/// # Errors
/// Exit code 2 for what the daemon calls a bad request; 3 when there is no daemon, or no permission, or no answer.
pub(crate) fn ask(socket: Option<&Path>, request: Request) -> Result<Vec<DaemonMsg>, Error> {
    ask_if_there(socket, request)?.ok_or_else(|| {
        let (path, _) = paths::socket_path(socket.map(Path::to_owned));
        Error::environment(format!(
            "no daemon answers at {}; `xsched run` starts one with a program, `xsched daemon` without",
            path.display()
        ))
    })
}

/// The same; none where nothing listens.
pub(crate) fn ask_if_there(socket: Option<&Path>, request: Request) -> Result<Option<Vec<DaemonMsg>>, Error> {
    use rustix::io::Errno;
    let path = find(socket)?;
    let at = path.display();
    let why = match xsched_proto::ask::ask(&path, request, PATIENCE) {
        Ok(answer) => return Ok(Some(answer)),
        Err(NoAnswer::NotConnected(Errno::NOENT | Errno::CONNREFUSED)) => return Ok(None),
        Err(why) => why,
    };
    Err(match why {
        NoAnswer::Refused(why) => why,
        NoAnswer::Distrusted(why) => Error::environment(why),
        NoAnswer::NotConnected(Errno::ACCESS | Errno::PERM) => {
            Error::environment(format!("no permission to talk to the daemon at {at}"))
        }
        NoAnswer::NotConnected(Errno::AGAIN) | NoAnswer::Silent => stopped(&path),
        NoAnswer::NotConnected(e) => Error::environment(format!("the daemon at {at} cannot be connected to: {e}")),
        NoAnswer::Lost(e) => Error::environment(format!("lost the daemon at {at}: {e}")),
        NoAnswer::HungUp => {
            Error::environment(format!("the daemon at {at} hung up; is it of another version? See its log"))
        }
        NoAnswer::Unreadable(e) => Error::environment(format!(
            "the daemon at {at} speaks another language ({e}); restart it with this version"
        )),
    })
}
