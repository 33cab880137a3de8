//! Groups: the units that are granted a device or preempted, each with queues of one program on one device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use xsched_policy::{Drains, PoolId, ProgramId};
use xsched_proto::class::SHORT_US;
use xsched_proto::segment::{GroupSlot, length};
use xsched_proto::wire::{Levels, Platform, Share, Sharing};

use crate::pooling::Seat;
use crate::tuning::{ENDS_SOON_US, LONG_US};
use crate::user::User;

/// A group.
#[derive(Debug)]
pub struct Group<W> {
    /// Its program.
    pub program: ProgramId,
    /// The owner of its program.
    pub user: User,
    /// Its words in the memory of its program.
    pub words: W,
    /// Its place there.
    pub slot: u16,
    /// Key of its device.
    pub device: Arc<str>,
    /// The interface by which it uses the device.
    pub platform: Platform,
    /// Preemption levels that the device has for it.
    pub levels: Levels,
    /// The way in which its context shares the device.
    pub sharing: Sharing,
    /// Its place in a pool.
    pub seat: Option<Seat>,
    /// Preemption level in use.
    pub level: u8,
    /// Priority relative to its program's, in steps of ten.
    pub steps: i32,
    /// Priority of its own.
    pub fixed: Option<i32>,
    /// True for the system domain: launches of vendors' libraries.
    pub system: bool,
    /// True once its program was told to interrupt what it runs (level 3).
    pub interrupted: bool,
    /// True once its commands were found too long to run beside others.
    pub too_long: bool,
    /// Value that the arbiter was told last; see [`xsched_policy::Event::Drains`].
    pub drains: Drains,
    /// Completed commands of its queues when its gate closed last; see [`crate::GroupWords::completed`].
    pub completed: Vec<u32>,
}

impl<W> Group<W> {
    /// The foreign MPS server by which it runs beside others.
    pub fn spatial(&self) -> Option<PoolId> {
        match self.sharing {
            Sharing::Spatial(server) => Some(PoolId(server)),
            Sharing::Time | Sharing::Pool => None,
        }
    }

    /// The MPS server that its context belongs to. Those that are not ours have even numbers.
    pub fn server(&self) -> Option<PoolId> {
        let number = |kind| move |PoolId(server)| PoolId(server.wrapping_shl(1) | kind);
        self.spatial().map(number(0)).or(self.seat.map(|seat| seat.server).map(number(1)))
    }

    /// Returns true if its context is in a pool.
    pub fn is_pooled(&self) -> bool {
        self.sharing == Sharing::Pool
    }

    /// Returns true if its context has a time slice of the hardware.
    pub fn is_sliced(&self) -> bool {
        self.level == 3 && !self.platform.interrupts()
    }

    /// The way of sharing as it is shown; none where there is only one.
    pub fn share(&self) -> Option<Share> {
        match self.sharing {
            _ if self.platform != Platform::Cuda => None,
            Sharing::Time => Some(Share::Time),
            Sharing::Pool => Some(Share::Pool),
            Sharing::Spatial(_) => Some(Share::Spatial),
        }
    }
}

/// Tells how commands in flight end, which get short slices of the hardware. `by_class`: urgent programs have the device for as long as they
/// want it. Where programs take turns, a kernel of some milliseconds goes on in its own program's next turn. `lends`: they may use memory of
/// the host.
pub(crate) fn drains(words: &GroupSlot, by_class: bool, lends: bool) -> Drains {
    let longest_us = words.longest_us.load(Relaxed);
    let is_short = words.lengths.load(Relaxed) != length::LONG && longest_us <= LONG_US;
    match longest_us {
        _ if by_class && lends => Drains::First,
        0 => Drains::ByItself,
        _ if is_short || by_class && longest_us <= ENDS_SOON_US => Drains::InSlices,
        _ => Drains::ByItself,
    }
}

/// Tells whether a group's commands are short: those of late, or all if no budget ever held it. None: not known yet.
pub fn are_short(words: &GroupSlot) -> Option<bool> {
    match (words.lengths.load(Relaxed), words.longest_us.load(Relaxed)) {
        (length::SHORT, _) => Some(true),
        (length::LONG, _) => Some(false),
        (_, 0) => None,
        (_, longest_us) => Some(longest_us <= SHORT_US),
    }
}
