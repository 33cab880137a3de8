//! One connection of the daemon.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;

use crate::identity::{self, User};

/// State of a connection.
pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) pid: u32,
    pub(crate) user: User,
    /// Time at which it was accepted, in ns.
    pub(crate) since_ns: u64,
    pub(crate) stage: Stage,
    /// Eventfd of a program, which wakes the daemon.
    pub(crate) wake: Option<Wake>,
    /// Messages that the other side has not taken yet, and the sum of their bytes.
    pub(crate) out: VecDeque<Vec<u8>>,
    pub(crate) out_bytes: usize,
    /// Time since which the other side has taken none of these messages, in ns.
    pub(crate) unread_since_ns: u64,
    /// True once the other side has ended or hung up: no message is taken from it or sent to it any more.
    pub(crate) gone: bool,
    /// True once the other side has ended while its command changes programs: the connection stays until that is done, and gets no message.
    pub(super) unheard: bool,
    /// True while the connection's packets do not wake the loop: one waits for its user's ration already.
    pub(super) is_put_off: bool,
    /// Events that are waited for.
    pub(crate) flags: EventFlags,
}

/// Eventfd that wakes the daemon.
pub(crate) struct Wake {
    pub(crate) eventfd: OwnedFd,
    /// True while the program's writes do not wake the loop.
    pub(crate) is_muted: bool,
}

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No message has arrived yet.
    Silent,
    /// The first message has arrived, and the user is being identified. Further messages stay in the socket.
    Opening,
    /// Attached program.
    Program,
    /// Command, with the state of its answer.
    Command(Answering),
}

/// State of a command's answer. Further requests stay in the socket meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// No answer is under way: the next request may come.
    Nothing,
    /// The answer waits for another thread or a program.
    Waits,
    /// Further messages follow, each when the command has taken the one before.
    Continues,
    /// The command changes programs, which is completed even if the connection ends.
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

    /// Reports whether this is a command that changes programs.
    pub(crate) fn is_changing(&self) -> bool {
        self.stage == Stage::Command(Answering::Changes)
    }

    /// Reports whether an answer or identification is under way: then nothing is read from the socket.
    pub(super) fn is_answered(&self) -> bool {
        !matches!(self.stage, Stage::Silent | Stage::Program | Stage::Command(Answering::Nothing))
    }

    /// Reports whether the answer waits for something else than the other side.
    pub(super) fn waits(&self) -> bool {
        matches!(self.stage, Stage::Opening | Stage::Command(Answering::Waits))
    }
}
