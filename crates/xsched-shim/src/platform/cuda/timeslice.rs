//! Level 3 on NVIDIA: the hardware's own time slices.
//!
//! Each context has a channel group for compute. The group's time slice is the time that the context keeps the GPU
//! while others wait. The driver sets it once, when it creates the context, through the C library's `ioctl`. That call
//! is rewritten here on its way to the slice of the program's class (see [`crate::interpose::ioctl`]), at no cost.
//!
//! Layouts and numbers: NVIDIA's open kernel modules, `nvos.h` (NVOS54_PARAMETERS, NVOS64_PARAMETERS), `ctrla06c.h` (MIT).

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::*};

use xsched_core::{Runtime, now_ns};
use xsched_proto::class::{Class, Contention, hardware_timeslice_us};

use super::served;
use crate::interpose::ioctl::{IoctlFn, real};
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::process;

/// `_IOWR('F', 0x2a, NVOS54_PARAMETERS)`.
pub(crate) const CONTROL: u32 = 0xc020_462a;
/// `_IOWR('F', 0x2b, NVOS64_PARAMETERS)`.
pub(crate) const ALLOCATE: u32 = 0xc030_462b;
/// KEPLER_CHANNEL_GROUP_A.
const CHANNEL_GROUP: u32 = 0xa06c;
/// NV2080_ENGINE_TYPE_GRAPHICS, also of compute; copy engines have others.
const ENGINE_COMPUTE: u32 = 1;
/// NVA06C_CTRL_CMD_SET_TIMESLICE.
const SET_TIMESLICE: u32 = 0xa06c_0103;
/// NVA06C_CTRL_CMD_GET_TIMESLICE.
const GET_TIMESLICE: u32 = 0xa06c_0104;

/// NVOS54_PARAMETERS.
#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: *mut c_void,
    bytes: u32,
    status: u32,
}

/// NVOS64_PARAMETERS.
#[repr(C)]
struct Allocate {
    root: u32,
    parent: u32,
    new: u32,
    class: u32,
    parameters: *mut c_void,
    rights: *mut c_void,
    bytes: u32,
    flags: u32,
    status: u32,
}

const _: () = assert!(size_of::<Control>() == 32 && size_of::<Allocate>() == 48);

/// A compute channel group of this process.
#[derive(Clone, Copy, PartialEq)]
struct Group {
    fd: c_int,
    client: u32,
    object: u32,
}

/// Upper limit of channel groups on record; no process has so many contexts at a time.
const GROUPS_MOST: usize = 64;

static GROUPS: Lock<Vec<Group>> = Lock::new();
/// Slice for the next context, in µs; 0 = the driver's own choice.
static WANTED_US: AtomicU64 = AtomicU64::new(0);
/// Slice that the daemon set last, in µs; 0 = none yet.
static TOLD_US: AtomicU64 = AtomicU64::new(0);
/// Outcome of the first attempt to set a slice.
static OUTCOME: AtomicU64 = AtomicU64::new(UNTRIED);

const UNTRIED: u64 = 0;
const WORKS: u64 = 1;
const REFUSED: u64 = 2;

fn groups() -> MutexGuard<'static, Vec<Group>> {
    GROUPS.lock()
}

/// Resets all state, in a forked child.
pub(super) fn forget_all() {
    GROUPS.forget();
    [&MADE, &SET_BY_DRIVER, &SET_BY_DAEMON, &SET_NS].into_iter().for_each(|count| count.store(0, Relaxed));
    OUTCOME.store(UNTRIED, Relaxed);
    TOLD_US.store(0, Relaxed);
}

/// Reports whether setting a time slice has worked in this process.
pub(super) fn available() -> bool {
    OUTCOME.load(Relaxed) == WORKS
}

/// Reports whether this process is the server of a pool, whose channel groups all get the pool's slice.
fn serves() -> bool {
    static SERVES: AtomicU64 = AtomicU64::new(UNTRIED);
    if SERVES.load(Acquire) == UNTRIED {
        let wanted = resolve::keeping_errno(served::wanted_us);
        WANTED_US.fetch_max(wanted.unwrap_or(0), Relaxed);
        SERVES.store(if wanted.is_some() { WORKS } else { REFUSED }, Release);
    }
    SERVES.load(Relaxed) == WORKS
}

/// Decides on the slice of a context that is about to be created on a device.
pub(super) fn prepare(rt: &'static Runtime, device: Option<&str>) {
    let wanted = match rt.forced_level() {
        Some(1 | 2) => 0,
        // The daemon decides, from all programs on the device. It does not repeat its setting for a further context of
        // one program.
        _ => match TOLD_US.load(Acquire) {
            0 => rt.own_timeslice_us().unwrap_or_else(|| {
                // Waits for the registration with the daemon.
                let class = Class::of(rt.own_priority());
                let contention = match device.is_some_and(|device| rt.has_best_effort_contention(device)) {
                    true => Contention::BestEffort { short: false },
                    false => Contention::None,
                };
                hardware_timeslice_us(class, contention)
            }),
            told => told,
        },
    };
    WANTED_US.store(wanted, Release);
}

/// Handles an `ioctl` that may be one of the driver's.
pub(crate) unsafe extern "C" fn watched(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let real = real();
    let serves = serves();
    if argument.is_null() || !serves && process::running().is_none() {
        // SAFETY: the caller's own arguments.
        return unsafe { real(fd, request, argument) };
    }
    if request as u32 == CONTROL {
        // SAFETY: the caller's own arguments; the request says what they are.
        return unsafe { control(real, fd, request, argument) };
    }
    // SAFETY: as above.
    unsafe {
        let rc = real(fd, request, argument);
        process::guarded("after a driver's ioctl", || note(fd, &*argument.cast::<Allocate>(), rc));
        rc
    }
}

/// Records a channel group for compute.
fn note(fd: c_int, made: &Allocate, rc: c_int) {
    if made.class == served::SUBDEVICE && rc >= 0 && made.status == 0 && serves() {
        served::note_subdevice(made.root, made.new);
    }
    if made.class != CHANNEL_GROUP || made.parameters.is_null() || rc < 0 || made.status != 0 {
        return;
    }
    // SAFETY: NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS of the caller, whose fourth word is the engine's type.
    if unsafe { *made.parameters.cast::<u32>().add(3) } == ENGINE_COMPUTE {
        let mut groups = groups();
        // A program that creates and destroys contexts without end must not make the list grow; the oldest groups are
        // long gone.
        if groups.len() >= GROUPS_MOST {
            groups.remove(0);
        }
        groups.push(Group { fd, client: made.root, object: made.new });
        MADE.fetch_add(1, Relaxed);
    }
}

/// Rewrites the call that sets a compute group's time slice.
unsafe fn control(real: IoctlFn, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let call = argument.cast::<Control>();
    let wanted = WANTED_US.load(Acquire);
    // SAFETY: the caller's own NVOS54_PARAMETERS, with eight bytes of parameters where the command says so.
    unsafe {
        let (client, object) = ((*call).client, (*call).object);
        let ours = (*call).command == SET_TIMESLICE
            && (*call).bytes == 8
            && !(*call).parameters.is_null()
            && OUTCOME.load(Relaxed) != REFUSED
            && groups().iter().any(|g| (g.client, g.object) == (client, object));
        if !ours {
            return real(fd, request, argument);
        }
        SET_BY_DRIVER.fetch_add(1, Relaxed);
        let slice = (*call).parameters.cast::<u64>();
        let meant = *slice;
        if wanted != 0 {
            *slice = wanted;
        }
        // Reports the outcome to the daemon, if this is a pool's server.
        let tell = |read_us| {
            if serves() {
                let ask = |client, object, command, words: &mut [u32]| {
                    let (parameters, bytes) = (words.as_mut_ptr().cast(), size_of_val(words) as u32);
                    let mut ask = Control { client, object, command, flags: 0, parameters, bytes, status: 0 };
                    real(fd, request, std::ptr::from_mut(&mut ask).cast()) == 0 && ask.status == 0
                };
                process::guarded("a server's report", || served::report(wanted, read_us, ask));
            }
        };
        let rc = real(fd, request, argument);
        if rc < 0 || (*call).status != 0 {
            OUTCOME.store(REFUSED, Relaxed);
            tell(None);
            if wanted == 0 {
                return rc;
            }
            // Repeats the driver's call exactly as it was.
            *slice = meant;
            return real(fd, request, argument);
        }
        let mut read = 0u64;
        let mut ask = Control {
            command: GET_TIMESLICE,
            parameters: std::ptr::from_mut(&mut read).cast(),
            status: 0,
            ..std::ptr::read(call)
        };
        let asked = real(fd, request, std::ptr::from_mut(&mut ask).cast());
        let holds = asked == 0 && ask.status == 0 && (wanted == 0 || read == wanted);
        OUTCOME.store(if holds { WORKS } else { REFUSED }, Relaxed);
        tell(Some(read).filter(|_| asked == 0 && ask.status == 0));
        if !holds && wanted != 0 {
            *slice = meant;
            return real(fd, request, argument);
        }
        rc
    }
}

/// Counts of time slices set in this process.
pub(crate) struct Counts {
    /// Channel groups for compute that the driver made.
    pub(crate) groups: u64,
    /// Number of times that the driver set the slice of a group.
    pub(crate) by_driver: u64,
    /// Number of times that the daemon had the slices of all groups set.
    pub(crate) by_daemon: u64,
    /// Time that the latter took in all, in µs.
    pub(crate) us: u64,
}

static MADE: AtomicU64 = AtomicU64::new(0);
static SET_BY_DRIVER: AtomicU64 = AtomicU64::new(0);
static SET_BY_DAEMON: AtomicU64 = AtomicU64::new(0);
static SET_NS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn counts() -> Counts {
    Counts {
        groups: MADE.load(Relaxed),
        by_driver: SET_BY_DRIVER.load(Relaxed),
        by_daemon: SET_BY_DAEMON.load(Relaxed),
        us: SET_NS.load(Relaxed) / 1000,
    }
}

/// Sets the time slice of every compute group that was made, in µs. Takes 150 µs where the GPU is idle, 400 µs beside a few
/// PyTorch programs and milliseconds where it is busy.
pub(super) fn set(us: u64) {
    if !available() {
        return;
    }
    TOLD_US.store(us, Release);
    WANTED_US.store(us, Release);
    let began_ns = now_ns();
    let made = groups().clone();
    for group in made {
        let mut slice = us;
        let mut call = Control {
            client: group.client,
            object: group.object,
            command: SET_TIMESLICE,
            flags: 0,
            parameters: std::ptr::from_mut(&mut slice).cast(),
            bytes: 8,
            status: 0,
        };
        // SAFETY: a control call as the driver makes it, on the descriptor on which it made this group. A group that is
        // gone, or a descriptor that is something else by now, is refused by the kernel.
        unsafe { real()(group.fd, c_ulong::from(CONTROL), std::ptr::from_mut(&mut call).cast()) };
    }
    SET_BY_DAEMON.fetch_add(1, Relaxed);
    SET_NS.fetch_add(now_ns().saturating_sub(began_ns), Relaxed);
}
