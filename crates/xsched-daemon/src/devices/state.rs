//! Use of devices' states by the loop: they are passed to policies, and to users where that helps them.

use xsched_proto::wire::DaemonMsg;

use crate::Input;
use crate::server::Server;

impl Server {
    /// Takes the states that the drivers reported since the last call.
    pub(crate) fn poll_devices(&mut self) {
        let programs = self.engine.programs();
        let is_attached = |pid| programs.values().any(|program| program.pid == pid);
        let hot = self.services.devices.take(self.now_ns, is_attached);
        hot.iter().for_each(|line| self.say(line));
        self.add_memory_time();
        for device in self.services.devices.in_use() {
            let state = self.services.devices.state(&device, self.now_ns).map(Box::new);
            if let Some((at_ns, processes)) = self.services.devices.processes(&device) {
                self.input(Input::Memory(device.as_str().into(), at_ns, processes));
            } else {
                self.input(Input::Unmeasured(device.as_str().into()));
            }
            self.input(Input::Device(device.into(), state));
        }
    }

    /// Sends a note to a program that comes to a device when others leave it little memory there: an allocation that fails then is the
    /// driver's error, not the scheduler's.
    pub(crate) fn warn_of_full_memory(&mut self, conn: u64, device: &str) {
        let Some(program) = self.engine.programs().get(&conn) else { return };
        if self.engine.groups_of(program).filter(|(_, group)| &*group.device == device).count() > 1 {
            return;
        }
        let Some((used, total)) = self.services.devices.memory_of_others(device, program.pid, self.now_ns) else {
            return;
        };
        if total.saturating_sub(used) < total / 10 {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let (used, total) = (gib(used), gib(total));
            let text = format!("others use {used:.1} of the {total:.1} GiB of {device}: allocations may fail");
            self.net.send(conn, &DaemonMsg::Note { text }, &[]);
        }
    }
}
