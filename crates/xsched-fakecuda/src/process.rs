//! What belongs to the process: whether the driver is up, and what a fork does to it.

use crate::result::{Error, Result};
use crate::stats;
use rustix::fd::RawFd;
use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use xsched_sim::client;

/// What a process has once.
pub(crate) struct Driver {
    pub(crate) devices: usize,
    /// Which those are of the machine's: `CUDA_VISIBLE_DEVICES`, by numbers.
    visible: Vec<usize>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// This process is a child of one that used the driver.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// `cuInit`.
pub(crate) fn init(flags: c_uint) -> Result<()> {
    if FORKED.load(Relaxed) {
        return Err(Error::NOT_INITIALIZED);
    }
    if flags != 0 {
        return Err(Error::INVALID_VALUE);
    }
    if DRIVER.get().is_some() {
        return Ok(());
    }
    let there = usize::try_from(client::device_count()?).map_err(|_| Error::NO_DEVICE)?;
    let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let visible = visible(there, chosen.as_deref());
    let devices = visible.len();
    if devices == 0 {
        return Err(Error::NO_DEVICE);
    }
    DRIVER.get_or_init(|| {
        // SAFETY: both handlers live as long as the process, for this library is never unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(stats::report);
        }
        Driver { devices, visible }
    });
    Ok(())
}

/// Descriptors of contexts, never closed, for a forked child. A list that only grows and is read without a lock.
struct Fds {
    fds: [RawFd; 2],
    next: *const Fds,
}

static FDS: AtomicPtr<Fds> = AtomicPtr::new(std::ptr::null_mut());

/// Calls `body` with every descriptor by which the device knows this process.
fn for_each_fd(body: impl Fn(RawFd)) {
    let mut entry = FDS.load(Acquire).cast_const();
    // SAFETY: entries are leaked, and `next` was set before publication.
    while let Some(fds) = unsafe { entry.as_ref() } {
        fds.fds.into_iter().for_each(&body);
        entry = fds.next;
    }
}

/// Notes descriptors of a new context.
pub(crate) fn note_fds(fds: [RawFd; 2]) {
    let entry = Box::leak(Box::new(Fds { fds, next: std::ptr::null() }));
    let mut head = FDS.load(Acquire);
    loop {
        entry.next = head;
        match FDS.compare_exchange(head, entry, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// In a forked child the driver is of no use, and the parent's contexts must not seem to be alive by it.
extern "C" fn after_fork() {
    FORKED.store(true, SeqCst);
    for_each_fd(|fd| {
        // SAFETY: this child's copy of a descriptor that is not used here.
        unsafe { libc::close(fd) };
    });
    stats::reset();
}

/// The driver may be called here and now.
pub(crate) fn usable(name: &str) -> Result<()> {
    if FORKED.load(Relaxed) || DRIVER.get().is_none() {
        return Err(Error::NOT_INITIALIZED);
    }
    if IN_HOST_FUNCTION.get() {
        stats::illegal(format!("{name}: called by a host function"));
        return Err(Error::NOT_PERMITTED);
    }
    Ok(())
}

/// Runs what a program gave as a host function.
pub(crate) fn in_host_function(body: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    body();
    IN_HOST_FUNCTION.set(false);
}

/// The driver; only after [`usable`].
pub(crate) fn driver() -> Result<&'static Driver> {
    DRIVER.get().ok_or(Error::NOT_INITIALIZED)
}

/// Checks the number of a device.
pub(crate) fn device(number: i32) -> Result<usize> {
    usize::try_from(number).ok().filter(|&n| driver().is_ok_and(|d| n < d.devices)).ok_or(Error::INVALID_DEVICE)
}

/// Which of the machine's devices it is that this process knows by a number.
pub(crate) fn of_the_machine(number: usize) -> usize {
    driver().ok().and_then(|driver| driver.visible.get(number).copied()).unwrap_or(number)
}

/// The devices of so many that a process sees, in its order: up to the first that is not there, or is there twice.
fn visible(there: usize, chosen: Option<&str>) -> Vec<usize> {
    let Some(chosen) = chosen else { return (0..there).collect() };
    let mut visible = Vec::new();
    for word in chosen.split(',') {
        match word.trim().parse() {
            Ok(number) if number < there && !visible.contains(&number) => visible.push(number),
            _ => break,
        }
    }
    visible
}

/// An object that is gone, or never was, is no use of a correct program.
pub(crate) fn known<T>(what: &str, handle: usize, found: Option<T>) -> Result<T> {
    found.ok_or_else(|| {
        if handle != 0 {
            stats::illegal(format!("{what} {handle:#x} does not exist"));
        }
        Error::INVALID_HANDLE
    })
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn visible_devices_are_those_named_in_their_order_up_to_a_wrong_one() {
        assert_eq!(visible(3, None), [0, 1, 2]);
        assert_eq!(visible(3, Some("2, 0")), [2, 0]);
        assert_eq!(visible(3, Some("1,7,0")), [1]);
        assert_eq!(visible(3, Some("1,1,0")), [1]);
        assert!(visible(3, Some("")).is_empty() && visible(3, Some("-1")).is_empty());
    }
}
