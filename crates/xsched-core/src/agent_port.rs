//! The port between application threads and the agent thread: wake-ups of the agent and of the daemon, the answer that threads wait
//! for at the start, and the scheduler that the program asks for.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use xsched_proto::memory::{Hardware, Memory, Sleepers};

use crate::clock::now_ns;
use crate::descriptor::Descriptor;

/// Scheduler of the process, by the program's own choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// The program itself: every gate is open, and it holds its queues as it likes.
    Application,
    /// A scheduler inside the process, with this policy.
    Local(String),
    /// The daemon.
    Daemon,
}

/// Words and descriptors by which threads reach the agent and the daemon.
pub(crate) struct AgentPort {
    pub(crate) daemon_event: Descriptor,
    pub(crate) agent_event: Descriptor,
    /// Time at which the agent wakes by itself, in ns.
    agent_wakes_at: AtomicU64,
    /// A group announced itself; its launch is to wake the agent once it is made.
    pub(crate) poke_due: AtomicBool,
    /// 1 once the program's priority has come from the daemon or the local gatekeeper, or will come from neither. A futex.
    welcomed: AtomicU32,
    /// A group of this process has been registered since it began.
    pub(crate) registered: AtomicBool,
    /// Scheduling has ended for good.
    over: AtomicBool,
    /// The scheduler that the program has chosen, until the agent has taken it.
    chosen: Mutex<Option<Scheduler>>,
    /// Number of choices that the agent has taken. A futex.
    choices: AtomicU32,
}

/// Writes an eventfd. False: the application closed it, so that nothing can be reported any more.
fn ring(event: &Descriptor) -> bool {
    let open = event.get();
    if let Some(event) = open {
        let _ = rustix::io::write(event, &1u64.to_ne_bytes());
    }
    open.is_some()
}

impl AgentPort {
    pub(crate) fn new(daemon_event: OwnedFd, agent_event: OwnedFd) -> AgentPort {
        AgentPort {
            daemon_event: Descriptor::new(daemon_event),
            agent_event: Descriptor::new(agent_event),
            agent_wakes_at: AtomicU64::new(u64::MAX),
            poke_due: AtomicBool::new(false),
            welcomed: AtomicU32::new(0),
            registered: AtomicBool::new(false),
            over: AtomicBool::new(false),
            chosen: Mutex::new(None),
            choices: AtomicU32::new(0),
        }
    }

    /// Wakes the daemon. False: its descriptor is closed.
    #[must_use]
    pub(crate) fn ring_daemon(&self) -> bool {
        ring(&self.daemon_event)
    }

    /// Wakes the agent. False: its descriptor is closed.
    #[must_use]
    pub(crate) fn ring_agent(&self) -> bool {
        ring(&self.agent_event)
    }

    /// Notes when the agent wakes by itself, in ns; [`u64::MAX`] = not before it is poked.
    pub(crate) fn set_agent_wakes_at(&self, at_ns: u64) {
        self.agent_wakes_at.store(at_ns, SeqCst);
    }

    /// True: the agent does not wake by itself until `deadline_ns`.
    pub(crate) fn agent_sleeps_past(&self, deadline_ns: u64) -> bool {
        self.agent_wakes_at.load(SeqCst) > deadline_ns
    }

    /// Takes the wake-up of the agent that is due. True: it was.
    #[inline]
    pub(crate) fn take_poke(&self) -> bool {
        self.poke_due.load(Relaxed) && self.poke_due.swap(false, AcqRel)
    }

    /// Ends the waits of [`AgentPort::await_welcome`].
    pub(crate) fn welcome(&self) {
        self.welcomed.store(1, Release);
        Hardware::wake(&self.welcomed, Sleepers::Own);
    }

    /// Waits until the program's priority has come from the daemon or the local gatekeeper, for `most_ns` at most.
    pub(crate) fn await_welcome(&self, most_ns: u64) {
        sleep_while(&self.welcomed, 0, most_ns);
    }

    /// Ends scheduling for good.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Release);
    }

    /// True: scheduling has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Leaves a choice of a scheduler to the agent. Returns the number of choices taken before.
    pub(crate) fn choose(&self, scheduler: Scheduler) -> u32 {
        let before = self.choices.load(Acquire);
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(scheduler);
        before
    }

    /// Waits until the agent has taken one choice more than `before`. False: it has not after `most_ns`.
    pub(crate) fn await_choice(&self, before: u32, most_ns: u64) -> bool {
        sleep_while(&self.choices, before, most_ns)
    }

    /// Agent: changes to the scheduler that the program has chosen since the last call, if it has, by `change`.
    pub(crate) fn take_choice(&self, change: impl FnOnce(Scheduler)) {
        let Some(chosen) = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        change(chosen);
        self.choices.fetch_add(1, Release);
        Hardware::wake(&self.choices, Sleepers::Own);
    }
}

/// Sleeps while a futex has this value, for `most_ns` at most. True: it has another one.
fn sleep_while(futex: &AtomicU32, value: u32, most_ns: u64) -> bool {
    let deadline = now_ns() + most_ns;
    while futex.load(Acquire) == value {
        let left = deadline.saturating_sub(now_ns());
        if left == 0 {
            return false;
        }
        let _ = Hardware::sleep(futex, value, Sleepers::Own, left);
    }
    true
}
