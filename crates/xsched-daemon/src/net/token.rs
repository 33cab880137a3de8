//! Tokens: the subject of a kernel's event, in the 64 bits that the kernel gives back.

/// Subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// Socket of a connection.
    Socket(u64),
    /// Eventfd by which a program wakes the daemon.
    Wake(u64),
    /// Process of a connection.
    Death(u64),
    /// Announced process.
    Announced(u64),
    /// Descriptor of the daemon's own.
    Own(Own),
}

/// Descriptors that the daemon opened for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// Listening socket.
    Listener,
    /// Sockets whose files were made again.
    Sites,
    Timer,
    Signals,
    Identified,
    /// Logs and processes of pools.
    Pools,
    Usage,
    Metrics,
    Snapshots,
    /// Operator's own scheduler.
    Scheduler,
    Trust,
    Configuration,
    /// States of devices.
    Devices,
}

/// All kinds, by their numbers.
const OWN: [Own; 13] = [
    Own::Listener,
    Own::Sites,
    Own::Timer,
    Own::Signals,
    Own::Identified,
    Own::Pools,
    Own::Usage,
    Own::Metrics,
    Own::Snapshots,
    Own::Scheduler,
    Own::Trust,
    Own::Configuration,
    Own::Devices,
];

impl Token {
    /// Packs the token into 64 bits. Numbers of connections and processes stay below 2^61.
    pub(crate) fn bits(self) -> u64 {
        match self {
            Token::Socket(id) => id << 3,
            Token::Wake(id) => id << 3 | 1,
            Token::Death(id) => id << 3 | 2,
            Token::Announced(id) => id << 3 | 3,
            Token::Own(own) => OWN.iter().position(|other| *other == own).unwrap_or(0) as u64 * 8 + 4,
        }
    }

    /// Unpacks a token.
    pub(crate) fn of(bits: u64) -> Option<Token> {
        let id = bits >> 3;
        match bits & 7 {
            0 => Some(Token::Socket(id)),
            1 => Some(Token::Wake(id)),
            2 => Some(Token::Death(id)),
            3 => Some(Token::Announced(id)),
            4 => OWN.get(usize::try_from(id).ok()?).copied().map(Token::Own),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_for_one_subject() {
        let id = (1 << 61) - 1;
        let some = [Token::Socket(id), Token::Wake(0), Token::Death(7), Token::Announced(id)];
        for token in some.into_iter().chain(OWN.map(Token::Own)) {
            assert_eq!(Token::of(token.bits()), Some(token));
        }
        assert_eq!((Token::of(5), Token::of(99 * 8 + 4)), (None, None));
    }
}
