//! A tiny closed loop in virtual time: programs that follow their gates, on devices shared equally by those that have
//! work on them. A group that loses its gate goes on for its drain time, then says that it is drained.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;

use xsched_policy::{Action, Arbiter, Choice, ClassRule, Event, GroupId, GroupSpec, Micros, ProgramId};
use xsched_proto::hint::Hints;

#[derive(Clone, Debug, Default)]
pub struct Sim {
    pub device: String,
    pub job: Option<String>,
    pub open: bool,
    /// The n-th part of the bound; 0 = none.
    pub bound: u32,
    pub contended: bool,
    pub exclusive: bool,
    pub stalled: bool,
    pub ready: bool,
    pub ready_since: Micros,
    pub held: bool,
    pub priority: i32,
    /// Works on after its gate closed, µs.
    pub drain_us: u64,
    pub drains_until: Option<Micros>,
    /// Really used, µs.
    pub used_us: f64,
    pub closed_since: Micros,
}

impl Sim {
    fn on_device(&self) -> bool {
        self.ready && self.open || self.drains_until.is_some()
    }
}

pub struct World {
    pub arbiter: Arbiter,
    pub now: Micros,
    pub sims: BTreeMap<u64, Sim>,
    /// Ids given so far by the test, so that none is given twice.
    pub ids: u64,
    actions: Vec<Action>,
}

pub fn spec(id: u64, device: &str) -> GroupSpec {
    GroupSpec {
        id: GroupId(id),
        program: ProgramId(id),
        device: device.into(),
        priority: 0,
        hints: Hints::default(),
        nice: 0,
        active: false,
        lineage: None,
        job: None,
        system: false,
        pool: None,
    }
}

impl World {
    pub fn new(policy: &str) -> World {
        World {
            arbiter: Arbiter::new(Choice::named(policy).unwrap(), 42),
            now: 1_000,
            sims: BTreeMap::new(),
            ids: 0,
            actions: Vec::new(),
        }
    }

    pub fn add(&mut self, spec: GroupSpec, drain_us: u64) {
        let sim = Sim {
            device: spec.device.clone(),
            job: spec.job.clone(),
            priority: spec.priority,
            drain_us,
            closed_since: self.now,
            ..Sim::default()
        };
        self.sims.insert(spec.id.0, sim);
        self.send(Event::Add(spec));
    }

    pub fn remove(&mut self, id: u64) {
        self.sims.remove(&id);
        self.send(Event::Remove(GroupId(id)));
    }

    pub fn ready(&mut self, id: u64) {
        let sim = self.sims.get_mut(&id).unwrap();
        if !std::mem::replace(&mut sim.ready, true) {
            sim.ready_since = self.now;
        }
        self.send(Event::Ready(GroupId(id)));
    }

    pub fn idle(&mut self, id: u64) {
        let sim = self.sims.get_mut(&id).unwrap();
        sim.drains_until = None;
        if std::mem::take(&mut sim.ready) {
            let us = self.now - sim.ready_since;
            self.send(Event::Burst { group: GroupId(id), us });
        }
        self.send(Event::Idle(GroupId(id)));
    }

    pub fn send(&mut self, event: Event) {
        match &event {
            Event::Hold(p) => self.sims.get_mut(&p.0).unwrap().held = true,
            Event::Release(p) => self.sims.get_mut(&p.0).unwrap().held = false,
            _ => (),
        }
        self.arbiter.event(self.now, event, &mut self.actions);
        self.obey();
    }

    pub fn set_classes(&mut self, classes: Vec<ClassRule>) {
        self.arbiter.set_classes(self.now, classes, &mut self.actions);
        self.obey();
    }

    pub fn set_policy(&mut self, name: &str) {
        self.choose(Choice::named(name).unwrap());
    }

    pub fn choose(&mut self, choice: Choice) {
        self.arbiter.set_policy(self.now, None, choice, &mut self.actions);
        self.obey();
    }

    fn obey(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            let (Action::Open(id)
            | Action::Close(id)
            | Action::Bound(id, _)
            | Action::Contended(id, _)
            | Action::Stalled(id, _)
            | Action::Exclusive(id, _)) = action;
            let Some(sim) = self.sims.get_mut(&id.0) else { continue };
            let flip =
                |flag: &mut bool, to: bool| assert_ne!(std::mem::replace(flag, to), to, "{action:?} is no change");
            match action {
                Action::Open(_) => {
                    flip(&mut sim.open, true);
                    sim.drains_until = None;
                }
                Action::Close(_) => {
                    flip(&mut sim.open, false);
                    sim.closed_since = self.now;
                    if sim.ready {
                        sim.drains_until = Some(self.now + sim.drain_us);
                    }
                }
                Action::Bound(_, part) => {
                    assert_ne!(std::mem::replace(&mut sim.bound, part), part, "{action:?} is no change");
                }
                Action::Contended(_, on) => flip(&mut sim.contended, on),
                Action::Exclusive(_, on) => flip(&mut sim.exclusive, on),
                Action::Stalled(_, on) => flip(&mut sim.stalled, on),
            }
        }
        for (id, sim) in &self.sims {
            assert_eq!(self.arbiter.status(self.now, GroupId(*id)).map(|s| s.granted), Some(sim.open));
        }
    }

    /// Lets time pass up to `until`; all events on the way happen. Working groups make progress all the time.
    pub fn run(&mut self, until: Micros) {
        loop {
            let drained = self.sims.values().filter_map(|s| s.drains_until).min();
            let stop = [self.arbiter.next_timer(), drained]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(until)
                .clamp(self.now, until);
            for device in self.sims.values().map(|s| s.device.clone()).collect::<std::collections::BTreeSet<_>>() {
                let n = self.sims.values().filter(|s| s.device == device && s.on_device()).count();
                for sim in self.sims.values_mut().filter(|s| s.device == device && s.on_device()) {
                    sim.used_us += (stop - self.now) as f64 / n as f64;
                }
            }
            self.now = stop;
            let working: Vec<_> = self.sims.iter().filter(|(_, s)| s.ready && s.open).map(|(id, _)| *id).collect();
            for id in working {
                self.send(Event::Progress(GroupId(id)));
            }
            let done: Vec<_> = self
                .sims
                .iter()
                .filter(|(_, s)| s.drains_until.is_some_and(|t| t <= stop))
                .map(|(id, _)| *id)
                .collect();
            for id in done {
                self.sims.get_mut(&id).unwrap().drains_until = None;
                self.send(Event::Drained(GroupId(id)));
            }
            if self.arbiter.next_timer().is_some_and(|t| t <= self.now) {
                self.send(Event::Timer);
                assert!(self.arbiter.next_timer().is_none_or(|t| t > self.now), "a timer that never moves on");
            } else if self.now >= until {
                return;
            }
        }
    }

    pub fn open(&self) -> Vec<u64> {
        self.sims.iter().filter(|(_, s)| s.open).map(|(id, _)| *id).collect()
    }

    pub fn used(&self, id: u64) -> f64 {
        self.sims[&id].used_us
    }

    /// Whether a group that nothing takes off the device lets the pause of a more urgent one pass first.
    fn rests(&self, id: u64) -> bool {
        let device = &self.sims[&id].device;
        let groups: Vec<_> = self.arbiter.groups().filter(|(at, _)| at == device).map(|(_, group)| group).collect();
        let own = groups.iter().find(|g| g.id.0 == id).unwrap();
        let mut above = groups.iter().filter(|g| g.priority > own.priority);
        own.holds_up && above.any(|g| g.idle_since.is_some_and(|left| self.now < left + 2_000))
    }

    /// A group wants the device and may have it, so a group that wants it has it.
    pub fn assert_work_conserving(&self) {
        let waits = |id: &u64, s: &Sim| s.ready && !s.held && s.job.is_none() && !self.rests(*id);
        for (_, sim) in self.sims.iter().filter(|(id, s)| waits(id, s)) {
            assert!(
                self.sims.values().any(|o| o.device == sim.device && o.ready && o.open),
                "{} idles though wanted: {:?}",
                sim.device,
                self.sims
            );
        }
    }

    /// No ready group runs beside a ready one of higher priority.
    pub fn assert_priorities(&self) {
        let wants = |s: &&Sim| s.ready && !s.held && s.job.is_none();
        for low in self.sims.values().filter(|s| s.ready && s.open) {
            let above = self.sims.values().filter(wants).find(|s| s.device == low.device && s.priority > low.priority);
            assert!(above.is_none(), "{low:?} runs beside {above:?}");
        }
    }

    /// A job's ready groups have each of the devices they want, or none.
    pub fn assert_jobs(&self) {
        for job in self.sims.values().filter_map(|s| s.job.clone()) {
            let mut by_device = BTreeMap::new();
            for sim in self.sims.values().filter(|s| s.job.as_ref() == Some(&job) && s.ready && !s.held) {
                *by_device.entry(&sim.device).or_insert(false) |= sim.open;
            }
            let granted = by_device.values().filter(|&&open| open).count();
            assert!(granted == 0 || granted == by_device.len(), "job {job}: {by_device:?}");
        }
    }
}
