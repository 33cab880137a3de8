//! Where the daemon's socket lies.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::variables;

/// The socket of a daemon that serves the whole machine.
pub const SYSTEM_SOCKET: &str = "/run/xsched/xsched.sock";
/// The socket's name in a user's folder.
const SOCKET: &str = "xsched.sock";

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

/// Finds the socket: `explicit`, else `XSCHED_SOCKET`, else the system daemon's if it is there, else that in [`user_folder`].
pub fn socket_path(explicit: Option<PathBuf>) -> (PathBuf, Origin) {
    if let Some(path) = explicit.or_else(|| variables::get("XSCHED_SOCKET").map(PathBuf::from)) {
        return (path, Origin::Explicit);
    }
    let system = PathBuf::from(SYSTEM_SOCKET);
    if system.exists() {
        return (system, Origin::System);
    }
    (user_folder().join(SOCKET), Origin::User)
}

/// The folder of what lives as long as this user's session: `$XDG_RUNTIME_DIR/xsched`, else `/run/user/UID/xsched` where the
/// session's folder is there, else `/tmp/xsched-UID`.
///
/// The second is what the first is in a login session: a program of `cron`, `sudo -u` or `docker exec`, which has no such
/// variable, finds the same daemon.
pub fn user_folder() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    user_folder_below(Path::new("/"), uid, variables::get("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// Under `/tmp`, where anybody may make names.
pub fn shared_tmp() -> PathBuf {
    tmp_below(Path::new("/"), rustix::process::geteuid().as_raw())
}

/// Every place where a program of this user may look for a daemon without being told: the machine's, and those of
/// [`user_folder`], whatever the environment of this process.
pub fn usual_sockets() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let session = variables::get("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("xsched"));
    let of_users = [session, Some(session_below(Path::new("/"), uid).join("xsched")), Some(shared_tmp())];
    let mut sockets = vec![PathBuf::from(SYSTEM_SOCKET)];
    for socket in of_users.into_iter().flatten().map(|folder| folder.join(SOCKET)) {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// The socket that another process finds by itself: `root` is where its root folder is to be seen from here, `uid` whose it is,
/// `var` reads its environment. The path is as the process names it.
pub fn socket_path_of(root: &Path, uid: u32, var: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    if let Some(path) = var("XSCHED_SOCKET") {
        return path;
    }
    if root.join(SYSTEM_SOCKET.trim_start_matches('/')).exists() {
        return SYSTEM_SOCKET.into();
    }
    let folder = match var("XDG_RUNTIME_DIR") {
        Some(session) => session.join("xsched"),
        None => user_folder_below(root, uid, None),
    };
    Path::new("/").join(folder.strip_prefix(root).unwrap_or(&folder)).join(SOCKET)
}

fn user_folder_below(root: &Path, uid: u32, session: Option<PathBuf>) -> PathBuf {
    let session = session.or_else(|| Some(session_below(root, uid)).filter(|folder| is_of_session(folder, uid)));
    session.map_or_else(|| tmp_below(root, uid), |folder| folder.join("xsched"))
}

fn session_below(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("run/user/{uid}"))
}

fn tmp_below(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("tmp/xsched-{uid}"))
}

/// Whether a folder is what a login manager makes for a session: the user's, and nobody else's.
fn is_of_session(folder: &Path, uid: u32) -> bool {
    folder.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o7777 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn without_a_variable_the_sessions_folder_is_found_if_it_is_the_users_alone() {
        let root = std::env::temp_dir().join(format!("xsched-paths-{}", std::process::id()));
        let uid = rustix::process::geteuid().as_raw();
        let session = session_below(&root, uid);
        let found = |variable: Option<&str>| user_folder_below(&root, uid, variable.map(PathBuf::from));
        let tmp = root.join(format!("tmp/xsched-{uid}"));
        assert_eq!(found(None), tmp, "there is none");
        assert_eq!(found(Some("/r")), Path::new("/r/xsched"), "the variable goes before");
        std::fs::create_dir_all(&session).unwrap();
        let with_mode = |mode| {
            std::fs::set_permissions(&session, PermissionsExt::from_mode(mode)).unwrap();
            found(None)
        };
        assert_eq!(with_mode(0o700), session.join("xsched"));
        for mode in [0o755, 0o777, 0o1700, 0o500] {
            assert_eq!(with_mode(mode), tmp, "{mode:o}");
        }
        with_mode(0o700);
        let of = |name: &str, value: &str| {
            let var = |asked: &str| (asked == name).then(|| PathBuf::from(value));
            socket_path_of(&root, uid, var)
        };
        assert_eq!(of("", ""), Path::new("/").join(format!("run/user/{uid}/xsched/xsched.sock")), "as it names it");
        assert_eq!(of("XDG_RUNTIME_DIR", "/r"), Path::new("/r/xsched/xsched.sock"));
        assert_eq!(of("XSCHED_SOCKET", "/s"), Path::new("/s"));
        assert_eq!(user_folder_below(&root, uid + 1, None), root.join(format!("tmp/xsched-{}", uid + 1)));
        // A folder of this user's under another one's number, and a link.
        let other = session_below(&root, uid + 1);
        std::fs::create_dir(&other).unwrap();
        std::fs::set_permissions(&other, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(user_folder_below(&root, uid + 1, None), root.join(format!("tmp/xsched-{}", uid + 1)));
        std::fs::rename(&session, root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(root.join("elsewhere"), &session).unwrap();
        assert_eq!(found(None), tmp);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
