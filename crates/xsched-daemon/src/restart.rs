//! What commands have set is kept over a restart of the daemon. What a program says of itself is not: it says so again to the next
//! daemon.

use xsched_policy::{Choice, Event};

use crate::client::Client;
use crate::server::Server;
use crate::tuning::REMEMBER_NS;

impl Server {
    /// A command has set a policy, of one device or of all.
    pub(crate) fn remember_policy(&mut self, device: Option<&str>, choice: &Choice) {
        let instead_of = configured(self, device);
        self.kept.set_policy(device, choice, instead_of);
        self.remember();
    }

    /// Puts the policies in force that commands had set before the restart.
    pub(crate) fn restore_policies(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        let policies = kept.policies(|device| configured(self, device));
        self.kept = kept;
        for (device, choice) in policies {
            if choice.entry.name == crate::host::POLICY && self.scheduler.is_none() {
                continue;
            }
            self.say(&format!("policy {choice}{}: kept over the restart", on(device.as_deref())));
            self.gatekeeper.set_policy(self.now_us(), device.as_deref(), choice);
        }
    }

    /// A program has come that may have been there before.
    pub(crate) fn restore_program(&mut self, conn: u64) {
        let Some(client) = self.conns.get(&conn).and_then(|c| c.client()) else { return };
        let (allowed, program) = (client.entitlement.allowed, client.program);
        let Some(known) = self.kept.take(client) else { return };
        let mut hinted = known.hinted;
        // No more than the configuration allows now, but for what root gave.
        if !hinted.by_root {
            hinted.priority = hinted.priority.map(|priority| priority.min(allowed));
        }
        if let Some(client) = self.conns.get_mut(&conn).and_then(|c| c.client_mut()) {
            (client.hinted, client.held) = (hinted, known.held);
        }
        self.hint_client(conn, hinted);
        if known.held {
            self.gatekeeper.event(self.now_us(), Event::Hold(program));
        }
        self.act();
    }

    /// A program has left, and may come back; or it has done so before it was missed.
    pub(crate) fn may_come_back(&mut self, client: &Client) {
        if !self.kept.put(client) {
            return;
        }
        let is = |c: &Client| c.peer.pid == client.peer.pid;
        let back = self.conns.iter().find_map(|(id, c)| c.client().is_some_and(is).then_some(*id));
        if let Some(conn) = back {
            self.restore_program(conn);
        }
        self.remember();
    }

    /// Has all that is to be kept written soon: not at each of many commands.
    pub(crate) fn remember(&mut self) {
        self.remember_at.get_or_insert(self.now_ns + REMEMBER_NS);
    }

    /// Has it written.
    pub(crate) fn write_kept(&mut self) {
        self.remember_at = None;
        let Server { kept, conns, events, .. } = self;
        if let Some((file, text)) = kept.contents(conns.values().filter_map(|c| c.client())) {
            events.writer.state(file, text);
        }
    }
}

/// What the configuration says is in force.
fn configured(server: &Server, device: Option<&str>) -> String {
    let own = device.and_then(|device| server.config.devices.get(device));
    own.map_or_else(|| server.default_policy.to_string(), Choice::to_string)
}

/// Of which devices something is said, to be put behind it.
pub(crate) fn on(device: Option<&str>) -> String {
    device.map_or_else(String::new, |device| format!(" on {device}"))
}
