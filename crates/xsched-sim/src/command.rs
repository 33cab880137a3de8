//! The commands of the ring.

/// Words of an encoded command.
pub const WORDS: usize = 7;

/// Device time of copies and sets: 10 GB/s.
pub fn transfer_ns(bytes: u64) -> u64 {
    bytes / 10
}

/// What a kernel does when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KernelOp {
    /// Nothing.
    Nop = 0,
    /// `y[i] = a`
    Fill = 1,
    /// `y[i] += a * x[i]`
    Axpy = 2,
    /// `y[i] = y[i] * a + i`
    AddIndex = 3,
}

impl KernelOp {
    /// By its number.
    pub fn new(op: u64) -> Option<Self> {
        [Self::Nop, Self::Fill, Self::Axpy, Self::AddIndex].get(usize::try_from(op).ok()?).copied()
    }
}

/// How a wait compares the word in memory with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// `(int32_t)(word - value) >= 0`
    Geq = 0,
    /// `word == value`
    Eq = 1,
    /// `(word & value) != 0`
    And = 2,
    /// `~(word | value) != 0`
    Nor = 3,
}

impl Condition {
    /// By its number.
    pub fn new(flags: u64) -> Option<Self> {
        [Self::Geq, Self::Eq, Self::And, Self::Nor].get(usize::try_from(flags).ok()?).copied()
    }

    /// Is it met?
    pub fn holds(self, word: u32, value: u32) -> bool {
        match self {
            Self::Geq => word.wrapping_sub(value).cast_signed() >= 0,
            Self::Eq => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) != 0,
        }
    }
}

/// A 32-bit word the device can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// A registered region's number; 0 = the arena.
    pub region: u32,
    /// Bytes from its start, a multiple of 4.
    pub offset: u64,
}

/// One command of one stream. Addresses are offsets into the arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Runs a kernel.
    Kernel {
        /// Its effect.
        op: KernelOp,
        /// Elements.
        count: u32,
        /// Device time in ns.
        duration_ns: u64,
        /// First operand, used by [`KernelOp::Axpy`].
        x: u64,
        /// Second operand and result.
        y: u64,
        /// Factor.
        a: f32,
    },
    /// Copies within the arena.
    Copy {
        /// To.
        dst: u64,
        /// From.
        src: u64,
        /// How much.
        bytes: u64,
    },
    /// Fills with a byte.
    Set {
        /// Where.
        dst: u64,
        /// With what.
        byte: u8,
        /// How much.
        bytes: u64,
    },
    /// Writes the time into an event.
    Record {
        /// Which.
        event: u32,
        /// Number of this record of that event.
        record: u64,
    },
    /// Waits until another stream has completed `count` commands.
    WaitStream {
        /// Which.
        stream: u32,
        /// How many since the context began.
        count: u64,
    },
    /// Waits for a word in memory.
    WaitValue {
        /// The word.
        place: Place,
        /// How to compare.
        condition: Condition,
        /// With what.
        value: u32,
    },
    /// Writes a word.
    WriteValue {
        /// The word.
        place: Place,
        /// The value.
        value: u32,
    },
    /// Blocks the stream while the client runs a function.
    Call,
    /// That function has returned. Not itself part of the stream.
    Returned,
}

/// An [`Action`] and its stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// The stream's slot.
    pub stream: u32,
    /// What to do.
    pub action: Action,
}

impl Command {
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let (tag, rest): (u64, [u64; WORDS - 1]) = match self.action {
            Action::Kernel { op, count, duration_ns, x, y, a } => {
                (1, [op as u64, count.into(), duration_ns, x, y, a.to_bits().into()])
            }
            Action::Copy { dst, src, bytes } => (2, [dst, src, bytes, 0, 0, 0]),
            Action::Set { dst, byte, bytes } => (3, [dst, byte.into(), bytes, 0, 0, 0]),
            Action::Record { event, record } => (4, [event.into(), record, 0, 0, 0, 0]),
            Action::WaitStream { stream, count } => (5, [stream.into(), count, 0, 0, 0, 0]),
            Action::WaitValue { place, condition, value } => {
                (6, [place.region.into(), place.offset, condition as u64, value.into(), 0, 0])
            }
            Action::WriteValue { place, value } => (7, [place.region.into(), place.offset, value.into(), 0, 0, 0]),
            Action::Call => (8, [0; WORDS - 1]),
            Action::Returned => (9, [0; WORDS - 1]),
        };
        let mut words = [tag << 32 | u64::from(self.stream); WORDS];
        words[1..].copy_from_slice(&rest);
        words
    }

    pub(crate) fn decode(words: [u64; WORDS]) -> Option<Self> {
        let [head, a, b, c, d, e, f] = words;
        let word = |value: u64| u32::try_from(value).ok();
        let place = || Some(Place { region: word(a)?, offset: b });
        let action = match head >> 32 {
            1 => {
                let (op, count) = (KernelOp::new(a)?, word(b)?);
                Action::Kernel { op, count, duration_ns: c, x: d, y: e, a: f32::from_bits(word(f)?) }
            }
            2 => Action::Copy { dst: a, src: b, bytes: c },
            3 => Action::Set { dst: a, byte: u8::try_from(b).ok()?, bytes: c },
            4 => Action::Record { event: word(a)?, record: b },
            5 => Action::WaitStream { stream: word(a)?, count: b },
            6 => Action::WaitValue { place: place()?, condition: Condition::new(c)?, value: word(d)? },
            7 => Action::WriteValue { place: place()?, value: word(c)? },
            8 => Action::Call,
            9 => Action::Returned,
            _ => return None,
        };
        Some(Self { stream: head as u32, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_the_ring() {
        let place = Place { region: 7, offset: 1 << 40 };
        let actions = [
            Action::Kernel { op: KernelOp::AddIndex, count: u32::MAX, duration_ns: 5, x: 6, y: 7, a: -0.5 },
            Action::Copy { dst: 1, src: 2, bytes: 3 },
            Action::Set { dst: 1, byte: 255, bytes: 3 },
            Action::Record { event: 9, record: u64::MAX },
            Action::WaitStream { stream: 3, count: 4 },
            Action::WaitValue { place, condition: Condition::Nor, value: u32::MAX },
            Action::WriteValue { place, value: 1 },
            Action::Call,
            Action::Returned,
        ];
        for action in actions {
            let command = Command { stream: u32::MAX, action };
            assert_eq!(Command::decode(command.encode()), Some(command));
        }
    }

    #[test]
    fn nonsense_is_no_command() {
        assert_eq!(Command::decode([0; WORDS]), None);
        assert_eq!(Command::decode([10 << 32, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Command::decode([1 << 32, 4, 0, 0, 0, 0, 0]), None, "no such kernel");
        assert_eq!(Command::decode([6 << 32, 0, 0, 4, 0, 0, 0]), None, "no such comparison");
    }

    #[test]
    fn conditions() {
        assert!(Condition::Geq.holds(5, 5) && Condition::Geq.holds(1, u32::MAX) && !Condition::Geq.holds(4, 5));
        assert!(Condition::Eq.holds(5, 5) && !Condition::Eq.holds(6, 5));
        assert!(Condition::And.holds(0x100, 0x101) && !Condition::And.holds(0x10, 0x101));
        assert!(Condition::Nor.holds(0, 1) && !Condition::Nor.holds(u32::MAX - 1, 1));
    }
}
