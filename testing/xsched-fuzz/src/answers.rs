//! Answers of a daemon to a command: any packets, and then it hangs up.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use xsched_proto::ask::{self, NoAnswer};
use xsched_proto::wire::{MAX_PACKET, Request};

use crate::running::PATIENCE;
use crate::scratch;

/// Sends the packets of the next answer to the thread that stands for the daemon.
static PACKETS: LazyLock<Sender<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let listener = listener.expect("a socket");
    rustix::net::bind(&listener, &SocketAddrUnix::new(socket()).expect("a short path")).expect("a free name");
    rustix::net::listen(&listener, 8).expect("a listening socket");
    let (sender, answers) = channel();
    std::thread::spawn(move || answers.into_iter().for_each(|answer: Vec<Vec<u8>>| serve(&listener, &answer)));
    sender
});

fn socket() -> PathBuf {
    scratch::place("a")
}

fn serve(listener: &OwnedFd, answer: &[Vec<u8>]) {
    let connection = rustix::net::accept(listener).expect("a connection");
    let mut request = vec![0; MAX_PACKET];
    let _ = rustix::net::recv(&connection, request.as_mut_slice(), RecvFlags::empty());
    for packet in answer.iter().filter(|packet| !packet.is_empty()) {
        let _ = rustix::net::send(&connection, packet, SendFlags::NOSIGNAL);
    }
}

pub(crate) fn run(mut data: &[u8]) {
    let mut packets = Vec::new();
    while let Some(packet) = crate::piece::piece(&mut data) {
        packets.push(packet.to_vec());
    }
    PACKETS.send(packets).expect("the other side is there");
    match ask::ask(&socket(), Request::Ps, PATIENCE) {
        Ok(parts) => crate::planted::planted(|| parts.len() >= 3),
        Err(NoAnswer::Silent) => panic!("it waits for a daemon that has hung up"),
        Err(_) => {}
    }
}
