//! What changes outside xsched and is followed: nice values, and whose window is active.

use xsched_policy::{Event, ProgramId};

use crate::client::Client;
use crate::server::Server;
use crate::standing::nice;
use crate::tuning::NICE_NS;

impl Server {
    /// Whether the active window of a client's user is that of its process, or of one that it was started by.
    pub(crate) fn has_active_window(&self, client: &Client) -> bool {
        self.active_windows.get(&client.peer.uid).is_some_and(|window| client.ancestors.contains(window))
    }

    /// The active window of a user belongs to another process now.
    pub(crate) fn active_window(&mut self, uid: u32, pid: Option<u32>) {
        match pid {
            Some(pid) => self.active_windows.insert(uid, pid),
            None => self.active_windows.remove(&uid),
        };
        let of_user = self.clients().filter(|c| c.peer.uid == uid && !c.groups.is_empty());
        let found: Vec<(ProgramId, bool)> = of_user.map(|c| (c.program, self.has_active_window(c))).collect();
        let now_us = self.now_us();
        for (program, active) in found {
            self.gatekeeper.event(now_us, Event::Active(program, active));
        }
        self.act();
    }

    /// Whether some policy in force goes by nice values, which change without a word.
    pub(crate) fn follows_nice(&self) -> bool {
        let arbiter = self.gatekeeper.arbiter();
        arbiter.policies_in_force().any(|choice| choice.entry.reads_nice) && self.clients().next().is_some()
    }

    /// Looks at the nice values of all programs.
    pub(crate) fn look_at_nice(&mut self) {
        let found: Vec<(u64, ProgramId, i32)> = self
            .conns
            .iter()
            .filter_map(|(id, conn)| Some((*id, conn.client()?)))
            .map(|(id, client)| (id, client.program, nice(client.peer.pid)))
            .collect();
        let now_us = self.now_us();
        for (id, program, nice) in found {
            let Some(client) = self.conns.get_mut(&id).and_then(|c| c.client_mut()) else { continue };
            if std::mem::replace(&mut client.nice, nice) != nice {
                self.gatekeeper.event(now_us, Event::Nice(program, nice));
            }
        }
        self.nice_at = Some(self.now_ns + NICE_NS);
        self.act();
    }
}
