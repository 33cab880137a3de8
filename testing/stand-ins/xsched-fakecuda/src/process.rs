//! State of the process: whether the driver is initialised, and the effect of a fork.

use crate::mps::Pool;
use crate::result::{Error, Result};
use crate::visible::visible;
use crate::{rm, stats};
use rustix::fd::RawFd;
use std::cell::Cell;
use std::ffi::c_uint;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use xsched_sim::client;

/// State of the initialised driver, one per process.
pub(crate) struct Driver {
    pub(crate) devices: usize,
    /// The machine's numbers of the devices, as `CUDA_VISIBLE_DEVICES` selects them.
    visible: Vec<usize>,
    /// Pool of the MPS server in whose contexts this process's contexts are created; `None` without MPS.
    pub(crate) pool: Option<Pool>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Error with which an MPS server refused this process. Driver 580 remembers it: later calls return it again, or never
/// return.
static REFUSED: OnceLock<Error> = OnceLock::new();
/// Set by the handler for the end of the process where `FAKECUDA_ENDS` is set: all calls fail from then on, as a driver may have them.
static ENDED: AtomicBool = AtomicBool::new(false);
/// Set in a child of a process that used the driver.
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
    if let Some(&refused) = REFUSED.get() {
        return Err(refused);
    }
    let found = if rm::OFF.load(Relaxed) { Ok(None) } else { Pool::find() };
    let pool = match found {
        Ok(pool) => pool,
        Err(refused) => return Err(*REFUSED.get_or_init(|| refused)),
    };
    let there = match &pool {
        Some(pool) => pool.devices.clone(),
        None => (0..usize::try_from(client::device_count()?).map_err(|_| Error::NO_DEVICE)?).collect(),
    };
    let chosen = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    // A client numbers devices among those that the server sees.
    let visible: Vec<usize> = visible(there.len(), chosen.as_deref()).into_iter().map(|number| there[number]).collect();
    let devices = visible.len();
    if devices == 0 {
        return Err(Error::NO_DEVICE);
    }
    if let Some(pool) = &pool {
        note_fds(&[pool.fd()]);
    }
    DRIVER.get_or_init(|| {
        // SAFETY: the handlers live as long as the process, for this library is never unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork));
            libc::atexit(at_exit);
        }
        Driver { devices, visible, pool }
    });
    Ok(())
}

extern "C" fn at_exit() {
    ENDED.store(std::env::var_os("FAKECUDA_ENDS").is_some(), SeqCst);
    stats::report();
}

/// Descriptors of contexts and the like, never closed, for use in a forked child. A list that only grows, and is read
/// without a lock.
struct Fds {
    fds: Vec<RawFd>,
    next: *const Fds,
}

static FDS: AtomicPtr<Fds> = AtomicPtr::new(std::ptr::null_mut());

/// Calls `body` with every descriptor by which the device knows this process.
fn for_each_fd(body: impl Fn(RawFd)) {
    let mut entry = FDS.load(Acquire).cast_const();
    // SAFETY: entries are leaked, and `next` was set before publication.
    while let Some(fds) = unsafe { entry.as_ref() } {
        fds.fds.iter().copied().for_each(&body);
        entry = fds.next;
    }
}

/// Records descriptors of a new context, or of the connection to an MPS server.
pub(crate) fn note_fds(fds: &[RawFd]) {
    let entry = Box::leak(Box::new(Fds { fds: fds.to_vec(), next: std::ptr::null() }));
    let mut head = FDS.load(Acquire);
    loop {
        entry.next = head;
        match FDS.compare_exchange(head, entry, AcqRel, Acquire) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Handler in a forked child: the driver cannot be used there, and the child must not keep the parent's contexts alive.
extern "C" fn after_fork() {
    FORKED.store(true, SeqCst);
    for_each_fd(|fd| {
        // SAFETY: this child's copy of a descriptor that is not used here.
        unsafe { libc::close(fd) };
    });
    stats::reset();
}

/// Checks that the driver may be called now, on this thread.
pub(crate) fn usable(name: &str) -> Result<()> {
    if FORKED.load(Relaxed) || DRIVER.get().is_none() {
        return Err(Error::NOT_INITIALIZED);
    }
    if ENDED.load(Relaxed) {
        return Err(Error::DEINITIALIZED);
    }
    if IN_HOST_FUNCTION.get() {
        stats::illegal(format!("{name}: called by a host function"));
        return Err(Error::NOT_PERMITTED);
    }
    Ok(())
}

/// Runs a host function of the program.
pub(crate) fn in_host_function(body: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    body();
    IN_HOST_FUNCTION.set(false);
}

/// The driver. To be called only after [`usable`].
pub(crate) fn driver() -> Result<&'static Driver> {
    DRIVER.get().ok_or(Error::NOT_INITIALIZED)
}

/// Checks the number of a device.
pub(crate) fn device(number: i32) -> Result<usize> {
    usize::try_from(number).ok().filter(|&n| driver().is_ok_and(|d| n < d.devices)).ok_or(Error::INVALID_DEVICE)
}

/// The machine's number of a device, from the number within this process.
pub(crate) fn of_the_machine(number: usize) -> usize {
    driver().ok().and_then(|driver| driver.visible.get(number).copied()).unwrap_or(number)
}

/// Returns a found object. A missing one counts as illegal: no correct program uses an object that is gone or never
/// existed.
pub(crate) fn known<T>(what: &str, handle: usize, found: Option<T>) -> Result<T> {
    found.ok_or_else(|| {
        if handle != 0 {
            stats::illegal(format!("{what} {handle:#x} does not exist"));
        }
        Error::INVALID_HANDLE
    })
}
