//! Level 3 where it is the hardware's own time slices: which context gets which.
//!
//! A client gives its context the slice of its class when it makes it (see `hardware_timeslice_us`); whether there are other
//! best-effort programs then, it reads on the heartbeat page. What changes later is told from here: another class, or that
//! several best-effort programs share the device.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::GroupId;
use xsched_proto::class::{Class, Contention, hardware_timeslice_us};
use xsched_proto::wire::DaemonMsg;

use crate::client::Group;
use crate::server::Server;
use crate::socket::unread_bytes;
use crate::tuning::{REASSERT_NS, UNREAD_BYTES};

impl Server {
    /// After a change on some devices: tells every client there if its slice is another now. One pass over all groups, however many
    /// devices there are.
    pub(crate) fn assign_timeslices(&mut self, devices: &[Arc<str>]) {
        // One group speaks for all of its client's on a device: a slice belongs to the context.
        let mut speakers: BTreeMap<(&str, u64), GroupId> = BTreeMap::new();
        // Names may be long: to compare two of them takes a look at their first letters mostly, to hash one takes them all.
        let mut changed: Vec<&str> = devices.iter().map(|device| &**device).collect();
        changed.sort_unstable();
        let is_speaker = |group: &Group| is_sliced(group) && changed.binary_search(&&*group.device).is_ok();
        for (id, group) in self.groups.iter().filter(|(_, group)| is_speaker(group)) {
            let speaker = speakers.entry((&group.device, group.conn)).or_insert(*id);
            *speaker = (*speaker).min(*id);
        }
        let mut told: Vec<(u64, GroupId, Class, Option<u64>, bool)> = Vec::new();
        for device in devices {
            let of_device = speakers.range((&**device, 0)..=(&**device, u64::MAX)).filter_map(|((_, conn), id)| {
                let client = self.conns.get(conn)?.client()?;
                Some((*conn, *id, Class::of(client.priority), client.asked.timeslice_us))
            });
            let of_device: Vec<_> = of_device.collect();
            let best_effort = of_device.iter().filter(|(_, _, class, _)| class.is_best_effort()).count();
            self.heartbeat.tell_best_effort(device, best_effort);
            told.extend(
                of_device.into_iter().map(|(conn, id, class, asked)| (conn, id, class, asked, best_effort > 1)),
            );
        }
        for (conn, id, class, asked, has_contention) in told {
            let contention = if has_contention { self.contention_of(conn) } else { Contention::None };
            let us = asked.unwrap_or_else(|| hardware_timeslice_us(class, contention));
            let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) else { continue };
            client.has_contention = has_contention;
            if client.told_timeslice_us.replace(us) == Some(us) {
                continue;
            }
            let Some(slot) = self.groups.get(&id).map(|g| g.slot) else { continue };
            self.send(conn, &DaemonMsg::Timeslice { slot, us }, &[]);
        }
    }

    /// What is known of the commands of a client among several.
    fn contention_of(&self, conn: u64) -> Contention {
        let client = self.conns.get(&conn).and_then(|c| c.client());
        let groups = client.into_iter().flat_map(|client| &client.groups).filter_map(|id| self.groups.get(id));
        let (mut known, mut all_short) = (false, true);
        for short in groups.filter_map(|group| group.words.are_short()) {
            (known, all_short) = (true, all_short && short);
        }
        Contention::BestEffort { short: known && all_short }
    }

    /// Has a client among several best-effort ones set its slice again; not where policies take turns. Another one, if more is
    /// known of its commands by now. Else the same, if they may be long: measured on an H200 beside a 50 Hz BERT, a ResNet-50
    /// and GEMMs: median latency 1.00 instead of 1.14 times what it is alone, and more work done. Why is inferred: the driver
    /// looks anew at who is to run. Not for who is idle: each time takes the driver's lock for a millisecond.
    pub(crate) fn reassert_timeslice(&mut self, id: GroupId) {
        let now_ns = self.now_ns;
        let matters = |g: &&Group| is_sliced(g) && g.words.level.load(Relaxed) == 3 && !self.gatekeeper.is_idle(id);
        let Some(group) = self.groups.get(&id).filter(matters) else { return };
        let (conn, slot) = (group.conn, group.slot);
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        let is_due = now_ns.saturating_sub(client.reasserted_ns) >= REASSERT_NS;
        if !(client.has_contention && client.asked.timeslice_us.is_none() && is_due) {
            return;
        }
        let (class, contention) = (Class::of(client.priority), self.contention_of(conn));
        let us = hardware_timeslice_us(class, contention);
        let matters = us != hardware_timeslice_us(class, Contention::None);
        let pays = contention == Contention::BestEffort { short: false } || client.told_timeslice_us != Some(us);
        if !(matters && pays) {
            return;
        }
        let Some(reader) = self.conns.get_mut(&conn) else { return };
        // A program that is stopped would not read it, and have no room for what it must be told later.
        if unread_bytes(&reader.socket) < UNREAD_BYTES {
            if let Some(client) = reader.client_mut() {
                client.reasserted_ns = now_ns;
                client.told_timeslice_us = Some(us);
            }
            self.send(conn, &DaemonMsg::Timeslice { slot, us }, &[]);
        }
    }
}

/// Whether a group's context has a time slice of the hardware's.
pub(crate) fn is_sliced(group: &Group) -> bool {
    group.level == 3 && !group.platform.interrupts()
}
