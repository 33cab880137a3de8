//! A program's thread where the kernels of a request are one burst.

use std::sync::atomic::Ordering::Relaxed;

use xsched_proto::class::SHORT_US;
use xsched_proto::segment::length;

use super::device::Command;
use super::fluid::Burst;
use super::rank::Thread;
use super::state::Node;

impl Node<'_> {
    /// The thread goes on: with the burst that waits, the next one of the request, or the end of the request.
    pub(super) fn go_on_in_bursts(&mut self, rank: usize) {
        if self.ranks[rank].burst.is_none() && self.sync(rank) {
            return;
        }
        if self.ranks[rank].flight.pending > 0 {
            self.ranks[rank].thread = Thread::ForDevice;
            return;
        }
        if self.ranks[rank].burst.is_none() {
            let Some(burst) = self.next_burst(rank) else { return self.end_request(rank) };
            self.segments[rank].count_burst(burst.commands);
            self.ranks[rank].burst = Some(burst);
            self.announce_if_idle(rank);
        }
        let gate = self.segments[rank].gate.load();
        if !gate.is_open() {
            return self.wait_at_gate(rank);
        }
        let Some(burst) = self.ranks[rank].burst else { return };
        let r = &mut self.ranks[rank];
        r.flight.issued += 1;
        r.flight.pending = 1;
        r.syncs.is_due = true;
        r.thread = Thread::ForDevice;
        let (device, seat) = (r.device, r.seat);
        let command = Command { rank, seq: r.flight.issued, kind: 0, ns: burst.left_ns as u64 };
        self.play_device(device);
        self.devices[device].begin(seat, command, burst);
    }

    /// Commands up to where the host waits, as one burst; none = the request has no more.
    fn next_burst(&mut self, rank: usize) -> Option<Burst> {
        let copy_rate = self.scenario.devices[self.machine.kind].copy_rate;
        let (mut at, mut n) = self.ranks[rank].at;
        let member = &mut self.members[self.ranks[rank].member];
        let (mut left_ns, mut alone_ns, mut commands, mut last_ns) = (0.0, 0.0, 0, 0.0);
        while let Some(kernels) = member.kernels(at) {
            let count = if kernels.each { 1 } else { kernels.count };
            n += count;
            let waits = kernels.waits_after(n);
            if n == kernels.count {
                (at, n) = (at + 1, 0);
            }
            let device_ns = kernels.draw_some(count, copy_rate, &mut member.work).max(1.0);
            let launch_ns = kernels.launch.mean_ns() as f64;
            left_ns += device_ns;
            commands += count;
            // The host launches one while the device executes the one before.
            last_ns = device_ns / f64::from(count);
            alone_ns += device_ns.max(launch_ns * f64::from(count));
            if waits {
                break;
            }
        }
        self.ranks[rank].at = (at, n);
        let alone_ns = if alone_ns > left_ns { alone_ns - last_ns.min(alone_ns - left_ns) } else { left_ns };
        let kernel_ns = left_ns / f64::from(commands.max(1));
        (commands > 0).then(|| Burst { left_ns, kernel_ns, commands, pace: (left_ns / alone_ns).clamp(0.01, 1.0) })
    }

    /// A burst is complete, or its gate has closed and nothing of it is in flight any more.
    pub(super) fn complete_burst(&mut self, at_ns: u64, rank: usize, left: Option<Burst>) {
        let r = &mut self.ranks[rank];
        let Some(before) = r.burst else { return };
        r.flight.pending = 0;
        r.burst = left;
        r.spell.idle_since_ns = at_ns;
        let had_ns = before.left_ns - left.map_or(0.0, |burst| burst.left_ns);
        r.tally.device_ns += had_ns as u64;
        r.spell.burst_ns += had_ns as u64;
        let segment = &self.segments[rank];
        let kernel_us = (before.kernel_ns / 1_000.0) as u64;
        segment.longest_us.fetch_max(kernel_us.max(1), Relaxed);
        segment.lengths.store(if kernel_us <= SHORT_US { length::SHORT } else { length::LONG }, Relaxed);
        let left_commands = left.map_or(0, |burst| (burst.left_ns / burst.kernel_ns.max(1.0)) as u64);
        segment.set_left(left_commands);
        if left.is_some() {
            // The gate may have opened again meanwhile.
            return self.go_on_in_bursts(rank);
        }
        self.go_on_in_bursts(rank);
        if self.ranks[rank].flight.pending == 0 && self.ranks[rank].thread != Thread::AtGate {
            self.follow(rank);
        }
    }
}
