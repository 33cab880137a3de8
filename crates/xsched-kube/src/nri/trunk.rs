//! Two connections over one socket. Each piece has a header of 8 bytes: number of the connection and length, both
//! big-endian.

use std::io::{Error, Result};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::ttrpc::{DATA_MAX_BYTES, Frame, HEADER_BYTES};

/// One of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Requests from the runtime to the plugin.
    Plugin = 1,
    /// Requests from the plugin to the runtime.
    Runtime = 2,
}

/// Longest piece that is sent, in bytes. A receiver in Go reads a piece into a buffer of its own, of 4096 bytes for a
/// header, and fails if the piece is longer.
const PIECE_BYTES: usize = 4096;

/// A socket with both connections.
pub struct Trunk {
    socket: UnixStream,
    /// Bytes received of incomplete frames, by connection.
    parts: [Vec<u8>; 2],
}

impl Trunk {
    /// Carries both connections over a socket.
    pub fn new(socket: UnixStream) -> Trunk {
        Trunk { socket, parts: [Vec::new(), Vec::new()] }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Errors of the socket.
    pub async fn send(&mut self, connection: Connection, frame: &Frame) -> Result<()> {
        let bytes = frame.bytes();
        let mut out = Vec::with_capacity(bytes.len() + 8);
        for piece in bytes.chunks(PIECE_BYTES) {
            out.extend((connection as u32).to_be_bytes());
            out.extend((piece.len() as u32).to_be_bytes());
            out.extend(piece);
        }
        self.socket.write_all(&out).await
    }

    /// Receives the next complete frame; `None` after the other side has closed the socket.
    ///
    /// # Errors
    /// Errors of the socket, and data that is no frame.
    pub async fn receive(&mut self) -> Result<Option<(Connection, Frame)>> {
        loop {
            for (connection, part) in [Connection::Plugin, Connection::Runtime].into_iter().zip(&mut self.parts) {
                if let Some(frame) = Frame::take(part)? {
                    return Ok(Some((connection, frame)));
                }
            }
            let mut header = [0; 8];
            match self.socket.read_exact(&mut header).await {
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
                other => other?,
            };
            let [a, b, c, d, w, x, y, z] = header;
            let length = u32::from_be_bytes([w, x, y, z]) as usize;
            if length > HEADER_BYTES + DATA_MAX_BYTES {
                return Err(Error::other(format!("a piece of {length} bytes")));
            }
            let mut piece = vec![0; length];
            self.socket.read_exact(&mut piece).await?;
            match u32::from_be_bytes([a, b, c, d]) {
                1 => self.parts[0].extend(piece),
                2 => self.parts[1].extend(piece),
                // Connections of later versions of the protocol.
                _ => {}
            }
        }
    }
}
