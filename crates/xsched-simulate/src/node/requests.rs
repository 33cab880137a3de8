//! Requests of a program: they come, are served one after the other, and end when all ranks have done their part.

use crate::outcome::Track;
use crate::scenario::Arrival;
use crate::scenario::Detail;

use super::rank::Thread;
use super::state::{Happening, Node};

/// Time after so much time of the usual rate, where the rate is another one in each part of the whole time; none = after its end.
fn under_load(mut now_ns: u64, apart_ns: f64, load: &[f64], time_ns: u64) -> Option<u64> {
    if load.is_empty() {
        return Some(now_ns + apart_ns as u64);
    }
    let mut left_ns = apart_ns;
    let end_of = |part: usize| (u128::from(time_ns) * (part as u128 + 1) / load.len() as u128) as u64;
    for (part, rate) in load.iter().enumerate() {
        if end_of(part) <= now_ns {
            continue;
        }
        let room_ns = (end_of(part) - now_ns) as f64 * rate;
        if room_ns >= left_ns {
            return Some(now_ns + (left_ns / rate) as u64);
        }
        left_ns -= room_ns;
        now_ns = end_of(part);
    }
    None
}

impl Node<'_> {
    /// Sets the arrival of a program's next request.
    pub(super) fn set_arrival(&mut self, member: usize) {
        let now_ns = self.now_ns;
        let m = &mut self.members[member];
        let arrivals = &m.kind.arrivals;
        let traced = &m.kind.traced;
        let at_ns = if !traced.is_empty() {
            match traced[m.came as usize % traced.len()].arrival {
                // Times do not come again; distances do.
                Arrival::At(_) if m.came as usize >= traced.len() => return,
                Arrival::At(at_ns) => (m.kind.start.0 + at_ns).max(now_ns),
                Arrival::After(pause_ns) => now_ns + pause_ns,
            }
        } else if let Some(every) = arrivals.every {
            // Programs of one kind are not in step.
            let first = m.came == 0;
            now_ns + if first { (every.0 as f64 * m.arrivals.unit()) as u64 } else { every.0 }
        } else if let Some(poisson) = arrivals.poisson {
            let apart_ns = poisson.0 as f64 * m.arrivals.exponential();
            match under_load(now_ns, apart_ns, &arrivals.load, self.scenario.time.0) {
                Some(at_ns) => at_ns,
                None => return,
            }
        } else if let Some(gaps) = &arrivals.gaps {
            now_ns + gaps.draw(&mut m.arrivals)
        } else if arrivals.file.is_some() {
            let Some(at_ns) = arrivals.times.get(m.came as usize) else { return };
            (m.kind.start.0 + at_ns).max(now_ns)
        } else {
            let pause_ns = arrivals.pause.as_ref().map_or(0, |pause| pause.draw(&mut m.arrivals));
            now_ns + if m.came == 0 { 0 } else { pause_ns }
        };
        m.came += 1;
        self.set(at_ns, Happening::Arrives(member));
    }

    /// True if a program's next request comes after the one before is complete.
    pub(super) fn is_closed_loop(&self, member: usize) -> bool {
        let kind = self.members[member].kind;
        if let Some(next) = kind.traced.get(self.members[member].came as usize % kind.traced.len().max(1)) {
            return matches!(next.arrival, Arrival::After(_));
        }
        let arrivals = &kind.arrivals;
        arrivals.every.is_none() && arrivals.poisson.is_none() && arrivals.gaps.is_none() && arrivals.file.is_none()
    }

    pub(super) fn arrive(&mut self, member: usize) {
        if self.members[member].ranks.iter().all(|rank| self.ranks[*rank].thread == Thread::Gone) {
            return;
        }
        self.members[member].requests.push_back(self.now_ns);
        if self.members[member].serving == 0 {
            self.serve(member);
        }
        if !self.is_closed_loop(member) {
            self.set_arrival(member);
        }
    }

    /// Begins the request that has waited longest.
    pub(super) fn serve(&mut self, member: usize) {
        let ranks = self.members[member].ranks.clone();
        self.members[member].serving = ranks.len();
        let m = &mut self.members[member];
        if !m.kind.traced.is_empty() {
            m.traced = Some(m.kind.traced[m.served as usize % m.kind.traced.len()].kernels());
        }
        m.served += 1;
        for rank in ranks {
            let m = &mut self.members[member];
            let host_ns = m.kind.host.draw(&mut m.work);
            self.ranks[rank].at = (0, 0);
            self.ranks[rank].next = None;
            self.compute(rank, host_ns);
        }
    }

    pub(super) fn end_request(&mut self, rank: usize) {
        self.ranks[rank].thread = Thread::Rests;
        let member = self.ranks[rank].member;
        let waited_ns = self.ranks[rank].take_waited_ns();
        if self.scenario.detail == Detail::Kernels {
            self.outcome.programs[self.members[member].placed.kind].waits.add(waited_ns);
        }
        self.members[member].serving -= 1;
        if self.members[member].serving > 0 {
            return;
        }
        let Some(came_ns) = self.members[member].requests.pop_front() else { return };
        let placed = self.members[member].placed;
        self.outcome.programs[placed.kind].requests.add(self.now_ns - came_ns);
        if let Some(interval) = self.scenario.interval
            && let Some(part) = self.outcome.intervals.get_mut((self.now_ns / interval.0) as usize)
        {
            part.programs[placed.kind].requests.add(self.now_ns - came_ns);
        }
        self.span(Track::Requests(placed.kind, placed.number), "request", came_ns, self.now_ns);
        if !self.members[member].requests.is_empty() {
            self.serve(member);
        } else if self.is_closed_loop(member) {
            self.set_arrival(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_as_often_as_the_load_of_each_part_says() {
        let at = |now_ns, apart_ns| under_load(now_ns, apart_ns, &[1.0, 0.0, 2.0], 300);
        assert_eq!(
            [at(0, 50.0), at(0, 100.0), at(80, 40.0), at(150, 40.0)],
            [Some(50), Some(100), Some(210), Some(220)]
        );
        assert_eq!((at(250, 101.0), under_load(250, 101.0, &[], 300)), (None, Some(351)));
    }
}
