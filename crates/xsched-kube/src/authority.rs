//! Connections of clients that name the path of a socket as their host: `:authority: %2Fvar%2Flib%2F…`. The kubelet's
//! plugin manager does so for the sockets in `plugins_registry`, and gRPC's C library for each socket. The HTTP/2
//! library of these programs accepts no such name, and resets the stream (hyperium/h2#487).
//!
//! Such a connection is read frame by frame. In blocks of header fields, `%` and `/` in the name of the host are
//! replaced by `-` before the library sees them. All three characters have codes of equal length, plain and in Huffman
//! coding, so no length changes, and the library's table of earlier fields stays the same as the client's. The name
//! itself does not matter: the socket determines the server.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;

/// Length of the preface with which an HTTP/2 client begins, in bytes.
const PREFACE_BYTES: usize = 24;
/// Length of a frame's header in bytes: 3 of length, kind, flags, 4 of stream.
const FRAME_HEADER_BYTES: usize = 9;
/// Longest frame that a server accepts by default, in bytes. A longer one is left to the library, which refuses it.
const FRAME_MAX_BYTES: usize = 16 << 10;
/// Size of a read, in bytes.
const CHUNK_BYTES: usize = 8 << 10;

/// Kind of the frame that begins a block of header fields, and its flags.
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Index of `:authority` in the static table of fields.
const AUTHORITY_INDEX: usize = 1;
/// Name of the field, plain and in Huffman coding.
const AUTHORITY: [&[u8]; 2] = [b":authority", &[0xb8, 0x3b, 0x53, 0x39, 0xec, 0x32, 0x7d, 0x7f]];
/// Huffman codes by length in bits, with the last code of each length. All characters that a name may have are among
/// them.
const CODES: [(u32, u32); 4] = [(5, 0x9), (6, 0x2d), (7, 0x7b), (8, 0xfd)];
/// Codes of `%` and `/`, of 6 bits like that of `-`.
const NOT_OF_A_NAME: [u32; 2] = [0x15, 0x18];
const DASH: u32 = 0x16;

/// Connections at a socket.
pub fn incoming(listener: UnixListener) -> impl Stream<Item = Result<Connection<UnixStream>>> {
    UnixListenerStream::new(listener).map(|accepted| accepted.map(Connection::new))
}

/// A connection, as the server reads it.
#[derive(Debug)]
pub struct Connection<S> {
    inner: S,
    /// Bytes that were read and not handed on yet.
    come: Vec<u8>,
    /// Number of these bytes that may be handed on.
    ready: usize,
    /// Number of bytes to hand on unchanged from there.
    pass: usize,
}

impl<S> Connection<S> {
    /// Wraps a stream at its beginning.
    pub fn new(inner: S) -> Connection<S> {
        Connection { inner, come: Vec::new(), ready: 0, pass: PREFACE_BYTES }
    }

    /// Processes the bytes read so far. All become ready, except for an incomplete frame at the end.
    fn advance(&mut self) {
        loop {
            let new = &mut self.come[self.ready..];
            if self.pass > 0 {
                let passed = self.pass.min(new.len());
                (self.ready, self.pass) = (self.ready + passed, self.pass - passed);
                if self.pass > 0 {
                    return;
                }
                continue;
            }
            let Some(&[a, b, c, kind, flags, ..]) = new.first_chunk::<FRAME_HEADER_BYTES>() else { return };
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if kind == HEADERS && length <= FRAME_MAX_BYTES {
                let Some(payload) = new.get_mut(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + length) else { return };
                if let Some(fields) = fields(flags, payload) {
                    rename(fields);
                }
            }
            self.pass = FRAME_HEADER_BYTES + length;
        }
    }
}

/// The part of a frame's payload that holds header fields.
fn fields(flags: u8, payload: &mut [u8]) -> Option<&mut [u8]> {
    let padding = if flags & PADDED != 0 { usize::from(*payload.first()?) } else { 0 };
    let before = usize::from(flags & PADDED != 0) + if flags & PRIORITY != 0 { 5 } else { 0 };
    let end = payload.len().checked_sub(padding)?;
    payload.get_mut(before..end)
}

/// Replaces the host in a block of header fields by a name that the library accepts. A field that continues in a
/// further frame, or is malformed, is left as it is.
fn rename(block: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some(&first) = block.get(at) {
        let index_bits = match first {
            0x80.. => 7,
            0x40..=0x7f => 6,
            0x20..=0x3f => 5,
            _ => 4,
        };
        let index = integer(block, &mut at, index_bits)?;
        // An indexed field, or a change of the dynamic table's size.
        if first & 0x80 != 0 || first & 0xe0 == 0x20 {
            continue;
        }
        let is_authority = match index {
            0 => {
                let (_, name) = string(block, &mut at)?;
                AUTHORITY.contains(&&block[name])
            }
            known => known == AUTHORITY_INDEX,
        };
        let (is_huffman, value) = string(block, &mut at)?;
        match (is_authority, is_huffman) {
            (false, _) => {}
            (true, true) => rename_huffman(&mut block[value]),
            (true, false) => {
                block[value].iter_mut().filter(|byte| matches!(byte, b'%' | b'/')).for_each(|byte| *byte = b'-');
            }
        }
    }
    Some(())
}

/// Reads a number that begins in the last bits of a byte.
fn integer(block: &[u8], at: &mut usize, bits: u32) -> Option<usize> {
    let most = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(*at)?) & most;
    *at += 1;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let byte = *block.get(*at)?;
        *at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a string: returns whether it is in Huffman coding, and its position in the block.
fn string(block: &[u8], at: &mut usize) -> Option<(bool, std::ops::Range<usize>)> {
    let is_huffman = block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    let range = *at..at.checked_add(length)?;
    block.get(range.clone())?;
    *at = range.end;
    Some((is_huffman, range))
}

/// Replaces a host in Huffman coding, up to the first code that no name has.
fn rename_huffman(text: &mut [u8]) {
    let bits = |text: &[u8], at: usize, count: u32| {
        let bit = |n: usize| text.get(n / 8).map(|byte| u32::from(byte >> (7 - n % 8) & 1));
        (at..at + count as usize).try_fold(0, |code, n| Some(code << 1 | bit(n)?))
    };
    let mut at = 0;
    while let Some((length, code)) = CODES
        .iter()
        .find_map(|(length, last)| bits(text, at, *length).filter(|code| code <= last).map(|c| (*length, c)))
    {
        if length == 6 && NOT_OF_A_NAME.contains(&code) {
            for n in 0..6 {
                let (byte, mask) = ((at + n) / 8, 0x80 >> ((at + n) % 8));
                text[byte] = if DASH >> (5 - n) & 1 == 1 { text[byte] | mask } else { text[byte] & !mask };
            }
        }
        at += length as usize;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        while this.ready == 0 {
            let mut chunk = [0; CHUNK_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut chunk))?;
            if chunk.filled().is_empty() {
                // At the end of the stream, an incomplete frame is handed on as it is.
                this.ready = this.come.len();
                break;
            }
            this.come.extend(chunk.filled());
            this.advance();
        }
        let count = this.ready.min(out.remaining());
        out.put_slice(&this.come[..count]);
        this.come.drain(..count);
        this.ready -= count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, data)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, data)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

impl<S: Connected> Connected for Connection<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> S::ConnectInfo {
        self.inner.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fgpu.xsched.dev-reg.sock` in Huffman coding, and with `-` for `%`.
    const ESCAPED: &str =
        "54587b8ec545868346a8b0f5b632d054aa2c35d16cc6a91158598c84d9e951619abb57f2824e591790bdd6b0b32e8393af";
    const RENAMED: &str =
        "58587b8ec585868346b0b0f5b632d054ac2c35d16cc6a91158598c84d9e961619abb57f2824e591790bdd6b0b32e8393af";
    /// `/var/lib/kubelet/x.sock`, and with `-` for `/`.
    const PATH: &str = "63b8ec628346c75b632d054b1e5741c9d7";
    const PATH_RENAMED: &str = "5bb8ec5a8346b75b632d054ade5741c9d7";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    fn text(flag: u8, value: &[u8]) -> Vec<u8> {
        [&[flag | u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// Fields `:method POST`, `:scheme http`, the host, `:path` with a path, and `te` with a percent sign that has to
    /// stay.
    fn block(host: &[u8]) -> Vec<u8> {
        let path = [&[0x04][..], &text(0, b"/a%2Fb/c")].concat();
        let te = [&[0x40][..], &text(0, b"te"), &text(0, b"a%/")].concat();
        [&[0x83, 0x86][..], host, &path, &te].concat()
    }

    #[test]
    fn a_path_as_host_becomes_a_name_and_nothing_else_changes() {
        let hosts = |plain: &[u8], huffman: &str| {
            let (plain, huffman) = (text(0, plain), text(0x80, &bytes(huffman)));
            let (name, name_huffman) = (text(0, AUTHORITY[0]), text(0x80, AUTHORITY[1]));
            [
                [&[0x41][..], &plain].concat(),
                [&[0x41][..], &huffman].concat(),
                [&[0x01][..], &huffman].concat(),
                [&[0x11][..], &plain].concat(),
                [&[0x40][..], &name, &plain].concat(),
                [&[0x00][..], &name_huffman, &huffman].concat(),
                // Behind a change of the table's size.
                [&[0x3f, 0xe1, 0x1f, 0x41][..], &huffman].concat(),
            ]
        };
        let sent = hosts(b"%2Frun%2Fx.sock", ESCAPED).into_iter().chain(hosts(b"/run/x.sock", PATH));
        let seen = hosts(b"-2Frun-2Fx.sock", RENAMED).into_iter().chain(hosts(b"-run-x.sock", PATH_RENAMED));
        for (sent, seen) in sent.zip(seen) {
            let mut changed = block(&sent);
            assert_eq!(rename(&mut changed), Some(()));
            assert_eq!(changed, block(&seen));
        }
        let mut usual = block(&[&[0x41][..], &text(0, b"localhost")].concat());
        assert_eq!(rename(&mut usual), Some(()));
        assert_eq!(usual, block(&[&[0x41][..], &text(0, b"localhost")].concat()));
    }

    /// Codes that no name has, strings that end too early, numbers without an end: nothing may be read past the end.
    #[test]
    fn what_is_no_block_of_fields_is_left_as_it_is() {
        for wrong in [&[0x41, 0x83, 0xff, 0xff, 0xff][..], &[0x41], &[0x41, 0x7f], &[0x41, 0x05, b'%'], &[0xff; 40]] {
            let mut changed = wrong.to_vec();
            rename(&mut changed);
            assert_eq!(changed, wrong);
        }
        let whole = block(&[&[0x41][..], &text(0x80, &bytes(ESCAPED))].concat());
        for end in 0..whole.len() {
            rename(&mut whole[..end].to_vec());
        }
    }

    /// Frames that arrive in pieces of any length. A data frame with the same bytes is handed on as it is.
    #[tokio::test(flavor = "current_thread")]
    async fn a_connection_is_changed_in_blocks_of_fields_only_however_it_comes() {
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
            [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
        };
        let host = |value: &str| block(&[&[0x41][..], &text(0x80, &bytes(value))].concat());
        let conversation = |value: &str| {
            let padded = [&[3, 0, 0, 0, 0, 16][..], &host(value), &[0; 3]].concat();
            let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
            let blocks = [frame(1, 4, &host(value)), frame(1, 4 | PADDED | PRIORITY, &padded)];
            [&preface[..], &frame(4, 0, &[]), &blocks[0], &frame(0, 0, &host(ESCAPED)), &blocks[1]].concat()
        };
        let (sent, expected) = (conversation(ESCAPED), conversation(RENAMED));
        for piece in [1, 2, 7, 64, sent.len()] {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut client, server) = tokio::io::duplex(1 << 20);
            let mut server = Connection::new(server);
            let mut seen = Vec::new();
            for piece in sent.chunks(piece) {
                client.write_all(piece).await.unwrap();
            }
            drop(client);
            while server.read_buf(&mut seen).await.unwrap() > 0 {}
            assert_eq!(seen, expected, "in pieces of {piece}");
        }
        // A stream that ends in the middle of a frame is handed on.
        let cut = &sent[..PREFACE_BYTES + 2 * FRAME_HEADER_BYTES + 5];
        let mut server = Connection::new(cut);
        let mut seen = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut server, &mut seen).await.unwrap();
        assert_eq!(seen, cut);
    }
}
