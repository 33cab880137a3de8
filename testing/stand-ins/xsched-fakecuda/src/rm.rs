//! The resource manager behind a context: the `ioctl` calls by which a driver requests channel groups and their time
//! slices, in the layouts of NVIDIA's open kernel module.
//!
//! There is no such device here. The calls go to a memfd through the C library's `ioctl`, as the driver's do, so that a
//! preloaded `ioctl` sees them and may rewrite them. The kernel then refuses them, and this module handles the
//! resulting parameters as the manager would. `fakeRmIoctl` does so for a preloaded `ioctl` that makes calls of its
//! own.

use crate::fail::FAILURES;
use crate::result::{Error, Result};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::MemfdFlags;
use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use xsched_sim::client::{self, lock};
use xsched_sim::layout::MAX_TIMESLICE_US;

const CLIENT: u32 = 0xc1d0_0001;
const DEVICE: u32 = 0x5c00_0001;
/// Handle of the compute group; those of the copy engines follow.
const COMPUTE: u32 = 0x5c00_0010;
const GROUP_CLASS: u32 = 0xa06c;
/// Engine type of graphics and compute.
const ENGINE_COMPUTE: u32 = 1;
/// Engine types of the copy engines that a context uses.
const ENGINES_COPY: [u32; 3] = [11, 12, 13];
/// Slice that a driver sets when it creates a context, in µs.
const TIMESLICE_US: u64 = 2048;
/// Slice of a copy engine's group, in µs.
const COPY_TIMESLICE_US: u64 = 1024;

const SET_TIMESLICE: u32 = 0xa06c_0103;
const GET_TIMESLICE: u32 = 0xa06c_0104;
const PREEMPT: u32 = 0xa06c_0105;
const SCHEDULE: u32 = 0xa06c_0101;
const SET_INTERLEAVE_LEVEL: u32 = 0xa06c_0107;

/// NV_ERR_INVALID_ARGUMENT, NV_ERR_INVALID_OBJECT_HANDLE, NV_ERR_NOT_SUPPORTED.
const INVALID_ARGUMENT: u32 = 0x1f;
const INVALID_OBJECT: u32 = 0x33;
const NOT_SUPPORTED: u32 = 0x56;

/// `_IOWR('F', number, size)`.
const fn request(number: u8, size: usize) -> c_ulong {
    3 << 30 | (size as c_ulong) << 16 | (b'F' as c_ulong) << 8 | number as c_ulong
}

const FREE: c_ulong = request(0x29, size_of::<Free>());
const CONTROL: c_ulong = request(0x2a, size_of::<Control>());
const ALLOC: c_ulong = request(0x2b, size_of::<Alloc>());

#[repr(C)]
#[derive(Default)]
struct Free {
    root: u32,
    parent: u32,
    old: u32,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    params: u64,
    params_size: u32,
    status: u32,
}

#[repr(C)]
#[derive(Default)]
struct Alloc {
    root: u32,
    parent: u32,
    new: u32,
    class: u32,
    params: u64,
    rights: u64,
    params_size: u32,
    flags: u32,
    status: u32,
    pad: u32,
}

/// NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS.
#[repr(C)]
#[derive(Default)]
struct GroupParams {
    error: u32,
    ecc_error: u32,
    vaspace: u32,
    engine_type: u32,
    is_vgpu: u8,
}

unsafe extern "C" {
    /// The `ioctl` of the C library, or of a library before it.
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
}

/// Set if no channel groups are to be created.
pub(crate) static OFF: AtomicBool = AtomicBool::new(false);

/// All channel groups, to find one by its descriptor.
static GROUPS: Mutex<Vec<Weak<Group>>> = Mutex::new(Vec::new());

/// The channel groups of a context.
pub(crate) struct Group {
    fd: OwnedFd,
    sim: &'static client::Context,
    copy_slices_us: [AtomicU64; 3],
    ended: AtomicBool,
}

impl Group {
    /// Creates the groups and sets the compute group's slice, as a driver does for a new context.
    pub(crate) fn new(sim: &'static client::Context) -> Result<Arc<Self>> {
        let fd = rustix::fs::memfd_create("nvidiactl", MemfdFlags::CLOEXEC).map_err(|_| Error::UNKNOWN)?;
        let copy_slices_us = [COPY_TIMESLICE_US; 3].map(AtomicU64::new);
        let group = Arc::new(Self { fd, sim, copy_slices_us, ended: AtomicBool::new(false) });
        {
            let mut groups = lock(&GROUPS);
            groups.retain(|group| group.strong_count() > 0);
            groups.push(Arc::downgrade(&group));
        }
        for (new, engine_type) in (COMPUTE..).zip([ENGINE_COMPUTE].into_iter().chain(ENGINES_COPY)) {
            let mut params = GroupParams { engine_type, ..GroupParams::default() };
            let mut alloc = Alloc { root: CLIENT, parent: DEVICE, new, class: GROUP_CLASS, ..Alloc::default() };
            alloc.params = (&raw mut params).addr() as u64;
            alloc.params_size = size_of::<GroupParams>() as u32;
            group.call(ALLOC, &mut alloc);
        }
        let mut slice = TIMESLICE_US;
        let mut control = Control { client: CLIENT, object: COMPUTE, command: SET_TIMESLICE, ..Control::default() };
        control.params = (&raw mut slice).addr() as u64;
        control.params_size = size_of::<u64>() as u32;
        group.call(CONTROL, &mut control);
        Ok(group)
    }

    /// Frees the groups.
    pub(crate) fn end(&self) {
        if !self.ended.swap(true, Relaxed) {
            for old in COMPUTE..COMPUTE + 4 {
                self.call(FREE, &mut Free { root: CLIENT, parent: DEVICE, old, status: 0 });
            }
        }
    }

    /// Makes one call through the C library, then handles it as the manager would.
    fn call<T>(&self, request: c_ulong, arg: &mut T) {
        if OFF.load(Relaxed) {
            return;
        }
        // SAFETY: `arg` has the layout of this request. The memfd itself refuses every request.
        let handled = unsafe { ioctl(self.fd.as_raw_fd(), request, std::ptr::from_mut(arg)) } == 0;
        if !handled {
            // SAFETY: as above, and what `arg` points to is the caller's.
            unsafe { self.manage(request, std::ptr::from_mut(arg).cast()) };
        }
    }

    /// Handles a request as the manager does. Returns false for an unknown one.
    ///
    /// # Safety
    /// `arg` has the layout of `request`, and its own pointers those of its command.
    unsafe fn manage(&self, request: c_ulong, arg: *mut c_void) -> bool {
        match request {
            // SAFETY: as the caller says.
            ALLOC => unsafe { (*arg.cast::<Alloc>()).status = 0 },
            // SAFETY: as the caller says.
            FREE => unsafe { (*arg.cast::<Free>()).status = 0 },
            CONTROL => {
                // SAFETY: as the caller says.
                let control = unsafe { &mut *arg.cast::<Control>() };
                // SAFETY: as the caller says.
                let fails = unsafe { foreign(control) }.and_then(|name| FAILURES.of(name));
                // SAFETY: as the caller says.
                control.status = fails.map_or_else(|| unsafe { self.control(control) }, i32::cast_unsigned);
            }
            _ => return false,
        }
        true
    }

    /// # Safety
    /// `control.params` points to `control.params_size` bytes.
    unsafe fn control(&self, control: &Control) -> u32 {
        let engine = control.object.wrapping_sub(COMPUTE) as usize;
        if engine > self.copy_slices_us.len() {
            return INVALID_OBJECT;
        }
        let params = std::ptr::with_exposed_provenance_mut::<u64>(control.params as usize);
        match control.command {
            SET_TIMESLICE | GET_TIMESLICE if control.params_size != 8 || params.is_null() => INVALID_ARGUMENT,
            // SAFETY: 8 bytes, as the caller says.
            SET_TIMESLICE => self.set_timeslice(engine, unsafe { params.read_unaligned() }),
            GET_TIMESLICE => {
                // SAFETY: 8 bytes, as the caller says.
                unsafe { params.write_unaligned(self.timeslice(engine)) };
                0
            }
            PREEMPT | SCHEDULE | SET_INTERLEAVE_LEVEL => 0,
            _ => NOT_SUPPORTED,
        }
    }

    fn set_timeslice(&self, engine: usize, us: u64) -> u32 {
        if !(1..=MAX_TIMESLICE_US).contains(&us) {
            return INVALID_ARGUMENT;
        }
        match engine.checked_sub(1) {
            // A context that has ended has no slice.
            None => self.sim.set_timeslice_ns(us * 1000).map_or(INVALID_OBJECT, |()| 0),
            Some(copy) => {
                self.copy_slices_us[copy].store(us, Relaxed);
                0
            }
        }
    }

    fn timeslice(&self, engine: usize) -> u64 {
        engine.checked_sub(1).map_or(self.sim.timeslice_ns() / 1000, |copy| self.copy_slices_us[copy].load(Relaxed))
    }
}

/// Name under which a test can make a call about slices fail, if this library does not make the call itself. This
/// library reads no slices, and sets only [`TIMESLICE_US`].
///
/// # Safety
/// `control.params` points to `control.params_size` bytes.
unsafe fn foreign(control: &Control) -> Option<&'static str> {
    let params = std::ptr::with_exposed_provenance::<u64>(control.params as usize);
    match control.command {
        GET_TIMESLICE => Some("ioctl:GET_TIMESLICE"),
        SET_TIMESLICE if control.params_size == 8 && !params.is_null() => {
            // SAFETY: 8 bytes, as the caller says.
            (unsafe { params.read_unaligned() } != TIMESLICE_US).then_some("ioctl:SET_TIMESLICE")
        }
        _ => None,
    }
}

/// Handles an `ioctl` for one of this library's descriptors. Returns 0, or -1 for another descriptor or an unknown
/// request.
///
/// # Safety
/// `arg` has the layout of the request.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C" fn fakeRmIoctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let owner = lock(&GROUPS).iter().filter_map(Weak::upgrade).find(|group| group.fd.as_raw_fd() == fd);
    // SAFETY: as the caller says.
    let done = owner.is_some_and(|group| !arg.is_null() && unsafe { group.manage(request, arg) });
    if done { 0 } else { -1 }
}
