//! One connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;

use crate::identity::{self, User};

/// A connection.
pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) user: User,
    /// Time at which it was accepted, ns.
    pub(crate) since_ns: u64,
    pub(crate) stage: Stage,
    /// The eventfd of a program, which wakes the daemon.
    pub(crate) wake: Option<Wake>,
    /// Messages that the other side has not taken yet, and their bytes.
    pub(crate) out: VecDeque<Vec<u8>>,
    pub(crate) out_bytes: usize,
    /// Time since which the other side takes nothing of that, ns.
    pub(crate) unread_since_ns: u64,
    /// True once the other side has ended or hung up: no message is taken from it or sent to it any more.
    pub(crate) gone: bool,
    /// True once the other side has ended while its command changes programs: the connection stays until that is done, and gets no message.
    pub(super) unheard: bool,
    /// The events that are waited for.
    pub(crate) flags: EventFlags,
}

/// An eventfd that wakes the daemon.
pub(crate) struct Wake {
    pub(crate) eventfd: OwnedFd,
    /// True while writes to it do not wake the loop.
    pub(crate) is_muted: bool,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No message has arrived yet.
    Silent,
    /// The first message has arrived, and the user is being identified. Further messages stay in the socket.
    Opening,
    /// An attached program.
    Program,
    /// A command, and the state of its answer.
    Command(Answering),
}

/// The state of a command's answer. Meanwhile further requests stay in its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// There is none: the next request may come.
    Nothing,
    /// The answer waits for another thread or a program.
    Waits,
    /// Further messages follow, each when the one before is taken.
    Continues,
    /// The command changes programs, which is carried through whatever becomes of the connection.
    Changes,
}

impl Conn {
    /// Returns true if messages of this connection have a ration: those of root and of the daemon's own user have none. Before its first
    /// message is processed, a connection is judged by its user id alone.
    pub(super) fn is_rationed(&self) -> bool {
        let is_own = match self.stage {
            Stage::Silent | Stage::Opening => identity::has_own_uid(self.user),
            Stage::Program | Stage::Command(_) => self.user.is_own(),
        };
        (!self.gone || self.is_changing()) && !is_own
    }

    /// Returns true for a command that changes programs.
    pub(crate) fn is_changing(&self) -> bool {
        self.stage == Stage::Command(Answering::Changes)
    }

    /// Returns true while an answer or identification is under way: nothing is read from the socket.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.stage, Stage::Silent | Stage::Program | Stage::Command(Answering::Nothing))
    }

    /// Returns true while the answer waits for something else than the other side.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Command(Answering::Waits))
    }
}
