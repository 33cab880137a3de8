//! Commands that change programs, carried out piece by piece: a user may have many programs, and decisions for others come in between.
//! The work of each piece is bounded by the constants of [`crate::tuning`], whatever the command names. Nothing is changed before all
//! targets are found. From then on a command is carried through, also where its connection ends before.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
use xsched_proto::wire::{Changed, ChangedValue, DaemonMsg, Target};

use crate::Error;
use crate::changes::Changes;
use crate::hints::overlooked_line;
use crate::io::{Effect, Order, Sender, What};
use crate::memory::Memory;
use crate::parts::changing::{Answers, Change, Changing, Hinting, Lacking, Stage, place_of};
use crate::parts::targets::{Search, distinct, processes};
use crate::state::Engine;
use crate::tuning::{CHANGED_AT_ONCE, CHANGED_GROUPS, CHECKED_AT_ONCE, COMPARED_AT_ONCE};
use crate::values::side_by_side;

/// The result of one piece of work.
type Piece = Result<Option<Stage>, Error>;

impl<M: Memory> Engine<M> {
    /// Begins a command. A second order of a command that is being carried out is ignored: the first one is carried through.
    pub(crate) fn begin_change(&mut self, order: Order) {
        let Order { from, targets, what } = order;
        let command = from.command;
        if self.changing.contains_key(&command) {
            return;
        }
        match self.changing(from, targets, what) {
            Ok(changing) => _ = self.changing.insert(command, changing),
            Err(why) => self.emit(Effect::Finish(command, DaemonMsg::Refused(why))),
        }
    }

    fn changing(&self, from: Sender, targets: Vec<Target>, what: What) -> Result<Changing, Error> {
        let is_queue = |target: &Target| matches!(target, Target::Queue(_));
        let (queues, programs): (Vec<Target>, Vec<Target>) = distinct(targets).into_iter().partition(is_queue);
        let change = match what {
            What::Hold(_) | What::Freeze(_) if !queues.is_empty() => {
                return Err(Error::input("a queue is no program: use --pid"));
            }
            What::Hold(hold) => Change::Hold(hold),
            What::Freeze(freeze) => Change::Freeze(freeze, Answers::default()),
            What::Hint(asked) => {
                let (limit, notice) = (from.ceilings.priority, from.ceilings.notice(asked.hints));
                if asked.priority.is_some_and(|p| p > limit) {
                    return Err(too_high(limit));
                }
                let queue = |target| if let Target::Queue(queue) = target { Some(queue) } else { None };
                Change::Hint(Box::new(Hinting {
                    changes: Changes { hints: from.ceilings.cut(asked.hints), ..asked },
                    queues: queues.into_iter().filter_map(queue).collect(),
                    lacking: Lacking::default(),
                    devices: BTreeSet::new(),
                    pooled: false,
                    notice,
                }))
            }
        };
        let may = self.programs.iter().filter(|(_, program)| from.user.may_see(program.user));
        let candidates = may.map(|(id, _)| *id).collect();
        Ok(Changing { from, change, stage: Stage::Starts(Search::new(programs, candidates)) })
    }

    /// Returns true while a command is being carried out.
    pub fn is_changing(&self, command: u64) -> bool {
        self.changing.contains_key(&command)
    }

    /// The work that is left for a command, by stage: targets to look up; programs to compare, check and change; queues; devices.
    pub fn work_left(&self, command: u64) -> Option<[usize; 6]> {
        let mut left = [0; 6];
        match &self.changing.get(&command)?.stage {
            Stage::Starts(search) => left[0] = search.targets.len() - search.starts.len(),
            Stage::Search(search) => left[1] = search.candidates.len(),
            Stage::Check { found, next } => left[2] = found.len() - next,
            Stage::Programs(programs) => left[3] = programs.len(),
            Stage::Queues(queues) => left[4] = queues.len(),
            Stage::Timeslices(devices) => left[5] = devices.len(),
            // The programs' work.
            Stage::Answers => (),
        }
        Some(left)
    }

    /// The process of which a command needs the start next ([`crate::Input::Start`]).
    pub fn wanted_start(&self, command: u64) -> Option<u32> {
        let Stage::Starts(search) = &self.changing.get(&command)?.stage else { return None };
        match search.targets.get(search.starts.len())? {
            Target::Pid(pid) | Target::Tree(pid) => Some(*pid),
            _ => None,
        }
    }

    /// Does the next piece of a command, and ends its answer after the last one. `start` is that of the process that
    /// [`Engine::wanted_start`] named.
    pub(crate) fn continue_change(&mut self, command: u64, start: Option<u64>) {
        // Taken out meanwhile: the rest of the engine is changed.
        let Some(mut changing) = self.changing.remove(&command) else { return };
        let stage = std::mem::replace(&mut changing.stage, Stage::Programs(VecDeque::new()));
        match self.piece(&changing.from, &mut changing.change, stage, start) {
            Ok(Some(stage)) => _ = self.changing.insert(command, Changing { stage, ..changing }),
            Ok(None) => self.emit(Effect::Finish(command, DaemonMsg::End)),
            Err(why) => self.emit(Effect::Finish(command, DaemonMsg::Refused(why))),
        }
    }

    /// Does one piece. None: that was the last one.
    fn piece(&mut self, from: &Sender, change: &mut Change, stage: Stage, start: Option<u64>) -> Piece {
        match stage {
            Stage::Starts(search) => Ok(Some(self.piece_of_starts(search, start))),
            Stage::Search(search) => self.piece_of_search(from, search),
            Stage::Check { found, next } => self.piece_of_check(from, change, found, next),
            Stage::Programs(left) => Ok(self.piece_of_programs(from, change, left)),
            Stage::Queues(left) => self.piece_of_queues(from, change, left),
            Stage::Timeslices(left) => Ok(self.piece_of_timeslices(from, change, left)),
            Stage::Answers => match change {
                Change::Freeze(_, answers) => match answers.last() {
                    None => Ok(Some(Stage::Answers)),
                    Some(DaemonMsg::Refused(why)) => Err(why),
                    Some(_) => Ok(None),
                },
                _ => Ok(None),
            },
        }
    }

    fn piece_of_starts(&self, mut search: Search, start: Option<u64>) -> Stage {
        let at = search.starts.len();
        let Some(target) = search.targets.get(at) else { return Stage::Search(search) };
        if matches!(target, Target::Pid(pid) if self.programs.values().any(|program| program.pid == *pid)) {
            search.attached |= 1 << at;
        }
        search.starts.push(start);
        Stage::Starts(search)
    }

    fn piece_of_search(&mut self, from: &Sender, mut search: Search) -> Piece {
        let some = search.candidates.split_off(search.candidates.len().saturating_sub(COMPARED_AT_ONCE));
        for id in some {
            // A program that has left meanwhile is not meant any more.
            if let Some(program) = self.programs.get(&id).filter(|program| from.user.may_see(program.user)) {
                search.compare(id, program);
            }
        }
        if !search.candidates.is_empty() {
            return Ok(Some(Stage::Search(search)));
        }
        let found = search.found().map_err(|target| self.no_program(from, &target))?;
        Ok(Some(Stage::Check { found, next: 0 }))
    }

    fn piece_of_check(&mut self, from: &Sender, change: &mut Change, found: Vec<u64>, next: usize) -> Piece {
        let end = found.len().min(next + CHECKED_AT_ONCE);
        if let Change::Hint(hint) = change {
            for program in found[next..end].iter().filter_map(|id| self.programs.get(id)) {
                if let Some(level) = hint.changes.level {
                    self.groups_of(program).for_each(|(id, group)| hint.lacking.note(id, group, level));
                }
                self.check_priority(from, program.entitlement.allowed, &hint.changes)?;
            }
        }
        if let Change::Freeze(freeze, _) = change {
            let mut store = None;
            found[next..end].iter().try_for_each(|id| self.check_freeze(*id, *freeze, &mut store))?;
        }
        if end < found.len() {
            return Ok(Some(Stage::Check { found, next: end }));
        }
        if let Change::Hint(hint) = change {
            self.check_levels(hint.changes.level, &hint.lacking)?;
        }
        if !found.is_empty() {
            let pids = found.iter().filter_map(|id| Some(self.programs.get(id)?.pid));
            let whom = processes(found.len(), pids);
            let what = match change {
                Change::Hold(true) => format!("suspend {whom}"),
                Change::Hold(false) => format!("resume {whom}"),
                Change::Freeze(true, _) => format!("freeze {whom}"),
                Change::Freeze(false, _) => format!("thaw {whom}"),
                Change::Hint(hint) => format!("hint {whom}: {}", hint.changes.line()),
            };
            self.log_command(from, &what);
        }
        Ok(Some(Stage::Programs(found.into())))
    }

    /// Changes some programs: until they have had as many groups as a piece may have.
    fn piece_of_programs(&mut self, from: &Sender, change: &mut Change, mut left: VecDeque<u64>) -> Option<Stage> {
        let (mut some, mut groups) = (Vec::new(), 0);
        while some.len() < CHANGED_AT_ONCE && groups < CHANGED_GROUPS {
            let Some(id) = left.pop_front() else { break };
            groups += self.programs.get(&id).map_or(0, |program| program.groups.len());
            some.push(id);
        }
        let is_any = !some.is_empty();
        for id in some {
            match change {
                Change::Hold(hold) => self.hold_one(from, id, *hold),
                Change::Freeze(freeze, answers) => match self.freeze_one(from, id, *freeze) {
                    Ok(true) => _ = answers.open.insert(id),
                    Ok(false) => {}
                    Err(line) => answers.failures.push(line),
                },
                Change::Hint(hint) => self.hint_one(from, id, hint),
            }
        }
        if is_any {
            self.act();
            self.emit(Effect::Remember);
        }
        match change {
            _ if !left.is_empty() => Some(Stage::Programs(left)),
            Change::Hold(_) => None,
            Change::Freeze(..) => Some(Stage::Answers),
            Change::Hint(hint) => Some(Stage::Queues(std::mem::take(&mut hint.queues))),
        }
    }

    fn hold_one(&mut self, from: &Sender, id: u64, hold: bool) {
        if !self.programs.contains_key(&id) {
            return;
        }
        let state = |held: bool| if held { "suspended" } else { "scheduled" }.to_owned();
        let was = self.hold(id, hold);
        let value = ChangedValue { what: "state".into(), was: state(was), now: state(hold) };
        self.tell_changed(from, id, vec![value]);
    }

    fn hint_one(&mut self, from: &Sender, id: u64, hint: &mut Hinting) {
        let changes = hint.changes;
        let before = self.values_of(id, &changes);
        // A program says again to the next daemon what it has said of itself.
        if let Some(program) = self.programs.get_mut(&id)
            && !from.ancestors.contains(&program.pid)
        {
            program.hinted = changes.or(program.hinted);
        }
        self.change_program(id, changes);
        let Some(program) = self.programs.get(&id) else { return };
        self.groups_of(program).for_each(|(_, group)| hint.note(group));
        let values = side_by_side(before, self.values_of(id, &changes));
        self.tell_changed(from, id, values);
    }

    fn piece_of_queues(&mut self, from: &Sender, change: &mut Change, mut left: VecDeque<u64>) -> Piece {
        let Change::Hint(hint) = change else { return Ok(None) };
        if let Some(queue) = left.pop_front() {
            self.hint_queue(from, queue, hint)?;
        }
        Ok(Some(match left.is_empty() {
            true => Stage::Timeslices(hint.devices.iter().cloned().collect()),
            false => Stage::Queues(left),
        }))
    }

    /// Changes one queue.
    fn hint_queue(&mut self, from: &Sender, queue: u64, hint: &mut Hinting) -> Result<(), Error> {
        let changes = hint.changes;
        let owner = self.queues.owner(queue).and_then(|(id, slot)| {
            let program = self.programs.get(&id).filter(|program| from.user.may_see(program.user))?;
            Some((id, slot, program.queues.get(&slot)?.group, program.entitlement.allowed))
        });
        let Some((id, slot, group_slot, allowed)) = owner else {
            return Err(Error::environment(format!("you have no queue q{queue}: see xsched ps")));
        };
        self.check_priority(from, allowed, &changes)?;
        let group = self.group_at(id, group_slot);
        let mut lacking = Lacking::default();
        if let (Some(group_id), Some(level)) = (group, changes.level)
            && let Some(group) = self.groups.get(&group_id)
        {
            lacking.note(group_id, group, level);
        }
        self.check_levels(changes.level, &lacking)?;
        // The program moves the queue to a group of that priority. The rest is for the group that the queue is in.
        if let Some(priority) = changes.priority {
            if let Some(program) = self.programs.get_mut(&id).filter(|_| from.user.is_root()) {
                program.entitlement.raise(priority);
            }
            self.send(id, DaemonMsg::QueuePriority { slot, priority });
        }
        if let Some(group_id) = group {
            self.change_group(group_id, Changes { priority: None, ..changes });
            if let Some(group) = self.groups.get(&group_id) {
                hint.note(group);
            }
            self.act();
        }
        self.log_command(from, &format!("hint queue q{queue}: {}", changes.line()));
        Ok(())
    }

    fn piece_of_timeslices(
        &mut self,
        from: &Sender,
        change: &mut Change,
        mut left: VecDeque<Arc<str>>,
    ) -> Option<Stage> {
        if let Some(device) = left.pop_front() {
            self.assign_timeslices(&[device]);
        }
        if !left.is_empty() {
            return Some(Stage::Timeslices(left));
        }
        if let Change::Hint(hint) = change {
            self.tell_of_hint(from, hint);
        }
        None
    }

    /// Tells a command in the end what it should know, a line each.
    fn tell_of_hint(&mut self, from: &Sender, hint: &mut Hinting) {
        let mut notes = Vec::from_iter(std::mem::take(&mut hint.lacking.lines));
        notes.extend(self.without_effect(&hint.devices, &hint.changes.hints));
        notes.extend(hint.notice.take());
        notes.extend(hint.changes.priority.filter(|_| hint.pooled).and_then(|priority| self.stays(priority)));
        for text in notes {
            self.send(from.command, DaemonMsg::Note { text });
        }
    }

    /// Lines on hints that the policies of some devices ignore.
    fn without_effect(&self, devices: &BTreeSet<Arc<str>>, hints: &Hints) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for entry in devices.iter().map(|device| self.arbiter().policy_of(device).entry) {
            let line = overlooked_line(entry, &entry.overlooks(hints.given()));
            lines.extend(line.filter(|line| !lines.contains(line)));
        }
        lines
    }

    /// The note that pooled programs of another class now stay in their pool.
    fn stays(&self, priority: i32) -> Option<String> {
        let class = Class::of(priority);
        (class > self.settings.pool_max_class).then(|| {
            format!("it stays in the pool until it ends: only its gates follow class {class}; start it with that class")
        })
    }

    fn check_priority(&self, from: &Sender, allowed: i32, changes: &Changes) -> Result<(), Error> {
        let is_too_high = changes.priority.is_some_and(|p| p > allowed) && !from.user.is_root();
        if is_too_high { Err(too_high(allowed)) } else { Ok(()) }
    }

    /// # Errors
    /// None of the groups has the level: nothing would change.
    fn check_levels(&self, level: Option<u8>, lacking: &Lacking) -> Result<(), Error> {
        let first = lacking.first.filter(|_| !lacking.some_have).and_then(|id| self.groups.get(&id));
        let (Some(level), Some(group)) = (level, first) else { return Ok(()) };
        let there: Vec<String> = (1..=3).filter(|l| group.levels.has(*l)).map(|l| l.to_string()).collect();
        let (place, there) = (place_of(group), there.join(" or "));
        Err(Error::environment(format!("preemption level {level} is not available on {place}: use {there}")))
    }

    /// The refusal of a target that means no program: in the same words whether it is another user's or does not exist.
    fn no_program(&mut self, from: &Sender, target: &Target) -> Error {
        if let Target::Pid(pid) = target {
            self.log_refusal(from, *pid);
        }
        let whose = if from.user.is_root() { "" } else { " of yours" };
        Error::environment(match target {
            Target::Pid(pid) => format!("no process {pid}{whose} is attached, nor one that it started: see xsched ps"),
            Target::Tree(pid) => format!("neither process {pid} nor one that it started is attached: see xsched ps"),
            Target::Job(job) => format!("no program{whose} has the job '{job}': see xsched ps"),
            Target::User(uid) => format!("no program of user {uid} that you may change is attached: see xsched ps"),
            Target::All | Target::Queue(_) => format!("no program{whose} is attached: see xsched ps"),
        })
    }

    /// Logs that a command has named another user's process.
    fn log_refusal(&mut self, from: &Sender, pid: u32) {
        if let Some(owner) = self.programs.values().find(|program| program.pid == pid).map(|program| program.user) {
            self.log_command(from, &format!("refused: process {pid} is of user {owner}"));
        }
    }

    /// Logs what a command has changed.
    fn log_command(&mut self, from: &Sender, what: &str) {
        let line = format!("{what}: by user {} (process {})", from.user, from.pid);
        self.emit(Effect::Log(from.user.uid, line));
    }

    /// Tells a command what has become of a program.
    fn tell_changed(&mut self, from: &Sender, id: u64, values: Vec<ChangedValue>) {
        let Some(program) = self.programs.get(&id) else { return };
        let changed = Changed { pid: program.pid, name: program.name.clone(), values };
        self.send(from.command, DaemonMsg::Changed(changed));
    }
}

/// The refusal of a priority above a user's limit.
fn too_high(limit: i32) -> Error {
    let class = Class::of(limit);
    Error::environment(format!("not allowed: your limit is class {class} (priority {limit})"))
}
