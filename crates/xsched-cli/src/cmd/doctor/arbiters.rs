//! Other arbiters of devices on this machine: other daemons, NVIDIA's MPS of others, the original XSched, libraries that are preloaded into
//! every program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use xsched_daemon::mps;
use xsched_proto::paths;
use xsched_proto::wire::Request;

use super::report::{Cause, Check};
use super::{process, shadow};
use crate::client;

/// File with the libraries that the loader puts into every program.
const LD_SO_PRELOAD: &str = "/etc/ld.so.preload";
/// Name of XSched's own daemon; a link of this name to our own command does not count.
const ORIGINAL: &str = "xserver";

/// Daemons that a program of this user would find with another environment. Each schedules its own programs, and none together with those
/// of another.
pub(super) fn daemons(socket: Option<&Path>) -> Vec<Check> {
    let (ours, _) = paths::socket_path(socket.map(Path::to_owned));
    let same =
        |path: &Path| path == ours || path.canonicalize().is_ok_and(|p| ours.canonicalize().is_ok_and(|o| p == o));
    let others = paths::usual_sockets().into_iter().filter(|path| !same(path));
    let own = client::server(&ours);
    let another = |path: &PathBuf| path.exists() && (own.is_none() || client::server(path) != own);
    let answering = others.filter(|path| another(path) && client::ask(Some(path), Request::Ps).is_ok());
    let check = |path: PathBuf| {
        let found = format!(
            "another one answers at {}: its programs and those of this one are not scheduled together",
            path.display()
        );
        let advice = "give both the same XDG_RUNTIME_DIR or XSCHED_SOCKET; for several users, run a system daemon";
        Check::note("daemons", Cause::OtherDaemon, found, advice)
    };
    answering.map(check).collect()
}

/// Checks for processes that arbitrate beside the daemon `daemon`, of any user.
pub(super) fn others(daemon: Option<u32>) -> Vec<Check> {
    let name = "arbiters";
    let us = rustix::process::geteuid().as_raw();
    let own = std::env::current_exe().ok();
    let mut found = Vec::new();
    for pid in process::all() {
        let words = process::command(pid);
        let Some(file) = words.first().map(|word| file_name(word)) else { continue };
        // The second word counts where the first is an interpreter.
        let second = words.get(1).map(|word| file_name(word)).unwrap_or_default();
        let uid = std::fs::metadata(format!("/proc/{pid}")).map_or(us, |meta| meta.uid());
        if file == b"xsched" && second == b"daemon" && uid != us && Some(pid) != daemon {
            found.push(Check::note(
                name,
                Cause::OtherArbiter,
                format!(
                    "user {uid} has a daemon (process {pid}): its programs and those of this user are not scheduled together"
                ),
                "run a system daemon for all users: `systemctl enable --now xsched`",
            ));
        } else if [file, second].contains(&mps::CONTROL.as_bytes()) && uid != us && !is_of_pool(pid) {
            found.push(Check::note(
                name,
                Cause::OtherArbiter,
                format!("user {uid} runs NVIDIA's MPS (process {pid}): its clients run beside each other, whatever their class"),
                "let programs of one device use either MPS or xsched; `run --share spatial` joins an MPS daemon of your own",
            ));
        } else if file == ORIGINAL.as_bytes() && std::fs::read_link(format!("/proc/{pid}/exe")).ok() != own {
            found.push(Check::note(
                name,
                Cause::OtherArbiter,
                format!(
                    "process {pid} is an xserver that is not of this xsched: programs of one do not know of the other's"
                ),
                "end it by its process id",
            ));
        }
    }
    found
}

/// Reports whether a process is the MPS daemon of a pool: the system's daemon has started it.
fn is_of_pool(pid: u32) -> bool {
    process::variable(pid, mps::PIPE_DIRECTORY)
        .is_some_and(|folder| folder.as_bytes().windows(6).any(|w| w == b"xsched"))
}

/// Checks for a library that takes the calls of programs started from here before ours does.
pub(super) fn preloaded() -> Option<Check> {
    let everywhere = std::fs::read(LD_SO_PRELOAD).unwrap_or_default();
    let here = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let from = |list: &[u8], place: &str| {
        let files = list.split(|b| b" :\n\t".contains(b)).filter(|file| !file.is_empty());
        let takes = |file: &[u8]| {
            Some((PathBuf::from(OsStr::from_bytes(file)), shadow::defined(Path::new(OsStr::from_bytes(file)))?))
        };
        let (file, function) = files.take_while(|file| !file_name(file).starts_with(b"libxsched")).find_map(takes)?;
        Some((file, function, place.to_owned()))
    };
    // `run` puts the library before the present value of LD_PRELOAD, but not before the loader's own list.
    let (file, function, place) = from(&everywhere, LD_SO_PRELOAD).or_else(|| from(here.as_bytes(), "LD_PRELOAD"))?;
    let found = format!("{place} has {}, which answers {function} itself", file.display());
    Some(Check::note(
        "preloads",
        Cause::Preloaded,
        found,
        "name libxsched.so first there; else what that library does not pass on is not scheduled",
    ))
}

fn file_name(word: &[u8]) -> &[u8] {
    word.rsplit(|&b| b == b'/').next().unwrap_or(word)
}
