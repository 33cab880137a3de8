//! Work behind borders that no panic crosses, and the count of what was caught there.

use super::Server;
use crate::Error;
use crate::guard::{self, Fault, guarded};

impl Server {
    /// Does a piece of work for a connection, or for its program. A panic ends the connection.
    pub(crate) fn for_conn(&mut self, id: u64, what: &str, work: impl FnOnce(&mut Server)) {
        let Some((pid, user)) = self.net.conns.get(&id).map(|conn| (conn.pid, conn.user)) else { return work(self) };
        let done = guarded(format_args!("{what} of process {pid} of user {user}"), || work(self));
        if let Err(fault) = done {
            self.history.panics += 1;
            // The line on the end of the connection has the fault.
            self.net.doom(id, Some(Error::from(fault)));
        }
    }

    /// Does a piece of the daemon's own work, beside decisions. Returns false if it panicked.
    pub(crate) fn for_itself(&mut self, what: &str, work: impl FnOnce(&mut Server)) -> bool {
        let done = guarded(what, || work(self));
        let is_done = done.is_ok();
        done.err().into_iter().for_each(|fault| self.note_fault(&fault));
        is_done
    }

    /// Counts and reports the faults of this thread.
    pub(super) fn note_own_faults(&mut self) {
        guard::noted().iter().for_each(|fault| self.note_fault(fault));
    }

    /// Counts and reports the faults of the services' threads.
    pub(crate) fn note_faults_of_services(&mut self) {
        let services = &self.services;
        let of_services = [
            services.identify.worker.take_faults(),
            services.snapshots.worker.take_faults(),
            services.usage.worker.take_faults(),
            services.trust.worker.take_faults(),
            services.configuration.worker.take_faults(),
            services.devices.take_faults(),
            services.events.writer.take_faults(),
            self.net.reaper.take_faults(),
            services.metrics.as_ref().map_or_else(Vec::new, |metrics| metrics.take_faults()),
        ];
        of_services.iter().flatten().for_each(|fault| self.note_fault(fault));
    }

    fn note_fault(&mut self, fault: &Fault) {
        self.history.panics += 1;
        self.log(fault.line());
    }
}
