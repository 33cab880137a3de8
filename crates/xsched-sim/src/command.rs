//! Commands of the ring.

/// Number of words of an encoded command.
pub const WORDS: usize = 7;

/// Bits of a word that hold a tensor kernel's device time; the bits above hold its operation.
const TENSOR_NS: u64 = (1 << 56) - 1;

/// Device time of copies and sets in ns, at 10 GB/s. Pitches cost nothing.
pub fn transfer_ns(bytes: u64) -> u64 {
    bytes / 10
}

/// Effect of a kernel when it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum KernelOp {
    /// No effect.
    Nop = 0,
    /// `y[i] = a`
    Fill = 1,
    /// `y[i] += a * x[i]`
    Axpy = 2,
    /// `y[i] = y[i] * a + i`
    AddIndex = 3,
    /// `y[0]` = the sum of `x[i]`
    Sum = 4,
    /// Faults: its context ends, with all clients that joined it.
    Fault = 5,
    /// Fails an assertion: the context of its client ends, or that client's membership in another's.
    Assert = 6,
}

impl KernelOp {
    /// The operation of this number.
    pub fn new(op: u64) -> Option<Self> {
        const OPS: [KernelOp; 7] = [
            KernelOp::Nop,
            KernelOp::Fill,
            KernelOp::Axpy,
            KernelOp::AddIndex,
            KernelOp::Sum,
            KernelOp::Fault,
            KernelOp::Assert,
        ];
        OPS.get(usize::try_from(op).ok()?).copied()
    }
}

/// Kind of a fault, after which nothing more of a context runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// [`KernelOp::Fault`]
    Address = 1,
    /// [`KernelOp::Assert`]
    Assert = 2,
}

/// Effect of a kernel with three operands when it completes. All operands are dense rows of `f32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TensorOp {
    /// `y[m][n]` = `x[m][k]` times `w[k][n]`; sizes m, n, k.
    Gemm = 0,
    /// `y` = `x[h][w]` correlated with `w[kh][kw]` where it fits; sizes h, w, kh, kw.
    Conv2d = 1,
}

impl TensorOp {
    fn new(op: u64) -> Option<Self> {
        [Self::Gemm, Self::Conv2d].get(usize::try_from(op).ok()?).copied()
    }

    /// Number of floats of `x`, `w` and `y`; `None` for impossible sizes.
    pub fn floats(self, sizes: [u32; 4]) -> Option<[u64; 3]> {
        let [a, b, c, d] = sizes.map(u64::from);
        let (counts, sensible) = match self {
            Self::Gemm => ([a.checked_mul(c), c.checked_mul(b), a.checked_mul(b)], true),
            Self::Conv2d => {
                let fits = (1..=a).contains(&c) && (1..=b).contains(&d);
                let (rows, columns) = ((a + 1).saturating_sub(c), (b + 1).saturating_sub(d));
                ([a.checked_mul(b), c.checked_mul(d), rows.checked_mul(columns)], fits)
            }
        };
        let [Some(x), Some(w), Some(y)] = counts else { return None };
        sensible.then_some([x, w, y])
    }
}

/// Comparison of a wait: of the word in memory with the wait's value.
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
    /// The condition of this number.
    pub fn new(flags: u64) -> Option<Self> {
        [Self::Geq, Self::Eq, Self::And, Self::Nor].get(usize::try_from(flags).ok()?).copied()
    }

    /// Reports whether a word of this width meets the condition.
    pub fn holds(self, width: Width, word: u64, value: u64) -> bool {
        match (self, width) {
            (Self::Geq, Width::Word) => (word as u32).wrapping_sub(value as u32).cast_signed() >= 0,
            (Self::Geq, Width::Double) => word.wrapping_sub(value).cast_signed() >= 0,
            (Self::Eq, _) => word == value,
            (Self::And, _) => word & value != 0,
            (Self::Nor, Width::Word) => !(word as u32 | value as u32) != 0,
            (Self::Nor, Width::Double) => !(word | value) != 0,
        }
    }
}

/// Size of a word that is waited for or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Width {
    /// 32 bits
    Word = 4,
    /// 64 bits
    Double = 8,
}

impl Width {
    fn new(bytes: u64) -> Option<Self> {
        [Self::Word, Self::Double].into_iter().find(|&width| width as u64 == bytes)
    }
}

/// Location of a word that the device can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of a registered region; 0 = the arena.
    pub region: u32,
    /// Offset from its start in bytes, a multiple of the word's size.
    pub offset: u64,
}

/// A command for a stream. Addresses are offsets into the arena, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Runs a kernel.
    Kernel {
        /// Operation of the kernel.
        op: KernelOp,
        /// Number of elements.
        count: u32,
        /// Device time in ns.
        duration_ns: u64,
        /// First operand, used by [`KernelOp::Axpy`] and [`KernelOp::Sum`].
        x: u64,
        /// Second operand and result.
        y: u64,
        /// Factor `a` of the operation.
        a: f32,
    },
    /// Runs a kernel with three operands.
    Tensor {
        /// Operation of the kernel.
        op: TensorOp,
        /// Sizes, in the order of the operation.
        sizes: [u32; 4],
        /// Device time in ns, below 2^56.
        duration_ns: u64,
        /// First operand.
        x: u64,
        /// Second operand.
        w: u64,
        /// Offset of the result.
        y: u64,
    },
    /// Runs a kernel that writes the time at which it completes (ns of CLOCK_MONOTONIC).
    Stamp {
        /// Location of the 64-bit word.
        place: Place,
        /// Device time in ns.
        duration_ns: u64,
    },
    /// Copies rows within the arena.
    Copy {
        /// Offset of the destination.
        dst: u64,
        /// Offset of the source.
        src: u64,
        /// Bytes of a row.
        bytes: u64,
        /// Number of rows; 1 = contiguous.
        rows: u64,
        /// Distance of the destination's rows, from start to start, in bytes.
        dst_pitch: u64,
        /// Distance of the source's rows, in bytes.
        src_pitch: u64,
    },
    /// Fills rows with a pattern.
    Set {
        /// Offset of the destination.
        dst: u64,
        /// Size of the pattern in bytes: 1, 2 or 4; a divisor of `bytes` and `dst`.
        unit: u8,
        /// The pattern, in the low bytes.
        pattern: u32,
        /// Bytes of a row.
        bytes: u64,
        /// Number of rows.
        rows: u64,
        /// Distance of the rows, from start to start, in bytes.
        pitch: u64,
    },
    /// Writes the time into an event.
    Record {
        /// Slot of the event.
        event: u32,
        /// Number of this record of the event.
        record: u64,
    },
    /// Waits until another stream has completed `count` commands.
    WaitStream {
        /// Slot of the other stream.
        stream: u32,
        /// Number of its commands since the context began.
        count: u64,
    },
    /// Waits for a word in memory.
    WaitValue {
        /// Location of the word.
        place: Place,
        /// Size of the word.
        width: Width,
        /// Comparison of the word with `value`.
        condition: Condition,
        /// Value to compare with.
        value: u64,
    },
    /// Writes a word.
    WriteValue {
        /// Location of the word.
        place: Place,
        /// Size of the word.
        width: Width,
        /// Value to write.
        value: u64,
    },
    /// Blocks the stream while the client runs a function.
    Call,
    /// Reports that this function has returned. Not itself part of the stream.
    Returned,
}

impl Action {
    /// Copies a contiguous range.
    pub fn copy(dst: u64, src: u64, bytes: u64) -> Self {
        Self::Copy { dst, src, bytes, rows: 1, dst_pitch: bytes, src_pitch: bytes }
    }

    /// Fills a contiguous range with a byte.
    pub fn set(dst: u64, byte: u8, bytes: u64) -> Self {
        Self::Set { dst, unit: 1, pattern: byte.into(), bytes, rows: 1, pitch: bytes }
    }
}

/// An [`Action`] for a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Command {
    /// Slot of the stream.
    pub stream: u32,
    /// Action to perform.
    pub action: Action,
}

impl Command {
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let (tag, rest): (u64, [u64; WORDS - 1]) = match self.action {
            Action::Kernel { op, count, duration_ns, x, y, a } => {
                (1, [op as u64, count.into(), duration_ns, x, y, a.to_bits().into()])
            }
            Action::Copy { dst, src, bytes, rows, dst_pitch, src_pitch } => {
                (2, [dst, src, bytes, rows, dst_pitch, src_pitch])
            }
            Action::Set { dst, unit, pattern, bytes, rows, pitch } => {
                (3, [dst, unit.into(), pattern.into(), bytes, rows, pitch])
            }
            Action::Record { event, record } => (4, [event.into(), record, 0, 0, 0, 0]),
            Action::WaitStream { stream, count } => (5, [stream.into(), count, 0, 0, 0, 0]),
            Action::WaitValue { place, width, condition, value } => {
                (6, [place.region.into(), place.offset, condition as u64, value, width as u64, 0])
            }
            Action::WriteValue { place, width, value } => {
                (7, [place.region.into(), place.offset, value, width as u64, 0, 0])
            }
            Action::Call => (8, [0; WORDS - 1]),
            Action::Returned => (9, [0; WORDS - 1]),
            Action::Stamp { place, duration_ns } => (10, [place.region.into(), place.offset, duration_ns, 0, 0, 0]),
            Action::Tensor { op, sizes, duration_ns, x, w, y } => {
                let [a, b, c, d] = sizes.map(u64::from);
                (11, [(op as u64) << 56 | duration_ns & TENSOR_NS, a << 32 | b, c << 32 | d, x, w, y])
            }
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
            2 => Action::Copy { dst: a, src: b, bytes: c, rows: d, dst_pitch: e, src_pitch: f },
            3 => {
                let (unit, pattern) = (u8::try_from(b).ok().filter(|unit| [1, 2, 4].contains(unit))?, word(c)?);
                Action::Set { dst: a, unit, pattern, bytes: d, rows: e, pitch: f }
            }
            4 => Action::Record { event: word(a)?, record: b },
            5 => Action::WaitStream { stream: word(a)?, count: b },
            6 => {
                let (condition, width) = (Condition::new(c)?, Width::new(e)?);
                Action::WaitValue { place: place()?, width, condition, value: d }
            }
            7 => Action::WriteValue { place: place()?, width: Width::new(d)?, value: c },
            8 => Action::Call,
            9 => Action::Returned,
            10 => Action::Stamp { place: place()?, duration_ns: c },
            11 => {
                let sizes = [(b >> 32) as u32, b as u32, (c >> 32) as u32, c as u32];
                let (op, duration_ns) = (TensorOp::new(a >> 56)?, a & TENSOR_NS);
                Action::Tensor { op, sizes, duration_ns, x: d, w: e, y: f }
            }
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
            Action::Copy { dst: 1, src: 2, bytes: 3, rows: 4, dst_pitch: 5, src_pitch: 6 },
            Action::Set { dst: 1, unit: 2, pattern: u32::MAX, bytes: 3, rows: 4, pitch: 5 },
            Action::Stamp { place, duration_ns: 9 },
            Action::Record { event: 9, record: u64::MAX },
            Action::WaitStream { stream: 3, count: 4 },
            Action::WaitValue { place, width: Width::Word, condition: Condition::Nor, value: u32::MAX.into() },
            Action::WriteValue { place, width: Width::Double, value: u64::MAX },
            Action::Call,
            Action::Returned,
            Action::Tensor { op: TensorOp::Conv2d, sizes: [1, 2, 3, u32::MAX], duration_ns: 4, x: 5, w: 6, y: 7 },
        ];
        for action in actions {
            let command = Command { stream: u32::MAX, action };
            assert_eq!(Command::decode(command.encode()), Some(command));
        }
    }

    #[test]
    fn nonsense_is_no_command() {
        assert_eq!(Command::decode([0; WORDS]), None);
        assert_eq!(Command::decode([12 << 32, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Command::decode([1 << 32, 7, 0, 0, 0, 0, 0]), None, "no such kernel");
        assert_eq!(Command::decode([11 << 32, 2 << 56, 0, 0, 0, 0, 0]), None, "no such tensor kernel");
        assert_eq!(Command::decode([3 << 32, 0, 3, 0, 0, 0, 0]), None, "no such pattern");
        assert_eq!(Command::decode([6 << 32, 0, 0, 4, 0, 4, 0]), None, "no such comparison");
        assert_eq!(Command::decode([7 << 32, 0, 0, 0, 5, 0, 0]), None, "no such word");
    }

    #[test]
    fn operands_have_the_sizes_of_the_shape() {
        assert_eq!(TensorOp::Gemm.floats([2, 3, 4, 0]), Some([8, 12, 6]));
        assert_eq!(TensorOp::Conv2d.floats([4, 5, 3, 3]), Some([20, 9, 6]));
        assert_eq!(TensorOp::Conv2d.floats([4, 5, 5, 3]), None, "the filter does not fit");
        assert_eq!(TensorOp::Conv2d.floats([4, 5, 0, 3]), None);
    }

    #[test]
    fn conditions_compare_as_cuda_does() {
        let holds =
            |condition: Condition, word: u32, value: u32| condition.holds(Width::Word, word.into(), value.into());
        assert!(holds(Condition::Geq, 5, 5) && holds(Condition::Geq, 1, u32::MAX) && !holds(Condition::Geq, 4, 5));
        assert!(holds(Condition::Eq, 5, 5) && !holds(Condition::Eq, 6, 5));
        assert!(holds(Condition::And, 0x100, 0x101) && !holds(Condition::And, 0x10, 0x101));
        assert!(holds(Condition::Nor, 0, 1) && !holds(Condition::Nor, u32::MAX - 1, 1));
        let (low, high) = (u64::from(u32::MAX), 1 << 40);
        assert!(Condition::Geq.holds(Width::Double, high, low) && !Condition::Geq.holds(Width::Double, low, high));
        assert!(Condition::Nor.holds(Width::Double, low, 0) && !Condition::Nor.holds(Width::Word, low, 0));
    }
}
