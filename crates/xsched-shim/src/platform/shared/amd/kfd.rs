//! Level 3 on AMD: takes this process's own compute queues off the device and puts them back, by the kernel's own
//! requests.
//!
//! AMD's compute driver (KFD) lets a process change its queues. A queue with percentage 0 does not run: its current
//! work is interrupted, its state saved (CWSR), and resumed later. No privilege is needed; AMD's runtime does this too
//! while it reclaims scratch memory. The queues are learned from the runtime's own requests ([`super::requests`]); a launch
//! costs nothing. See [`super::queues`] for how the runtime's wishes and
//! the scheduler's are combined.
//!
//! Cost for the device: where the hardware's scheduler has firmware of its own (MES, gfx11 and later), only the queue
//! concerned is touched. On older ones (HWS: gfx9, gfx10) each request briefly interrupts all queues of *all* processes
//! on that GPU. No figure for either is known to this project: unverified on hardware.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::*};

use xsched_agent::{say, say_once};
use xsched_core::{Descriptor, Runtime};
use xsched_proto::class::Class;
use xsched_proto::settings::Log;

use super::queues::Queues;
use super::topology;
use super::uapi::{UPDATE_QUEUE_REQUEST, UpdateQueue};
use crate::enabled::{HIP, HSA, platform_enabled};
use crate::interpose::ioctl::real;
use crate::interpose::resolve::keeping_errno;
use crate::lock::Lock;

/// Major version of the driver's interface that this was written for.
const MAJOR: u32 = 1;
/// Number of attempts at a request that a signal interrupts.
const ATTEMPTS: usize = 100;

/// State of this process's use of the driver.
#[derive(Default)]
pub(super) struct State {
    pub(super) queues: Queues,
    pub(super) device: Option<Device>,
}

/// The open `/dev/kfd`.
pub(super) struct Device {
    /// Our own descriptor, so that the runtime may close and reopen its own.
    own: Descriptor,
    /// The runtime's descriptor, as last seen.
    seen: c_int,
    identity: Option<(u64, u64)>,
}

static STATE: Lock<State> = Lock::new();
/// One plus the major version that the driver reported; 0 = not known yet.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// `errno` of the refusal after which level 3 was given up; 0 = it was not.
static REFUSED: AtomicI32 = AtomicI32::new(0);
/// Set if a queue has no memory for the state of its work.
static CANNOT_SAVE: AtomicBool = AtomicBool::new(false);
/// Set when the program ends: all queues are resumed and none is suspended any more.
static OVER: AtomicBool = AtomicBool::new(false);
/// Priority of the program that the daemon or the local gatekeeper set last, plus [`PRIORITY`]; 0 = none yet.
static TOLD: AtomicI32 = AtomicI32::new(0);
const PRIORITY: i32 = 1000;

/// State of this process's use of the driver.
pub(super) fn state() -> MutexGuard<'static, State> {
    STATE.lock()
}

/// Resets all state in a forked child: the parent's queues and descriptor do not belong to it.
pub(crate) fn forget_all() {
    STATE.forget();
    VERSION.store(0, Relaxed);
    REFUSED.store(0, Relaxed);
    CANNOT_SAVE.store(false, Relaxed);
    OVER.store(false, Relaxed);
    TOLD.store(0, Relaxed);
}

/// Reports whether a platform that uses the driver is scheduled.
pub(super) fn enabled() -> bool {
    platform_enabled(HSA) || platform_enabled(HIP)
}

/// Reason why the queues of this process on a device cannot be suspended; `None` if they can.
pub(crate) fn hindrance(device: &str) -> Option<String> {
    match VERSION.load(Relaxed) {
        0 => return Some("the program has not opened /dev/kfd".into()),
        v if v - 1 != MAJOR => return Some(format!("the driver speaks version {} of its interface", v - 1)),
        _ => {}
    }
    let refused = REFUSED.load(Relaxed);
    if refused != 0 {
        return Some(format!("the driver refused: {}", std::io::Error::from_raw_os_error(refused)));
    }
    if CANNOT_SAVE.load(Relaxed) || topology::saving_is_off() {
        return Some("the driver does not save the state of interrupted work (amdgpu.cwsr_enable)".into());
    }
    topology::gpus_of(device).is_empty().then(|| format!("the driver does not know {device}"))
}

/// Suspends or resumes all compute queues of this process on a device. Runs on the agent thread. Returns false if the
/// driver refused: level 3 is then given up, and nothing stays suspended.
pub(crate) fn interrupt(device: &str, on: bool) -> bool {
    let gpus = topology::gpus_of(device);
    let mut state = state();
    if on && OVER.load(Acquire) {
        return true;
    }
    // The daemon may have sent the request before it learned that the level was given up.
    if on && REFUSED.load(Relaxed) != 0 {
        return false;
    }
    if on && state.queues.some_cannot_save(&gpus) {
        drop(state);
        CANNOT_SAVE.store(true, Relaxed);
        give_up(0);
        return false;
    }
    let State { queues, device } = &mut *state;
    let kernel = &mut |request| carry(device.as_mut(), request);
    let outcome = if on { queues.suspend(&gpus, kernel) } else { queues.resume(&gpus, kernel) };
    drop(state);
    outcome.map_err(give_up).is_ok()
}

/// Gives up level 3 in this process, and logs it once.
fn give_up(error: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if error != 0 {
        REFUSED.store(error, Relaxed);
    }
    let why = hindrance("").unwrap_or_default();
    let text = format!("preemption level 3 is not available: {why}; going on with the next lower one, if any");
    say_once(&SAID, Log::Error, Log::Error, &text);
}

/// Sets the program's priority. Runs on the agent thread.
pub(crate) fn set_priority(rt: &Runtime, priority: i32) {
    TOLD.store(priority + PRIORITY, Relaxed);
    if STATE.is_untouched() {
        return;
    }
    let class = class_for(rt, priority);
    let mut state = state();
    if class != state.queues.class() && !OVER.load(Acquire) {
        let State { queues, device } = &mut *state;
        // After a refusal the priority stays as it was.
        let _ = queues.set_class(class, &mut |request| carry(device.as_mut(), request));
    }
}

/// Class that hardware priorities follow; `None` if a forced level excludes them.
pub(super) fn class_for(rt: &Runtime, priority: i32) -> Option<Class> {
    (!matches!(rt.forced_level(), Some(1 | 2))).then(|| Class::of(priority))
}

/// Resumes all queues for good, since the program or scheduling ends.
pub(crate) fn release() {
    OVER.store(true, Release);
    if STATE.is_untouched() {
        return;
    }
    let mut state = state();
    let State { queues, device } = &mut *state;
    if let Err(error) = queues.resume_all(&mut |request| carry(device.as_mut(), request)) {
        let why = std::io::Error::from_raw_os_error(error);
        say(&format!("a queue that was suspended cannot be resumed: {why}"));
    }
}

/// Passes one request of our own to the driver.
pub(super) fn carry(device: Option<&mut Device>, mut request: UpdateQueue) -> Result<(), c_int> {
    let Some(device) = device else { return Err(libc::EBADF) };
    let fd = device.descriptor().ok_or(libc::EBADF)?;
    keeping_errno(|| {
        let mut error = 0;
        for _ in 0..ATTEMPTS {
            // SAFETY: a request as the runtime makes it, on a descriptor that was just seen to be the driver's.
            if unsafe { real()(fd, UPDATE_QUEUE_REQUEST, std::ptr::from_mut(&mut request).cast()) } == 0 {
                return Ok(());
            }
            error = last_error();
            if error != libc::EINTR && error != libc::EAGAIN {
                break;
            }
        }
        Err(error)
    })
}

fn last_error() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: stat is plain data that fstat fills; any number may be asked for.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

impl Device {
    fn new(seen: c_int) -> Option<Device> {
        // SAFETY: the runtime just used it, and does not close it while a request on it returns.
        let own = unsafe { BorrowedFd::borrow_raw(seen) }.try_clone_to_owned().ok()?;
        Some(Device { identity: identity(seen), own: Descriptor::new(own), seen })
    }

    /// A descriptor of the driver: ours; or the runtime's, if the program closed ours; or a new one. All descriptors
    /// that a process opens refer to the same queues.
    fn descriptor(&mut self) -> Option<c_int> {
        if let Some(own) = self.own.get() {
            return Some(own.as_raw_fd());
        }
        if self.identity.is_some() && identity(self.seen) == self.identity {
            return Some(self.seen);
        }
        // SAFETY: a C string and plain flags.
        let fd = unsafe { libc::open(c"/dev/kfd".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 {
            return None;
        }
        // SAFETY: opened just now, not owned elsewhere.
        let fresh = Device::new(fd);
        // SAFETY: as above; the clone stays.
        unsafe { libc::close(fd) };
        *self = fresh?;
        Some(self.own.get()?.as_raw_fd())
    }
}

/// Reports whether the version of the driver's interface is known.
pub(super) fn knows_version() -> bool {
    VERSION.load(Relaxed) != 0
}

/// Records whether a new queue has no memory for the state of its work.
pub(super) fn note_saving(cannot: bool) {
    CANNOT_SAVE.fetch_or(cannot, Relaxed);
}

/// Records the version that the driver reported.
pub(super) fn note_version(major: u32) {
    VERSION.store(major.saturating_add(1), Relaxed);
}

/// Priority of the program that was set last; its own if none was.
pub(super) fn priority(rt: &Runtime) -> i32 {
    let told = TOLD.load(Relaxed);
    if told != 0 { told - PRIORITY } else { rt.own_priority() }
}

/// Records the descriptor on which the driver answered.
pub(super) fn met(state: &mut State, fd: c_int) {
    match &mut state.device {
        Some(device) => {
            if device.seen != fd && identity(fd) == device.identity {
                device.seen = fd;
            }
        }
        none => *none = Device::new(fd),
    }
}
