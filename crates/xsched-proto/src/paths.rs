//! Path of the daemon's socket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::variables;

/// Socket of a daemon that serves the whole machine.
pub const SYSTEM_SOCKET: &str = "/run/xsched/xsched.sock";
/// File name of the socket in a user's folder.
const SOCKET: &str = "xsched.sock";

/// Origin of the socket's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The path was given on the command line or in `XSCHED_SOCKET`.
    Explicit,
    /// The system daemon's socket; a user daemon is then never started.
    System,
    /// The path is in the user's own runtime folder.
    User,
}

/// Finds the socket: `explicit`, or else `XSCHED_SOCKET`, or else the system daemon's if it exists, or else the one in [`user_folder`].
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

/// Folder for files that live as long as this user's session: `$XDG_RUNTIME_DIR/xsched` where that folder is this user's, else
/// `/run/user/UID/xsched` where the session's folder exists, else `/tmp/xsched-UID`.
///
/// The second equals the first in a login session. So a program started by `cron`, `sudo -u` or `docker exec`, which has no such variable,
/// finds the same daemon; and so does a program started by `su` or `sudo -E`, whose variable still names another user's folder, and one
/// that outlives its session, whose folder is gone.
pub fn user_folder() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    user_folder_below(Path::new("/"), uid, variables::get("XDG_RUNTIME_DIR").map(PathBuf::from))
}

/// Folder of this user under `/tmp`, where any user may create names.
pub fn shared_tmp() -> PathBuf {
    tmp_below(Path::new("/"), rustix::process::geteuid().as_raw())
}

/// Every path at which a program of this user may look for a daemon by itself: the machine's, and those of [`user_folder`], whatever the
/// environment of this process.
pub fn usual_sockets() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let session = variables::get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| is_own(folder, uid));
    let session = session.map(|folder| folder.join("xsched"));
    let of_users = [session, Some(session_below(Path::new("/"), uid).join("xsched")), Some(shared_tmp())];
    let mut sockets = vec![PathBuf::from(SYSTEM_SOCKET)];
    for socket in of_users.into_iter().flatten().map(|folder| folder.join(SOCKET)) {
        if !sockets.contains(&socket) {
            sockets.push(socket);
        }
    }
    sockets
}

/// Reports whether programs of a user find a socket by themselves, in the folder of a login session or in that under `/tmp`.
pub fn is_usual_of(socket: &Path, uid: u32) -> bool {
    let root = Path::new("/");
    [session_below(root, uid).join("xsched"), tmp_below(root, uid)].iter().any(|folder| socket == folder.join(SOCKET))
}

/// Path of the socket in the folder under `/tmp`, where a user's daemon listens when the session's folder is gone.
pub fn fallback_socket() -> PathBuf {
    shared_tmp().join(SOCKET)
}

/// Reports whether a socket's folder has a name that xsched gives, so that xsched may create it again.
pub fn is_made_here(folder: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    folder.file_name().is_some_and(|name| name == "xsched" || name.to_str() == Some(&format!("xsched-{uid}")))
}

/// Path of the socket that another process finds by itself. `root` is the path of its root folder as seen from here, `uid` is its user,
/// `var` reads its environment. The result is the path as that process names it.
pub fn socket_path_of(root: &Path, uid: u32, var: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    if let Some(path) = var("XSCHED_SOCKET") {
        return path;
    }
    if root.join(SYSTEM_SOCKET.trim_start_matches('/')).exists() {
        return SYSTEM_SOCKET.into();
    }
    let folder = user_folder_below(root, uid, var("XDG_RUNTIME_DIR"));
    Path::new("/").join(folder.strip_prefix(root).unwrap_or(&folder)).join(SOCKET)
}

/// Folder of [`user_folder`] for a process whose root folder is `root`. `session` is the folder that its environment names, as the process
/// sees it.
fn user_folder_below(root: &Path, uid: u32, session: Option<PathBuf>) -> PathBuf {
    let below = |folder: PathBuf| root.join(folder.strip_prefix("/").unwrap_or(&folder));
    let named = session.map(below).filter(|folder| is_own(folder, uid));
    let session = named.or_else(|| Some(session_below(root, uid)).filter(|folder| is_of_session(folder, uid)));
    session.map_or_else(|| tmp_below(root, uid), |folder| folder.join("xsched"))
}

fn session_below(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("run/user/{uid}"))
}

fn tmp_below(root: &Path, uid: u32) -> PathBuf {
    root.join(format!("tmp/xsched-{uid}"))
}

/// Reports whether a folder, and the link to it if it is one, belong to a user, and others cannot write there. (If root created files in
/// somebody else's folder, it would keep the folder's owner out of them.)
fn is_own(folder: &Path, uid: u32) -> bool {
    let is_safe = |meta: std::fs::Metadata| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o022 == 0;
    folder.metadata().is_ok_and(is_safe) && folder.symlink_metadata().is_ok_and(|link| link.uid() == uid)
}

/// Reports whether this user may create files at a path: the folder there belongs to the user, or, where nothing is there yet, the nearest
/// folder above it does. `HOME` and similar variables name another user's folder after `sudo -E`.
pub fn belongs_to_user(path: &Path) -> bool {
    owner(path) == Some(rustix::process::geteuid().as_raw())
}

/// User id of the owner of a path, or of the nearest folder above it that exists.
pub fn owner(path: &Path) -> Option<u32> {
    path.ancestors().find_map(|folder| folder.metadata().ok()).map(|meta| meta.uid())
}

/// Reports whether a folder is as a login manager makes it for a session: it belongs to the user, and nobody else has access.
fn is_of_session(folder: &Path, uid: u32) -> bool {
    folder.symlink_metadata().is_ok_and(|meta| meta.is_dir() && meta.uid() == uid && meta.mode() & 0o7777 == 0o700)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_path_belongs_to_the_owner_of_the_nearest_folder() {
        let root = std::env::temp_dir().join(format!("xsched-owner-{}", std::process::id()));
        std::fs::create_dir(&root).unwrap();
        let (inside, uid) = (root.join("a/b"), rustix::process::geteuid().as_raw());
        assert_eq!(owner(&inside), Some(uid));
        assert!(belongs_to_user(&inside));
        if uid == 0 {
            std::os::unix::fs::chown(&root, Some(12_345), None).unwrap();
            assert_eq!(owner(&inside), Some(12_345));
            assert!(!belongs_to_user(&inside));
        }
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn without_a_variable_the_sessions_folder_is_found_if_it_is_the_users_alone() {
        let root = std::env::temp_dir().join(format!("xsched-paths-{}", std::process::id()));
        let uid = rustix::process::geteuid().as_raw();
        let session = session_below(&root, uid);
        let found = |variable: Option<&str>| user_folder_below(&root, uid, variable.map(PathBuf::from));
        let tmp = root.join(format!("tmp/xsched-{uid}"));
        assert_eq!(found(None), tmp, "there is none");
        assert_eq!(found(Some("/r")), tmp, "the variable names nothing");
        std::fs::create_dir_all(&session).unwrap();
        let named = root.join("r");
        std::fs::create_dir(&named).unwrap();
        for (mode, expected) in [(0o700, named.join("xsched")), (0o755, named.join("xsched")), (0o777, tmp.clone())] {
            std::fs::set_permissions(&named, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(found(Some("/r")), expected, "{mode:o}: others must not be able to write there");
        }
        std::fs::set_permissions(&named, PermissionsExt::from_mode(0o700)).unwrap();
        let of_another = user_folder_below(&root, uid + 1, Some("/r".into()));
        assert_eq!(of_another, root.join(format!("tmp/xsched-{}", uid + 1)), "another user's folder");
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
        // A folder of this user's under another user's number; then a link.
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
