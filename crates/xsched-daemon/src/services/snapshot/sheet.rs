//! Messages about one moment, and their order.

use std::sync::Arc;

use xsched_proto::wire::{self, DaemonInfo, DaemonMsg, ProgramInfo, QueueInfo};

use super::seen::{Seen, SeenGroup, queue_id};
use crate::Error;
use crate::devices::Device;
use crate::guard::{Fault, guarded};
use crate::history::ended::EndedProgram;
use crate::history::recent::Recent;
use crate::history::refusals::Refusal;
use crate::history::shares::Shares;
use crate::identity::User;
use crate::tuning::PS_QUEUES;

/// Snapshot as the loop takes it, in pieces.
pub(crate) struct Sight {
    /// When it was begun, and when the daemon started, ns.
    pub(crate) now_ns: u64,
    pub(crate) started_ns: u64,
    pub(crate) daemon: DaemonInfo,
    pub(crate) recent: Recent,
    pub(crate) devices: Vec<(String, Arc<Device>)>,
    pub(crate) programs: Vec<Seen>,
    pub(crate) ended: Vec<Arc<EndedProgram>>,
    /// Refused processes, by process id.
    pub(crate) refused: Vec<Arc<Refusal>>,
}

/// Snapshot as messages, as far as they are equal for all commands of a user.
pub(super) struct Sheet {
    now_ns: u64,
    daemon: DaemonInfo,
    devices: Vec<(String, Arc<Device>)>,
    /// Process and user of each program.
    programs: Vec<(u32, User)>,
    /// Messages on programs, by their places.
    of_programs: Vec<(Place, User, Vec<u8>)>,
    ended: Vec<Arc<EndedProgram>>,
    refused: Vec<Arc<Refusal>>,
}

/// Place of the last message sent. An answer goes on with the next place, on whichever sheet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Begin,
    Daemon,
    /// By its key.
    Device(String),
    /// By process, connection and which of its queues.
    Program(u32, u64, u16),
    /// By its number among those.
    Ended(u64),
    /// By process.
    Refused(u32),
    End,
}

impl Sheet {
    /// Makes the messages on the programs that a user may see.
    pub(super) fn new(sight: Sight, reader: User) -> Sheet {
        let Sight { now_ns, started_ns, daemon, recent, devices, programs, ended, refused } = sight;
        let groups = programs.iter().flat_map(|seen| &seen.groups);
        let charged = |g: &SeenGroup| recent.charged_us(now_ns, g.id, g.status.used_us);
        let shares = Shares::of(now_ns, groups.map(|g| (g.id, &*g.device, charged(g), g.way.clone())));
        let mut of_programs = Vec::with_capacity(programs.len());
        for seen in programs.iter().filter(|seen| reader.may_see(seen.peer.user)) {
            let user = seen.peer.user;
            let pid = seen.peer.pid;
            let made = guarded(format_args!("the report on process {pid} of user {user}"), || {
                messages(seen, seen.info(now_ns, started_ns, &shares))
            });
            // A program whose report fails is left out.
            for (part, message) in made.map_err(Fault::note).unwrap_or_default() {
                // A message that is too long is left out.
                if let Ok(packet) = wire::encode(&message) {
                    of_programs.push((Place::Program(seen.peer.pid, seen.conn, part), user, packet));
                }
            }
        }
        of_programs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let programs = programs.iter().map(|seen| (seen.peer.pid, seen.peer.user)).collect();
        Sheet { now_ns, daemon, devices, programs, of_programs, ended, refused }
    }

    /// Message that comes after a place, for a user, with its own place; none = the answer is complete. `all` = with programs that ended
    /// lately.
    ///
    /// # Errors
    /// Fails if the message cannot be encoded.
    pub(super) fn after(&self, told: &Place, user: User, all: bool) -> Result<Option<(Place, Vec<u8>)>, Error> {
        let is_hidden = |theirs: &User| !user.may_see(*theirs);
        if *told < Place::Daemon {
            let hidden = self.programs.iter().filter(|(_, theirs)| is_hidden(theirs)).count();
            let mut daemon =
                DaemonInfo { hidden_programs: u32::try_from(hidden).unwrap_or(u32::MAX), ..self.daemon.clone() };
            // A line of a file that others may not read can be in it.
            daemon.configuration_fault = daemon.configuration_fault.filter(|_| user.is_own());
            return Ok(Some((Place::Daemon, wire::encode(&DaemonMsg::Daemon(daemon))?)));
        }
        // The driver names processes to every user, but not which of them are attached.
        let may_name = |pid| !self.programs.iter().any(|(theirs, user)| *theirs == pid && is_hidden(user));
        for (key, device) in &self.devices {
            let place = Place::Device(key.clone());
            if place > *told
                && let Some(info) = device.info(key, self.now_ns, may_name)
            {
                return Ok(Some((place, wire::encode(&DaemonMsg::Device(Box::new(info)))?)));
            }
        }
        let next = self.of_programs.partition_point(|(place, ..)| place <= told);
        if let Some((place, _, packet)) = self.of_programs[next..].iter().find(|(_, theirs, _)| !is_hidden(theirs)) {
            return Ok(Some((place.clone(), packet.clone())));
        }
        let next = self.ended.partition_point(|ended| Place::Ended(ended.number) <= *told);
        if let Some(ended) = self.ended[next..].iter().find(|ended| all && !is_hidden(&ended.user)) {
            let message = DaemonMsg::Program(Box::new(ended.info(self.now_ns)));
            return Ok(Some((Place::Ended(ended.number), wire::encode(&message)?)));
        }
        let next = self.refused.partition_point(|refused| Place::Refused(refused.pid) <= *told);
        if let Some(refused) = self.refused[next..].iter().find(|refused| !is_hidden(&refused.user)) {
            let message = DaemonMsg::RefusedProgram(refused.info(self.now_ns));
            return Ok(Some((Place::Refused(refused.pid), wire::encode(&message)?)));
        }
        if *told < Place::End {
            return Ok(Some((Place::End, wire::encode(&DaemonMsg::End)?)));
        }
        Ok(None)
    }
}

/// A program's messages: the first has the queues in the first places, and each further one as many, if there are any.
fn messages(seen: &Seen, mut info: ProgramInfo) -> Vec<(u16, DaemonMsg)> {
    let part = |slot: u16| slot / PS_QUEUES;
    let rest = seen.queues.iter().any(|queue| part(queue.slot) > 0);
    if !rest {
        return vec![(0, DaemonMsg::Program(Box::new(info)))];
    }
    info.groups.iter_mut().for_each(|group| group.queues.clear());
    let mut all = vec![(0, DaemonMsg::Program(Box::new(info)))];
    let launches = seen.segment.queue_launches();
    for queues in seen.queues.chunk_by(|one, other| part(one.slot) == part(other.slot)) {
        let told = queues.iter().filter_map(|queue| {
            let launches = launches.of(queue.slot).all;
            Some((seen.group_at(queue.group)?, QueueInfo { id: queue_id(queue.id), launches }))
        });
        all.push((1 + part(queues[0].slot), DaemonMsg::MoreQueues(told.collect())));
    }
    all
}
