//! Hook that an engine runs when it has made a container's file system and not yet entered it, in the container's namespaces. The hook
//! never keeps the container from starting: on any error it steps aside, prints the reason, and the container runs unscheduled.

use std::io::{Read, Result as IoResult, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::mount::{MountFlags, mount_bind_recursive, mount_remount};
use xsched_daemon::container_record::{self, Record};
use xsched_proto::class::Class;
use xsched_proto::text::escaped;

use super::facts::{Bundle, Names, State};
use super::inside::{Root, of_descriptor};
use super::spec::{LIBRARY, SOCKET_FOLDER};
use super::{Hook, image};
use crate::failure::say;

/// File by which glibc's loader preloads libraries into all programs.
const PRELOAD: &str = "/etc/ld.so.preload";
/// Largest such file that is kept, in bytes.
const PRELOAD_MAX_BYTES: u64 = 64 << 10;
/// Longest time that the hook may take, since an engine waits for its hooks.
const PATIENCE: Duration = Duration::from_secs(5);
/// Largest state that a runtime may pass on standard input, in bytes.
const STATE_MAX_BYTES: u64 = 1 << 20;

/// Runs the hook; the exit code is 0 whatever the result.
pub(super) fn main(wanted: &Hook) -> ExitCode {
    let _ = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(PATIENCE);
        tell("a container: not scheduled: looking at it took more than 5 s");
        std::process::exit(0);
    });
    let mut text = String::new();
    let read = std::io::stdin().take(STATE_MAX_BYTES).read_to_string(&mut text);
    match read.map_err(|e| e.to_string()).and_then(|_| serde_json::from_str(&text).map_err(|e| e.to_string())) {
        Ok(state) if wanted.ended => forget(&state, &wanted.socket_folder),
        Ok(state) => make(&state, wanted),
        Err(why) => tell(&format!("a container: not scheduled: its state cannot be read: {why}")),
    }
    ExitCode::SUCCESS
}

fn make(state: &State, wanted: &Hook) {
    let bundle = Bundle::read(state);
    let names = bundle.as_ref().map(|bundle| bundle.names(state)).unwrap_or_default();
    let folder = writable_folder(&wanted.socket_folder);
    let folder = folder.as_deref().map_err(|e| format!("its state cannot be kept: {e}"));
    let done = match (&bundle, &folder) {
        (Ok(bundle), Ok(folder)) => install(state, bundle, folder, &wanted.socket_folder),
        (Err(why), _) => Err(why.clone()),
        (_, Err(why)) => Err(why.clone()),
    };
    let unscheduled = done.err();
    if let Some(why) = &unscheduled {
        let id = state.id.get(..12).unwrap_or(&state.id);
        let name = names.name.as_deref().map(|name| format!(" ({name})")).unwrap_or_default();
        tell(&format!("container {id}{name}: not scheduled: {why}"));
    }
    if let Ok(folder) = folder {
        let Names { name, pod, namespace, pod_uid } = names;
        // Two devices were asked for: the less urgent class applies.
        let before = Record::read(folder, &state.id).ok().and_then(|(record, _)| record.class);
        let class: Option<Class> = wanted.class.into_iter().chain(before).min();
        let record = Record { id: state.id.clone(), name, pod, namespace, pod_uid, class, unscheduled };
        if let Err(e) = record.write(folder) {
            tell(&format!("container {}: its name is not kept: {e}", state.id));
        }
    }
}

/// Makes the container's programs load the library, and find the daemon.
fn install(state: &State, bundle: &Bundle, folder: &Path, socket_folder: &Path) -> Result<(), String> {
    let root = Root::open(&bundle.root(state)).map_err(|e| format!("its file system cannot be opened: {e}"))?;
    image::look(&root, &bundle.process.args, bundle.process.variable("PATH"))
        .map_err(|why| format!("its programs are {why}"))?;
    root.file(Path::new(LIBRARY)).map_err(|e| format!("the library is not at {LIBRARY}: {e}"))?;
    share(&root, socket_folder).map_err(|e| format!("the folder of the daemon's socket cannot be mounted: {e}"))?;
    preload(&root, state, folder).map_err(|e| format!("{PRELOAD} cannot be mounted: {e}"))
}

/// Mounts the socket's folder, so that the container finds the socket of a later daemon too. Read-only, since the container's root could
/// otherwise put a socket of its own there for others to find. Connecting to a socket does not write to its file system.
fn share(root: &Root, folder: &Path) -> IoResult<()> {
    if !folder.exists() {
        std::fs::DirBuilder::new().mode(0o755).create(folder)?;
    }
    let place = root.make_folder(Path::new(SOCKET_FOLDER))?;
    mount(folder, &of_descriptor(&place))?;
    // The path leads to the new mount from now on.
    read_only(&of_descriptor(&root.place(Path::new(SOCKET_FOLDER))?))
}

/// Adds the library to `ld.so.preload`, before the image's entries. It is a mount, so that an image made from the container does not
/// contain it.
fn preload(root: &Root, state: &State, folder: &Path) -> IoResult<()> {
    let mut before = Vec::new();
    if let Ok(file) = root.file(Path::new(PRELOAD)) {
        file.take(PRELOAD_MAX_BYTES).read_to_end(&mut before)?;
        if before.len() as u64 == PRELOAD_MAX_BYTES {
            return Err(std::io::Error::other("the image's own is longer than 64 KiB"));
        }
    }
    // A second device of ours has added the library already.
    if before.split(u8::is_ascii_whitespace).any(|word| word == LIBRARY.as_bytes()) {
        return Ok(());
    }
    let source = container_record::file(folder, &state.id, "preload")?;
    let _ = std::fs::remove_file(&source);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&source)?;
    file.write_all(LIBRARY.as_bytes())?;
    file.write_all(b"\n")?;
    file.write_all(&before)?;
    let place = root.make_file(Path::new(PRELOAD))?;
    mount(&source, &of_descriptor(&place))?;
    read_only(&of_descriptor(&root.place(Path::new(PRELOAD))?))
}

fn mount(from: &Path, to: &Path) -> IoResult<()> {
    Ok(mount_bind_recursive(from, to)?)
}

fn read_only(at: &Path) -> IoResult<()> {
    // Flags of the present mount, which a user namespace may not take away.
    let has = rustix::fs::statvfs(at)?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    if has.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        flags |= MountFlags::NOEXEC;
    }
    Ok(mount_remount(at, flags, c"")?)
}

/// Folder in which records may be written: beside the socket's folder, else, without the machine's rights, in the user's own.
fn writable_folder(socket_folder: &Path) -> IoResult<PathBuf> {
    let shared = container_record::folder(socket_folder);
    let made = usable(&shared);
    match (made, outer_uid().filter(|uid| *uid != 0)) {
        (Ok(()), _) => Ok(shared),
        (Err(_), Some(uid)) => {
            let own = container_record::folder_of_user(uid);
            usable(&own).map(|()| own)
        }
        (Err(e), None) => Err(e),
    }
}

fn usable(folder: &Path) -> IoResult<()> {
    match std::fs::DirBuilder::new().mode(0o755).create(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    if !folder.symlink_metadata()?.is_dir() {
        return Err(std::io::Error::other(format!("{} is no folder", folder.display())));
    }
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?;
    Ok(())
}

/// User id outside of a user namespace.
fn outer_uid() -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    std::fs::read_to_string("/proc/self/uid_map").ok()?.lines().find_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let (inside, outside, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let within = own.checked_sub(inside).filter(|within| *within < count)?;
        outside.checked_add(within)
    })
}

/// Removes all files about a container that has ended.
fn forget(state: &State, socket_folder: &Path) {
    let own = outer_uid().map(container_record::folder_of_user);
    for folder in own.into_iter().chain([container_record::folder(socket_folder)]) {
        for what in ["json", "preload"] {
            if let Ok(file) = container_record::file(&folder, &state.id, what) {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

/// Prints a line on standard error, which engines show only of hooks that fail, and in the machine's log.
fn tell(line: &str) {
    say(line);
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.set_nonblocking(true);
        // RFC 3164: facility 3 (daemons), severity 4 (warning).
        let _ = socket.send_to(format!("<28>xsched: {}", escaped(line)).as_bytes(), "/dev/log");
    }
}
