//! Settings made by commands, and places of programs in pools, are kept over a restart of the daemon. A program's own hints are not: it
//! sends them again to the next daemon.

use xsched_policy::Choice;

use crate::Input;
use crate::config::kept::KeptSeat;
use crate::server::Server;
use crate::server::timers::Timer;
use crate::tuning::REMEMBER_NS;

impl Server {
    /// Remembers a policy that a command has set, of one device or of all.
    pub(crate) fn remember_policy(&mut self, device: Option<&str>, choice: &Choice) {
        let instead_of = configured(self, device);
        self.kept.set_policy(device, choice, instead_of);
        self.remember();
    }

    /// Sources of the policies in force, where that is not the configuration, a line each.
    pub(crate) fn policies_set(&self) -> Vec<String> {
        let by_start = self.sources.policy.as_ref().map(|_| {
            format!("policy {}: by --policy of the daemon, before the configuration", self.engine.settings().policy)
        });
        let by_command = self
            .kept
            .policies_set()
            .filter(|(device, policy, instead_of)| policy != instead_of && *instead_of == configured(self, *device));
        let lines = by_command.map(|(device, policy, instead_of)| {
            format!("policy {policy}{}: by xsched policy set, in place of {instead_of}", on(device))
        });
        by_start.into_iter().chain(lines).collect()
    }

    /// Sets the policies again that commands had set before the restart.
    pub(crate) fn restore_policies(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        let policies = kept.policies(|device| configured(self, device));
        self.kept = kept;
        for (device, choice) in policies {
            if choice.entry.name == crate::tuning::HOST_POLICY && self.services.scheduler.is_none() {
                continue;
            }
            self.say(&format!("policy {choice}{}: kept over the restart", on(device.as_deref())));
            self.input(Input::Policy(device, choice));
        }
    }

    /// Restores the settings of a program that may have been there before.
    pub(crate) fn restore_program(&mut self, id: u64) {
        let Some(program) = self.engine.programs().get(&id) else { return };
        let Some(known) = self.kept.take(program) else { return };
        self.input(Input::Restored { program: id, changes: known.hinted, held: known.held });
    }

    /// Restores the settings of a program that has left and come back, perhaps before its leave was noticed.
    pub(crate) fn restore_if_back(&mut self, pid: u32) {
        let back = self.engine.programs().iter().find(|(_, program)| program.pid == pid).map(|(id, _)| *id);
        if let Some(id) = back {
            self.restore_program(id);
        }
        self.remember();
    }

    /// Has the state written soon, but not at each of many commands.
    pub(crate) fn remember(&mut self) {
        self.timers.set_if_none(Timer::State, self.now_ns + REMEMBER_NS);
    }

    /// Has the state written.
    pub(crate) fn write_kept(&mut self) {
        let pools = &self.places.pools.list;
        let seats = self.places.expected.values().filter(|expected| !expected.ended).filter_map(|expected| {
            let pool = pools.iter().find(|pool| expected.pool == Some(pool.id))?;
            Some(KeptSeat::new(expected.pid, expected.user.uid, pool.process.pipe(), pool.side))
        });
        let seats = seats.collect();
        let programs = self.engine.programs().values().map(|program| &**program);
        if let Some((file, text)) = self.kept.contents(programs, seats) {
            self.services.events.writer.state(file, text);
        }
    }
}

/// Policy that is in force by the configuration.
fn configured(server: &Server, device: Option<&str>) -> String {
    let own = device.and_then(|device| server.config.devices.get(device));
    own.map_or_else(|| server.engine.settings().policy.to_string(), Choice::to_string)
}

/// Device that a message is about, in the form of a suffix.
pub(crate) fn on(device: Option<&str>) -> String {
    device.map_or_else(String::new, |device| format!(" on {device}"))
}
