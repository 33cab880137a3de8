//! Handles: opaque words that look like pointers but are never followed, so that a wrong one is detected.

use std::ffi::c_void;

/// Kind of object that a handle refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stream = 0x51,
    Event = 0x52,
}

/// The parts of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) kind: Kind,
    pub(crate) device: u8,
    /// Epoch of the context, different after a fork or a reset.
    pub(crate) epoch: u8,
    /// Generation of the slot, different each time that it is reused.
    pub(crate) generation: u16,
    pub(crate) slot: u16,
}

impl Handle {
    pub(crate) fn encode(self) -> *mut c_void {
        let word = (self.kind as u64) << 48
            | u64::from(self.device) << 40
            | u64::from(self.epoch) << 32
            | u64::from(self.generation) << 16
            | u64::from(self.slot);
        std::ptr::without_provenance_mut(word as usize)
    }

    pub(crate) fn decode(pointer: *mut c_void) -> Option<Self> {
        let word = pointer.addr() as u64;
        let kind = match word >> 48 {
            0x51 => Kind::Stream,
            0x52 => Kind::Event,
            _ => return None,
        };
        let [slot0, slot1, generation0, generation1, epoch, device, ..] = word.to_le_bytes();
        let generation = u16::from_le_bytes([generation0, generation1]);
        Some(Self { kind, device, epoch, generation, slot: u16::from_le_bytes([slot0, slot1]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_survive() {
        let handle = Handle { kind: Kind::Event, device: 15, epoch: 200, generation: 65_535, slot: 65_534 };
        assert_eq!(Handle::decode(handle.encode()), Some(handle));
        assert_eq!(Handle::decode(std::ptr::null_mut()), None);
        assert_eq!(Handle::decode((&raw const handle).cast_mut().cast()), None, "a real pointer is no handle");
    }
}
