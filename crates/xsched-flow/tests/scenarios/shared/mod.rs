//! Programs that share a device: their threads and agents, the device, and the daemon's own gatekeeper.
//!
//! Time passes in steps. Besides the order of a stream, two effects of driver and device are modelled: a full stream blocks the launch in
//! the driver, which then holds its lock; and a command on the device that waits for a stream held there keeps the device for a while
//! whenever the time slice of another program ends (measured on an H200, `docs/internals/gates.md`).

mod agent;
mod host;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use xsched_flow::activity::Looks;
use xsched_flow::admission::Placed;
use xsched_flow::gaps::Gaps;
use xsched_flow::timeline::{Evidence, Point};
use xsched_flow::tuning::{FIRST_GRACE_NS, RELEASE_NS};
use xsched_gatekeeper::{Change, Gatekeeper};
use xsched_policy::{Arbiter, Choice, Event, GroupId, GroupSpec, LOOK_US, ProgramId};
use xsched_proto::gate::Gate;
use xsched_proto::hint::Hints;
use xsched_proto::segment::GroupSlot;

use crate::{MS, Rule, US};

const STEP_NS: u64 = 10 * US;
/// Virtual time at the start, in ns. The last heartbeat, at time 0, is this old then, because no gate was closed.
const BEGAN_NS: u64 = 60_000 * MS;
/// Interval of the daemon's heartbeat, in ns.
const BEAT_NS: u64 = 50 * MS;
/// Time that a thread takes to wake up at its gate.
const WAKES_NS: u64 = 50 * US;
/// Number of commands that the driver takes of a stream.
const STREAM_COMMANDS: usize = 1024;
/// Length of the device's time slice, in ns. At the end of one, commands that wait for held ones keep the device for `KEEPS_NS`.
const SLICE_NS: u64 = 2 * MS;
const KEEPS_NS: u64 = 2 * MS;

/// One step of a thread. The steps repeat from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Do {
    /// Takes a step once, at the beginning.
    Once(&'static Do),
    /// Launches a kernel into a stream (index, device time in ns).
    Launch(usize, u64),
    /// Launches a kernel of `ns` that begins after all present work of another stream. `known`: the scheduler knows that the program has
    /// the driver wait.
    LaunchAfter { stream: usize, other: usize, ns: u64, known: bool },
    /// Calls the driver, and returns when all commands of a stream are complete.
    Sync(usize),
    /// Polls memory until all commands of a stream are complete, without a call to the driver.
    Poll(usize),
    /// Has the driver load code in a call that returns when the program has nothing on the device.
    Load,
    /// Makes a call that needs the driver's lock and nothing else.
    Query,
    /// Does something else for this time, in ns.
    Rest(u64),
    /// Begins a request: waits for the next multiple of this time in ns, or goes on at once if that is past.
    Each(u64),
    /// Ends the thread.
    End,
}

struct Command {
    left_ns: u64,
    begun: bool,
    gated: bool,
    /// Commands of another stream that have to complete first.
    after: Option<(usize, u64)>,
    /// Point that the scheduler reads when the command is complete.
    tells: Option<Point>,
}

#[derive(Default)]
struct Stream {
    queue: VecDeque<Command>,
    given: u64,
    ended: u64,
    // Counts of the scheduler.
    issued: u64,
    issued_ns: u64,
    fenced: (u64, u64),
    done: u64,
    done_ns: u64,
    counted: u64,
    counted_done: u64,
    gated: u64,
    gated_ns: u64,
    gated_epoch: u32,
    seen_launches: Option<u64>,
}

impl Stream {
    fn is_complete(&self) -> bool {
        self.done >= self.issued && self.counted_done >= self.counted
    }

    fn advance(&mut self, evidence: Evidence) {
        (self.done, self.done_ns) = (self.issued, self.issued_ns);
        if evidence.covers_counted() {
            self.counted_done = self.counted;
        }
    }
}

#[derive(Default)]
struct Thread {
    plan: Vec<Do>,
    at: usize,
    busy_until: u64,
    /// True while the thread waits at the closed gate.
    waits: bool,
    syncs: bool,
    /// Time at which the thread's present call began, in ns.
    call_at: Option<u64>,
    request_at: u64,
}

#[derive(Default)]
pub(crate) struct Program {
    words: Rc<GroupSlot>,
    /// True if the program's commands get gates on the device, or the device is interrupted when the program's gate closes.
    pub(crate) has_gates: bool,
    pub(crate) interrupts: bool,
    pub(crate) host_ns: u64,
    threads: Vec<Thread>,
    streams: Vec<Stream>,
    waits_since_ns: u64,
    grace_since_ns: u64,
    grace_ns: u64,
    /// Grace time that does not adapt to the gaps, in ns.
    pub(crate) fixed_grace_ns: Option<u64>,
    gaps: Gaps,
    /// Time for which the present gap is kept, in ns.
    hold_ns: u64,
    /// Length and end of the last gap, in ns, and true if it was kept.
    gap: Option<(u64, u64, bool)>,
    looks: Looks,
    rare_launches: Option<u64>,
    rare_at: u64,
    look_at: u64,
    loading: bool,
    cross_at: u64,
    held: (u32, u64),
    release_patience_ns: u64,
    released_epoch: u32,
    closed_since: u64,
    /// Thread whose launch blocks in the driver while it holds the driver's lock.
    driver: Option<(usize, Placed)>,
    /// Figures that a user sees: request times, the longest call for the driver's lock, device time.
    pub(crate) took_ns: Vec<u64>,
    pub(crate) longest_query_ns: u64,
    device_ns: u64,
}

impl Program {
    fn gate(&self) -> Gate {
        self.words.gate.load()
    }

    fn is_closed(&self) -> bool {
        !self.gate().is_open()
    }

    fn is_complete(&self) -> bool {
        self.streams.iter().all(Stream::is_complete)
    }

    fn launches(&self) -> u64 {
        self.streams.iter().map(|s| s.issued + s.counted).sum()
    }

    fn waiters(&self) -> u32 {
        self.threads.iter().filter(|t| t.waits).count() as u32
    }

    fn holds(&self, stream: usize) -> bool {
        let closed = !self.gate().is_open_on_device();
        closed && self.streams[stream].queue.front().is_some_and(|c| c.gated && !c.begun)
    }

    fn waits_for_turn(&self, stream: usize) -> bool {
        let s = &self.streams[stream];
        !self.gate().is_open_on_device() && s.gated > s.done
    }

    fn waits_for_other(&self, stream: usize) -> Option<usize> {
        let (other, given) = self.streams[stream].queue.front()?.after?;
        (self.streams[other].ended < given).then_some(other)
    }

    fn runs(&self, stream: usize) -> bool {
        let head = !self.streams[stream].queue.is_empty();
        head && !self.holds(stream) && self.waits_for_other(stream).is_none()
    }

    fn is_on_device(&self) -> bool {
        !(self.interrupts && self.is_closed()) && (0..self.streams.len()).any(|s| self.runs(s))
    }

    /// Reports whether a command on the device waits for a stream that is held.
    fn keeps(&self) -> bool {
        let streams = 0..self.streams.len();
        let loads = self.loading && streams.clone().any(|s| self.holds(s));
        loads || streams.into_iter().any(|s| self.waits_for_other(s).is_some_and(|other| self.holds(other)))
    }
}

pub(crate) struct World {
    off: Rule,
    pub(crate) now: u64,
    keeper: Gatekeeper<Rc<GroupSlot>>,
    pub(crate) programs: Vec<Program>,
    /// Program that has the time slice, and the end of the slice.
    slice: (usize, u64),
    kept_until: u64,
    beat_at: u64,
    looked_at: u64,
    /// Time at which the daemon stops, in ns.
    pub(crate) stopped_at: u64,
}

impl World {
    pub(crate) fn new(off: Rule, policy: &str) -> World {
        World {
            off,
            now: BEGAN_NS,
            keeper: Gatekeeper::new(Arbiter::new(Choice::named(policy).expect("a policy"), 1), 500),
            programs: Vec::new(),
            slice: (0, 0),
            kept_until: 0,
            beat_at: 0,
            looked_at: 0,
            stopped_at: u64::MAX,
        }
    }

    /// Adds a program with a thread for each plan. Returns its index.
    pub(crate) fn add(&mut self, priority: i32, weight: u32, plans: &[&[Do]]) -> usize {
        let at = self.programs.len();
        let words = Rc::new(GroupSlot::default());
        words.inherited_priority.store(i32::MIN, SeqCst);
        words.gate.call_idle();
        let id = at as u64;
        let hints = Hints { weight: Some(weight), ..Hints::default() };
        let spec = GroupSpec { priority, hints, ..GroupSpec::new(GroupId(id), ProgramId(id), "gpu") };
        self.keeper.add(self.now / US, spec, words.clone());
        let thread = |plan: &&[Do]| Thread { plan: plan.to_vec(), ..Thread::default() };
        self.programs.push(Program {
            words,
            host_ns: 5 * US,
            release_patience_ns: RELEASE_NS,
            threads: plans.iter().map(thread).collect(),
            streams: (0..4).map(|_| Stream::default()).collect(),
            grace_ns: FIRST_GRACE_NS,
            ..Program::default()
        });
        at
    }

    pub(crate) fn run(&mut self, for_ns: u64) {
        let until = self.now + for_ns;
        while self.now < until {
            self.daemon();
            for p in 0..self.programs.len() {
                self.set_device_gates(p);
                for t in 0..self.programs[p].threads.len() {
                    while self.goes_on(p, t) {}
                }
                self.agent(p);
            }
            self.device();
            self.now += STEP_NS;
        }
    }

    fn daemon(&mut self) {
        if self.now >= self.stopped_at {
            return;
        }
        let now_us = self.now / US;
        for at in 0..self.programs.len() {
            let _ = self.keeper.scan(now_us, GroupId(at as u64), |lent| lent);
        }
        if self.keeper.arbiter().next_timer().is_some_and(|at| at <= now_us) {
            self.keeper.event(now_us, Event::Timer);
        }
        if self.now >= self.looked_at + LOOK_US * US {
            self.looked_at = self.now;
            for (at, program) in self.programs.iter().enumerate() {
                self.keeper.look(now_us, GroupId(at as u64), || program.launches());
            }
        }
        if self.keeper.arbiter().any_closed() && self.now >= self.beat_at + BEAT_NS {
            self.beat_at = self.now;
        }
        while let Some(change) = self.keeper.carry_out(now_us) {
            if let Change::Closed(id) = change
                && (self.programs[id.0 as usize].has_gates || self.programs[id.0 as usize].interrupts)
            {
                self.keeper.off_device(now_us, id);
            }
        }
    }

    fn device(&mut self) {
        if self.now < self.kept_until {
            return;
        }
        let n = self.programs.len();
        let (on, until) = self.slice;
        let ends = self.now >= until || !self.programs[on].is_on_device();
        if ends {
            let next = (1..=n).map(|k| (on + k) % n).find(|p| self.programs[*p].is_on_device());
            let Some(next) = next else { return };
            self.slice = (next, self.now + SLICE_NS);
            let keep = (0..n).filter(|p| *p != on && self.programs[*p].keeps()).count() as u64;
            if self.now >= until && keep > 0 {
                self.kept_until = self.now + keep * KEEPS_NS;
                self.slice.1 = self.kept_until + SLICE_NS;
                return;
            }
        }
        let program = &mut self.programs[self.slice.0];
        let running: Vec<usize> = (0..program.streams.len()).filter(|s| program.runs(*s)).collect();
        for s in &running {
            let mut part = STEP_NS / running.len() as u64;
            while part > 0 && program.runs(*s) {
                let Some(head) = program.streams[*s].queue.front_mut() else { break };
                head.begun = true;
                let took = head.left_ns.min(part);
                head.left_ns -= took;
                part -= took;
                program.device_ns += took;
                if head.left_ns > 0 {
                    break;
                }
                let stream = &mut program.streams[*s];
                let tells = stream.queue.pop_front().and_then(|command| command.tells);
                stream.ended += 1;
                if let Some(at) = tells {
                    let new = at.seq.saturating_sub(stream.done);
                    stream.done = stream.done.max(at.seq);
                    stream.done_ns = stream.done_ns.max(at.ns);
                    stream.counted_done = stream.counted_done.max(at.counted);
                    program.words.completed.fetch_add(new, SeqCst);
                    program.look_at = self.now;
                }
            }
        }
    }

    /// Part of the time in which the device was at work for a program.
    pub(crate) fn part(&self, p: usize) -> f64 {
        self.programs[p].device_ns as f64 / (self.now - BEGAN_NS) as f64
    }

    /// Median of a program's request times, in ns.
    pub(crate) fn median_ns(&self, p: usize) -> u64 {
        let mut took = self.programs[p].took_ns.clone();
        took.sort_unstable();
        took[took.len() / 2]
    }
}
