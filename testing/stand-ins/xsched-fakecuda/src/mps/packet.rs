//! Texts in packets, optionally with a descriptor.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

/// Longest text, in bytes: room for the process IDs of a thousand clients.
const MOST: usize = 16 << 10;

/// The pipe directory: `CUDA_MPS_PIPE_DIRECTORY`, or NVIDIA's default.
pub(super) fn folder() -> PathBuf {
    let named = std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").filter(|value| !value.is_empty());
    named.map_or_else(|| "/tmp/nvidia-mps".into(), PathBuf::from)
}

/// The control daemon's socket in a pipe directory.
pub(super) fn control(folder: &Path) -> PathBuf {
    folder.join("control")
}

pub(super) fn socket() -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Connects to the control daemon of a pipe directory.
pub(super) fn connect(folder: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(control(folder))?)?;
    Ok(socket)
}

/// Sends a text, which must not be empty.
pub(super) fn send(socket: impl AsFd, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(text.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a text. The error is of kind `UnexpectedEof` if the other side is gone.
pub(super) fn receive(socket: impl AsFd) -> io::Result<(String, Option<OwnedFd>)> {
    let mut bytes = vec![0; MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut list) => list.next(),
        _ => None,
    });
    bytes.truncate(received.bytes);
    String::from_utf8(bytes).map(|text| (text, fd)).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sends a text and receives the answer.
pub(super) fn ask(socket: impl AsFd, text: &str) -> io::Result<String> {
    send(&socket, text, None)?;
    receive(&socket).map(|(text, _)| text)
}
