//! Groups of a pool that run kernels side by side: first come first served by the device, which starts the next one as soon as
//! there is room for it.

use std::collections::{BTreeMap, VecDeque};

use xsched_policy::{Event, GroupId, GroupSpec, LOOK_US, Micros, Progress};

use super::{Sim, World};

/// Interval at which a client looks for completions, in µs.
const TOLD_US: Micros = 2_000;

/// Kernels of a group, always pending while it is ready.
#[derive(Debug)]
pub struct Kernels {
    /// Lengths alone, in µs, one after the other and again from the first.
    pub lengths: Vec<u64>,
    /// Part of the device that each takes, in %.
    pub width: u32,
    /// Given to the driver at a time.
    pub depth: usize,
    next: usize,
    /// The first one runs, once it has started.
    given: VecDeque<Kernel>,
    /// Time at which each was complete.
    pub ended: Vec<Micros>,
    progress: Progress,
}

#[derive(Clone, Copy, Debug)]
struct Kernel {
    us: u64,
    /// Its place among those that wait for room.
    came: u64,
    ends: Option<Micros>,
}

impl Kernels {
    pub fn new(us: u64, width: u32) -> Kernels {
        Kernels::cycle(vec![us], width)
    }

    pub fn cycle(lengths: Vec<u64>, width: u32) -> Kernels {
        Kernels {
            lengths,
            width,
            depth: 1,
            next: 0,
            given: VecDeque::new(),
            ended: Vec::new(),
            progress: Progress::default(),
        }
    }

    /// So many are given to the driver at a time.
    pub fn deep(self, depth: usize) -> Kernels {
        Kernels { depth, ..self }
    }

    /// Time alone for a kernel, in µs.
    fn mean_us(&self) -> f64 {
        self.lengths.iter().sum::<u64>() as f64 / self.lengths.len() as f64
    }

    pub fn longest_us(&self) -> u64 {
        self.lengths.iter().copied().max().unwrap_or(0)
    }

    pub fn is_running(&self) -> bool {
        self.given.front().is_some_and(|kernel| kernel.ends.is_some())
    }
}

impl World {
    /// A group that has kernels pending all the time.
    pub fn add_kernels(&mut self, spec: GroupSpec, kernels: Kernels) {
        let id = spec.id.0;
        self.add(spec, 0);
        self.sims.get_mut(&id).unwrap().kernels = Some(kernels);
        self.ready(id);
        self.serve_kernels();
    }

    /// The speed of each group from one time to another, as a part of that alone.
    pub fn speeds(&self, from: Micros, to: Micros) -> BTreeMap<u64, f64> {
        let speed = |sim: &Sim| {
            let kernels = sim.kernels.as_ref()?;
            let ended = kernels.ended.iter().filter(|at| (from..to).contains(at)).count();
            Some(ended as f64 * kernels.mean_us() / (to - from) as f64)
        };
        self.sims.iter().filter_map(|(id, sim)| Some((*id, speed(sim)?))).collect()
    }

    /// Their shares, and the sum of their speeds.
    pub fn shares(&self, from: Micros, to: Micros) -> (BTreeMap<u64, f64>, f64) {
        let speeds = self.speeds(from, to);
        let sum: f64 = speeds.values().sum();
        (speeds.into_iter().map(|(id, speed)| (id, speed / sum)).collect(), sum)
    }

    /// A group in a context of its own has the device: kernels of a pool stand still.
    fn is_taken_off(&self) -> bool {
        self.sims.values().any(|s| s.kernels.is_none() && s.on_device())
    }

    /// Before time passes: what stands still ends so much later.
    pub(super) fn delay_kernels(&mut self, us: Micros) {
        if self.is_taken_off() {
            let running = self.sims.values_mut().filter_map(|s| s.kernels.as_mut()?.given.front_mut()?.ends.as_mut());
            running.for_each(|ends| *ends += us);
        }
    }

    pub(super) fn next_kernel(&self) -> Option<Micros> {
        if self.is_taken_off() {
            return None;
        }
        self.sims.values().filter_map(|s| s.kernels.as_ref()?.given.front()?.ends).min()
    }

    /// Ends kernels, launches and starts others.
    pub(super) fn serve_kernels(&mut self) {
        let now = self.now;
        let mut drained = Vec::new();
        for (id, sim) in &mut self.sims {
            let Some(kernels) = &mut sim.kernels else { continue };
            while kernels.given.front().and_then(|kernel| kernel.ends).is_some_and(|at| at <= now) {
                kernels.given.pop_front();
                kernels.ended.push(now);
                self.came += 1;
                if let Some(next) = kernels.given.front_mut() {
                    next.came = self.came;
                }
                sim.used_us += 1.0;
            }
            while sim.ready && sim.open && kernels.given.len() < kernels.depth {
                self.came += 1;
                let us = kernels.lengths[kernels.next % kernels.lengths.len()];
                kernels.next += 1;
                kernels.given.push_back(Kernel { us, came: self.came, ends: None });
            }
            if kernels.given.is_empty() && std::mem::take(&mut sim.drains) {
                drained.push((*id, sim.ready));
            }
        }
        for (id, ready) in drained {
            self.send(if ready { Event::Drained(GroupId(id)) } else { Event::Idle(GroupId(id)) });
        }
        // Strictly in the order in which they came.
        loop {
            let given = self.sims.values().filter_map(|s| s.kernels.as_ref());
            let busy: u32 = given.filter(|k| k.is_running()).map(|k| k.width).sum();
            let waiting = self.sims.values_mut().filter_map(|s| s.kernels.as_mut());
            let waiting = waiting.filter(|k| !k.is_running() && !k.given.is_empty());
            let Some(first) = waiting.min_by_key(|k| k.given[0].came).filter(|k| busy + k.width <= 100) else { return };
            first.given[0].ends = Some(now + first.given[0].us);
        }
    }

    /// A group wants nothing more; it is idle when its kernels have ended.
    pub fn pause(&mut self, id: u64) {
        let sim = self.sims.get_mut(&id).unwrap();
        (sim.ready, sim.drains) = (false, true);
        self.serve_kernels();
    }

    pub(super) fn next_look(&self) -> Option<Micros> {
        self.sims.values().any(|s| s.kernels.is_some()).then_some(self.looked + LOOK_US)
    }

    /// As the daemon looks for groups that get nowhere.
    pub(super) fn look_at_kernels(&mut self) {
        if self.now < self.looked + LOOK_US {
            return;
        }
        self.looked = self.now;
        for id in self.sims.keys().copied().collect::<Vec<_>>() {
            let scrutinised = self.arbiter.status(self.now, GroupId(id)).is_some_and(|s| s.scrutinised);
            let Some(kernels) = self.sims.get_mut(&id).and_then(|s| s.kernels.as_mut()) else { continue };
            if !scrutinised {
                kernels.progress.forget();
                continue;
            }
            let ended = kernels.ended.len() as u64;
            let issued = ended + kernels.given.len() as u64;
            if let Some(event) = kernels.progress.look(self.now, GroupId(id), issued, ended) {
                self.send(event);
            }
        }
    }

    /// Tells what the groups have completed, if that is due.
    pub(super) fn count(&mut self) {
        if !self.arbiter.counts_due(self.now) {
            return;
        }
        for (id, sim) in &self.sims {
            if !self.arbiter.is_counted(GroupId(*id)) {
                continue;
            }
            let longest_us = sim.command_us(*id);
            let completed = match &sim.kernels {
                Some(kernels) => {
                    // Clients look for completions from time to time only.
                    let seen = self.now - self.now % TOLD_US;
                    kernels.ended.partition_point(|at| *at <= seen) as u64
                }
                None => sim.used_us as u64 / longest_us,
            };
            // Commands that wait at gates on the device are in the way of knowing for sure.
            let drained = id % 2 == 0 && sim.kernels.as_ref().is_some_and(|kernels| kernels.given.is_empty());
            let event =
                Event::Counted { group: GroupId(*id), completed, limited: completed as u32, longest_us, drained };
            self.arbiter.event(self.now, event, &mut self.actions);
            assert!(self.actions.is_empty(), "counts decide nothing: {:?}", self.actions);
        }
    }
}
