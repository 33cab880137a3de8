//! Active windows of users, by the process that each belongs to. A container's root has its own, not that of the machine's root.

use std::collections::HashMap;

use crate::tuning::ACTIVE_WINDOWS_MAX;
use crate::user::User;

/// Processes of the active windows.
#[derive(Debug, Default)]
pub(crate) struct ActiveWindows(HashMap<User, u32>);

impl ActiveWindows {
    /// Process of a user's active window.
    pub(crate) fn of(&self, user: User) -> Option<u32> {
        self.0.get(&user).copied()
    }

    /// Sets the process of a user's active window; none = the user has none. Where many users have one, those for which `is_there` is false
    /// are forgotten.
    pub(crate) fn set(&mut self, user: User, pid: Option<u32>, is_there: impl Fn(User) -> bool) {
        match pid {
            Some(pid) => self.0.insert(user, pid),
            None => self.0.remove(&user),
        };
        if self.0.len() > ACTIVE_WINDOWS_MAX {
            self.0.retain(|user, _| is_there(*user));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Rank;

    #[test]
    fn a_containers_root_has_an_active_window_of_its_own() {
        let mut windows = ActiveWindows::default();
        let root = User { uid: 0, rank: Rank::Root, within: 0 };
        let [one, other] = [7, 8].map(|within| User { uid: 0, rank: Rank::Other, within });
        windows.set(root, Some(1), |_| true);
        windows.set(one, Some(2), |_| true);
        assert_eq!([root, one, other].map(|user| windows.of(user)), [Some(1), Some(2), None]);
        windows.set(one, None, |_| true);
        assert_eq!([root, one].map(|user| windows.of(user)), [Some(1), None]);
    }

    #[test]
    fn active_windows_of_users_without_programs_are_forgotten() {
        let mut windows = ActiveWindows::default();
        for uid in 0..3 * ACTIVE_WINDOWS_MAX as u32 {
            windows.set(User::unknown(uid), Some(1), |user| user.uid == 7);
        }
        assert!(windows.0.len() <= ACTIVE_WINDOWS_MAX && windows.of(User::unknown(7)).is_some());
    }
}
