//! A scheduler inside the process: the arbiter that a daemon runs, over this process's own groups.

use xsched_core::{Registration, Runtime, now_ns, wake_all};
use xsched_policy::{Action, Arbiter, Event, GroupId, GroupSpec, LOOK_US, ProgramId, Progress};
use xsched_proto::class::{TIMESLICE_DEFAULT_US, WEIGHT_DEFAULT, queue_priority};
use xsched_proto::segment::{gate, state};
use xsched_proto::wire::{ClientMsg, ProgramOptions};

/// Device time in flight allowed to a group that may have to make room, in µs; the daemon's default too.
const BOUND_US: u32 = 500;
const ONE_PROGRAM: ProgramId = ProgramId(1);

/// What was last seen of a group.
struct Seen {
    state: u32,
    lent: i32,
    granted: bool,
    stalled: bool,
    progress: Progress,
}

/// The arbiter and what it last saw of the segment's words.
pub(crate) struct Local {
    arbiter: Arbiter,
    options: ProgramOptions,
    /// By slot.
    seen: Vec<Seen>,
    /// When to look at the groups' progress, µs.
    look_at: Option<u64>,
    actions: Vec<Action>,
    /// Closed while nothing of theirs was on the device.
    cut_off: Vec<GroupId>,
}

fn now_us() -> u64 {
    now_ns() / 1000
}

impl Local {
    pub(crate) fn new(policy: &str, options: &ProgramOptions) -> Result<Local, String> {
        if policy.eq_ignore_ascii_case("external") {
            return Err("the policy external needs a daemon: xsched daemon --scheduler FILE".into());
        }
        let seed = now_ns();
        Ok(Local {
            arbiter: Arbiter::new(policy, seed)?,
            options: options.clone(),
            seen: Vec::new(),
            look_at: None,
            actions: Vec::new(),
            cut_off: Vec::new(),
        })
    }

    /// Takes a message that a daemon would get.
    pub(crate) fn take(&mut self, rt: &Runtime, message: &ClientMsg) {
        let ClientMsg::GroupAdd { slot, device, priority_steps, priority_fixed, system, levels, .. } = message else {
            return;
        };
        let base = self.options.priority.unwrap_or(0);
        let spec = GroupSpec {
            id: GroupId(u64::from(*slot)),
            program: ONE_PROGRAM,
            device: device.clone(),
            priority: priority_fixed.unwrap_or_else(|| queue_priority(base, *priority_steps)),
            weight: self.options.weight.unwrap_or(WEIGHT_DEFAULT),
            timeslice_us: self.options.timeslice_us.unwrap_or(TIMESLICE_DEFAULT_US),
            job: None,
            system: *system,
            // Within one process there is one context, whatever others do beside it.
            side_by_side: false,
        };
        let at = usize::from(*slot);
        let unseen = || Seen {
            state: state::IDLE,
            lent: i32::MIN,
            granted: false,
            stalled: false,
            progress: Progress::default(),
        };
        if self.seen.len() <= at {
            self.seen.resize_with(at + 1, unseen);
        }
        let words = &rt.segment().groups[at];
        // Within one process only the first level can tell groups apart: the others act on the whole context.
        let _ = levels;
        words.level.store(1, core::sync::atomic::Ordering::Relaxed);
        words.bound_commands.store(self.options.threshold.unwrap_or(0), core::sync::atomic::Ordering::Relaxed);
        self.arbiter.event(now_us(), Event::Add(spec), &mut self.actions);
        self.act(rt);
        if let Some(group) = rt.groups().nth(at) {
            group.set_registration(rt, Registration::Attached);
        }
    }

    /// Looks at the words and decides. Returns the time in ns after which it wants to be asked again.
    pub(crate) fn turn(&mut self, rt: &Runtime) -> Option<u64> {
        use core::sync::atomic::Ordering::*;
        let now = now_us();
        for (at, seen) in self.seen.iter_mut().enumerate() {
            let words = &rt.segment().groups[at];
            let id = GroupId(at as u64);
            let current = words.state.load(Acquire);
            // A launch has cleared the bit: the group goes on.
            if seen.stalled && words.gate.load(Acquire) & gate::STALLED == 0 {
                seen.stalled = false;
                seen.progress.forget();
                self.arbiter.event(now, Event::Progress(id), &mut self.actions);
            }
            // Whoever was told to go on is not drained, whatever the word still says.
            if current != seen.state && !(current == state::DRAINED && seen.granted) {
                seen.state = current;
                seen.progress.forget();
                let event = match current {
                    state::READY => Event::Ready(id),
                    state::DRAINED => Event::Drained(id),
                    _ => Event::Idle(id),
                };
                self.arbiter.event(now, event, &mut self.actions);
            }
            let lent = words.lent_priority.load(Acquire);
            if lent != seen.lent {
                seen.lent = lent;
                let priority = (lent != i32::MIN).then_some(lent);
                self.arbiter.event(now, Event::Lend { group: id, priority }, &mut self.actions);
            }
        }
        if self.arbiter.next_timer().is_some_and(|due| due <= now) {
            self.arbiter.event(now, Event::Timer, &mut self.actions);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.look(rt, now);
        }
        self.act(rt);
        self.look_at = self.arbiter.any_scrutinised().then(|| self.look_at.unwrap_or(now + LOOK_US));
        let due = self.arbiter.next_timer().into_iter().chain(self.look_at).min();
        due.map(|due| due.saturating_sub(now_us()) * 1000)
    }

    /// Looks at the counters of those that run while others wait.
    fn look(&mut self, rt: &Runtime, now: u64) {
        for group in rt.groups() {
            let at = usize::from(group.index());
            let (id, Some(seen)) = (GroupId(at as u64), self.seen.get_mut(at)) else { continue };
            if !self.arbiter.status(now, id).is_some_and(|s| s.scrutinised) {
                seen.progress.forget();
                continue;
            }
            let completed = rt.segment().groups[at].completed.load(core::sync::atomic::Ordering::Relaxed);
            if let Some(event) = seen.progress.look(now, id, group.launches(rt), completed) {
                self.arbiter.event(now, event, &mut self.actions);
            }
        }
    }

    fn act(&mut self, rt: &Runtime) {
        while !self.actions.is_empty() {
            self.carry_out(rt);
            for id in std::mem::take(&mut self.cut_off) {
                self.arbiter.event(now_us(), Event::Drained(id), &mut self.actions);
            }
        }
    }

    fn carry_out(&mut self, rt: &Runtime) {
        use core::sync::atomic::Ordering::*;
        let words = |id: GroupId| &rt.segment().groups[id.0 as usize];
        for action in self.actions.drain(..) {
            let flag = |id: GroupId, bit: u32, on: bool| {
                let word = &words(id).gate;
                if on {
                    word.fetch_or(bit, AcqRel)
                } else {
                    word.fetch_and(!bit, AcqRel)
                };
            };
            match action {
                Action::Open(id) => {
                    words(id).turns.fetch_add(1, SeqCst);
                    flag(id, gate::GRANTED, true);
                    wake_all(&words(id).gate);
                    if let Some(seen) = self.seen.get_mut(id.0 as usize) {
                        seen.granted = true;
                        seen.progress.forget();
                        // The next time it drains is news.
                        if seen.state == state::DRAINED {
                            seen.state = state::READY;
                        }
                    }
                }
                Action::Close(id) => {
                    flag(id, gate::GRANTED, false);
                    let Some(seen) = self.seen.get_mut(id.0 as usize) else { continue };
                    seen.granted = false;
                    seen.progress.forget();
                    // A turn may end before the thread that waited for it woke up: it is drained still, will not say so
                    // again, and must not be charged for what others do.
                    if words(id).state.load(SeqCst) == state::DRAINED {
                        seen.state = state::DRAINED;
                        self.cut_off.push(id);
                    }
                }
                Action::Watch(id, on) => flag(id, gate::WATCHED, on),
                Action::Solo(id, on) => flag(id, gate::SOLO, on),
                Action::Stalled(id, on) => {
                    flag(id, gate::STALLED, on);
                    if let Some(seen) = self.seen.get_mut(id.0 as usize) {
                        seen.stalled = on;
                    }
                }
                Action::Bound(id, part) => words(id).bound_us.store(BOUND_US.checked_div(part).unwrap_or(0), Release),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::SeqCst;

    use rustix::event::{EventfdFlags, eventfd};
    use xsched_core::{Platform, QueueSpec, XQueue};
    use xsched_proto::segment::Segment;

    use super::*;

    struct Nothing;

    impl Platform for Nothing {
        fn kind(&self) -> xsched_proto::wire::Platform {
            xsched_proto::wire::Platform::Sim
        }
        fn levels(&self, _device: &str) -> u8 {
            1
        }
        fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
            None
        }
        fn reports_completion(&self) -> bool {
            true
        }
    }

    static PLATFORMS: &[&dyn Platform] = &[&Nothing];

    fn runtime() -> &'static Runtime {
        // SAFETY: zeroed memory is a valid segment (atomics only); leaked, so it lives as long as the runtime.
        let segment: &'static Segment =
            unsafe { &*std::alloc::alloc_zeroed(std::alloc::Layout::new::<Segment>()).cast() };
        let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        Box::leak(Box::new(Runtime::new(segment, PLATFORMS, 0, None, None, event(), event())))
    }

    /// As long as it is charged for what another does it is never behind it.
    #[test]
    fn whose_turn_ends_before_its_thread_wakes_up_gets_the_next_but_one() {
        let rt = runtime();
        let options = ProgramOptions { timeslice_us: Some(500), ..ProgramOptions::default() };
        let mut local = Local::new("up", &options).expect("a policy");
        rt.attach(core::ptr::null_mut());
        for (handle, priority_steps) in [(16, 0), (32, 1)] {
            let spec = QueueSpec { handle, platform: 0, device: "sim:0".into(), priority_steps, in_order: true };
            rt.queue(handle, || Some(spec)).expect("a queue");
        }
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        let words = &rt.segment().groups;
        words[0].state.store(state::READY, SeqCst);
        // A thread waits at the gate, and goes on doing so.
        words[1].state.store(state::DRAINED, SeqCst);
        let status = |local: &Local, id| local.arbiter.status(now_us(), GroupId(id)).expect("a group");
        while status(&local, 1).suspensions < 5 {
            local.turn(rt);
            assert!(status(&local, 0).used_us < 500_000.0, "{:?}", status(&local, 1));
        }
    }
}
