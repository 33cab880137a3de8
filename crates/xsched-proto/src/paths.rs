//! Where the daemon's socket lies.

use std::path::PathBuf;

/// The socket of a daemon that serves the whole machine.
pub const SYSTEM_SOCKET: &str = "/run/xsched/xsched.sock";

/// How the socket's path was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Given on the command line or in `XSCHED_SOCKET`.
    Explicit,
    /// The system daemon's; a user daemon is then never started.
    System,
    /// The user's own runtime folder.
    User,
}

/// Finds the socket: `explicit`, else `XSCHED_SOCKET`, else the system daemon's if it is there, else
/// `$XDG_RUNTIME_DIR/xsched/xsched.sock`, else `/tmp/xsched-$UID/xsched.sock`.
pub fn socket_path(explicit: Option<PathBuf>) -> (PathBuf, Origin) {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(path) = explicit.or_else(|| set("XSCHED_SOCKET")) {
        return (path, Origin::Explicit);
    }
    let system = PathBuf::from(SYSTEM_SOCKET);
    if system.exists() {
        return (system, Origin::System);
    }
    let folder = match set("XDG_RUNTIME_DIR") {
        Some(dir) => dir.join("xsched"),
        None => PathBuf::from(format!("/tmp/xsched-{}", rustix::process::geteuid().as_raw())),
    };
    (folder.join("xsched.sock"), Origin::User)
}
