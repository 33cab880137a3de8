//! Level 3 on AMD: takes this process's own compute queues off the device and puts them back, by the kernel's own
//! requests.
//!
//! AMD's compute driver (KFD) lets a process change its queues. A queue with percentage 0 does not run: its current
//! work is interrupted, its state saved (CWSR), and resumed later. No privilege is needed; AMD's runtime does this too
//! while it reclaims scratch memory. The queues are learned from the runtime's own requests, which pass through here on
//! their way to the C library's `ioctl`; a launch costs nothing. See [`super::queues`] for how the runtime's wishes and
//! the scheduler's are combined.
//!
//! Cost for the device: where the hardware's scheduler has firmware of its own (MES, gfx11 and later), only the queue
//! concerned is touched. On older ones (HWS: gfx9, gfx10) each request briefly interrupts all queues of *all* processes
//! on that GPU. No figure for either is known to this project: unverified on hardware.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::*};

use xsched_agent::{say, say_once};
use xsched_core::{Descriptor, Runtime};
use xsched_proto::class::Class;
use xsched_proto::settings::Log;

use super::queues::{Queues, is_compute};
use super::topology;
use super::uapi::{
    CREATE_QUEUE, CreateQueue, DESTROY_QUEUE, DestroyQueue, GET_VERSION, GET_VERSION_REQUEST, GetVersion, UPDATE_QUEUE,
    UPDATE_QUEUE_REQUEST, UpdateQueue,
};
use crate::enabled::{HIP, HSA, platform_enabled};
use crate::interpose::ioctl::{IoctlFn, real};
use crate::interpose::resolve::keeping_errno;
use crate::lock::Lock;
use crate::platform::start::runtime;
use crate::process;

/// Major version of the driver's interface that this was written for.
const MAJOR: u32 = 1;
/// Number of attempts at a request that a signal interrupts.
const ATTEMPTS: usize = 100;

/// State of this process's use of the driver.
#[derive(Default)]
struct State {
    queues: Queues,
    device: Option<Device>,
}

/// The open `/dev/kfd`.
struct Device {
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

fn state() -> MutexGuard<'static, State> {
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

fn enabled() -> bool {
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
fn class_for(rt: &Runtime, priority: i32) -> Option<Class> {
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

extern "C" fn at_exit() {
    process::guarded("at exit", release);
}

/// Passes one request of our own to the driver.
fn carry(device: Option<&mut Device>, mut request: UpdateQueue) -> Result<(), c_int> {
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

/// Records the descriptor on which the driver answered.
fn met(state: &mut State, fd: c_int) {
    match &mut state.device {
        Some(device) => {
            if device.seen != fd && identity(fd) == device.identity {
                device.seen = fd;
            }
        }
        none => *none = Device::new(fd),
    }
}

/// Handles an `ioctl` of this driver's type with a low number.
pub(crate) unsafe extern "C" fn watched(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let real = real();
    let size = (request >> 16 & 0x3fff) as usize;
    let fits = |bytes: usize| size >= bytes && !argument.is_null();
    // SAFETY: the caller's own arguments; the request's number and size say what they are.
    unsafe {
        match request as u8 {
            GET_VERSION if fits(size_of::<GetVersion>()) && enabled() => version(real, fd, request, argument),
            CREATE_QUEUE if fits(size_of::<CreateQueue>()) && enabled() => create(real, fd, request, argument),
            DESTROY_QUEUE if fits(size_of::<DestroyQueue>()) && enabled() => destroy(real, fd, request, argument),
            UPDATE_QUEUE if fits(size_of::<UpdateQueue>()) && enabled() => update(real, fd, request, argument),
            _ => real(fd, request, argument),
        }
    }
}

unsafe fn version(real: IoctlFn, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as in `watched`.
    let rc = unsafe { real(fd, request, argument) };
    if rc == 0 {
        // SAFETY: the kernel has just filled it.
        let found = unsafe { argument.cast::<GetVersion>().read_unaligned() };
        VERSION.store(found.major_version.saturating_add(1), Relaxed);
    }
    rc
}

/// Asks for the version if the runtime has not, so that its queues can be suspended all the same.
fn ask_version(fd: c_int) {
    if VERSION.load(Relaxed) == 0 {
        let mut found = GetVersion::default();
        // SAFETY: a request that fills this structure, on a descriptor on which the driver has just answered.
        if unsafe { real()(fd, GET_VERSION_REQUEST, std::ptr::from_mut(&mut found).cast()) } == 0 {
            VERSION.store(found.major_version.saturating_add(1), Relaxed);
        }
    }
}

/// Creates a compute queue, with the priority of the program's class. A program's first use of the device comes through
/// here: it starts the scheduler if that is not running yet.
unsafe fn create(real: IoctlFn, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let args = argument.cast::<CreateQueue>();
    // SAFETY: the caller's argument, of at least this size.
    let asked = unsafe { args.read_unaligned() };
    if !is_compute(asked.queue_type) {
        // SAFETY: as in `watched`.
        return unsafe { real(fd, request, argument) };
    }
    let priority = process::guarded("before a queue is made", || {
        let rt = runtime()?;
        static AT_EXIT: AtomicBool = AtomicBool::new(false);
        // The runtime's own exit handler, which may wait for its queues, was registered earlier, so it runs after this
        // one.
        if !AT_EXIT.swap(true, Relaxed) {
            // SAFETY: registers a function of ours.
            let _ = unsafe { libc::atexit(at_exit) };
        }
        let told = TOLD.load(Relaxed);
        let class = class_for(rt, if told != 0 { told - PRIORITY } else { rt.own_priority() });
        let mut state = state();
        if state.queues.class() != class {
            // Queues may exist that were created before the daemon set the class.
            let State { queues, device } = &mut *state;
            let _ = queues.set_class(class, &mut |request| carry(device.as_mut(), request));
        }
        Some(state.queues.priority_for(asked.queue_priority))
    });
    let mut priority = priority.flatten().unwrap_or(asked.queue_priority);
    // SAFETY: the caller's own argument, in which the kernel reads the priority; it is put back below.
    let rc = unsafe {
        (&raw mut (*args).queue_priority).write_unaligned(priority);
        let mut rc = real(fd, request, argument);
        (&raw mut (*args).queue_priority).write_unaligned(asked.queue_priority);
        if rc < 0 && priority != asked.queue_priority {
            // Retries exactly as the runtime asked.
            priority = asked.queue_priority;
            rc = real(fd, request, argument);
        }
        rc
    };
    if rc == 0 {
        process::guarded("after a queue was made", || {
            // SAFETY: the kernel has just filled in the number.
            let made = unsafe { args.read_unaligned() };
            ask_version(fd);
            let mut state = state();
            met(&mut state, fd);
            let State { queues, device } = &mut *state;
            queues.add(&made, priority);
            CANNOT_SAVE.fetch_or(queues.some_cannot_save(&[made.gpu_id]), Relaxed);
            // If the queue cannot be suspended, it runs on, and the suspended queues of its device are resumed at the
            // daemon's next request to resume.
            let _ = queues.catch_up(made.queue_id, &mut |request| carry(device.as_mut(), request));
        });
    }
    rc
}

/// Destroys a queue. The lock is held until the kernel is done: it may then reuse the number, which must not be taken
/// for the old queue.
unsafe fn destroy(real: IoctlFn, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's argument, of at least this size.
    let id = unsafe { argument.cast::<DestroyQueue>().read_unaligned() }.queue_id;
    let state = process::guarded("before the end of a queue", state);
    // SAFETY: as in `watched`.
    let rc = unsafe { real(fd, request, argument) };
    if rc == 0 {
        process::guarded("after the end of a queue", || state.map(|mut state| state.queues.remove(id)));
    }
    rc
}

/// Changes a queue at the runtime's request.
unsafe fn update(real: IoctlFn, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let args = argument.cast::<UpdateQueue>();
    // SAFETY: the caller's argument, of at least this size.
    let asked = unsafe { args.read_unaligned() };
    let merged = process::guarded("before a queue is changed", || {
        let state = state();
        let sent = state.queues.merge(asked)?;
        Some((state, sent))
    });
    let Some(Some((mut state, sent))) = merged else {
        // SAFETY: as in `watched`.
        return unsafe { real(fd, request, argument) };
    };
    // SAFETY: the caller's own argument, put back at once: the kernel only reads it.
    let rc = unsafe {
        args.write_unaligned(sent);
        let rc = real(fd, request, argument);
        args.write_unaligned(asked);
        rc
    };
    // Moves the lock into the closure, so that it is released even if the closure panics.
    process::guarded("after a queue was changed", move || state.queues.merged(asked, sent, rc == 0));
    rc
}
