//! Groups whose device context is interrupted (level 3).

use xsched_core::Runtime;

/// Slots of the groups that are interrupted now.
#[derive(Default)]
pub(super) struct Interrupts(Vec<u16>);

impl Interrupts {
    /// True: no group is interrupted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True: this group is interrupted.
    pub(super) fn has(&self, slot: u16) -> bool {
        self.0.contains(&slot)
    }

    /// Interrupts a group, or lets it go on. False: its device cannot do that any more, and nothing is interrupted.
    #[must_use]
    pub(super) fn set(&mut self, rt: &Runtime, slot: u16, on: bool) -> bool {
        self.0.retain(|s| *s != slot);
        // Level 3 takes the whole context away: only where all of it is suspended together.
        if on && !rt.has_one_group() {
            return true;
        }
        let can = interrupt(rt, slot, on);
        if on && can {
            self.0.push(slot);
        }
        can
    }

    /// Lets all go on.
    pub(super) fn restore(&mut self, rt: &Runtime) {
        for slot in core::mem::take(&mut self.0) {
            interrupt(rt, slot, false);
        }
    }
}

fn interrupt(rt: &Runtime, slot: u16, on: bool) -> bool {
    rt.device_of(slot).is_none_or(|(device, platform)| platform.interrupt(&device, on))
}
