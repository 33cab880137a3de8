//! `xsched scheduler-host`: runs an operator's own scheduler, in a process that the daemon starts.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::net::{RecvFlags, SendFlags};
use xsched_proto::host::{FromHost, Question};
use xsched_proto::wire::{MAX_PACKET, decode, encode};

use crate::failure::{Error, Result};
use crate::preload;

mod callbacks;
mod device_state;
mod rights;

use callbacks::{Scheduler, Table};

/// Answer the daemon's questions, which come by standard input
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The library
    #[arg(value_name = "FILE")]
    library: PathBuf,
}

/// Answers questions until the daemon hangs up.
pub(crate) fn main(args: Args) -> Result {
    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    let table = match rights::give_up().map_err(Error::environment).and_then(|()| load(&args.library)) {
        Ok(table) => table,
        Err(why) => {
            say(socket, &FromHost::Failed(why.to_string()));
            return Err(Error::input(why));
        }
    };
    say(socket, &FromHost::Loaded { per_stream: table.version == Table::PER_STREAM });
    let mut buffer = vec![0; MAX_PACKET];
    let mut scheduler = Scheduler::new(table);
    loop {
        let length = match rustix::net::recv(socket, &mut *buffer, RecvFlags::empty()) {
            Ok((_, 0)) => return Ok(ExitCode::SUCCESS),
            Ok((_, length)) => length,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(Error::environment(format!("lost the daemon: {e}"))),
        };
        let question = decode::<Question>(&buffer[..length])?;
        say(socket, &scheduler.answer(question));
    }
}

fn say(socket: BorrowedFd<'_>, message: &FromHost) {
    // If the daemon is gone, the next poll of the socket shows it.
    if let Ok(packet) = encode(message) {
        let _ = rustix::net::send(socket, &packet, SendFlags::NOSIGNAL);
    }
}

/// Opens the library, which registers its scheduler, and returns the scheduler's callbacks.
fn load(library: &Path) -> Result<Table> {
    // The operator's library finds `hipRegisterScheduler` in the preload library.
    let ours = preload::find()?;
    let ours = open(&ours, libc::RTLD_GLOBAL)?;
    // SAFETY: this process has no other thread yet, and the environment was not read for this yet.
    unsafe { std::env::set_var("XSCHED_SCHEDULER_HOST", "1") };
    let theirs = open(library, libc::RTLD_LOCAL)?;
    let init = symbol(theirs, c"xsched_scheduler_init");
    if !init.is_null() {
        // SAFETY: scheduler.h says what a function of this name is.
        let init = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(init) };
        // SAFETY: as its operator wants it.
        let rc = unsafe { init() };
        if rc != 0 {
            return Err(Error::environment(format!("its xsched_scheduler_init returned {rc}")));
        }
    }
    let registered = symbol(ours, c"XRegisteredScheduler");
    if registered.is_null() {
        return Err(Error::environment("the preload library is of another version"));
    }
    // SAFETY: exported by the preload library with this signature.
    let registered = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Table>(registered) };
    // SAFETY: null, or a table that stays where it is.
    let table = unsafe { registered().as_ref() };
    table
        .copied()
        .ok_or_else(|| Error::environment("it registers no scheduler: call hipRegisterScheduler when it is loaded"))
}

fn open(file: &Path, scope: c_int) -> Result<*mut c_void> {
    // A name without a slash would be searched in other folders.
    let file = std::path::absolute(file).map_err(Error::environment)?;
    let name = CString::new(file.as_os_str().as_bytes()).map_err(Error::environment)?;
    // SAFETY: a C string; the library's constructors are trusted as its operator trusts them.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: null, or a C string valid until this thread's next call of the loader.
    let why = unsafe {
        libc::dlerror().cast_const().as_ref().map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    Err(Error::environment(why.as_deref().unwrap_or("it cannot be opened")))
}

fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: an open handle and a C string.
    unsafe { libc::dlsym(handle, name.as_ptr()) }
}
