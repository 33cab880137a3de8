//! Account of a process's memory on its devices: the words that client and daemon share, and amounts of memory as users write them.
//!
//! A client counts its allocations in the [`MemorySlot`] of their device and may hold as much as [`MemorySlot::allowance_bytes`]. Beyond
//! that it asks ([`crate::wire::ClientMsg::MemoryAsk`]), and the daemon gives it more of its program's limit, or refuses. Limits are
//! cooperative as gates are: a program that does not load the library has none.

use core::fmt;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering::*};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::units::{self, Bare};

/// Largest number of devices of one process whose memory is counted.
pub const MEMORY_SLOTS: usize = 16;

/// Value of [`MemorySlot::allowance_bytes`] where there is no limit.
pub const UNLIMITED: u64 = u64::MAX;

/// Memory of the process on one device, in bytes. 256 bytes; the first 64 are the daemon's.
#[derive(Debug, Default)]
#[repr(C, align(256))]
pub struct MemorySlot {
    /// Memory that the process may hold in all; [`UNLIMITED`] = no limit. The client stores it while no daemon has the device.
    pub allowance_bytes: AtomicU64,
    /// Size of the device as the program is to see it; 0 = as it is.
    pub limit_bytes: AtomicU64,
    /// Part of [`MemorySlot::limit_bytes`] that other processes have taken.
    pub others_used_bytes: AtomicU64,
    /// Memory of the device that is reserved for more urgent programs: an allocation has to leave that much free.
    pub keep_free_bytes: AtomicU64,
    /// Not used.
    rest: [AtomicU64; 4],

    /// Memory that the process holds, all parts. It is compared with the allowance.
    pub used_bytes: AtomicU64,
    /// Largest value of [`MemorySlot::used_bytes`] so far.
    pub peak_bytes: AtomicU64,
    /// Memory that the last refused allocation needed beyond the allowance; 0 = none was refused since one succeeded.
    pub wanted_bytes: AtomicU64,
    /// Number of refused allocations.
    pub refused: AtomicU64,
    /// Part of `used_bytes` that other processes may use too, because it was exported.
    pub exported_bytes: AtomicU64,
    /// Pinned host memory of the process, which is not part of `used_bytes`.
    pub host_bytes: AtomicU64,
    /// Memory of the process that has left the device. It is no part of `used_bytes`.
    pub away_bytes: AtomicU64,
    /// State of memory that can leave the device, see [`Residency`].
    pub residency: AtomicU64,

    /// Part of `used_bytes` that memory pools hold.
    pub pooled_bytes: AtomicU64,
    /// Part of `used_bytes` behind handles of virtual memory.
    pub virtual_bytes: AtomicU64,
    /// Part of `used_bytes` that belongs to graphs.
    pub graph_bytes: AtomicU64,
    /// Part of `used_bytes` in arrays and textures.
    pub array_bytes: AtomicU64,
    /// Part of `used_bytes` that the driver takes for contexts, modules and the like.
    pub overhead_bytes: AtomicU64,
    /// Part of `used_bytes` that the driver moves by itself (managed memory): it is not in the driver's figure of the process.
    pub managed_bytes: AtomicU64,
    /// Part of `used_bytes` that can leave the device.
    pub movable_bytes: AtomicU64,
    /// Part of `used_bytes` that the process has not allocated yet: it may allocate that much without a question.
    pub advance_bytes: AtomicU64,
    /// Part of the memory that could leave, and stays on the device because multicast objects have it.
    pub multicast_bytes: AtomicU64,
    /// Part of it that stays because it was given out to other hardware, such as network cards.
    pub registered_bytes: AtomicU64,
    /// Not used.
    rest_of_parts: [AtomicU64; 6],
}

/// State of a process's memory that can leave its device, as in [`MemorySlot::residency`]: bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Residency(pub u64);

impl Residency {
    /// Memory stays away until it is thawed.
    pub const FROZEN: Residency = Residency(1);
    /// Memory is being moved.
    pub const MOVING: Residency = Residency(2);
    /// Green contexts have streams: no memory leaves.
    pub const PARTITIONED: Residency = Residency(4);
    /// A device is open by which other hardware accesses memory: none leaves.
    pub const OPEN_TO_HARDWARE: Residency = Residency(8);

    /// True: all bits of `other` are set.
    pub fn has(self, other: Residency) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other`, if `so`.
    #[must_use]
    pub fn with(self, other: Residency, so: bool) -> Residency {
        Residency(if so { self.0 | other.0 } else { self.0 })
    }
}

/// Subtracts, but never below 0.
fn lower(word: &AtomicU64, bytes: u64) {
    let _ = word.fetch_update(SeqCst, Relaxed, |now| Some(now.saturating_sub(bytes)));
}

impl MemorySlot {
    /// Client: counts an allocation, unless the process then holds more than it may. True: counted.
    ///
    /// The daemon lowers an allowance by storing it and then reading `used_bytes`; here it is the other way round. One of the two sees the
    /// other's store, so that the sum of what processes hold stays within their limit. `used_bytes` is never above what the allowance was:
    /// what the daemon reads there may become the allowance.
    #[must_use]
    pub fn take(&self, bytes: u64) -> bool {
        let within = |after: u64| {
            let allowance = self.allowance_bytes.load(SeqCst);
            allowance == UNLIMITED || after <= allowance
        };
        let more = |used: u64| used.checked_add(bytes).filter(|after| within(*after));
        let Ok(before) = self.used_bytes.fetch_update(SeqCst, SeqCst, more) else { return false };
        let after = before.saturating_add(bytes);
        if !within(after) {
            self.give(bytes);
            return false;
        }
        self.note_peak(after);
        true
    }

    /// Client: counts memory that the process holds in any case, such as a context's.
    pub fn take_anyway(&self, bytes: u64) {
        let after = self.used_bytes.fetch_add(bytes, SeqCst).saturating_add(bytes);
        self.note_peak(after);
    }

    fn note_peak(&self, bytes: u64) {
        // A load costs less than the exchange, which is seldom due.
        if self.peak_bytes.load(Relaxed) < bytes {
            self.peak_bytes.fetch_max(bytes, Relaxed);
        }
    }

    /// Client: counts memory out that the process has freed.
    pub fn give(&self, bytes: u64) {
        lower(&self.used_bytes, bytes);
    }

    /// Client: counts a refused allocation, which needs this much beyond the allowance.
    pub fn refuse(&self, beyond_bytes: u64) {
        self.wanted_bytes.store(beyond_bytes.max(1), Relaxed);
        self.refused.fetch_add(1, Relaxed);
    }

    /// Memory that the process has allocated, in bytes.
    pub fn allocated_bytes(&self) -> u64 {
        self.used_bytes.load(SeqCst).saturating_sub(self.advance_bytes.load(SeqCst))
    }

    /// Memory by which an allocation of this size exceeds the allowance.
    pub fn beyond(&self, bytes: u64) -> u64 {
        match self.allowance_bytes.load(SeqCst) {
            UNLIMITED => 0,
            allowance => self.used_bytes.load(SeqCst).saturating_add(bytes).saturating_sub(allowance),
        }
    }

    /// Free and total memory as the program is to see them, from the device's own figures.
    pub fn seen(&self, free_bytes: u64, total_bytes: u64) -> (u64, u64) {
        let free = free_bytes.saturating_sub(self.keep_free_bytes.load(Relaxed));
        match self.limit_bytes.load(Relaxed) {
            0 => (free.min(total_bytes), total_bytes),
            limit => {
                let taken = self.used_bytes.load(Relaxed).saturating_add(self.others_used_bytes.load(Relaxed));
                let total = limit.min(total_bytes);
                (free.min(total.saturating_sub(taken)), total)
            }
        }
    }

    /// Daemon: sets the allowance, but not below what the process holds. Returns the allowance that is in force.
    pub fn allow(&self, bytes: u64) -> u64 {
        self.allowance_bytes.store(bytes, SeqCst);
        let used = self.used_bytes.load(SeqCst);
        if used > bytes {
            self.allowance_bytes.store(used, SeqCst);
        }
        used.max(bytes)
    }
}

/// Part of a program's memory that is counted by itself, see the words of [`MemorySlot`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUse {
    /// Memory held in all, in bytes.
    pub used_bytes: u64,
    /// Largest amount held so far, in bytes.
    pub peak_bytes: u64,
    /// Memory allocated plainly, in bytes.
    pub plain_bytes: u64,
    /// Memory that pools hold, in bytes.
    pub pooled_bytes: u64,
    /// Memory behind handles of virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// Memory of graphs, in bytes.
    pub graph_bytes: u64,
    /// Memory of arrays and textures, in bytes.
    pub array_bytes: u64,
    /// Memory that the driver takes for contexts and modules, in bytes.
    pub overhead_bytes: u64,
    /// Part of the used memory that was exported to other processes, in bytes.
    pub exported_bytes: u64,
    /// Pinned host memory, not part of the used memory, in bytes.
    pub host_bytes: u64,
    /// Memory that has left the device, not part of the used memory, in bytes.
    pub away_bytes: u64,
    /// True if that stays away until it is thawed.
    pub frozen: bool,
    /// Memory that the driver moves by itself, in bytes.
    pub managed_bytes: u64,
    /// Memory that multicast objects have, in bytes.
    pub multicast_bytes: u64,
    /// Memory that was given out to other hardware, in bytes.
    pub registered_bytes: u64,
    /// True if green contexts have streams.
    pub partitioned: bool,
    /// True if a device is open by which other hardware accesses memory.
    pub open_to_hardware: bool,
    /// Memory that the last refused allocation lacked, in bytes.
    pub wanted_bytes: u64,
    /// Number of refused allocations.
    pub refused: u64,
}

impl MemoryUse {
    /// Memory that a process reports in a slot.
    pub fn of(slot: &MemorySlot) -> MemoryUse {
        let read = |word: &AtomicU64| word.load(Relaxed);
        let others =
            [&slot.pooled_bytes, &slot.virtual_bytes, &slot.graph_bytes, &slot.array_bytes, &slot.overhead_bytes];
        // Parts are those of memory that has left, too.
        let all = slot.allocated_bytes().saturating_add(read(&slot.away_bytes));
        let state = Residency(read(&slot.residency));
        MemoryUse {
            used_bytes: slot.allocated_bytes(),
            peak_bytes: read(&slot.peak_bytes),
            // The most frequent allocations count in one word only: theirs is the rest.
            plain_bytes: others.into_iter().map(read).fold(all, u64::saturating_sub),
            pooled_bytes: read(&slot.pooled_bytes),
            virtual_bytes: read(&slot.virtual_bytes),
            graph_bytes: read(&slot.graph_bytes),
            array_bytes: read(&slot.array_bytes),
            overhead_bytes: read(&slot.overhead_bytes),
            exported_bytes: read(&slot.exported_bytes),
            host_bytes: read(&slot.host_bytes),
            away_bytes: read(&slot.away_bytes),
            frozen: state.has(Residency::FROZEN),
            managed_bytes: read(&slot.managed_bytes),
            multicast_bytes: read(&slot.multicast_bytes),
            registered_bytes: read(&slot.registered_bytes),
            partitioned: state.has(Residency::PARTITIONED),
            open_to_hardware: state.has(Residency::OPEN_TO_HARDWARE),
            wanted_bytes: read(&slot.wanted_bytes),
            refused: read(&slot.refused),
        }
    }
}

impl MemoryUse {
    /// First use of the memory for which it must stay on its device as a whole, in words: as long as the program has that memory.
    pub fn stays(&self) -> Option<String> {
        let parts = [
            (self.exported_bytes, "of its GPU memory are exported to other processes (IPC)"),
            (self.multicast_bytes, "of its GPU memory are bound to multicast objects (NVLink SHARP)"),
            (self.registered_bytes, "of its GPU memory are registered for other hardware (RDMA)"),
            (self.managed_bytes, "of its memory are managed: the driver moves them"),
        ];
        let part = parts.into_iter().find(|(bytes, _)| *bytes > 0);
        let part = part.map(|(bytes, why)| format!("{} {why}", of_bytes(bytes)));
        part.or_else(|| self.partitioned.then(|| PARTITIONED.to_owned()))
    }

    /// First such use, also one that may end at any time, as it was when memory was last to leave.
    pub fn stays_now(&self) -> Option<String> {
        self.stays().or_else(|| self.open_to_hardware.then(|| OPEN_TO_HARDWARE.to_owned()))
    }
}

/// Use of partitions for which no memory of a process moves, in words.
pub const PARTITIONED: &str = "it has streams of green contexts";
/// Use of other hardware for which none leaves, in words.
pub const OPEN_TO_HARDWARE: &str = "it has a device open by which other hardware accesses memory (RDMA)";

/// Times without launches after which memory may leave by itself, in seconds.
pub const IDLE_S: RangeInclusive<u32> = 1..=30 * 86_400;

/// Reads a time without launches after which memory leaves by itself, in seconds, rounded up.
///
/// # Errors
/// One line that says what is accepted.
pub fn parse_idle_s(text: &str) -> Result<u32, Error> {
    let [least, most] = [*IDLE_S.start(), *IDLE_S.end()].map(|s| Duration::from_secs(s.into()));
    let time = units::within(text, "time", &(least..=most), "5m", Bare::S)?;
    Ok(time.as_secs() as u32 + u32::from(time.subsec_nanos() > 0))
}

/// Amount of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// Number of bytes.
    Bytes(u64),
    /// Part of each device's memory, in thousandths.
    PerMille(u16),
}

impl Amount {
    /// Accepted amounts, for messages.
    pub const ACCEPTED: &str = "an amount of memory such as 20GiB, 512MiB or 25%";

    /// Reads an amount; none = it is none.
    pub fn parse(text: &str) -> Option<Amount> {
        let text = text.trim();
        if let Some(part) = text.strip_suffix('%') {
            let mille = scaled(part.trim_end(), 10)?;
            return (1..=1_000).contains(&mille).then_some(Amount::PerMille(mille as u16));
        }
        parse_bytes(text).filter(|bytes| *bytes > 0).map(Amount::Bytes)
    }

    /// Number of bytes on a device with this much memory.
    pub fn of(self, capacity_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::PerMille(mille) => (u128::from(capacity_bytes) * u128::from(mille) / 1_000) as u64,
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(bytes) => f.write_str(&exact(*bytes)),
            Amount::PerMille(mille) if mille.is_multiple_of(10) => write!(f, "{}%", mille / 10),
            Amount::PerMille(mille) => write!(f, "{}.{}%", mille / 10, mille % 10),
        }
    }
}

/// Units of memory, each with its lower-case names.
const UNITS: [(&[&str], u64); 10] = [
    (&["b", "byte", "bytes"], 1),
    (&["kib", "k", "ki"], 1 << 10),
    (&["mib", "m", "mi"], 1 << 20),
    (&["gib", "g", "gi"], 1 << 30),
    (&["tib", "t", "ti"], 1 << 40),
    (&["kb"], 1_000),
    (&["mb"], 1_000_000),
    (&["gb"], 1_000_000_000),
    (&["tb"], 1_000_000_000_000),
    (&["pib"], 1 << 50),
];

/// Reads a number of bytes with a unit: `20GiB`, `1.5 GiB`, `512M`. A bare number other than 0 is refused.
fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let unit = unit.trim().to_ascii_lowercase();
    let (_, bytes) = UNITS.iter().find(|(names, _)| names.contains(&&*unit))?;
    scaled(number, *bytes)
}

/// A decimal number of units. Whole numbers are exact.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let part: f64 = format!("0.{part}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add((part * unit as f64).round() as u64)
}

/// Exact number of bytes in its largest whole unit: `20GiB`.
fn exact(bytes: u64) -> String {
    let units = [("TiB", 1u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Number of bytes for output, in three figures or so: `1.5 GiB`, `61 GiB`, `812 MiB`.
pub fn of_bytes(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0 => return "0".to_owned(),
        1..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        0x4000_0000..0x100_0000_0000 => (1 << 30, "GiB"),
        _ => (1u64 << 40, "TiB"),
    };
    let value = bytes as f64 / unit as f64;
    if bytes.is_multiple_of(unit) || value >= 99.95 || unit < 1 << 30 {
        format!("{value:.0} {name}")
    } else {
        format!("{value:.1} {name}")
    }
}

const _: () = {
    assert!(size_of::<MemorySlot>() == 256);
    assert!(core::mem::offset_of!(MemorySlot, used_bytes) == 64);
    assert!(core::mem::offset_of!(MemorySlot, pooled_bytes) == 128);
};

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn amounts_are_read_and_written() {
        let bytes = |text: &str| Amount::parse(text);
        assert_eq!(bytes("20GiB"), Some(Amount::Bytes(20 * GIB)));
        assert_eq!(bytes("1.5 gib"), Some(Amount::Bytes(3 * GIB / 2)));
        assert_eq!((bytes("512M"), bytes("2GB")), (Some(Amount::Bytes(GIB / 2)), Some(Amount::Bytes(2_000_000_000))));
        assert_eq!((bytes("25%"), bytes("12.5 %")), (Some(Amount::PerMille(250)), Some(Amount::PerMille(125))));
        for wrong in
            ["", "20", "0GiB", "0%", "101%", "-1GiB", "1..5GiB", "GiB", "1 GiB 2", "1e3GiB", "99999999TiB", "%"]
        {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        for text in ["20GiB", "512MiB", "25%", "12.5%", "3TiB", "17B"] {
            assert_eq!(bytes(text).map(|amount| amount.to_string()).as_deref(), Some(text));
        }
        assert_eq!((Amount::PerMille(250).of(80 * GIB), Amount::Bytes(7).of(80 * GIB)), (20 * GIB, 7));
        assert_eq!(Amount::PerMille(1_000).of(u64::MAX), u64::MAX);
        assert_eq!(
            [0, 700, 812 << 20, 3 * GIB / 2, 61 * GIB].map(of_bytes),
            ["0", "1 KiB", "812 MiB", "1.5 GiB", "61 GiB"]
        );
    }

    #[test]
    fn idle_times_are_whole_seconds() {
        let read = |text| parse_idle_s(text).ok();
        assert_eq!([read("5m"), read("90"), read("1500ms"), read("1h 1s")], [300, 90, 2, 3_601].map(Some));
        assert_eq!([read("0"), read("10ms"), read("31d"), read("soon")], [None; 4]);
    }

    #[test]
    fn a_process_holds_no_more_than_it_may_and_frees_no_more_than_it_holds() {
        let slot = MemorySlot::default();
        assert!(!slot.take(1), "nothing is allowed yet");
        slot.allowance_bytes.store(100, SeqCst);
        assert!(slot.take(60) && slot.take(40) && !slot.take(1));
        assert_eq!((slot.used_bytes.load(SeqCst), slot.beyond(5)), (100, 5));
        slot.give(30);
        assert_eq!((slot.allow(50), slot.beyond(0)), (70, 0), "it holds 70");
        assert!(!slot.take(u64::MAX - 3), "no overflow");
        slot.give(1_000);
        assert_eq!((slot.used_bytes.load(SeqCst), slot.peak_bytes.load(SeqCst)), (0, 100));
        assert_eq!(slot.allow(UNLIMITED), UNLIMITED);
        assert!(slot.take(u64::MAX / 2));
    }

    #[test]
    fn a_program_sees_a_device_of_the_size_of_its_limit() {
        let slot = MemorySlot::default();
        slot.used_bytes.store(10, SeqCst);
        assert_eq!(slot.seen(70, 80), (70, 80));
        slot.keep_free_bytes.store(20, SeqCst);
        assert_eq!(slot.seen(70, 80), (50, 80));
        assert_eq!(slot.seen(15, 80), (0, 80), "never negative");
        slot.limit_bytes.store(40, SeqCst);
        slot.others_used_bytes.store(5, SeqCst);
        assert_eq!(slot.seen(70, 80), (25, 40));
        slot.others_used_bytes.store(100, SeqCst);
        assert_eq!(slot.seen(70, 80), (0, 40));
        slot.limit_bytes.store(400, SeqCst);
        assert_eq!(slot.seen(70, 80).1, 80, "no more than there is");
    }

    /// Two threads take all that is left while the daemon takes the allowance back: what they hold is never beyond it.
    #[test]
    fn an_allowance_that_is_lowered_is_not_below_what_is_held() {
        let slot = MemorySlot::default();
        slot.allowance_bytes.store(1_000_000, SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _ = slot.take(7);
                    }
                });
            }
            for allowance in (0..1_000_000).rev().step_by(997) {
                let in_force = slot.allow(allowance);
                assert!(slot.used_bytes.load(SeqCst) <= in_force);
            }
        });
        let in_force = slot.allow(0);
        assert_eq!(in_force, slot.used_bytes.load(SeqCst));
    }
}
