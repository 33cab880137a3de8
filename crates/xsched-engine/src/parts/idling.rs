//! Return of a program's memory while the program is idle.

/// Return of a program's memory while it is idle.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idling {
    /// Time without launches that the program has asked for, in seconds.
    asked_s: Option<u32>,
    /// Time at which a group of the program was last seen with work, in ns.
    active_ns: u64,
    /// True while memory leaves for this reason.
    leaves: bool,
    /// Number of times that memory has left.
    times: u64,
}

impl Idling {
    /// State of a program that has asked for such a time, or not.
    pub(crate) fn new(asked_s: Option<u32>) -> Idling {
        Idling { asked_s, ..Idling::default() }
    }

    /// Time without launches that the program has asked for, in seconds.
    pub(crate) fn asked_s(&self) -> Option<u32> {
        self.asked_s
    }

    /// Time at which a group of the program was last seen with work, in ns.
    pub(crate) fn active_ns(&self) -> u64 {
        self.active_ns
    }

    /// Number of times that memory has left.
    pub(crate) fn times(&self) -> u64 {
        self.times
    }

    /// Notes that the program has work, or has just had some.
    pub(crate) fn active(&mut self, now_ns: u64) {
        self.active_ns = now_ns;
    }

    /// Notes that memory is ordered to leave.
    pub(crate) fn begins(&mut self) {
        self.leaves = true;
    }

    /// Notes that an order to leave has ended.
    pub(crate) fn ended(&mut self, has_left: bool) {
        self.times += u64::from(std::mem::take(&mut self.leaves) && has_left);
    }
}
