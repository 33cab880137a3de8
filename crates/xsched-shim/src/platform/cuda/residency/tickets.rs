//! Memory of chunks that another process opens with `cuIpcOpenMemHandle`. The driver has no such handle for it, so the program gets a
//! ticket of the same size. Whoever opens it, under `xsched run` too, asks the process that gave it out for descriptors of the chunks,
//! and maps them. Memory that has a ticket stays on the device.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recv, recvmsg, send,
    sendmsg, socket_with,
};
use xsched_vendor::functions;

use super::super::types::*;
use super::calls::{Access, Handle};
use super::giver::Giver;
use super::movable::movable;
use super::quiet::quietly;
use super::stays::Why;
use super::virtuals::{INVALID, NO_MEMORY};
use super::{chunks, held};
use crate::lock::Lock;
use crate::platform::shared::search_beside;

/// First word of a ticket. Its last byte is the version: a library takes no ticket whose giver it cannot check.
const MAGIC: u64 = u64::from_le_bytes(*b"xschedm\x02");
/// CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_MAP_FAILED.
const OWN_MEMORY: CUresult = 201;
const MAP_FAILED: CUresult = 205;
/// CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that the driver knows.
const LAZY: c_uint = 1;
/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
const DESCRIPTOR: c_uint = 1;
/// Longest wait for the process that gave a ticket out.
const PATIENCE: Duration = Duration::from_secs(20);
/// Processes that may wait to be served.
const BACKLOG: c_int = 64;

/// A ticket, as large as a handle of the driver's: what it is, name of the socket, secret; address, size that was asked for and that is
/// mapped; the giver, in two words.
pub(super) type Ticket = [u64; 8];

fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom").ok()?.read_exact(&mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

fn address_of(name: u64) -> Option<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("xsched-memory-{name:016x}").as_bytes()).ok()
}

/// A socket that keeps packets apart: a question is one, and so is each answer.
fn new_socket() -> Option<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()
}

/// Name of this process's socket, and the secret of its tickets.
struct Counter {
    giver: Giver,
    name: u64,
    secret: u64,
}

static COUNTER: OnceLock<Option<Counter>> = OnceLock::new();

/// Opens the socket, with the thread that serves it.
fn counter() -> Option<&'static Counter> {
    let open = || {
        let counter = Counter { giver: Giver::here(), name: random()?, secret: random()? };
        let listener = listening(counter.name)?;
        let secret = counter.secret;
        quietly("xsched-tickets", move || serve(&listener, secret)).then_some(counter)
    };
    COUNTER.get_or_init(open).as_ref().filter(|counter| counter.giver.is_this_process())
}

/// Listens at a name.
fn listening(name: u64) -> Option<OwnedFd> {
    let listener = new_socket()?;
    bind(&listener, &address_of(name)?).ok()?;
    listen(&listener, BACKLOG).ok()?;
    Some(listener)
}

/// Connects to the process that gave a ticket out. Once that process has ended, any user may take the name of its socket: another process
/// there would get the secret, and its memory would be opened in place of the giver's.
fn connected(ticket: &Ticket) -> Option<OwnedFd> {
    let counter = new_socket()?;
    set_socket_timeout(&counter, Timeout::Recv, Some(PATIENCE)).ok()?;
    set_socket_timeout(&counter, Timeout::Send, Some(PATIENCE)).ok()?;
    connect(&counter, &address_of(ticket[1])?).ok()?;
    Giver::of([ticket[6], ticket[7]]).listens_at(&counter).then_some(counter)
}

/// Number of the file behind a descriptor, which the program may close and use for another one.
fn identity(of: &OwnedFd) -> Option<String> {
    std::fs::read_link(format!("/proc/self/fd/{}", of.as_raw_fd())).ok().map(|path| path.to_string_lossy().into_owned())
}

fn serve(listener: &OwnedFd, secret: u64) {
    let own = identity(listener);
    if movable().is_none_or(|movable| !movable.calls.enter_context()) {
        return;
    }
    while identity(listener) == own {
        if let Ok(peer) = accept_with(listener, SocketFlags::CLOEXEC) {
            let _ = hand_out(&peer, secret);
        }
    }
}

/// Sends a descriptor for each chunk of the memory that is asked for.
fn hand_out(peer: &OwnedFd, secret: u64) -> Option<()> {
    let own = rustix::process::geteuid();
    socket_peercred(peer).ok().filter(|peer| peer.uid == own || peer.uid.is_root())?;
    set_socket_timeout(peer, Timeout::Recv, Some(PATIENCE)).ok()?;
    set_socket_timeout(peer, Timeout::Send, Some(PATIENCE)).ok()?;
    let mut words = [0u8; 16];
    let (got, _) = recv(peer, &mut words[..], RecvFlags::empty()).ok()?;
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| words[at + i]));
    if got != words.len() || word(0) != secret {
        return None;
    }
    let movable = movable()?;
    for handle in chunks::held_handles(word(8))? {
        let mut number: c_int = -1;
        let place = (&raw mut number).cast();
        // SAFETY: a pointer to a local; if the memory has been freed meanwhile, the driver refuses.
        let rc = unsafe { (movable.calls.functions.export)(place, handle, DESCRIPTOR as c_int, 0) };
        if rc != SUCCESS || number < 0 {
            return None;
        }
        // SAFETY: a descriptor that the driver has just made for this caller.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let fds = [descriptor.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(peer, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL).ok()?;
    }
    Some(())
}

/// Gives a ticket out for the memory at an address. `None`: the memory is the driver's own.
pub(super) fn give_out(place: *mut c_void, address: u64) -> Option<CUresult> {
    let movable = movable()?;
    let (at, bytes, mapped) = chunks::region_of(address, |at, region| {
        (!region.is_segment).then_some((at, region.bytes, region.mapped_bytes))
    })??;
    if place.is_null() || !movable.calls.is_exportable() {
        return Some(INVALID);
    }
    if held::tried(held::MANY, |_| chunks::pin(movable, at, Why::Shared).filter(|is_there| *is_there)).is_none() {
        return Some(NO_MEMORY);
    }
    let Some(counter) = counter() else { return Some(NO_MEMORY) };
    let [user, place_of_user] = counter.giver.words();
    let ticket: Ticket = [MAGIC, counter.name, counter.secret, at, bytes, mapped, user, place_of_user];
    // SAFETY: the caller's own place for a handle of this size.
    unsafe { place.cast::<Ticket>().write_unaligned(ticket) };
    Some(SUCCESS)
}

functions! {
    /// Functions of the driver that map another process's memory, with signatures as in cuda.h.
    struct Functions -> CUresult;
    needed {
        import: c"cuMemImportFromShareableHandle" (*mut Handle, *mut c_void, c_uint);
        release: c"cuMemRelease" (Handle);
        reserve: c"cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
        unreserve: c"cuMemAddressFree" (CUdeviceptr, usize);
        map: c"cuMemMap" (CUdeviceptr, usize, usize, Handle, u64);
        unmap: c"cuMemUnmap" (CUdeviceptr, usize);
        set_access: c"cuMemSetAccess" (CUdeviceptr, usize, *const Access, usize);
        get_device: c"cuCtxGetDevice" (*mut CUdevice);
        synchronize: c"cuCtxSynchronize" ();
    }
}

/// Memory of another process that is mapped here.
struct Opened {
    functions: Functions,
    ticket: Ticket,
    handles: Vec<Handle>,
    /// Addresses that are mapped, in bytes.
    done: u64,
    times: u64,
}

/// Opened memory by its address.
static OPENED: Lock<BTreeMap<u64, Opened>> = Lock::new();

/// Opens memory of another process if this is a ticket for it. `None`: the driver is to open it. `real` is one of its functions.
pub(in super::super) fn open(
    real: *mut c_void,
    place: *mut c_void,
    ticket: &Ticket,
    flags: c_uint,
) -> Option<CUresult> {
    if ticket[0] != MAGIC {
        return None;
    }
    if place.is_null() || flags != LAZY {
        return Some(INVALID);
    }
    if COUNTER
        .get()
        .and_then(|counter| counter.as_ref())
        .is_some_and(|own| own.name == ticket[1] && own.giver.is_this_process())
    {
        return Some(OWN_MEMORY);
    }
    let mut all = OPENED.lock();
    let known = all.iter_mut().find(|(_, opened)| opened.ticket == *ticket);
    let at = match known {
        Some((&at, opened)) => {
            opened.times += 1;
            at
        }
        None => match fetch(real, ticket) {
            Ok((at, opened)) => {
                all.insert(at, opened);
                at
            }
            Err(refusal) => return Some(refusal),
        },
    };
    // SAFETY: the caller's own place for an address, not null.
    unsafe { place.cast::<u64>().write_unaligned(at) };
    Some(SUCCESS)
}

fn fetch(real: *mut c_void, ticket: &Ticket) -> Result<(u64, Opened), CUresult> {
    let mapped = ticket[5];
    // SAFETY: the driver's functions have cuda.h's signatures.
    let functions = unsafe { Functions::load(search_beside(real as usize)) }.map_err(|_| MAP_FAILED)?;
    let (mut at, mut device) = (0, 0);
    // SAFETY: pointers to locals.
    let rc = unsafe {
        match (functions.get_device)(&mut device) {
            SUCCESS => (functions.reserve)(&mut at, mapped as usize, 0, 0, 0),
            rc => rc,
        }
    };
    if rc != SUCCESS {
        return Err(rc);
    }
    let mut opened = Opened { functions, ticket: *ticket, handles: Vec::new(), done: 0, times: 1 };
    match opened.map_all(at, device) {
        Some(()) => Ok((at, opened)),
        None => {
            opened.end(at);
            Err(MAP_FAILED)
        }
    }
}

impl Opened {
    fn map_all(&mut self, at: u64, device: CUdevice) -> Option<()> {
        let counter = connected(&self.ticket)?;
        let [_, _, secret, of, _, mapped, ..] = self.ticket;
        send(&counter, &[secret, of].map(u64::to_le_bytes).concat(), SendFlags::NOSIGNAL).ok()?;
        while self.done < mapped {
            let descriptor = receive(&counter)?;
            let bytes = chunks::LARGEST.min(mapped - self.done);
            let mut handle = 0;
            let shared = std::ptr::without_provenance_mut::<c_void>(descriptor.as_raw_fd() as usize);
            // SAFETY: a descriptor of memory, which stays this library's; a pointer to a local.
            if unsafe { (self.functions.import)(&mut handle, shared, DESCRIPTOR) } != SUCCESS {
                return None;
            }
            self.handles.push(handle);
            // SAFETY: a part of a range that was reserved here.
            if unsafe { (self.functions.map)(at + self.done, bytes as usize, 0, handle, 0) } != SUCCESS {
                return None;
            }
            self.done += bytes;
        }
        let access = Access::whole(device);
        // SAFETY: mapped memory; pointer to a local.
        (unsafe { (self.functions.set_access)(at, mapped as usize, &access, 1) } == SUCCESS).then_some(())
    }

    fn end(self, at: u64) {
        // SAFETY: mappings, handles and a range of this library's, which no command uses.
        unsafe {
            if self.done > 0 {
                (self.functions.unmap)(at, self.done as usize);
            }
            for handle in self.handles {
                (self.functions.release)(handle);
            }
            (self.functions.unreserve)(at, self.ticket[5] as usize);
        }
    }
}

fn receive(counter: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(counter, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    found.filter(|_| got.bytes == 1)
}

/// Closes memory of another process. `None`: it is not of a ticket. Like the driver's function, it waits for all commands.
pub(in super::super) fn close(address: u64) -> Option<CUresult> {
    if OPENED.is_untouched() {
        return None;
    }
    let mut all = OPENED.lock();
    let opened = all.get_mut(&address)?;
    opened.times -= 1;
    if opened.times > 0 {
        return Some(SUCCESS);
    }
    let opened = all.remove(&address)?;
    drop(all);
    // SAFETY: no arguments.
    unsafe { (opened.functions.synchronize)() };
    opened.end(address);
    Some(SUCCESS)
}

/// Empties the table, in a forked child.
pub(super) fn forget_all() {
    OPENED.forget();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticket of a giver for the memory of a process that listens at a name.
    fn ticket(name: u64, giver: &Giver) -> Ticket {
        let [user, place_of_user] = giver.words();
        [MAGIC, name, 7, 0x1000, 4096, 4096, user, place_of_user]
    }

    /// Binds a name as a user, and leaves it to that user's socket.
    fn taken_by(uid: u32, name: u64) -> OwnedFd {
        let take = move || {
            // SAFETY: the system call changes the user of this thread alone, which ends with the closure.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
            assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
            listening(name).expect("a free name")
        };
        std::thread::spawn(take).join().expect("a socket of another user")
    }

    #[test]
    fn the_giver_alone_is_sent_the_secret() {
        let name = random().unwrap();
        let listener = listening(name).unwrap();
        assert!(connected(&ticket(name, &Giver::here())).is_some(), "the giver listens");
        drop(listener);
        assert!(connected(&ticket(name, &Giver::here())).is_none(), "nothing listens");
    }

    #[test]
    fn a_process_that_has_taken_the_name_of_a_giver_that_ended_is_not_asked() {
        let mut giver = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let gone = Giver { pid: giver.id(), ..Giver::here() };
        giver.kill().unwrap();
        giver.wait().unwrap();
        let name = random().unwrap();
        let _squatter = listening(name).unwrap();
        assert!(connected(&ticket(name, &gone)).is_none());
    }

    #[test]
    fn another_user_that_has_taken_the_name_is_not_asked() {
        if !rustix::process::geteuid().is_root() {
            return xsched_testkit::skipped("a process of another user takes root");
        }
        let name = random().unwrap();
        let _squatter = taken_by(12_345, name);
        assert!(connected(&ticket(name, &Giver::here())).is_none(), "the user differs, the process does not");
        let named = Giver { uid: 12_345, ..Giver::here() };
        assert!(connected(&ticket(name, &named)).is_some(), "root opens memory of a user");
        // A namespace in which the giver's number means nothing: only the opener's own user counts.
        let elsewhere = Giver { users: 1, ..named };
        assert!(connected(&ticket(name, &elsewhere)).is_none());
    }
}
