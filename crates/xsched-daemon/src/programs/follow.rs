//! Nice values of processes, which policies may use and which change without notice.

use crate::Input;
use crate::identity::standing::nice;
use crate::server::Server;

impl Server {
    /// Reads the nice values of all programs.
    pub(crate) fn poll_nice(&mut self) {
        let values = self.engine.programs().iter().map(|(id, program)| (*id, nice(program.pid))).collect();
        self.input(Input::Nice(values));
    }
}
