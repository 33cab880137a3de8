//! The groups of one device: accounting, the question to the policy, and what follows from its answer.

use xsched_proto::class::PRIORITY_NEVER;
use xsched_proto::device::DeviceState;
use xsched_proto::trace::Why;

use super::classes::{Claims, Fairness};
use super::dormant::Dormant;
use super::drain::{self, Drain};
use super::shares::Shares;
use super::{Action, GroupSpec};
use crate::tuning::{DECISION_LOOKS, DORMANT_US, DOUBT_US, STARVATION_US, TURN_MIN_US, WAITS_US};
use crate::{Choice, Group, GroupId, Micros, Policy, ProgramId, Verdict};

pub(super) struct Member {
    /// What the policy sees, but for `ready`: see [`Member::wants`].
    pub(super) group: Group,
    pub(super) own_priority: i32,
    pub(super) lent: Option<i32>,
    /// The number of its job.
    pub(super) job: Option<usize>,
    /// By an operator.
    pub(super) held: bool,
    /// Of the system domain.
    system: bool,
    /// Waits because a group of the system domain of its own process, of the same priority, wants the device. As of the last look.
    behind: bool,
    /// Since when it has the device and wants it.
    pub(super) running_since: Option<Micros>,
    /// Counts as idle: neither issues nor completes anything while others wait.
    pub(super) stalled: bool,
    /// Its job cannot run on all its devices now.
    pub(super) refused: bool,
    pub(super) progress_at: Micros,
    pub(super) suspensions: u64,
    /// The number of its job where that has groups on several devices.
    pub(super) spanning: Option<usize>,
    /// See [`super::Event::DrainsInSlices`].
    pub(super) drains_in_slices: bool,
    /// The policy has it go before its equals since it pauses.
    pub(super) interactive: bool,
    /// Its closed gate yields: it goes on beside those that have the device.
    pub(super) yields: bool,
    /// How it leaves the device.
    pub(super) drain: Drain,
    pub(super) closed_at: Micros,
    /// Closed while stalled, since then.
    suspect_since: Option<Micros>,
    /// Wants the device and has not had it since then.
    denied_since: Option<Micros>,
    /// Time for which it had the device in that wait nevertheless, in µs.
    had_us: Micros,
    /// Lets others run until then.
    yields_until: Option<Micros>,
    /// With how many others it shares the bound, itself included; 0 = not bounded.
    bound: u32,
    contended: bool,
    exclusive: bool,
    /// Its client was told that it counts as idle.
    stall_told: bool,
}

impl Member {
    pub(super) fn new(now: Micros, spec: GroupSpec, job: Option<usize>, held: bool) -> Member {
        Member {
            group: Group {
                priority: spec.priority,
                hints: spec.hints,
                nice: spec.nice,
                active: spec.active,
                lineage: spec.lineage,
                spatial: spec.spatial,
                pool: spec.pool,
                ready_since: now,
                ..Group::new(spec.id, spec.program)
            },
            own_priority: spec.priority,
            lent: None,
            job,
            held,
            system: spec.system,
            behind: false,
            running_since: None,
            stalled: false,
            refused: false,
            progress_at: now,
            suspensions: 0,
            spanning: None,
            drains_in_slices: false,
            interactive: false,
            yields: false,
            drain: Drain::default(),
            closed_at: now,
            suspect_since: None,
            denied_since: None,
            had_us: 0,
            yields_until: None,
            bound: 0,
            contended: false,
            exclusive: false,
            stall_told: false,
        }
    }

    pub(super) fn ready(&mut self, now: Micros) {
        if !self.group.ready {
            self.group.ready = true;
            self.group.ready_since = now;
        }
        self.progress_at = now;
        self.stalled = false;
    }

    pub(super) fn idle(&mut self, now: Micros) {
        if std::mem::take(&mut self.group.ready) {
            self.group.idle_since = Some(now);
        }
        self.group.busy = false;
        self.running_since = None;
        self.stalled = false;
        self.yields_until = None;
    }

    pub(super) fn drained(&mut self, now: Micros) {
        // A thread waits at its gate: it does want the device, whatever was thought of it.
        self.ready(now);
        if !self.group.granted {
            self.group.busy = false;
        }
    }

    /// Notes that the group goes on beside those that have the device.
    pub(super) fn goes_on(&mut self, now: Micros, gets_on: bool) {
        self.yields = true;
        if gets_on {
            self.denied_since = self.denied_since.map(|_| now);
            self.progress_at = now;
        }
    }

    /// Whether it stays off the device whatever the policy says, and whatever priority it is lent.
    pub(super) fn is_held(&self) -> bool {
        self.held || self.own_priority <= PRIORITY_NEVER
    }

    /// Whether no decision needs to look at it: it has wanted nothing for long, and nothing else is known of it that one would follow.
    pub(super) fn may_sleep(&self, now: Micros) -> bool {
        let g = &self.group;
        let wants = g.ready || g.busy || self.stalled || self.lent.is_some();
        let is_special =
            self.is_held() || self.system || self.spanning.is_some() || g.pool.is_some() || g.spatial.is_some();
        !wants && !is_special && g.idle_since.unwrap_or(g.ready_since) + DORMANT_US <= now
    }

    /// It is set aside: closed, and in all else as after a decision.
    pub(super) fn sleep(&mut self, now: Micros, actions: &mut Vec<Action>) {
        let id = self.group.id;
        if std::mem::take(&mut self.group.granted) {
            self.closed_at = now;
            self.suspensions += 1;
            actions.push(Action::Close(id));
        }
        if std::mem::take(&mut self.exclusive) {
            actions.push(Action::Exclusive(id, false));
        }
    }

    /// Whether the policy is told that the group is ready.
    pub(super) fn wants(&self) -> bool {
        self.group.ready && !self.is_held() && !self.stalled && !self.refused && self.yields_until.is_none()
    }

    fn waits(&self) -> bool {
        self.group.ready && !self.is_held() && !self.group.granted
    }
}

pub(super) struct Device {
    pub(super) name: String,
    pub(super) choice: Choice,
    pub(super) policy: Box<dyn Policy>,
    /// Fills the device while the policy's choice has to wait for another device (see `jobs`).
    pub(super) filler: Option<Box<dyn Policy>>,
    pub(super) fairness: Fairness,
    pub(super) shares: Shares,
    /// Those that may want something, sorted by id.
    pub(super) members: Vec<Member>,
    /// The others, at which no decision looks.
    pub(super) dormant: Dormant,
    pub(super) verdicts: Vec<Verdict>,
    said: Vec<Said>,
    pub(super) next: Option<Micros>,
    /// See [`super::Arbiter::set_guard`].
    pub(super) guard_us: Option<Micros>,
    /// As it was told last, and when.
    state: Option<(Micros, DeviceState)>,
    /// When it matters whether something of a suspended group is still executed.
    pub(super) drains_at: Option<Micros>,
    /// The group that has a turn because it waited for so long, and until when.
    rescued: Option<(GroupId, Micros)>,
    view: Vec<Group>,
    charged_at: Micros,
    /// Members that decisions have looked at so far; see [`DECISION_LOOKS`].
    pub(super) looks: usize,
    /// Since when a group that wants the device does not have it.
    waited_since: Option<Micros>,
}

/// Whether a group was to run after each of those that decide in turn, for [`Device::why`].
#[derive(Clone, Copy)]
struct Said {
    policy: bool,
    fairness: bool,
    shares: bool,
    guard: bool,
}

/// See [`Device::decision`].
pub(super) struct Decision {
    verdicts: Vec<Verdict>,
    said: Vec<Said>,
    next: Option<Micros>,
    meanwhile: Claims,
}

impl Device {
    pub(super) fn new(name: String, choice: Choice, seed: u64, now: Micros, evenness: u32) -> Device {
        let policy = choice.make(salted(seed, &name));
        Device {
            name,
            choice,
            policy,
            filler: None,
            fairness: Fairness::default(),
            shares: Shares::new(evenness),
            members: Vec::new(),
            dormant: Dormant::new(),
            verdicts: Vec::new(),
            said: Vec::new(),
            next: None,
            guard_us: None,
            state: None,
            drains_at: None,
            rescued: None,
            view: Vec::new(),
            charged_at: now,
            looks: 0,
            waited_since: None,
        }
    }

    /// Another policy decides from here on, or the same with other parameters.
    pub(super) fn choose(&mut self, choice: Choice, seed: u64) {
        self.policy = choice.make(salted(seed, &self.name));
        self.choice = choice;
        self.filler = None;
        if let Some((told, state)) = &self.state {
            self.policy.observe(*told, Some(state));
        }
    }

    /// Tells the policy how the device is.
    pub(super) fn observe(&mut self, now: Micros, state: Option<&DeviceState>) {
        self.state = state.map(|state| (now, state.clone()));
        self.policy.observe(now, state);
        if let Some(filler) = &mut self.filler {
            filler.observe(now, state);
        }
    }

    fn at(&self, id: GroupId) -> Result<usize, usize> {
        self.members.binary_search_by_key(&id, |m| m.group.id)
    }

    pub(super) fn member(&self, id: GroupId) -> Option<&Member> {
        self.at(id).ok().map(|at| &self.members[at]).or_else(|| self.dormant.get(&id))
    }

    pub(super) fn member_mut(&mut self, id: GroupId) -> Option<&mut Member> {
        match self.at(id) {
            Ok(at) => Some(&mut self.members[at]),
            Err(_) => self.dormant.get_mut(&id),
        }
    }

    pub(super) fn insert(&mut self, member: Member) {
        if let Err(at) = self.at(member.group.id) {
            self.members.insert(at, member);
        }
    }

    pub(super) fn remove(&mut self, id: GroupId) -> Option<Member> {
        self.at(id).ok().map(|at| self.members.remove(at)).or_else(|| self.dormant.remove(&id))
    }

    pub(super) fn somebody_waits(&self) -> bool {
        self.members.iter().any(Member::waits)
    }

    /// Whether a group may get nowhere because of another program, which has been told to leave the device but has not: its
    /// command may be long, and letting it go on for that would have the group wait for the next one, too. Nor does it tell
    /// anything while others are held so that it catches up: a long command shows no progress. That it starves
    /// ([`STARVATION_US`]) holds all the same.
    pub(super) fn is_hindered(&self, id: GroupId) -> bool {
        let Some(m) = self.member(id) else { return false };
        let mut waiting = self.members.iter().filter(|m| m.waits());
        if self.shares.has_spell(id) || m.group.pool.is_some() && waiting.all(|m| self.shares.holds(m.group.id)) {
            return true;
        }
        let mut others = self.members.iter().filter(|o| o.group.program != m.group.program && !o.group.granted);
        others.any(|o| o.group.ready && (o.group.busy || o.group.holds_up))
    }

    /// What each busy group is still to be charged.
    pub(super) fn uncharged(&self, now: Micros) -> f64 {
        let busy = self.members.iter().filter(|m| m.group.busy).count();
        now.saturating_sub(self.charged_at) as f64 / busy.max(1) as f64
    }

    /// Charges the time since the last call to the busy groups: an equal part each.
    pub(super) fn charge(&mut self, now: Micros) {
        let each = self.uncharged(now);
        self.charged_at = self.charged_at.max(now);
        for m in self.members.iter_mut().filter(|m| m.group.busy) {
            m.group.used_us += each;
            m.group.busy = m.group.granted || m.spanning.is_none() || now < m.closed_at + WAITS_US;
        }
    }

    /// Asks the policy; the answer is in `verdicts`.
    pub(super) fn decide(&mut self, now: Micros) {
        self.looks += DECISION_LOOKS + self.members.len();
        self.charge(now);
        for m in &mut self.members {
            m.refused = false;
        }
        let helped = self.help_the_starving(now);
        self.look();
        let asked = self.policy.decide(now, &self.view, &mut self.verdicts);
        self.policy_said();
        for m in &mut self.members {
            m.interactive = self.policy.is_interactive(m.group.id);
        }
        let claimed = self.fairness.apply(now, &self.members, &mut self.verdicts);
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.fairness = verdict.run);
        let shared = self.shares.apply(now, &self.members, &mut self.verdicts);
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.shares = verdict.run);
        let guarded = self.guard(now);
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.guard = verdict.run);
        self.drains_at = drain::apply(now, &mut self.members, &mut self.verdicts);
        self.next = [helped, asked, claimed, shared, guarded, self.drains_at].into_iter().flatten().min();
    }

    /// Asks again with those refused taken as not ready. The policy itself is not asked, lest it think that its
    /// choice had its turn or went idle: it would lose its place each time it has to wait for another device. Returns how much was
    /// looked at, in members.
    pub(super) fn decide_without_refused(&mut self, now: Micros, seed: u64) -> usize {
        self.looks += DECISION_LOOKS + self.members.len();
        self.look_again();
        let filler = self.filler.get_or_insert_with(|| {
            let mut filler = self.choice.make(seed);
            if let Some((told, state)) = &self.state {
                filler.observe(*told, Some(state));
            }
            filler
        });
        let asked = filler.decide(now, &self.view, &mut self.verdicts);
        self.policy_said();
        let claimed = self.fairness.apply_meanwhile(now, &self.members, &mut self.verdicts);
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.fairness = verdict.run);
        let shared = self.shares.apply_meanwhile(now, &self.members, &mut self.verdicts);
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.shares = verdict.run);
        self.rescue();
        self.said.iter_mut().zip(&self.verdicts).for_each(|(said, verdict)| said.guard = verdict.run);
        self.drains_at = drain::apply(now, &mut self.members, &mut self.verdicts);
        self.next = [self.next, asked, claimed, shared, self.drains_at].into_iter().flatten().min();
        DECISION_LOOKS + self.members.len()
    }

    /// What was decided, to be put back by [`Self::put_back`].
    pub(super) fn decision(&self) -> Decision {
        Decision {
            verdicts: self.verdicts.clone(),
            said: self.said.clone(),
            next: self.next,
            meanwhile: self.fairness.meanwhile(),
        }
    }

    pub(super) fn put_back(&mut self, decision: Decision) {
        self.verdicts = decision.verdicts;
        self.said = decision.said;
        self.next = decision.next;
        self.fairness.put_back(decision.meanwhile);
    }

    fn policy_said(&mut self) {
        self.said.clear();
        let said = |verdict: &Verdict| Said {
            policy: verdict.run,
            fairness: verdict.run,
            shares: verdict.run,
            guard: verdict.run,
        };
        self.said.extend(self.verdicts.iter().map(said));
    }

    /// Why a group's gate is as the last decision left it: what keeps it closed whatever the policy says, else the last of those
    /// that changed the policy's verdict, else the policy.
    pub(super) fn why(&self, id: GroupId) -> Why {
        let Ok(at) = self.at(id) else { return Why::Unsaid };
        let m = &self.members[at];
        // One that came after the last decision has no verdict yet.
        let (Some(verdict), Some(said)) = (self.verdicts.get(at), self.said.get(at)) else { return Why::Unsaid };
        if !m.group.granted {
            let kept_off = [
                (m.is_held(), Why::Suspended),
                (m.refused, Why::Job),
                (m.stalled, Why::Stalled),
                (m.yields_until.is_some(), Why::Starvation),
                (m.behind, Why::Domain),
            ];
            if let Some((_, why)) = kept_off.into_iter().find(|(holds, _)| *holds) {
                return why;
            }
        }
        match (said.policy, said.fairness, said.shares) {
            _ if said.guard != verdict.run => Why::Drain,
            (_, _, shares) if shares != said.guard => Why::Guard,
            (_, fairness, shares) if fairness != shares => Why::Evenness,
            (policy, fairness, _) if policy != fairness => Why::Guarantee,
            _ => Why::Policy,
        }
    }

    fn look(&mut self) {
        self.order_domains();
        let stale = self.members.iter().filter(|m| m.stalled && m.group.granted);
        let mut stale: Vec<(ProgramId, i32)> = stale.map(|m| (m.group.program, m.group.priority)).collect();
        stale.sort_unstable();
        // A group that has the device and gets nowhere may wait, on the device, for another of its process: that one then goes
        // before all that it would go before itself.
        let lent = |m: &Member| {
            let (program, priority) = stale[..stale.partition_point(|(p, _)| *p <= m.group.program)].last()?;
            (*program == m.group.program).then_some(*priority)
        };
        self.view.clear();
        self.view.extend(self.members.iter().map(|m| Group {
            ready: may_run(m),
            priority: m.group.priority.max(lent(m).unwrap_or(i32::MIN)),
            ..m.group.clone()
        }));
        self.verdicts.clear();
        self.verdicts.resize(self.members.len(), Verdict::default());
    }

    /// The same, where since then no more has changed than who is refused.
    fn look_again(&mut self) {
        self.view.iter_mut().zip(&self.members).for_each(|(seen, m)| seen.ready = may_run(m));
        self.verdicts.fill(Verdict::default());
    }

    /// Says which groups wait behind one of the system domain of their own process. Not those that another lends a priority: that
    /// one may be waiting for them.
    fn order_domains(&mut self) {
        let system = self.members.iter().filter(|m| m.system && m.wants());
        let mut before: Vec<(ProgramId, i32)> = system.map(|m| (m.group.program, m.group.priority)).collect();
        before.sort_unstable();
        for m in &mut self.members {
            let own = (m.group.program, m.group.priority);
            m.behind = !m.system && m.lent.is_none() && before.binary_search(&own).is_ok();
        }
    }

    /// Gives a turn to the group that has waited for longer than any may, whatever progress the others claim. Returns when to look
    /// again.
    fn guard(&mut self, now: Micros) -> Option<Micros> {
        let Some(guard) = self.guard_us else {
            self.rescued = None;
            self.members.iter_mut().for_each(|m| m.denied_since = None);
            return None;
        };
        let wants = |id: GroupId| self.member(id).is_some_and(|m| may_run(m) && m.spanning.is_none());
        self.rescued = self.rescued.filter(|(id, until)| now < *until && wants(*id));
        let rescued = self.rescued.map(|(id, _)| id);
        let mut first: Option<(Micros, usize)> = None;
        for (at, (m, verdict)) in self.members.iter_mut().zip(&self.verdicts).enumerate() {
            // One of a job on several devices would have this one alone, and wait for the others. One that still has the device
            // loses it now.
            let may_wait = may_run(m) && m.spanning.is_none() && rescued != Some(m.group.id);
            let denied = may_wait && !verdict.run;
            // The turn of another one may take away what the policy gives: a wait ends once the group has the device.
            let waits_on = may_wait && m.denied_since.is_some() && !m.group.granted;
            // Nothing may have been decided while it had the device. In a moment of it a thread that waits hardly wakes up.
            let had_us = m.running_since.filter(|_| denied && m.group.granted).map_or(0, |since| now - since);
            m.had_us += if had_us >= TURN_MIN_US { had_us } else { 0 };
            let since = m.denied_since.filter(|_| m.had_us < m.group.hints.turn_us());
            m.denied_since = (denied || waits_on).then(|| since.unwrap_or(now));
            if since.is_none() {
                m.had_us = 0;
            }
            first = match (first, m.denied_since.filter(|_| denied)) {
                (Some(first), Some(since)) => Some(first.min((since, at))),
                (first, since) => first.or(since.map(|since| (since, at))),
            };
        }
        if let Some((since, at)) = first.filter(|_| self.rescued.is_none()) {
            if now < since + guard / 2 {
                return Some(since + guard / 2);
            }
            // In time, so that those that have the device have little in flight when they lose it.
            self.verdicts.iter_mut().for_each(|v| v.bounded = true);
            if now < since + guard {
                return Some(since + guard);
            }
            let m = &mut self.members[at];
            // After its turn it waits anew.
            m.denied_since = None;
            self.rescued = Some((m.group.id, now + m.group.hints.turn_us()));
        }
        self.rescue();
        self.rescued.map(|(_, until)| until)
    }

    /// Changes the verdicts in favour of the group that has waited for so long.
    fn rescue(&mut self) {
        let Some((id, _)) = self.rescued else { return };
        let spatial = self.member(id).and_then(|m| m.group.runs_beside());
        // One that was only held so that others catch up goes on beside them.
        let pool = self.member(id).and_then(|m| m.group.pool).filter(|_| self.shares.holds(id));
        for (m, verdict) in self.members.iter().zip(&mut self.verdicts) {
            let beside =
                spatial.is_some() && m.group.runs_beside() == spatial || pool.is_some() && m.group.pool == pool;
            *verdict = Verdict { run: m.group.id == id || beside && verdict.run, bounded: true };
        }
    }

    /// Finds groups that hold the device without progress while others wait. Returns when to look again.
    fn help_the_starving(&mut self, now: Micros) -> Option<Micros> {
        let waits = self.somebody_waits();
        self.waited_since = waits.then(|| self.waited_since.unwrap_or(now));
        let turn = self.members.iter().filter(|m| m.waits()).map(|m| m.group.hints.turn_us()).max().unwrap_or(0);
        let ready = self.members.iter().filter(|m| m.group.ready && !m.is_held()).count();
        let mut next = None;
        for m in &mut self.members {
            // No other group would profit: whether it makes progress is not looked at any more.
            if ready <= 1 {
                m.stalled = false;
                m.yields_until = None;
            }
            if m.stalled && !m.group.granted {
                let since = *m.suspect_since.get_or_insert(now);
                if now >= since + DOUBT_US {
                    m.stalled = false;
                } else {
                    next = earlier(next, Some(since + DOUBT_US));
                }
            }
            if !m.stalled {
                m.suspect_since = None;
            }
            if m.yields_until.is_some_and(|until| until <= now) {
                m.yields_until = None;
                m.progress_at = now;
            }
            if let Some(since) = self.waited_since
                && m.group.ready
                && m.group.granted
                && !m.stalled
                && m.yields_until.is_none()
            {
                let patience = m.progress_at.max(since) + STARVATION_US;
                if patience <= now {
                    m.yields_until = Some(now + turn);
                } else {
                    next = earlier(next, Some(patience));
                }
            }
            next = earlier(next, m.yields_until);
        }
        next
    }

    fn runs(&self, at: usize) -> bool {
        let m = &self.members[at];
        self.verdicts[at].run && !m.is_held() && !m.refused && !m.behind
    }

    /// First half of carrying out the verdicts: what takes something away.
    pub(super) fn close(&mut self, now: Micros, actions: &mut Vec<Action>) {
        self.order_domains();
        for at in 0..self.members.len() {
            if self.members[at].group.granted && !self.runs(at) {
                let m = &mut self.members[at];
                m.group.granted = false;
                m.closed_at = now;
                m.running_since = None;
                m.suspensions += 1;
                actions.push(Action::Close(m.group.id));
            }
        }
    }

    /// Second half: what gives, and what goes with it.
    pub(super) fn open(&mut self, now: Micros, actions: &mut Vec<Action>) {
        // A group alone is left alone, but where the policy may close its gate all the same: it must say then that it has drained.
        let contended = self.members.len() + self.dormant.len() > 1 || !self.choice.entry.conserves_work;
        // A group that preempts waits for what all of them have in flight.
        let running = |at: &usize| self.verdicts[*at].bounded && self.members[*at].wants() && self.runs(*at);
        let sharers = (0..self.members.len()).filter(running).count().max(1) as u32;
        for at in 0..self.members.len() {
            let (run, bounded) = (self.runs(at), self.verdicts[at].bounded);
            let m = &mut self.members[at];
            let id = m.group.id;
            // A group whose gate opens finds its bound in place.
            if std::mem::replace(&mut m.contended, contended) != contended {
                actions.push(Action::Contended(id, contended));
            }
            let bound = if bounded { sharers } else { 0 };
            if std::mem::replace(&mut m.bound, bound) != bound {
                actions.push(Action::Bound(id, bound));
            }
            if run && !m.group.granted {
                m.group.granted = true;
                m.progress_at = now;
                actions.push(Action::Open(id));
            }
            if m.group.ready && m.group.granted {
                m.group.busy = true;
                m.running_since.get_or_insert(now);
            }
        }
        let busy = self.members.iter().filter(|m| m.group.busy).count();
        for m in &mut self.members {
            // Without rivals the question does not arise, and a gate word without further bits is the fast path.
            let exclusive = contended && busy == usize::from(m.group.busy);
            if std::mem::replace(&mut m.exclusive, exclusive) != exclusive {
                actions.push(Action::Exclusive(m.group.id, exclusive));
            }
            if std::mem::replace(&mut m.stall_told, m.stalled) != m.stalled {
                actions.push(Action::Stalled(m.group.id, m.stalled));
            }
        }
        self.shares.note(now, &self.members);
        let waits = self.somebody_waits();
        if waits && self.waited_since.is_none() {
            self.waited_since = Some(now);
            self.next = earlier(self.next, Some(now + STARVATION_US));
        }
        // A group closed while in doubt needs a second look.
        if self.members.iter().any(|m| m.stalled && !m.group.granted && m.suspect_since.is_none()) {
            self.next = earlier(self.next, Some(now + DOUBT_US));
        }
        for m in self.members.iter_mut().filter(|m| m.stalled && !m.group.granted) {
            m.suspect_since.get_or_insert(now);
        }
    }
}

/// Whether a group wants the device and waits for no other of its own process.
pub(super) fn may_run(m: &Member) -> bool {
    m.wants() && !m.behind
}

/// Devices of one arbiter should not act at random in step.
fn salted(seed: u64, device: &str) -> u64 {
    seed ^ device.bytes().fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)))
}

fn earlier(a: Option<Micros>, b: Option<Micros>) -> Option<Micros> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
