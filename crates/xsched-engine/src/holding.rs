//! Memory of devices: limits and reserves of programs, by the [`Ledger`], and answers to programs that ask for more.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use xsched_proto::account::{Amount, MEMORY_SLOTS, of_bytes};
use xsched_proto::class::Class;
use xsched_proto::wire::{DaemonMsg, MemoryInfo};

use crate::io::{Effect, ProcessMemory};
use crate::ledger::{Holder, HolderId, HolderTerms, Ledger, Pot, Short};
use crate::memory::Memory;
use crate::program::{Program, named};
use crate::room::Room;
use crate::state::Engine;
use crate::tuning::{DEVICE_HOLDERS_MAX, DEVICES_MAX, HOLDERS_MAX, REFUSAL_LINES_NS};
use crate::user::{Rank, User, has_place};
use crate::{Error, all_taken, bound_met, check_name};

/// Programs that a line on the holders of memory names at most.
const HOLDERS_NAMED: usize = 3;

/// Number that stands for a name.
pub fn number_of(name: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Programs of one account on a device, for a line about holders.
struct Held<'a> {
    name: &'a str,
    class: Class,
    user: User,
    used: u64,
}

impl<M: Memory> Engine<M> {
    /// Number of the program that a process belongs to: its job; else that of an attached process of its user that has started it; else all
    /// of its user in its container; else its own.
    pub(crate) fn account_of(&self, id: u64, program: &Program<M>) -> u64 {
        if let Some(job) = &program.job {
            return number_of(job);
        }
        let starters = program.ancestors.iter().filter(|pid| **pid != program.pid);
        let mut attached = starters
            .filter_map(|pid| self.programs.values().find(|other| other.pid == *pid && other.user == program.user));
        let alone = || match program.terms.memory.within {
            Some(container) => number_of(&(container, program.user)),
            None => number_of(&id),
        };
        attached.next().map_or_else(alone, |starter| starter.account)
    }

    /// A program uses memory of a device.
    ///
    /// # Errors
    /// The program breaks the protocol.
    pub(crate) fn add_memory(&mut self, id: u64, slot: u16, device: &str, capacity_bytes: u64) -> Result<(), Error> {
        if usize::from(slot) >= MEMORY_SLOTS {
            return Err(Error::input(format!("it uses memory slot {slot} of {MEMORY_SLOTS}")));
        }
        if self.ledger.get((id, slot)).is_some() {
            return Err(Error::input(format!("it uses memory slot {slot}, which is taken")));
        }
        check_name(device, "device key")?;
        if self.ledger.of(id).any(|(_, holder)| **holder.device() == *device) {
            return Err(Error::input(format!("it uses two memory slots for {device}")));
        }
        if let Some(why) = self.too_much_memory(id, device) {
            // As without a daemon: the program runs unscheduled, and asks again later.
            self.emit(Effect::Refuse(id, why));
            return Ok(());
        }
        let program = self.programs.get_mut(&id).ok_or_else(|| Error::input("it is gone"))?;
        program.in_since_ns = self.now_ns;
        let user = (program.user.uid, program.user.within);
        let (words, terms) = (program.memory.account(slot), HolderTerms { user, ..HolderTerms::default() });
        self.ledger.add((id, slot), device.into(), words, capacity_bytes, terms);
        self.settle_memory(device);
        self.answer((id, slot), 0, true, None);
        self.emit(Effect::DevicesInUse);
        Ok(())
    }

    /// The bound that keeps a program from memory on one device more: limits of all processes on a device are settled together.
    fn too_much_memory(&self, id: u64, device: &str) -> Option<Error> {
        let program = self.programs.get(&id)?;
        let (user, bounds) = (program.user, program.terms.bounds);
        let has = |n: usize, what: &str| Some(bound_met(user, n, what));
        let of_user = self.ledger.count_of((user.uid, user.within));
        let here = of_user.get(device).copied().unwrap_or(0);
        let (devices, all) = (of_user.len(), of_user.values().sum::<usize>());
        if here >= bounds.device_groups {
            return has(here, &format!("processes with memory on {device}"));
        }
        if all >= bounds.groups {
            return has(all, "processes with memory, counted on each of their devices");
        }
        if here == 0 && devices >= bounds.devices {
            return has(devices, "devices with memory");
        }
        if !has_place(user, here, self.ledger.len_on(device), DEVICE_HOLDERS_MAX) {
            return Some(all_taken(&format!("processes with memory on {device}")));
        }
        if !has_place(user, all, self.ledger.len(), HOLDERS_MAX) {
            return Some(all_taken("processes with memory"));
        }
        let is_new = self.ledger.len_on(device) == 0;
        if is_new && !has_place(user, devices, self.ledger.devices().count(), DEVICES_MAX) {
            return Some(all_taken("devices with memory"));
        }
        None
    }

    /// Grants room for an allocation if the limits leave it. Returns the bytes that are short, and the limit in the way.
    pub(crate) fn try_room(&mut self, room: &mut Room, id: HolderId, bytes: u64) -> (u64, Option<Short>) {
        let granted = self.ledger.ask_beside(id, bytes, &mut room.sums);
        room.steps += granted.looked_at;
        match granted.result.err() {
            Some(short) => {
                let lacks = short.used_bytes.saturating_add(bytes).saturating_sub(short.limit_bytes).max(1);
                (lacks, Some(short))
            }
            None if self.ledger.leaves_reserve(id, bytes, &room.sums) => (0, None),
            None => (bytes, None),
        }
    }

    /// Answers a question for room. `full`: a line on the host store, which kept memory of others where it is.
    /// `on_host`: memory of the host may take the place of what is refused.
    pub(crate) fn answer_room(
        &mut self,
        id: HolderId,
        number: u32,
        granted: bool,
        on_host: bool,
        short: Option<Short>,
        full: Option<String>,
    ) {
        let asker = self.programs.get(&id.0).map(|program| program.user);
        let holders = asker.and_then(|asker| self.holders_line(id, short, asker));
        let lines: Vec<String> = holders.into_iter().chain(full).collect();
        let why = (!lines.is_empty()).then(|| lines.join(", "));
        self.send(id.0, DaemonMsg::MemoryAnswer { slot: id.1, number, granted, on_host, why });
    }

    /// An allocation of a program has failed: the log tells how large it was, the reason, and who holds the memory. A line of a program
    /// stands for all its refusals since the line before.
    ///
    /// # Errors
    /// The program has named no device for the slot.
    pub(crate) fn memory_refused(&mut self, id: HolderId, bytes: u64, by_driver: bool) -> Result<(), Error> {
        let holder = self.ledger.get(id).ok_or_else(|| Error::input("it is refused memory of no device"))?;
        let device = holder.device().clone();
        let refused = self.refused_of(id.0);
        let now_ns = self.now_ns;
        let Some(program) = self.programs.get_mut(&id.0) else { return Ok(()) };
        if now_ns < program.refusals_logged.0 {
            return Ok(());
        }
        let before = std::mem::replace(&mut program.refusals_logged, (now_ns + REFUSAL_LINES_NS, refused)).1;
        let (name, uid) = (named(program), program.user.uid);
        let short = if by_driver { None } else { self.limit_in_the_way(id, bytes, &device) };
        let root = User { uid: 0, rank: Rank::Root, within: 0 };
        let why = self.holders_line(id, short, root).unwrap_or_default();
        let whose = if by_driver { " by the driver" } else { "" };
        let more = match refused.saturating_sub(before) {
            0 | 1 => String::new(),
            n => format!("; {n} allocations were refused since the last such line"),
        };
        let size = of_bytes(bytes);
        self.emit(Effect::Log(uid, format!("{name}: {size} of {device} were refused{whose}: {why}{more}")));
        Ok(())
    }

    fn limit_in_the_way(&mut self, id: HolderId, bytes: u64, device: &str) -> Option<Short> {
        let sums = self.ledger.read(device);
        self.ledger.short_of(id, bytes, &sums)
    }

    /// Number of allocations of a program that were refused.
    fn refused_of(&self, id: u64) -> u64 {
        self.ledger.of(id).map(|(_, holder)| holder.report().refused).fold(0, u64::saturating_add)
    }

    /// Logs refusals of a program that has ended, as far as no line has told them yet.
    pub(crate) fn log_refusals(&mut self, id: u64, program: &Program<M>) {
        let more = self.refused_of(id).saturating_sub(program.refusals_logged.1);
        if program.refusals_logged.0 > 0 && more > 0 {
            let line = format!("{}: {more} more allocations were refused before it ended", named(program));
            self.emit(Effect::Log(program.user.uid, line));
        }
    }

    /// A program has left: its memory is free for others.
    pub(crate) fn release_memory(&mut self, id: u64) {
        let held: u64 = self.ledger.of(id).map(|(_, holder)| holder.present_bytes()).fold(0, u64::saturating_add);
        let devices = self.ledger.remove(id);
        if !devices.is_empty() {
            self.emit(Effect::DevicesInUse);
        }
        for device in devices {
            self.memory_work.settle(&device);
            self.memory_work.decide(&device);
            self.wants.freed(&device, held);
        }
        self.wants.remove_of(id);
        self.measures.remove_of(id);
    }

    /// A program asks for what it holds, by the driver's newest figure.
    ///
    /// # Errors
    /// The program has named no device for the slot.
    pub(crate) fn ask_measure(&mut self, id: HolderId, number: u32) -> Result<(), Error> {
        let holder = self.ledger.get(id).ok_or_else(|| Error::input("it asks for memory of no device"))?;
        let device = holder.device().clone();
        self.ledger.note_question(id, self.now_ns);
        if self.measures.add(id, number, device.clone(), self.now_ns) {
            self.emit(Effect::Measure(device));
        } else {
            self.answer(id, number, true, None);
        }
        Ok(())
    }

    /// Answers the questions about a device that a driver's figure of this time answers.
    pub(crate) fn answer_measured(&mut self, device: &str, at_ns: u64) {
        for (id, slot, number) in self.measures.answered(device, at_ns) {
            self.answer((id, slot), number, true, None);
        }
    }

    fn answer(&mut self, (id, slot): HolderId, number: u32, granted: bool, why: Option<String>) {
        self.send(id, DaemonMsg::MemoryAnswer { slot, number, granted, on_host: false, why });
    }

    /// Takes a driver's figures of processes: the rest beyond their own counts is overhead.
    pub(crate) fn measure_memory(&mut self, device: &str, at_ns: u64, processes: &[ProcessMemory]) {
        let programs = &self.programs;
        let mut figures: HashMap<u32, Option<u64>> = HashMap::new();
        for (pid, bytes) in processes {
            figures.entry(*pid).or_insert(*bytes);
        }
        self.ledger.measure(device, at_ns, |(id, _)| figures.get(&programs.get(&id)?.pid).map_or(Some(0), |b| *b));
        self.answer_measured(device, at_ns);
    }

    pub(crate) fn settle_memory(&mut self, device: &str) {
        self.renew_terms(device);
        self.ledger.settle(device);
    }

    /// Brings the terms of one process up to date.
    pub(crate) fn renew_terms_of(&mut self, id: HolderId) {
        let holder = self.ledger.get(id);
        let terms = holder.zip(self.programs.get(&id.0)).map(|(holder, program)| {
            let terms = self.holder_terms(program, holder);
            (terms != *holder.terms()).then_some(terms)
        });
        if let Some(terms) = terms.flatten() {
            self.ledger.set_terms(id, terms);
        }
    }

    pub(crate) fn renew_terms(&mut self, device: &str) {
        let renewed: Vec<(HolderId, HolderTerms)> = self
            .ledger
            .on(device)
            .filter_map(|(id, holder)| {
                let terms = self.holder_terms(self.programs.get(&id.0)?, holder);
                (terms != *holder.terms()).then_some((id, terms))
            })
            .collect();
        renewed.into_iter().for_each(|(id, terms)| self.ledger.set_terms(id, terms));
    }

    /// Terms of a program on a device.
    fn holder_terms(&self, program: &Program<M>, holder: &Holder<M::Account>) -> HolderTerms {
        let (given, settings) = (program.terms.memory, self.settings.memory);
        let (capacity_bytes, is_known) = (holder.capacity_bytes(), self.ledger.size_bytes(holder.device()).is_some());
        let of = |amount: Amount| amount.of(capacity_bytes);
        let smaller = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let at = Class::ALL.iter().position(|class| *class == program.class()).unwrap_or(0);
        let (user, class) = (Pot::User(program.user.uid, program.user.within), Pot::Class(program.class()));
        let limits = [
            (Pot::Program(program.account), smaller(program.memory_limit.map(of), given.program.map(of))),
            (Pot::Container(given.container.map_or(0, |(id, _)| id)), given.container.map(|(_, amount)| of(amount))),
            (Pot::Pod(given.pod.map_or(0, |(id, _)| id)), given.pod.map(|(_, amount)| of(amount))),
            (Pot::Rule(given.rule.map_or(0, |(rule, _)| rule)), given.rule.map(|(_, amount)| of(amount))),
            (user, given.user.map(of)),
            (class, settings.classes[at].map(of)),
            (Pot::Device, settings.capacity.map(|amount| of(amount).min(capacity_bytes))),
        ];
        let reserve = program.memory_reserve.or(given.reserve).map_or(0, of);
        let allowed = given.reserve_of_others.or(settings.reserves[at]);
        let reserve_of_others = match (program.memory_reserve, allowed) {
            _ if program.user.is_own() => reserve,
            // The part of a device whose size only the program says is nothing to others.
            (Some(Amount::PerMille(_)), _) | (_, Some(Amount::PerMille(_))) if !is_known => 0,
            (Some(asked), Some(most)) => of(asked).min(of(most)),
            (Some(_), None) => 0,
            // An operator's rule gives the reserve itself.
            (None, _) => reserve,
        };
        let limits: Vec<(Pot, u64)> = limits.into_iter().filter_map(|(pot, limit)| Some((pot, limit?))).collect();
        let most = limits.iter().map(|(_, limit)| *limit).chain([capacity_bytes]).min().unwrap_or(0);
        HolderTerms {
            limits,
            program: program.account,
            user: (program.user.uid, program.user.within),
            // Room that the program itself may not take is of no use to it.
            reserve_bytes: reserve.min(most),
            reserve_of_others_bytes: reserve_of_others.min(reserve).min(most),
            priority: program.priority(),
        }
    }

    /// Line on a limit that was met, if one was, and on the programs that hold most of a device's memory. Names of other users' programs
    /// are told to root alone.
    pub(crate) fn holders_line(&self, asking: HolderId, short: Option<Short>, reader: User) -> Option<String> {
        let (own, asker) = (self.ledger.get(asking)?, self.programs.get(&asking.0)?);
        let mut parts = Vec::new();
        if let Some(Short { pot, limit_bytes, used_bytes }) = short {
            let of = match pot {
                Pot::Program(_) => "the program".to_owned(),
                Pot::Container(_) => "the container".to_owned(),
                Pot::Pod(_) => "the pod".to_owned(),
                Pot::Rule(_) => "the programs of its rule".to_owned(),
                Pot::User(..) => format!("user {}", asker.user),
                Pot::Class(class) => format!("class {class}"),
                Pot::Device => "the device".to_owned(),
            };
            parts.push(format!(
                "the limit of {of} is {}, and {} are in use",
                of_bytes(limit_bytes),
                of_bytes(used_bytes)
            ));
        }
        let mut held = self.held_on(own.device());
        held.sort_by_key(|held| core::cmp::Reverse(held.used));
        let (seen, hidden): (Vec<Held<'_>>, Vec<Held<'_>>) =
            held.into_iter().filter(|held| held.used > 0).partition(|held| reader.may_see(held.user));
        let others = hidden.iter().chain(seen.iter().skip(HOLDERS_NAMED)).map(|held| held.used);
        let others = others.fold(0, u64::saturating_add).min(own.capacity_bytes());
        let named =
            seen.iter().take(HOLDERS_NAMED).map(|held| (held.used, format!("{}'s ({})", held.name, held.class)));
        let others = (others > 0).then(|| (others, "others'".to_owned()));
        for (n, (used, whose)) in named.chain(others).enumerate() {
            let of = if n == 0 { format!(" of {}", of_bytes(own.capacity_bytes())) } else { String::new() };
            parts.push(format!("{}{of} are {whose}", of_bytes(used)));
        }
        let kept = own.keep_free_bytes();
        if kept > 0 {
            parts.push(format!("{} are reserved for more urgent programs", of_bytes(kept)));
        }
        Some(parts.join(", "))
    }

    /// Programs that hold memory of a device, each with all its processes.
    fn held_on(&self, device: &str) -> Vec<Held<'_>> {
        let held = |processes: &mut dyn Iterator<Item = (HolderId, &Holder<M::Account>)>| {
            let mut held: Option<Held<'_>> = None;
            for (id, holder) in processes {
                let Some(program) = self.programs.get(&id.0) else { continue };
                let new = || Held { name: &program.name, class: program.class(), user: program.user, used: 0 };
                let held = held.get_or_insert_with(new);
                held.used = held.used.saturating_add(holder.present_bytes());
            }
            held
        };
        self.ledger.programs_on(device).filter_map(|mut processes| held(&mut processes)).collect()
    }

    /// Memory of a program, by device.
    pub fn memory_of(&self, id: u64) -> Vec<MemoryInfo> {
        self.ledger.of(id).map(|(_, holder)| self.memory_info(id, holder)).collect()
    }

    fn memory_info(&self, id: u64, holder: &Holder<M::Account>) -> MemoryInfo {
        let program = self.programs.get(&id);
        let of_program = self.ledger.of_program(holder.device(), holder.terms().program);
        let program_used_bytes = of_program.map(|(_, other)| other.present_bytes()).fold(0, u64::saturating_add);
        MemoryInfo {
            device: holder.device().to_string(),
            held: holder.report(),
            capacity_bytes: holder.capacity_bytes(),
            limit_bytes: holder.limit_bytes(),
            allowance_bytes: holder.allowance_bytes(),
            program_used_bytes,
            reserve_bytes: holder.terms().reserve_bytes,
            keep_free_bytes: holder.keep_free_bytes(),
            idle_s: program.and_then(|program| program.idle_s()),
            idle_leaves: program.map_or(0, |program| program.idling.times()),
        }
    }

    /// Ledger of memory, to be asked.
    pub fn memory(&self) -> &Ledger<M::Account> {
        &self.ledger
    }
}
