//! A scheduler inside the process: the arbiter and the gatekeeper that a daemon runs, over this process's own groups.

use core::sync::atomic::Ordering::Relaxed;
use std::collections::BTreeMap;

use xsched_core::{Registration, Runtime, now_ns};
use xsched_gatekeeper::{BUDGET_DEFAULT_US, Gatekeeper};
use xsched_policy::{Arbiter, Choice, Event, GroupId, GroupSpec, LOOK_US, ProgramId};
use xsched_proto::Error;
use xsched_proto::entitlement::Entitlement;
use xsched_proto::hint::Hints;
use xsched_proto::segment::GroupSlot;
use xsched_proto::wire::{ClientMsg, ProgramOptions};

const ONE_PROGRAM: ProgramId = ProgramId(1);

/// Scheduler inside the process. Its gatekeeper numbers groups as their slots are.
pub(crate) struct Local {
    gatekeeper: Gatekeeper<&'static GroupSlot>,
    options: ProgramOptions,
    /// Priorities that groups were added with, by slot.
    own_priorities: BTreeMap<u16, i32>,
    /// Time of the next check of the groups' progress, in µs.
    look_at: Option<u64>,
}

fn now_us() -> u64 {
    now_ns() / 1000
}

fn id_of(slot: u16) -> GroupId {
    GroupId(slot.into())
}

impl Local {
    pub(crate) fn new(policy: &str, options: &ProgramOptions) -> Result<Local, Error> {
        if policy.eq_ignore_ascii_case("external") {
            return Err(Error::environment("the policy external needs a daemon: xsched daemon --scheduler FILE"));
        }
        let arbiter = Arbiter::new(Choice::named(policy)?, now_ns());
        let gatekeeper = Gatekeeper::new(arbiter, BUDGET_DEFAULT_US);
        Ok(Local { gatekeeper, options: options.clone(), own_priorities: BTreeMap::new(), look_at: None })
    }

    /// Takes a message that would otherwise go to a daemon.
    pub(crate) fn take(&mut self, rt: &Runtime, message: &ClientMsg) {
        self.take_at(now_us(), rt, message);
    }

    fn take_at(&mut self, now: u64, rt: &Runtime, message: &ClientMsg) {
        let (slot, device, priority_steps, priority_fixed, system) = match message {
            ClientMsg::GroupAdd { slot, device, priority_steps, priority_fixed, system, .. } => {
                (slot, device, priority_steps, priority_fixed, system)
            }
            ClientMsg::GroupHint { slot, priority, hints } => {
                let own = self.own_priorities.get(slot).copied();
                return self.hint(now, *slot, priority.or(own), *hints);
            }
            ClientMsg::ProgramHint { hints } => {
                self.options.hints = hints.or(self.options.hints);
                return rt.groups().for_each(|group| self.hint(now, group.index(), None, *hints));
            }
            _ => return,
        };
        let entitlement = Entitlement::unlimited(self.options.priority);
        // Nice value, window and user are those of the process, which all of its groups have in common. Within one process there
        // is one context, whatever others do beside it: no pool.
        let spec = GroupSpec {
            priority: entitlement.group(*priority_steps, *priority_fixed, *system),
            hints: self.options.hints,
            system: *system,
            ..GroupSpec::new(id_of(*slot), ONE_PROGRAM, device)
        };
        self.own_priorities.insert(*slot, spec.priority);
        let at = usize::from(*slot);
        let words = &rt.segment().groups[at];
        // Within one process only the first level can tell groups apart: the others act on the whole context.
        words.level.store(1, Relaxed);
        words.budget_commands.store(self.options.threshold.unwrap_or(0), Relaxed);
        words.batch_commands.store(self.options.batch.unwrap_or(0), Relaxed);
        self.gatekeeper.add(now, spec, words);
        self.act(now);
        if let Some(group) = rt.groups().nth(at) {
            group.set_registration(rt, Registration::Attached);
        }
    }

    /// Effective priority of a group, and the policy that orders it.
    pub(crate) fn said_of(&self, slot: u16) -> Option<(i32, &'static str)> {
        let arbiter = self.gatekeeper.arbiter();
        let entry = arbiter.policies_in_force().next()?.entry;
        Some((arbiter.status(now_us(), id_of(slot))?.priority, entry.name))
    }

    /// Takes the program's wishes for a group.
    fn hint(&mut self, now: u64, slot: u16, priority: Option<i32>, hints: Hints) {
        self.gatekeeper.event(now, Event::Hint { group: id_of(slot), priority, hints });
        self.act(now);
    }

    /// Scans the groups' words and decides. Returns the ns after which it is to be called again.
    pub(crate) fn turn(&mut self, rt: &Runtime) -> Option<u64> {
        let due = self.turn_at(now_us(), rt);
        due.map(|due| due.saturating_sub(now_us()) * 1000)
    }

    /// Does what is due at a time in µs. Returns the time of what is due next.
    fn turn_at(&mut self, now: u64, rt: &Runtime) -> Option<u64> {
        for group in rt.groups() {
            // A word that makes no sense counts as idle; these are the program's own.
            let _ = self.gatekeeper.scan(now, id_of(group.index()), |lent| lent);
        }
        if self.gatekeeper.arbiter().next_timer().is_some_and(|due| due <= now) {
            self.gatekeeper.event(now, Event::Timer);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            for group in rt.groups() {
                self.gatekeeper.look(now, id_of(group.index()), || group.launches(rt));
            }
        }
        self.act(now);
        let arbiter = self.gatekeeper.arbiter();
        self.look_at = arbiter.any_scrutinised().then(|| self.look_at.unwrap_or(now + LOOK_US));
        arbiter.next_timer().into_iter().chain(self.look_at).min()
    }

    /// Carries out the arbiter's decisions. At the first level they concern gates alone.
    fn act(&mut self, now: u64) {
        while self.gatekeeper.carry_out(now).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::SeqCst;

    use rustix::event::{EventfdFlags, eventfd};
    use xsched_core::{Platform, QueueSpec, XQueue};
    use xsched_proto::class::PRIORITY_MAX;
    use xsched_proto::segment::{Segment, state};
    use xsched_simulate::journal::{self, Gate};
    use xsched_simulate::{Run, Scenario};

    use super::*;

    struct Nothing;

    impl Platform for Nothing {
        fn kind(&self) -> xsched_proto::wire::Platform {
            xsched_proto::wire::Platform::Sim
        }
        fn levels(&self, _device: &str) -> xsched_proto::wire::Levels {
            xsched_proto::wire::Levels::ONE
        }
        fn flusher(&self, _queue: &XQueue) -> Option<Box<dyn FnOnce()>> {
            None
        }
        fn reports_completion(&self) -> bool {
            true
        }
    }

    static PLATFORMS: &[&dyn Platform] = &[&Nothing, &Nothing];

    fn runtime() -> &'static Runtime {
        // SAFETY: zeroed memory is a valid segment (atomics only); leaked, so it lives as long as the runtime.
        let segment: &'static Segment =
            unsafe { &*std::alloc::alloc_zeroed(std::alloc::Layout::new::<Segment>()).cast() };
        let event = || eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        Box::leak(Box::new(Runtime::new(segment, PLATFORMS, 0, None, None, event(), event())))
    }

    #[test]
    fn groups_that_share_the_budget_have_the_least_as_under_a_daemon() {
        let rt = runtime();
        let mut local = Local::new("hpf", &ProgramOptions::default()).expect("a policy");
        rt.attach(core::ptr::null_mut());
        // Two groups of the same priority, through two interfaces to the device; a third may want it before them.
        for (handle, platform, priority_steps) in [(16, 0, 0), (32, 1, 0), (48, 0, 1)] {
            let spec = QueueSpec {
                handle: core::ptr::without_provenance_mut(handle),
                platform,
                device: "sim:0".into(),
                priority_steps,
                in_order: true,
            };
            rt.queue(handle, || Some(spec)).expect("a queue");
        }
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        let words = &rt.segment().groups;
        let budgets = || [0, 1].map(|at| words[at].budget_us.load(SeqCst));
        words[0].state.store(state::READY, SeqCst);
        local.turn(rt);
        assert_eq!(budgets(), [BUDGET_DEFAULT_US; 2], "one alone has all of it");
        words[1].state.store(state::READY, SeqCst);
        local.turn(rt);
        assert_eq!(budgets(), [400; 2], "not half");
    }

    #[test]
    fn what_the_program_says_of_a_queue_concerns_its_own_group() {
        let rt = runtime();
        let mut local = Local::new("hpf", &ProgramOptions::default()).expect("a policy");
        rt.attach(core::ptr::null_mut());
        let queues = [16, 32].map(|handle| {
            let spec = QueueSpec {
                handle: core::ptr::without_provenance_mut(handle),
                platform: 0,
                device: "sim:0".into(),
                priority_steps: 0,
                in_order: true,
            };
            rt.queue(handle, || Some(spec)).expect("a queue")
        });
        assert!(rt.set_apart(queues[1]));
        rt.say(queues[1], |priority, _, _| *priority = Some(5));
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        let words = &rt.segment().groups;
        for group in &words[..2] {
            group.state.store(state::READY, SeqCst);
        }
        let open = |local: &mut Local| {
            local.turn(rt);
            [0, 1].map(|at| words[at].gate.load().is_granted())
        };
        assert_eq!(open(&mut local), [false, true], "the more urgent one has the device");
        rt.say(queues[1], |priority, _, _| *priority = Some(-5));
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        assert_eq!(open(&mut local), [true, false]);
        rt.say(queues[1], |priority, _, _| *priority = None);
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        assert_eq!(open(&mut local), [true, true], "what follows from the program's own");
    }

    /// A group that is charged for another's time is never behind it.
    #[test]
    fn whose_turn_ends_before_its_thread_wakes_up_gets_the_next_but_one() {
        let rt = runtime();
        let options = ProgramOptions {
            hints: Hints { timeslice_us: Some(500), ..Hints::default() },
            ..ProgramOptions::default()
        };
        let mut local = Local::new("up", &options).expect("a policy");
        rt.attach(core::ptr::null_mut());
        for (handle, priority_steps) in [(16, 0), (32, 1)] {
            let spec = QueueSpec {
                handle: core::ptr::without_provenance_mut(handle),
                platform: 0,
                device: "sim:0".into(),
                priority_steps,
                in_order: true,
            };
            rt.queue(handle, || Some(spec)).expect("a queue");
        }
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        let words = &rt.segment().groups;
        words[0].state.store(state::READY, SeqCst);
        // A thread waits at the gate, and goes on doing so.
        words[1].state.store(state::DRAINED, SeqCst);
        let status = |local: &Local, id| local.gatekeeper.arbiter().status(now_us(), GroupId(id)).expect("a group");
        while status(&local, 1).suspensions < 5 {
            local.turn(rt);
            assert!(status(&local, 0).used_us < 500_000.0, "{:?}", status(&local, 1));
        }
    }

    /// Programs of a simulated machine, each a group here, whose commands are held on the host. Decisions that depend on which groups are
    /// of one program are not the same: those of `fair`, which shares by program.
    #[test]
    fn decisions_are_those_of_a_simulated_daemon() {
        const SCENARIO: &str = "time = \"300ms\"\n[daemon]\nlatency = \"0s\"\n[[device]]\npreemption = \"host\"\n\
            [[program]]\nname = \"server\"\nclass = \"high\"\narrivals = { poisson = \"8ms\" }\n\
            kernels = [{ count = 10, time = \"100us +- 20%\" }]\n\
            [[program]]\nname = \"training\"\nkernels = [{ count = 40, time = \"150us +- 20%\" }]\n\
            [[program]]\nname = \"late\"\nclass = \"low\"\nstart = \"100ms\"\narrivals = { pause = \"3ms\" }\n\
            kernels = [{ count = 20, time = \"300us\" }]\n";
        let scenario = Scenario::read(SCENARIO, |_| unreachable!()).expect("a scenario");
        for policy in ["hpf", "up", "slo", "mlfq", "awf"] {
            let mut run = Run::new(&scenario, policy, scenario.placement.strategy).expect("a policy");
            run.has_journal = true;
            let entries = run.play().journal;
            let rt = runtime();
            let options = ProgramOptions { priority: Some(PRIORITY_MAX), ..ProgramOptions::default() };
            let mut local = Local::new(policy, &options).expect("a policy");
            rt.attach(core::ptr::null_mut());
            let (mut came, mut changes, mut before) = (0_u16, 0, Vec::new());
            for (at, entry) in entries.iter().enumerate() {
                let (now, words) = (entry.at_ns / 1_000, &rt.segment().groups);
                entry.words.iter().zip(words).for_each(|(word, slot)| word.store(slot, 0));
                match &entry.event {
                    journal::Event::Came { priority, device } => {
                        add_group(rt, came);
                        let message = ClientMsg::GroupAdd {
                            slot: came,
                            device: device.clone(),
                            platform: xsched_proto::wire::Platform::Sim,
                            priority_steps: 0,
                            priority_fixed: Some(priority.unwrap_or(0)),
                            system: false,
                            levels: xsched_proto::wire::Levels::ONE,
                            sharing: xsched_proto::wire::Sharing::Time,
                        };
                        came += 1;
                        local.take_at(now, rt, &message);
                    }
                    // Words are read with the next decision, and the page of a daemon that lives is nobody's here.
                    journal::Event::Words(_) | journal::Event::Beat => (),
                    _ => _ = local.turn_at(now, rt),
                }
                let gates: Vec<Gate> = words[..usize::from(came)].iter().map(Gate::of).collect();
                assert_eq!(gates, entry.gates, "{policy}, entry {at} of {}: {entry:?}", entries.len());
                changes += usize::from(gates != before);
                before = gates;
            }
            assert!(changes > 20, "{policy}: {changes} of {} entries", entries.len());
        }
    }

    /// Adds a group to a process, whatever its queue is.
    fn add_group(rt: &'static Runtime, n: u16) {
        let spec = QueueSpec {
            handle: core::ptr::without_provenance_mut(16 + 16 * usize::from(n)),
            platform: 0,
            device: "sim:0".into(),
            priority_steps: i32::from(n) - 1,
            in_order: true,
        };
        rt.queue(16 + 16 * usize::from(n), || Some(spec)).expect("a queue");
        drop(rt.take_outbox());
    }

    #[test]
    fn what_has_no_priority_waits_though_it_is_alone() {
        let rt = runtime();
        let options =
            ProgramOptions { priority: Some(xsched_proto::class::PRIORITY_NEVER), ..ProgramOptions::default() };
        let mut local = Local::new("hpf", &options).expect("a policy");
        rt.attach(core::ptr::null_mut());
        let spec = QueueSpec {
            handle: core::ptr::without_provenance_mut(16),
            platform: 0,
            device: "sim:0".into(),
            priority_steps: 1,
            in_order: true,
        };
        rt.queue(16, || Some(spec)).expect("a queue");
        rt.take_outbox().iter().for_each(|message| local.take(rt, message));
        let words = &rt.segment().groups[0];
        words.state.store(state::READY, SeqCst);
        local.turn(rt);
        assert!(!words.gate.load().is_open());
        local.gatekeeper.event(now_us(), Event::Hint { group: id_of(0), priority: Some(0), hints: Hints::default() });
        local.turn(rt);
        assert!(words.gate.load().is_open());
    }
}
