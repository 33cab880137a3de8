//! Receiving of packets, one at a time.

use rustix::event::epoll::EventFlags;
use xsched_proto::PROTOCOL_VERSION;
use xsched_proto::wire::{self, ClientMsg};

use super::conn::Stage;
use super::socket::{self, Passed, Received};
use super::{Net, Token};
use crate::Error;
use crate::tuning::SILENT_NS;

/// Result of serving a connection.
pub(crate) enum Served {
    /// No work, for now or for ever.
    Nothing,
    /// The answer continues.
    Continues,
    /// The message that arrived. An error is the sender's fault.
    Said(Box<Result<(ClientMsg, Passed), Error>>),
}

impl Net {
    /// Notes that a connection has work to do. Returns false if there is no such connection.
    pub(crate) fn note(&mut self, token: Token, flags: EventFlags) -> bool {
        let (Token::Socket(id) | Token::Death(id)) = token else { return true };
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        // Messages sent before a hang-up are still processed; an answer can no longer be delivered.
        let is_answered = conn.is_answered() && conn.stage != Stage::Opening;
        let hung_up = flags.intersects(EventFlags::HUP | EventFlags::ERR) && is_answered;
        conn.gone |= matches!(token, Token::Death(_)) || hung_up;
        if conn.gone && conn.is_changing() {
            self.doom(id, None);
        } else {
            self.enqueue(id);
        }
        true
    }

    /// Does one piece of work for a connection: sends kept messages, or takes one packet. Other connections have their turn before its next
    /// piece.
    pub(crate) fn serve(&mut self, id: u64, buffer: &mut [u8]) -> Served {
        self.flush(id);
        if let Some(conn) = self.conns.get_mut(&id)
            && std::mem::take(&mut conn.is_put_off)
        {
            self.watch_socket(id);
        }
        let Some(conn) = self.conns.get(&id) else { return Served::Nothing };
        if conn.gone && !conn.is_changing() {
            self.doom(id, None);
            return Served::Nothing;
        }
        if conn.waits() || conn.is_answered() && !conn.out.is_empty() {
            return Served::Nothing;
        }
        if conn.is_answered() {
            return Served::Continues;
        }
        self.receive(id, buffer)
    }

    fn receive(&mut self, id: u64, buffer: &mut [u8]) -> Served {
        let Some(conn) = self.conns.get(&id) else { return Served::Nothing };
        let user = conn.user;
        // Only a greeting carries descriptors.
        let wanted = conn.stage == Stage::Silent && self.reaper.admits(user.uid, user.is_own());
        let fault = match socket::receive(&conn.socket, buffer, user.uid, &self.reaper, wanted) {
            Received::Packet(len, _) if self.is_of_another_version(id, &buffer[..len]) => return Served::Nothing,
            Received::Packet(len, fds) => return Served::Said(Box::new(packet(&buffer[..len], fds))),
            Received::Nothing => return Served::Nothing,
            Received::HangUp => {
                self.conns.entry(id).and_modify(|conn| conn.gone = true);
                None
            }
            Received::TooMuch => Some("its message is too large"),
            Received::Unwanted => Some("its message carries descriptors for no purpose"),
        };
        self.doom(id, fault.map(Error::input));
        Served::Nothing
    }

    /// Returns true if a first packet is of another version, so that the rest of it cannot be read: the sender gets an error, and the
    /// connection ends.
    fn is_of_another_version(&mut self, id: u64, packet: &[u8]) -> bool {
        let is_first = self.conns.get(&id).is_some_and(|c| c.stage == Stage::Silent);
        let other = wire::version_of(packet).filter(|version| is_first && *version != PROTOCOL_VERSION);
        if let Some(version) = other {
            let line = format!(
                "the daemon (xsched {}) speaks protocol {PROTOCOL_VERSION}, this program {version}: install one version, and restart \
                 the daemon",
                env!("CARGO_PKG_VERSION")
            );
            self.refuse(id, Error::Environment(line));
            self.doom(id, None);
        }
        other.is_some()
    }

    /// Ends connections that have not sent a valid first message.
    pub(crate) fn end_silent(&mut self) {
        let unknown = self.conns.iter().filter(|(_, c)| matches!(c.stage, Stage::Silent | Stage::Opening));
        let since = unknown.map(|(id, c)| (c.since_ns, *id));
        let (over, others): (Vec<_>, Vec<_>) = since.partition(|(since, _)| since + SILENT_NS <= self.now_ns);
        self.silent_at = others.into_iter().min().map(|(since, _)| since + SILENT_NS);
        self.doomed.extend(over.into_iter().map(|(_, id)| (id, Some(Error::input("it says nothing")))));
    }
}

fn packet(bytes: &[u8], fds: Passed) -> Result<(ClientMsg, Passed), Error> {
    let message = wire::decode(bytes)?;
    if !fds.is_empty() && !matches!(message, ClientMsg::Hello { .. }) {
        return Err(Error::input("its message carries descriptors for no purpose"));
    }
    Ok((message, fds))
}
