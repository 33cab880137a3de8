//! Records of usage without a daemon: that of the user ends soon after the last program, and its records stay.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xsched_command::folders;
use xsched_daemon::StoredUsage;
use xsched_proto::paths;

use crate::client;
use crate::failure::{Result, say};

/// Records of the daemon that would answer at a socket, with a line on stderr about where they are.
///
/// # Errors
/// Where there are none: that no daemon answers.
pub(crate) fn find(socket: Option<&Path>) -> Result<StoredUsage> {
    let (path, origin) = paths::socket_path(socket.map(Path::to_owned));
    let own = folders::state().and_then(|state| StoredUsage::find(&state, &path));
    // Records of the machine's daemon, whose socket may be gone with it, belong to root.
    let is_asked = path == Path::new(paths::SYSTEM_SOCKET) || origin != paths::Origin::Explicit;
    let system = || StoredUsage::find(&PathBuf::from("/var/lib/xsched"), Path::new(paths::SYSTEM_SOCKET));
    let is_root = rustix::process::geteuid().is_root();
    let found = own.or_else(|| if is_asked && is_root { system() } else { None });
    let stored = found.ok_or_else(|| client::absent(socket))?;
    let (at, folder) = (path.display(), stored.path().display());
    say(&format!("no daemon answers at {at}: this is of its records in {folder}"));
    Ok(stored)
}

/// Time so long ago, in ms since 1970.
pub(crate) fn ms_before_now(time: Duration) -> u64 {
    let at = SystemTime::now().checked_sub(time).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    u64::try_from(at.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
