//! The engine's state, in parts that each have one owner, and the little that all modules use of it.

use std::collections::{HashMap, VecDeque};

use xsched_gatekeeper::Gatekeeper;
use xsched_policy::{Arbiter, Event, GroupId};
use xsched_proto::wire::DaemonMsg;

use crate::group::Group;
use crate::io::Effect;
use crate::ledger::Ledger;
use crate::memory::Memory;
use crate::parts::books::Books;
use crate::parts::changing::Changing;
use crate::parts::follow_ups::FollowUps;
use crate::parts::history::History;
use crate::parts::measures::Measures;
use crate::parts::memory_work::MemoryWork;
use crate::parts::pages::Pages;
use crate::parts::queues::Queues;
use crate::parts::recordings::Recordings;
use crate::parts::servers::Servers;
use crate::parts::wants::Wants;
use crate::parts::windows::ActiveWindows;
use crate::program::Program;
use crate::terms::Settings;
use crate::tuning::TRACE_BYTES;

/// The daemon's decisions: programs, their groups, and the gates of those. See the crate's documentation.
pub struct Engine<M: Memory> {
    /// The time of the current input, in ns.
    pub(crate) now_ns: u64,
    pub(crate) settings: Settings,
    pub(crate) gatekeeper: Gatekeeper<M::Words>,
    pub(crate) heartbeat: M::Heartbeat,
    /// Attached processes by connection.
    pub(crate) programs: HashMap<u64, Box<Program<M>>>,
    pub(crate) groups: HashMap<GroupId, Group<M::Words>>,
    pub(crate) queues: Queues,
    /// Memory on devices.
    pub(crate) ledger: Ledger<M::Account>,
    /// Books of usage that are open.
    pub(crate) books: Books,
    /// Backlog pages of urgent programs in MPS servers.
    pub(crate) pages: Pages,
    /// MPS servers that are not ours.
    pub(crate) servers: Servers,
    /// Questions for room that wait.
    pub(crate) wants: Wants,
    pub(crate) measures: Measures,
    /// Work on the memory of devices that is not done yet.
    pub(crate) memory_work: MemoryWork,
    /// Commands that change programs, by connection.
    pub(crate) changing: HashMap<u64, Changing>,
    /// Work that follows from decisions.
    pub(crate) follow_ups: FollowUps,
    /// Process of the active window, by user.
    pub(crate) active_windows: ActiveWindows,
    pub(crate) history: History,
    /// Commands that record programs.
    pub(crate) recordings: Recordings,
    /// Number of the last group or queue.
    last_id: u64,
    /// Number of the last order to move memory.
    last_move: u32,
    effects: VecDeque<Effect>,
}

impl<M: Memory> Engine<M> {
    /// An engine without programs. `seed` is for policies that do something at random; `bursts` says whether bursts are recorded.
    pub fn new(settings: Settings, heartbeat: M::Heartbeat, seed: u64, bursts: bool) -> Engine<M> {
        let mut arbiter = Arbiter::new(settings.policy.clone(), seed);
        arbiter.set_classes(0, settings.class_rules.clone(), &mut Vec::new());
        arbiter.set_guard(settings.guard_us);
        arbiter.set_evenness(settings.evenness);
        for (device, choice) in &settings.devices {
            arbiter.set_policy(0, Some(device), choice.clone(), &mut Vec::new());
        }
        let mut gatekeeper = Gatekeeper::new(arbiter, settings.budget_us).recording(TRACE_BYTES);
        if bursts {
            gatekeeper.keep_outcomes();
        }
        Engine {
            now_ns: 0,
            gatekeeper,
            settings,
            heartbeat,
            programs: HashMap::new(),
            groups: HashMap::new(),
            queues: Queues::default(),
            ledger: Ledger::default(),
            books: Books::default(),
            pages: Pages::default(),
            servers: Servers::default(),
            wants: Wants::default(),
            measures: Measures::default(),
            memory_work: MemoryWork::default(),
            changing: HashMap::new(),
            follow_ups: FollowUps::default(),
            active_windows: ActiveWindows::default(),
            history: History::new(bursts),
            recordings: Recordings::default(),
            last_id: 0,
            last_move: 0,
            effects: VecDeque::new(),
        }
    }

    /// The next effect to be carried out, if there is one.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(crate) fn send(&mut self, to: u64, message: DaemonMsg) {
        self.emit(Effect::Send(to, message));
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.now_ns / 1_000
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Number of a new order to move memory; never 0.
    pub(crate) fn next_move(&mut self) -> u32 {
        self.last_move = self.last_move.wrapping_add(1).max(1);
        self.last_move
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.gatekeeper.event(self.now_us(), event);
    }

    /// The group of a program in a slot.
    pub fn group_at(&self, program: u64, slot: u16) -> Option<GroupId> {
        let program = self.programs.get(&program)?;
        program.groups.iter().copied().find(|id| self.groups.get(id).is_some_and(|g| g.slot == slot))
    }

    /// The program of a group.
    pub fn program_of(&self, group: &Group<M::Words>) -> Option<&Program<M>> {
        self.programs.get(&group.program.0).map(|program| &**program)
    }

    /// Groups of a program that are there.
    pub fn groups_of<'a>(&'a self, program: &'a Program<M>) -> impl Iterator<Item = (GroupId, &'a Group<M::Words>)> {
        program.groups.iter().filter_map(|id| Some((*id, self.groups.get(id)?)))
    }

    /// Attached programs by connection.
    pub fn programs(&self) -> &HashMap<u64, Box<Program<M>>> {
        &self.programs
    }

    /// Groups by number.
    pub fn groups(&self) -> &HashMap<GroupId, Group<M::Words>> {
        &self.groups
    }

    /// The arbiter, to be asked.
    pub fn arbiter(&self) -> &Arbiter {
        self.gatekeeper.arbiter()
    }

    /// The gatekeeper, for its ledger and its trace.
    pub fn gatekeeper(&self) -> &Gatekeeper<M::Words> {
        &self.gatekeeper
    }

    /// The gatekeeper, to settle its ledger. Gates change by [`Engine::handle`] only.
    pub fn gatekeeper_mut(&mut self) -> &mut Gatekeeper<M::Words> {
        &mut self.gatekeeper
    }

    /// The configuration in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The page by which programs see that the daemon lives.
    pub fn heartbeat(&self) -> &M::Heartbeat {
        &self.heartbeat
    }

    /// Number of times that gates were decided.
    pub fn decisions(&self) -> u64 {
        self.history.decisions()
    }

    /// Numbers of things that are kept.
    pub fn inventory(&self) -> Inventory {
        Inventory {
            programs: self.programs.len(),
            groups: self.groups.len(),
            queues: self.queues.len(),
            holders: self.ledger.len(),
            questions: self.wants.len(),
            memory_work: self.memory_work.len(),
            books: self.books.keys().count(),
            pages: self.pages.len(),
            commands: self.changing.len(),
            sums: self.follow_ups.sums(),
            recordings: self.recordings.commands.len(),
        }
    }
}

/// Numbers of things that an engine keeps for programs and commands, by kind. Without programs and commands, and with all books closed,
/// there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Attached programs.
    pub programs: usize,
    /// Groups of all programs.
    pub groups: usize,
    /// Queues of all programs.
    pub queues: usize,
    /// Processes that hold memory, by device.
    pub holders: usize,
    /// Questions for room that wait.
    pub questions: usize,
    /// Devices whose memory has work that is not done yet.
    pub memory_work: usize,
    /// Open books.
    pub books: usize,
    /// Backlog pages.
    pub pages: usize,
    /// Commands that are not carried out to their end.
    pub commands: usize,
    /// Sums of counters that are not complete.
    pub sums: usize,
    /// Commands that record programs.
    pub recordings: usize,
}
