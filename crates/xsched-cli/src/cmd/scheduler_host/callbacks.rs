//! Callbacks of a registered scheduler, and the daemon's answer from their results.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use xsched_proto::host::{self, FromHost, Question};

use super::device_state::{CDeviceState, c_device_state};

/// XSchedGroup of include/xsched/scheduler.h.
#[repr(C)]
struct Group {
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

/// XSchedStream of include/xsched/scheduler.h.
#[repr(C)]
struct Stream {
    size: usize,
    id: u64,
    program: u64,
    device: *const c_char,
    pid: u32,
    weight: u32,
    priority: i32,
    stream_priority: i32,
    ready: i32,
    running: i32,
    launches: u64,
    timeslice_us: u64,
    ready_since_us: u64,
    used_us: u64,
    beside: *const Streams,
    state: *const CDeviceState,
}

/// XSchedStreams of include/xsched/scheduler.h.
#[repr(C)]
struct Streams {
    count: usize,
    streams: *const *const Stream,
}

/// Device of a question: its key, and its state if known.
struct Device<'a> {
    key: &'a CStr,
    state: *const CDeviceState,
}

type ToldGroup = unsafe extern "C" fn(*mut c_void, *const Group);
type ToldStream = unsafe extern "C" fn(*mut c_void, *const Stream);
type OfGroup = unsafe extern "C" fn(*mut c_void, *const Group) -> c_int;
type OfTwoGroups = unsafe extern "C" fn(*mut c_void, *const Group, *const Group) -> c_int;
type OfStream = unsafe extern "C" fn(*mut c_void, *const Stream) -> c_int;

/// XSchedScheduler and XSchedStreamScheduler of include/xsched/scheduler.h: they differ in the arguments of the callbacks.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Table {
    size: usize,
    pub(super) version: u32,
    context: *mut c_void,
    submit: *const c_void,
    preempt: *const c_void,
    resume: *const c_void,
}

impl Table {
    /// Version whose callbacks decide on each stream.
    pub(super) const PER_STREAM: u32 = 2;

    /// Converts a pointer to a callback of the version's type.
    ///
    /// # Safety
    /// `F` is the type of a function pointer: the one that the header has in this place for this version.
    unsafe fn callback<F: Copy>(pointer: *const c_void) -> Option<F> {
        // SAFETY: null is no function, and anything else one of this type by the registering library's promise.
        unsafe { std::mem::transmute_copy::<*const c_void, Option<F>>(&pointer) }
    }
}

/// Registered scheduler, and the groups that wanted the device at the last question.
pub(super) struct Scheduler {
    table: Table,
    ready: Vec<u64>,
}

impl Scheduler {
    pub(super) fn new(table: Table) -> Scheduler {
        Scheduler { table, ready: Vec::new() }
    }

    /// Answers a question by the callbacks.
    pub(super) fn answer(&mut self, question: Question) -> FromHost {
        let device = CString::new(question.device.clone()).unwrap_or_default();
        let fresh: Vec<bool> = question.groups.iter().map(|g| g.ready && !self.ready.contains(&g.id)).collect();
        // The question is about one device; groups of others stay in the list.
        self.ready.retain(|id| !question.groups.iter().any(|g| g.id == *id));
        self.ready.extend(question.groups.iter().filter(|g| g.ready).map(|g| g.id));
        let state = question.state.as_ref().map(c_device_state);
        let device = Device { key: &device, state: state.as_ref().map_or(std::ptr::null(), std::ptr::from_ref) };
        let (mut run, refused) = match self.table.version {
            Table::PER_STREAM => self.streams(&question.groups, &fresh, &device),
            _ => self.groups(&question.groups, &fresh, &device),
        };
        let wanting = || question.groups.iter().filter(|g| g.ready);
        if !wanting().any(|g| run.contains(&g.id)) {
            run.extend(wanting().min_by_key(|g| g.ready_since_us).map(|g| g.id));
        }
        let slice = wanting().map(|g| g.timeslice_us).min();
        let again_in_us = slice.filter(|_| refused);
        FromHost::Answer { device: question.device, number: question.number, run, again_in_us }
    }

    /// Version 1: chooses the groups that may run, and reports whether one was refused that no group preempts.
    fn groups(&self, groups: &[host::Group], fresh: &[bool], device: &Device<'_>) -> (Vec<u64>, bool) {
        let groups: Vec<Group> = groups.iter().map(|g| group(g, device)).collect();
        // SAFETY: what the header has in these places for this version.
        let (submit, preempt, resume) = unsafe {
            (
                Table::callback::<ToldGroup>(self.table.submit),
                Table::callback::<OfTwoGroups>(self.table.preempt),
                Table::callback::<OfGroup>(self.table.resume),
            )
        };
        // SAFETY: the registered callback with its own context; the group lives through the call.
        let submit = |g: &Group| submit.map(|submit| unsafe { submit(self.table.context, g) });
        // SAFETY: as above.
        let preempts = |g: &Group, w: &Group| preempt.is_some_and(|p| unsafe { p(self.table.context, g, w) } != 0);
        // SAFETY: as above.
        let agrees = |g: &Group| resume.is_none_or(|resume| unsafe { resume(self.table.context, g) } != 0);
        for (g, _) in groups.iter().zip(fresh).filter(|(_, fresh)| **fresh) {
            submit(g);
        }
        let wanting = || groups.iter().filter(|g| g.ready != 0);
        let (mut run, mut refused) = (Vec::new(), false);
        for g in &groups {
            let preempted = wanting().any(|w| w.id != g.id && preempts(g, w));
            let agreed = preempted || g.ready == 0 || agrees(g);
            refused |= !agreed;
            if !preempted && agreed {
                run.push(g.id);
            }
        }
        (run, refused)
    }

    /// Version 2: chooses the groups that may run by the answers on their streams, and reports whether one that wants to was refused.
    fn streams(&self, groups: &[host::Group], fresh: &[bool], device: &Device<'_>) -> (Vec<u64>, bool) {
        // A group without a stream has nothing to launch, so that it may run.
        let mut run: Vec<u64> = groups.iter().filter(|g| g.stream.is_none()).map(|g| g.id).collect();
        let known: Vec<(&host::Group, bool)> =
            groups.iter().zip(fresh.iter().copied()).filter(|(g, _)| g.stream.is_some()).collect();
        let beside = Cell::new(Streams { count: known.len(), streams: std::ptr::null() });
        let streams: Vec<Stream> = known.iter().map(|(g, _)| stream(g, device, beside.as_ptr())).collect();
        let pointers: Vec<*const Stream> = streams.iter().map(std::ptr::from_ref).collect();
        beside.set(Streams { count: known.len(), streams: pointers.as_ptr() });
        // SAFETY: what the header has in these places for this version.
        let (submit, preempt, resume) = unsafe {
            (
                Table::callback::<ToldStream>(self.table.submit),
                Table::callback::<OfStream>(self.table.preempt),
                Table::callback::<OfStream>(self.table.resume),
            )
        };
        // SAFETY: the registered callback with its own context; the streams, and what they point to, live through the call.
        let call = |callback: OfStream, s: &Stream| unsafe { callback(self.table.context, s) };
        for (s, _) in streams.iter().zip(&known).filter(|(_, (_, fresh))| *fresh) {
            if let Some(submit) = submit {
                // SAFETY: as above.
                unsafe { submit(self.table.context, s) };
            }
        }
        let mut refused = false;
        for (s, (g, _)) in streams.iter().zip(&known) {
            let runs = match s.running != 0 {
                true => preempt.is_none_or(|preempt| call(preempt, s) == 0),
                false => resume.is_none_or(|resume| call(resume, s) != 0),
            };
            refused |= !runs && g.ready;
            if runs {
                run.push(g.id);
            }
        }
        (run, refused)
    }
}

fn group(g: &host::Group, device: &Device<'_>) -> Group {
    Group {
        size: size_of::<Group>(),
        id: g.id,
        program: g.program,
        device: device.key.as_ptr(),
        pid: g.pid,
        weight: g.weight,
        priority: g.priority,
        ready: g.ready.into(),
        running: g.running.into(),
        timeslice_us: g.timeslice_us,
        ready_since_us: g.ready_since_us,
        used_us: g.used_us,
        state: device.state,
    }
}

fn stream(g: &host::Group, device: &Device<'_>, beside: *const Streams) -> Stream {
    let of_group = g.stream.unwrap_or_default();
    Stream {
        size: size_of::<Stream>(),
        id: of_group.id,
        program: g.program,
        device: device.key.as_ptr(),
        pid: g.pid,
        weight: g.weight,
        priority: g.priority,
        stream_priority: of_group.priority,
        ready: g.ready.into(),
        running: g.running.into(),
        launches: of_group.launches,
        timeslice_us: g.timeslice_us,
        ready_since_us: g.ready_since_us,
        used_us: g.used_us,
        beside,
        state: device.state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn lower_first(_: *mut c_void, running: *const Group, waiting: *const Group) -> c_int {
        // SAFETY: the groups that `groups` passes.
        unsafe { c_int::from((*waiting).priority < (*running).priority) }
    }

    unsafe extern "C" fn never(_: *mut c_void, _: *const Group) -> c_int {
        0
    }

    const NONE: Table = Table {
        size: size_of::<Table>(),
        version: 1,
        context: std::ptr::null_mut(),
        submit: std::ptr::null(),
        preempt: std::ptr::null(),
        resume: std::ptr::null(),
    };

    fn ask(scheduler: &mut Scheduler, groups: Vec<host::Group>) -> (Vec<u64>, Option<u64>) {
        match scheduler.answer(Question { device: "sim:0".into(), number: 3, groups, state: None }) {
            FromHost::Answer { number: 3, run, again_in_us, .. } => (run, again_in_us),
            other => panic!("{other:?}"),
        }
    }

    fn asked(table: Table, groups: &[(u64, i32, bool)]) -> (Vec<u64>, Option<u64>) {
        let group = |&(id, priority, ready): &(u64, i32, bool)| host::Group {
            id,
            priority,
            ready,
            timeslice_us: 5_000,
            ready_since_us: 100 - id,
            ..host::Group::default()
        };
        ask(&mut Scheduler::new(table), groups.iter().map(group).collect())
    }

    #[test]
    fn callbacks_decide_and_the_device_never_stands_still_for_them() {
        let reverse = Table { preempt: lower_first as *const c_void, ..NONE };
        assert_eq!(asked(NONE, &[(1, 0, true), (2, 9, true)]), (vec![1, 2], None), "without callbacks all run");
        assert_eq!(asked(reverse, &[(1, 0, true), (2, 9, true)]), (vec![1], None));
        assert_eq!(asked(reverse, &[(1, 0, false), (2, 9, true)]), (vec![1, 2], None));
        let refusing = Table { resume: never as *const c_void, ..NONE };
        assert_eq!(asked(refusing, &[(1, 0, true), (2, 9, true)]), (vec![2], Some(5_000)), "what waits longest");
        assert_eq!(asked(refusing, &[(1, 0, false)]), (vec![1], None));
    }

    /// Calls of the callbacks below, as pairs of callback and stream.
    type Log = Vec<(char, u64)>;

    fn note(context: *mut c_void, what: char, stream: *const Stream) -> &'static Stream {
        // SAFETY: the log that the test registers, and a stream that lives through the call.
        unsafe {
            (*context.cast::<Log>()).push((what, (*stream).id));
            &*stream
        }
    }

    /// Reports whether another, less urgent stream wants the device.
    fn lower_waits(stream: &Stream) -> c_int {
        // SAFETY: as the header says: so many pointers to streams.
        let beside = unsafe { std::slice::from_raw_parts((*stream.beside).streams, (*stream.beside).count) };
        // SAFETY: as above.
        let waits =
            beside.iter().any(|s| unsafe { (**s).ready != 0 && (**s).stream_priority < stream.stream_priority });
        waits.into()
    }

    unsafe extern "C" fn submit(context: *mut c_void, stream: *const Stream) {
        let stream = note(context, 's', stream);
        assert_eq!(stream.launches, stream.id * 10);
    }

    unsafe extern "C" fn preempt(context: *mut c_void, stream: *const Stream) -> c_int {
        lower_waits(note(context, 'p', stream))
    }

    unsafe extern "C" fn resume(context: *mut c_void, stream: *const Stream) -> c_int {
        c_int::from(lower_waits(note(context, 'r', stream)) == 0)
    }

    #[test]
    fn a_table_of_version_2_is_asked_about_each_stream_with_the_others_beside_it() {
        let mut log = Log::new();
        let table = Table {
            version: Table::PER_STREAM,
            context: (&raw mut log).cast(),
            submit: submit as *const c_void,
            preempt: preempt as *const c_void,
            resume: resume as *const c_void,
            ..NONE
        };
        let stream = |id: u64, priority, ready, running| host::Group {
            id: id + 100,
            ready,
            running,
            timeslice_us: 5_000,
            stream: Some(host::Stream { id, priority, launches: id * 10 }),
            ..host::Group::default()
        };
        let mut scheduler = Scheduler::new(table);
        let alone = vec![stream(1, 1, true, true), stream(2, 0, false, true)];
        assert_eq!(ask(&mut scheduler, alone), (vec![101, 102], None));
        let both = vec![stream(1, 1, true, true), stream(2, 0, true, true)];
        assert_eq!(ask(&mut scheduler, both), (vec![102], Some(5_000)), "the less urgent one first");
        let waits = vec![stream(1, 1, true, false), stream(2, 0, true, true)];
        assert_eq!(ask(&mut scheduler, waits), (vec![102], Some(5_000)));
        let nothing = host::Group { id: 7, ..host::Group::default() };
        let over = vec![stream(1, 1, true, false), stream(2, 0, false, true), nothing];
        assert_eq!(ask(&mut scheduler, over), (vec![7, 101, 102], None), "what has no stream waits for nothing");
        let wanted =
            [('s', 1), ('p', 1), ('p', 2), ('s', 2), ('p', 1), ('p', 2), ('r', 1), ('p', 2), ('r', 1), ('p', 2)];
        assert_eq!(log, wanted);
    }
}
