//! Things outside xsched that policies follow: nice values, and the active window.

use xsched_policy::{Event, ProgramId};

use crate::memory::Memory;
use crate::program::Program;
use crate::state::Engine;
use crate::user::User;

impl<M: Memory> Engine<M> {
    /// Returns true if the active window of a program's user is that of its process, or of one that it was started by.
    pub(crate) fn has_active_window(&self, program: &Program<M>) -> bool {
        self.active_windows.of(program.user).is_some_and(|window| program.ancestors.contains(&window))
    }

    /// The active window of a user belongs to another process now.
    pub(crate) fn active_window(&mut self, user: User, pid: Option<u32>) {
        let programs = &self.programs;
        self.active_windows.set(user, pid, |user| programs.values().any(|program| program.user == user));
        let of_user = self.programs.values().filter(|p| p.user == user && !p.groups.is_empty());
        let found: Vec<(ProgramId, bool)> = of_user.map(|p| (p.id, self.has_active_window(p))).collect();
        for (program, active) in found {
            self.event(Event::Active(program, active));
        }
        self.act();
    }

    /// Returns true if a policy in force goes by nice values, which change without notice.
    pub fn follows_nice(&self) -> bool {
        self.arbiter().policies_in_force().any(|choice| choice.entry.reads_nice) && !self.programs.is_empty()
    }

    /// Takes nice values of programs.
    pub(crate) fn take_nice(&mut self, values: Vec<(u64, i32)>) {
        for (id, nice) in values {
            let Some(program) = self.programs.get_mut(&id) else { continue };
            let number = program.id;
            if std::mem::replace(&mut program.nice, nice) != nice {
                self.event(Event::Nice(number, nice));
            }
        }
        self.act();
    }
}
