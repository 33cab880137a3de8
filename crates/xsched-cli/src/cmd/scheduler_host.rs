//! `xsched scheduler-host`: runs an operator's own scheduler in a process of its own, beside the daemon that starts it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::net::{RecvFlags, SendFlags};
use xsched_proto::host::{FromHost, Group, Question};
use xsched_proto::wire::{MAX_PACKET, decode, encode};

use crate::failure::{Error, Result};
use crate::preload;

mod device_state;

use device_state::{CDeviceState, c_device_state};

/// Answer the daemon's questions, which come by standard input
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The library
    #[arg(value_name = "FILE")]
    library: PathBuf,
}

/// XSchedGroup of include/xsched/scheduler.h.
#[repr(C)]
struct CGroup {
    size: usize,
    id: u64,
    program: u64,
    device: *const c_char,
    pid: u32,
    weight: u32,
    priority: i32,
    ready: i32,
    running: i32,
    timeslice_us: u64,
    ready_since_us: u64,
    used_us: u64,
    state: *const CDeviceState,
}

/// XSchedScheduler of the same.
#[repr(C)]
#[derive(Clone, Copy)]
struct Table {
    size: usize,
    version: u32,
    context: *mut c_void,
    submit: Option<unsafe extern "C" fn(*mut c_void, *const CGroup)>,
    preempt: Option<unsafe extern "C" fn(*mut c_void, *const CGroup, *const CGroup) -> c_int>,
    resume: Option<unsafe extern "C" fn(*mut c_void, *const CGroup) -> c_int>,
}

/// Serves until the daemon hangs up.
pub(crate) fn main(args: Args) -> Result {
    let stdin = std::io::stdin();
    let socket = stdin.as_fd();
    let table = match load(&args.library) {
        Ok(table) => table,
        Err(why) => {
            say(socket, &FromHost::Failed(why.to_string()));
            return Err(Error::input(why));
        }
    };
    say(socket, &FromHost::Loaded);
    let mut buffer = vec![0; MAX_PACKET];
    let mut scheduler = Scheduler { table, ready: Vec::new() };
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
    // Should the daemon be gone, the next look at the socket tells.
    if let Ok(packet) = encode(message) {
        let _ = rustix::net::send(socket, &packet, SendFlags::NOSIGNAL);
    }
}

/// Opens the library, lets it register its scheduler, and returns that.
fn load(library: &Path) -> Result<Table> {
    // It finds `hipRegisterScheduler` in the preload library.
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
    // A name without a slash would be looked for elsewhere.
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

/// The registered scheduler, and who wanted the device when it was asked last.
struct Scheduler {
    table: Table,
    ready: Vec<u64>,
}

impl Scheduler {
    fn answer(&mut self, question: Question) -> FromHost {
        let device = CString::new(question.device.clone()).unwrap_or_default();
        let state = question.state.as_ref().map(c_device_state);
        let groups: Vec<CGroup> = question.groups.iter().map(|g| c_group(g, &device, state.as_ref())).collect();
        for (g, c) in question.groups.iter().zip(&groups) {
            if g.ready && !self.ready.contains(&g.id) {
                self.submit(c);
            }
        }
        // Groups of other devices stay as they are.
        self.ready.retain(|id| !question.groups.iter().any(|g| g.id == *id));
        self.ready.extend(question.groups.iter().filter(|g| g.ready).map(|g| g.id));
        let wanting = || groups.iter().filter(|g| g.ready != 0);
        let mut refused = false;
        let mut run: Vec<u64> = Vec::new();
        for g in &groups {
            let preempted = wanting().any(|w| w.id != g.id && self.preempts(g, w));
            let agreed = preempted || g.ready == 0 || self.agrees(g);
            refused |= !agreed;
            if !preempted && agreed {
                run.push(g.id);
            }
        }
        if !wanting().any(|g| run.contains(&g.id)) {
            run.extend(wanting().min_by_key(|g| g.ready_since_us).map(|g| g.id));
        }
        let slice = wanting().map(|g| g.timeslice_us).min();
        let again_in_us = slice.filter(|_| refused);
        FromHost::Answer { device: question.device, number: question.number, run, again_in_us }
    }

    fn submit(&self, group: &CGroup) {
        if let Some(submit) = self.table.submit {
            // SAFETY: the registered callback with its own context; the group lives through the call.
            unsafe { submit(self.table.context, group) };
        }
    }

    fn preempts(&self, running: &CGroup, waiting: &CGroup) -> bool {
        // SAFETY: as above.
        self.table.preempt.is_some_and(|preempt| unsafe { preempt(self.table.context, running, waiting) } != 0)
    }

    fn agrees(&self, group: &CGroup) -> bool {
        // SAFETY: as above.
        self.table.resume.is_none_or(|resume| unsafe { resume(self.table.context, group) } != 0)
    }
}

fn c_group(g: &Group, device: &CStr, state: Option<&CDeviceState>) -> CGroup {
    CGroup {
        size: size_of::<CGroup>(),
        id: g.id,
        program: g.program,
        device: device.as_ptr(),
        pid: g.pid,
        weight: g.weight,
        priority: g.priority,
        ready: g.ready.into(),
        running: g.running.into(),
        timeslice_us: g.timeslice_us,
        ready_since_us: g.ready_since_us,
        used_us: g.used_us,
        state: state.map_or(std::ptr::null(), std::ptr::from_ref),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn lower_first(_: *mut c_void, running: *const CGroup, waiting: *const CGroup) -> c_int {
        // SAFETY: the groups that `preempts` passes.
        unsafe { c_int::from((*waiting).priority < (*running).priority) }
    }

    unsafe extern "C" fn never(_: *mut c_void, _: *const CGroup) -> c_int {
        0
    }

    fn asked(table: Table, groups: &[(u64, i32, bool)]) -> (Vec<u64>, Option<u64>) {
        let group = |&(id, priority, ready): &(u64, i32, bool)| Group {
            id,
            priority,
            ready,
            timeslice_us: 5_000,
            ready_since_us: 100 - id,
            ..Group::default()
        };
        let question =
            Question { device: "sim:0".into(), number: 3, groups: groups.iter().map(group).collect(), state: None };
        match (Scheduler { table, ready: Vec::new() }).answer(question) {
            FromHost::Answer { number: 3, run, again_in_us, .. } => (run, again_in_us),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn callbacks_decide_and_the_device_never_stands_still_for_them() {
        let none = Table {
            size: size_of::<Table>(),
            version: 1,
            context: std::ptr::null_mut(),
            submit: None,
            preempt: None,
            resume: None,
        };
        let reverse = Table { preempt: Some(lower_first), ..none };
        assert_eq!(asked(none, &[(1, 0, true), (2, 9, true)]), (vec![1, 2], None), "without callbacks all run");
        assert_eq!(asked(reverse, &[(1, 0, true), (2, 9, true)]), (vec![1], None));
        assert_eq!(asked(reverse, &[(1, 0, false), (2, 9, true)]), (vec![1, 2], None));
        let refusing = Table { resume: Some(never), ..none };
        assert_eq!(asked(refusing, &[(1, 0, true), (2, 9, true)]), (vec![2], Some(5_000)), "who waits longest");
        assert_eq!(asked(refusing, &[(1, 0, false)]), (vec![1], None));
    }
}
