//! Requests of the runtimes to AMD's compute driver, on their way to the C library's `ioctl`: the queues of this process
//! are learned from them, and the runtime's wishes and the scheduler's are combined (see [`super::queues`]).

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicBool, Ordering::*};

use super::kfd::{
    State, carry, class_for, enabled, knows_version, met, note_saving, note_version, priority, release, state,
};
use super::queues::is_compute;
use super::uapi::{
    CREATE_QUEUE, CreateQueue, DESTROY_QUEUE, DestroyQueue, GET_VERSION, GET_VERSION_REQUEST, GetVersion, UPDATE_QUEUE,
    UpdateQueue,
};
use crate::interpose::ioctl::{IoctlFn, real};
use crate::platform::start::runtime;
use crate::process;

extern "C" fn at_exit() {
    process::guarded("at exit", release);
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
        note_version(found.major_version);
    }
    rc
}

/// Asks for the version if the runtime has not, so that its queues can be suspended all the same.
fn ask_version(fd: c_int) {
    if !knows_version() {
        let mut found = GetVersion::default();
        // SAFETY: a request that fills this structure, on a descriptor on which the driver has just answered.
        if unsafe { real()(fd, GET_VERSION_REQUEST, std::ptr::from_mut(&mut found).cast()) } == 0 {
            note_version(found.major_version);
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
        let class = class_for(rt, priority(rt));
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
            note_saving(queues.some_cannot_save(&[made.gpu_id]));
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
