//! A tiny closed loop in virtual time: programs that follow their gates, on devices shared equally by those that have
//! work on them. A group that loses its gate goes on for its drain time, then says that it is drained. A group with [`Work`] wants
//! the device for requests of its own: each ends once it had so much device time.
#![allow(dead_code, unreachable_pub)]

mod kernels;

use std::collections::BTreeMap;

use xsched_policy::{Action, Arbiter, Choice, ClassRule, Event, GroupId, GroupSpec, Micros, PoolId, ProgramId};

pub use kernels::Kernels;

#[derive(Debug, Default)]
pub struct Sim {
    pub device: String,
    pub job: Option<String>,
    pub open: bool,
    /// The n-th part of the bound; 0 = none.
    pub bound: u32,
    pub contended: bool,
    pub exclusive: bool,
    pub stalled: bool,
    pub keeps_gaps: Option<u32>,
    pub ready: bool,
    pub ready_since: Micros,
    pub held: bool,
    pub priority: i32,
    pub spatial: Option<PoolId>,
    pub pool: Option<PoolId>,
    pub weight: u32,
    /// Works on after its gate closed, µs.
    pub drain_us: u64,
    pub drains_until: Option<Micros>,
    /// The device executes something of it until then, though its gate is closed and it is taken to be off the device.
    pub executes_until: Micros,
    /// Really used, µs.
    pub used_us: f64,
    pub closed_since: Micros,
    /// Its own requests; none = ready and idle as the test says.
    pub work: Option<Work>,
    /// Requests that came, the oldest first. The last ones may not have ended.
    pub requests: Vec<Request>,
    /// Times its gate closed while it was ready.
    pub preemptions: u64,
    /// Kernels that it runs side by side with others; none = the device is shared by time.
    pub kernels: Option<Kernels>,
    /// Its gate closed, or it wants no more, and its kernels are still to end.
    pub drains: bool,
}

/// Requests that come by themselves.
#[derive(Clone, Debug)]
pub struct Work {
    /// Time at which the next one comes.
    pub next: Micros,
    /// Time between two, in µs.
    pub period_us: u64,
    /// Device time that each takes, in µs.
    pub device_us: f64,
    /// Additional device time of each at most, in µs, evenly spread.
    pub jitter_us: u64,
    /// The next one comes up to so much later, in µs, evenly spread.
    pub late_us: u64,
    /// The period begins when the last one has ended.
    pub one_by_one: bool,
    /// State of its random numbers; not 0.
    pub random: u64,
}

impl Work {
    /// Each `period_us` a request of `device_us`, the first at `first`.
    pub fn new(first: Micros, period_us: u64, device_us: u64) -> Work {
        Work {
            next: first,
            period_us,
            device_us: device_us as f64,
            jitter_us: 0,
            late_us: 0,
            one_by_one: false,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// A request of `device_us`, then a pause of `pause_us`, and so on.
    pub fn with_pauses(first: Micros, device_us: u64, pause_us: u64) -> Work {
        Work { one_by_one: true, ..Work::new(first, pause_us, device_us) }
    }

    fn up_to(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % (most + 1)
    }

    fn request(&mut self) -> Request {
        let needs_us = self.device_us + self.up_to(self.jitter_us) as f64;
        let came = self.next;
        self.next = if self.one_by_one { Micros::MAX } else { self.after(came) };
        Request { came, began: None, ended: None, needs_us }
    }

    fn after(&mut self, time: Micros) -> Micros {
        time + self.period_us + if self.late_us > 0 { self.up_to(self.late_us) } else { 0 }
    }
}

#[derive(Clone, Debug)]
pub struct Request {
    pub came: Micros,
    /// Time at which it had the device first.
    pub began: Option<Micros>,
    pub ended: Option<Micros>,
    /// Device time that it still needs, in µs.
    pub needs_us: f64,
}

impl Request {
    /// From its coming to its end, in µs.
    pub fn took_us(&self) -> Option<u64> {
        Some(self.ended? - self.came)
    }
}

impl Sim {
    pub fn weight(&self) -> f64 {
        f64::from(self.weight)
    }

    /// Length of its commands, in µs.
    fn command_us(&self, id: u64) -> u64 {
        match &self.kernels {
            Some(kernels) => kernels.longest_us(),
            None => [100, 10_000][(id % 2) as usize],
        }
    }

    fn on_device(&self) -> bool {
        self.ready && self.open || self.drains_until.is_some()
    }

    /// The request that is served, or is the next.
    fn request(&mut self) -> Option<&mut Request> {
        self.requests.iter_mut().rev().take_while(|r| r.ended.is_none()).last()
    }

    /// The requests that ended.
    pub fn ended(&self) -> impl DoubleEndedIterator<Item = &Request> {
        self.requests.iter().filter(|r| r.ended.is_some())
    }
}

/// `name` alone, or `name param=value …`, as users type it.
pub fn choice(text: &str) -> Choice {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap();
    Choice::with(name, words.map(|word| word.split_once('=').unwrap())).unwrap()
}

pub struct World {
    pub arbiter: Arbiter,
    pub now: Micros,
    pub sims: BTreeMap<u64, Sim>,
    /// Ids given so far by the test, so that none is given twice.
    pub ids: u64,
    /// Work of several together on a device, as a multiple of that of one alone.
    pub overlap: f64,
    /// Actions of the arbiter.
    pub log: Vec<(Micros, Action)>,
    /// Stops of [`World::run`].
    pub looks: u64,
    /// Kernels that came so far.
    came: u64,
    /// Time of the last look at the progress of groups with kernels.
    looked: Micros,
    actions: Vec<Action>,
}

pub fn spec(id: u64, device: &str) -> GroupSpec {
    GroupSpec::new(GroupId(id), ProgramId(id), device)
}

impl World {
    pub fn new(policy: &str) -> World {
        World::of(Choice::named(policy).unwrap())
    }

    /// `name` alone, or `name param=value …`, as users type it.
    pub fn with(policy: &str) -> World {
        World::of(choice(policy))
    }

    pub fn of(choice: Choice) -> World {
        World {
            arbiter: Arbiter::new(choice, 42),
            now: 1_000,
            sims: BTreeMap::new(),
            ids: 0,
            overlap: 1.0,
            log: Vec::new(),
            looks: 0,
            came: 0,
            looked: 0,
            actions: Vec::new(),
        }
    }

    pub fn add(&mut self, spec: GroupSpec, drain_us: u64) {
        let sim = Sim {
            device: spec.device.clone(),
            job: spec.job.clone(),
            priority: spec.priority,
            spatial: spec.spatial,
            pool: spec.pool,
            weight: spec.hints.weight(),
            drain_us,
            closed_since: self.now,
            ..Sim::default()
        };
        self.sims.insert(spec.id.0, sim);
        self.send(Event::Add(spec));
    }

    /// A group that wants the device for requests of its own.
    pub fn add_work(&mut self, spec: GroupSpec, drain_us: u64, work: Work) {
        let id = spec.id.0;
        self.add(spec, drain_us);
        self.sims.get_mut(&id).unwrap().work = Some(work);
    }

    /// A group that wants the device all the time.
    pub fn add_ready(&mut self, spec: GroupSpec, drain_us: u64) {
        let id = spec.id.0;
        self.add(spec, drain_us);
        self.ready(id);
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
        self.count();
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
        self.choose_for(None, choice);
    }

    /// For one device, or all.
    pub fn choose_for(&mut self, device: Option<&str>, choice: Choice) {
        self.arbiter.set_policy(self.now, device, choice, &mut self.actions);
        self.obey();
    }

    fn obey(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            self.log.push((self.now, action));
            let (Action::Open(id)
            | Action::Close(id)
            | Action::Budget(id, _)
            | Action::Contended(id, _)
            | Action::Stalled(id, _)
            | Action::Exclusive(id, _)
            | Action::KeepsGaps(id, _)) = action;
            let Some(sim) = self.sims.get_mut(&id.0) else { continue };
            let flip =
                |flag: &mut bool, to: bool| assert_ne!(std::mem::replace(flag, to), to, "{action:?} is no change");
            match action {
                Action::Open(_) => {
                    flip(&mut sim.open, true);
                    sim.drains_until = None;
                    // A group that pauses is idle once its kernels have ended.
                    sim.drains &= !sim.ready;
                }
                Action::Close(_) => {
                    flip(&mut sim.open, false);
                    sim.closed_since = self.now;
                    if sim.ready && sim.kernels.is_some() {
                        sim.preemptions += 1;
                        sim.drains = true;
                    } else if sim.ready {
                        sim.preemptions += 1;
                        sim.drains_until = Some(self.now + sim.drain_us);
                    }
                }
                Action::Budget(_, part) => {
                    assert_ne!(std::mem::replace(&mut sim.bound, part), part, "{action:?} is no change");
                }
                Action::Contended(_, on) => flip(&mut sim.contended, on),
                Action::Exclusive(_, on) => flip(&mut sim.exclusive, on),
                Action::Stalled(_, on) => flip(&mut sim.stalled, on),
                Action::KeepsGaps(_, budget) => {
                    assert_ne!(std::mem::replace(&mut sim.keeps_gaps, budget), budget, "{action:?} is no change");
                }
            }
        }
        for (id, sim) in &self.sims {
            assert_eq!(self.arbiter.status(self.now, GroupId(*id)).map(|s| s.granted), Some(sim.open));
        }
    }

    /// Lets time pass up to `until`; all events on the way happen. Working groups make progress all the time.
    pub fn run(&mut self, until: Micros) {
        loop {
            self.looks += 1;
            let drained = self.sims.values().filter_map(|s| s.drains_until).min();
            let stop = [self.arbiter.next_timer(), drained, self.next_kernel(), self.next_look()]
                .into_iter()
                .flatten()
                .chain(self.next_of_work())
                .min()
                .unwrap_or(until)
                .clamp(self.now, until);
            let rates: Vec<f64> = self.sims.values().map(|sim| self.rate(sim)).collect();
            for (sim, rate) in self.sims.values_mut().zip(rates).filter(|(_, rate)| *rate > 0.0) {
                let had = (stop - self.now) as f64 * rate;
                sim.used_us += had;
                if let Some(request) = sim.request() {
                    request.began.get_or_insert(self.now);
                    request.needs_us -= had;
                }
            }
            self.delay_kernels(stop - self.now);
            self.now = stop;
            let works = |s: &Sim| s.ready && s.open && s.kernels.is_none();
            let working: Vec<_> = self.sims.iter().filter(|(_, s)| works(s)).map(|(id, _)| *id).collect();
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
            self.serve();
            self.serve_kernels();
            self.look_at_kernels();
            if self.arbiter.next_timer().is_some_and(|t| t <= self.now) {
                let due: Vec<_> = self.arbiter.drains_due(self.now).collect();
                for id in due {
                    let executes = self.sims[&id.0].executes_until > self.now;
                    self.send(Event::Executes(id, executes));
                }
                self.send(Event::Timer);
                assert!(self.arbiter.next_timer().is_none_or(|t| t > self.now), "a timer that never moves on");
            } else if self.now >= until {
                return;
            }
        }
    }

    /// Work of a group in a µs, as a part of that alone.
    fn rate(&self, sim: &Sim) -> f64 {
        if !sim.on_device() || sim.kernels.is_some() {
            return 0.0;
        }
        let count =
            self.sims.values().filter(|s| s.device == sim.device && s.on_device() && s.kernels.is_none()).count();
        if count > 1 { self.overlap / count as f64 } else { 1.0 }
    }

    /// Next time at which a request comes, or ends if nothing changes.
    fn next_of_work(&self) -> Option<Micros> {
        let working = self.sims.values().filter(|s| s.work.is_some());
        let next = working.flat_map(|sim| {
            let served = sim.requests.iter().rev().take_while(|r| r.ended.is_none()).last();
            let rate = self.rate(sim);
            let ends = served.filter(|_| rate > 0.0).map(|r| self.now + (r.needs_us / rate).ceil().max(1.0) as Micros);
            ends.into_iter().chain(sim.work.as_ref().map(|work| work.next))
        });
        next.min()
    }

    /// Lets requests end and come.
    fn serve(&mut self) {
        let now = self.now;
        let working: Vec<u64> = self.sims.iter().filter(|(_, s)| s.work.is_some()).map(|(id, _)| *id).collect();
        for id in working {
            let sim = self.sims.get_mut(&id).unwrap();
            let is_over = |r: &&mut Request| r.needs_us < 1e-6;
            let over = sim.request().filter(is_over).map(|r| r.ended = Some(now)).is_some();
            let work = sim.work.as_mut().unwrap();
            if over && work.one_by_one {
                work.next = work.after(now);
            }
            while work.next <= now {
                sim.requests.push(work.request());
            }
            if over {
                self.idle(id);
            }
            let sim = self.sims.get_mut(&id).unwrap();
            if !sim.ready && sim.request().is_some() {
                self.ready(id);
            }
        }
    }

    pub fn open(&self) -> Vec<u64> {
        self.sims.iter().filter(|(_, s)| s.open).map(|(id, _)| *id).collect()
    }

    pub fn used(&self, id: u64) -> f64 {
        self.sims[&id].used_us
    }

    /// True if a group that nothing takes off the device may let the pause of a more urgent one pass first.
    fn rests(&self, id: u64) -> bool {
        let device = &self.sims[&id].device;
        let all: Vec<_> = self.arbiter.groups().filter(|(at, _)| at == device).map(|(_, group)| group).collect();
        // A long command of a pool does not begin in a short pause of one that it is ahead of.
        let (pool, is_long) = (self.sims[&id].pool, self.sims[&id].command_us(id) > 3_000);
        let mut beside = all.iter().filter(|g| pool.is_some() && g.pool == pool && g.id.0 != id);
        if is_long && beside.any(|g| g.idle_since.is_some_and(|left| self.now < left + 3_000)) {
            return true;
        }
        self.arbiter.groups().any(|(_, group)| group.id.0 == id && group.holds_up)
            && all.iter().any(|g| g.id.0 != id && g.idle_since.is_some_and(|left| self.now < left + 2_000))
    }

    /// A group wants the device and may have it, so a group that wants it has it.
    pub fn assert_work_conserving(&self) {
        let waits = |id: &u64, s: &Sim| s.ready && !s.held && s.job.is_none() && !self.rests(*id);
        // One of a pool that lets a pause of its equals pass does so with the device: those below it wait, 3 ms at most.
        let above =
            |s: &Sim| self.sims.iter().any(|(o, other)| other.priority > s.priority && other.ready && self.rests(*o));
        let waits = |id: &u64, s: &Sim| waits(id, s) && (s.pool.is_none() || !above(s));
        for (_, sim) in self.sims.iter().filter(|(id, s)| waits(id, s)) {
            assert!(
                self.sims.values().any(|o| o.device == sim.device && (o.ready && o.open || o.drains)),
                "{} idles though wanted at {}: {:?} {:?}",
                sim.device,
                self.now,
                self.sims.values().map(|s| (s.ready, s.open, s.drains, s.priority)).collect::<Vec<_>>(),
                self.log.iter().rev().take(12).collect::<Vec<_>>()
            );
        }
    }

    /// No ready group runs beside a ready one of higher priority, but in one pool.
    pub fn assert_priorities(&self) {
        let wants = |s: &&Sim| s.ready && !s.held && s.job.is_none();
        for low in self.sims.values().filter(|s| s.ready && s.open) {
            let rivals = |s: &&Sim| s.device == low.device && (s.spatial.is_none() || s.spatial != low.spatial);
            let above = self.sims.values().filter(wants).filter(rivals).find(|s| s.priority > low.priority);
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
