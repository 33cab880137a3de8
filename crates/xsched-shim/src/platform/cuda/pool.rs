//! Membership of this process in its user's pool. A process asks for a place when it first calls `cuInit`, and keeps
//! the answer until it ends, since the driver looks for an MPS daemon then and never again.

use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use xsched_agent::say;
use xsched_proto::ask::{self, NoAnswer};
use xsched_proto::settings::{Mode, Settings};
use xsched_proto::variables;
use xsched_proto::wire::{DaemonMsg, ProgramOptions, Request};

use super::types::*;
use super::{device_runtime, real, sig};
use crate::enabled::{CUDA, platform_enabled};
use crate::interpose::hooks;
use crate::lock::Lock;
use crate::process;

/// Variable that names the folder in which the driver looks for an MPS daemon.
const PIPE_DIRECTORY: &CStr = c"CUDA_MPS_PIPE_DIRECTORY";
/// Variable with the priority of a process among the clients of its server: 0 = normal, 1 = below normal.
const CLIENT_PRIORITY: &CStr = c"CUDA_MPS_CLIENT_PRIORITY";
/// CUDA_ERROR_MPS_CONNECTION_FAILED, CUDA_ERROR_MPS_RPC_FAILURE, CUDA_ERROR_MPS_SERVER_NOT_READY.
const MPS_REFUSALS: [CUresult; 3] = [805, 806, 807];
/// Errors of a context that is lost by a fault of its own kernels: CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
/// CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE,
/// CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED. (An assertion that fails ends no pool.)
const FAULTS: [CUresult; 8] = [700, 702, 714, 715, 716, 717, 718, 719];
/// Longest wait for the daemon to record such a fault.
const FAULT_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait for a pool that is starting; the daemon gives up sooner.
const PATIENCE: Duration = Duration::from_secs(30);

/// Set if this process was given a place in a pool.
static MEMBER: AtomicBool = AtomicBool::new(false);
/// Set once this process has asked for a place and need not ask again.
static ASKED: Lock<bool> = Lock::new();

/// Reports a GPU fault of this process to the daemon, once, given the result of a call that waits. In a pool another
/// process may have caused the fault; the server's log names it.
#[inline]
pub(super) fn noting(rc: CUresult) -> CUresult {
    if rc != SUCCESS && FAULTS.contains(&rc) {
        process::guarded("after a GPU fault", tell_of_fault);
    }
    rc
}

#[cold]
fn tell_of_fault() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if insists().is_none() || is_member() || !platform_enabled(CUDA) || TOLD.swap(true, AcqRel) {
        return;
    }
    if let Mode::Daemon(socket) = Settings::of_process().mode {
        let _ = ask::ask(&socket, Request::Faulted, FAULT_PATIENCE);
    }
}

/// Reports whether this process was given a place in a pool.
pub(super) fn is_member() -> bool {
    MEMBER.load(Acquire)
}

/// Resets the state in a forked child, which asks for a place itself.
pub(super) fn forget() {
    ASKED.forget();
    MEMBER.store(false, Release);
}

unsafe extern "C" fn cuInit(flags: c_uint) -> CUresult {
    let (_, function) = real!(cuInit);
    let entered = process::guarded("before cuInit", enter).flatten();
    // SAFETY: the caller's own argument.
    let rc = unsafe { function(flags) };
    if let Some(entered) = entered {
        process::guarded("after cuInit", || entered.end(rc));
    }
    rc
}

hooks! { CUDA, BEGINS: Begin; cuInit }

/// The first call of `cuInit`, with the driver directed to a pool.
struct Entered {
    /// Folder to which the driver was directed before.
    before: CString,
    pipe: CString,
    socket: PathBuf,
}

/// Directs the driver to the pool in which this process is given a place. `None` if the process has asked before, or
/// gets no place. Another thread that calls `cuInit` meanwhile waits: the driver must not begin without the pool.
fn enter() -> Option<Entered> {
    let insists = insists()?;
    let mut asked = ASKED.lock();
    if !platform_enabled(CUDA) || std::mem::replace(&mut *asked, true) {
        return None;
    }
    // SAFETY: a C string; what it finds is copied at once.
    let before = unsafe {
        let found = libc::getenv(PIPE_DIRECTORY.as_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(found).to_owned())?
    };
    let settings = Settings::of_process();
    let Mode::Daemon(socket) = settings.mode else { return None };
    // A fault of one client of a server ends the others, and so does an access to memory that has left.
    if settings.options.memory_swap {
        return None;
    }
    let pipe = place(&socket, settings.options, insists)?;
    replace(PIPE_DIRECTORY, &pipe);
    MEMBER.store(true, Release);
    Some(Entered { before, pipe, socket })
}

impl Entered {
    fn end(self, rc: CUresult) {
        // Programs that this process starts ask for themselves.
        replace(PIPE_DIRECTORY, &self.before);
        if rc == SUCCESS {
            return;
        }
        MEMBER.store(false, Release);
        if !MPS_REFUSALS.contains(&rc) {
            *ASKED.lock() = false;
            return;
        }
        // The driver remembers the failure: a further call returns the same error, or never returns (driver 580).
        say("the MPS server of the pool refused this process; the next one finds another: start it again");
        if let Ok(pipe) = self.pipe.into_string() {
            let _ = ask::ask(&self.socket, Request::PoolRefused { pipe }, PATIENCE);
        }
    }
}

/// Setting of `XSCHED_SHARE`: true = in a pool wherever possible, false = as the daemon decides, `None` = never in a
/// pool.
fn insists() -> Option<bool> {
    match variables::text("XSCHED_SHARE")?.to_ascii_lowercase().as_str() {
        "auto" => Some(false),
        "pool" => Some(true),
        _ => None,
    }
}

/// Pipe directory of the pool in which this process is given a place; `None` = it shares the device by time.
fn place(socket: &Path, options: ProgramOptions, insists: bool) -> Option<CString> {
    let request = Request::JoinPool { job: options.job, priority: options.priority, insists, obstacle: obstacle() };
    let answer = match ask::ask(socket, request, PATIENCE) {
        Ok(answer) => answer.into_iter().next()?,
        // The missing daemon is reported when the program attaches.
        Err(NoAnswer::NotConnected(_)) => return None,
        Err(_) => {
            say("in no pool: the daemon's answer does not come or makes no sense");
            return None;
        }
    };
    match answer {
        DaemonMsg::Pool { pipe, note, is_urgent } => {
            if let Some(note) = note {
                say(&note);
            }
            // SAFETY: a C string; what it finds is not read.
            if !unsafe { libc::getenv(CLIENT_PRIORITY.as_ptr()) }.is_null() {
                replace(CLIENT_PRIORITY, if is_urgent { c"0" } else { c"1" });
            }
            CString::new(pipe).ok()
        }
        DaemonMsg::ByTime { why } => {
            if let Some(why) = why {
                say(&format!("time sharing: {why}"));
            }
            None
        }
        _ => None,
    }
}

/// Reason why this process must not be in a pool, as far as it can know: tools that observe a program on its device do
/// not work in one, nor do kernels that launch others.
fn obstacle() -> Option<String> {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    if let Some(observer) = observer(var) {
        return Some(format!("{observer} needs a context of its own"));
    }
    if var("CUDA_VISIBLE_DEVICES").contains("MIG-") {
        return Some("an instance of a divided GPU has no pool".into());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map_or("0", str::trim);
    if tracer != "0" {
        return Some("a debugger needs a context of its own".into());
    }
    device_runtime::linked_into().map(|file| format!("kernels of {file} launch others, which MPS does not run"))
}

/// Tool that observes this process on its device, by the variables that it sets. Nsight Compute keeps its own library
/// out of a program's `LD_PRELOAD`; the port of its injection is how it is known.
fn observer(var: impl Fn(&str) -> String) -> Option<&'static str> {
    let preloads = var("LD_PRELOAD");
    if preloads.contains("libsanitizer") || !var("NV_SANITIZER_INJECTION_PORT_BASE").is_empty() {
        return Some("compute-sanitizer");
    }
    let injected = ["CUDA_INJECTION64_PATH", "NV_NSIGHT_INJECTION_PORT_BASE"].iter().any(|name| !var(name).is_empty());
    let preloaded = ["Injection", "TreeLauncher"].iter().any(|part| preloads.contains(part));
    (injected || preloaded).then_some("a profiler")
}

/// Replaces the value of a variable that exists. The C library's table, which other threads may be reading, then does
/// not move.
fn replace(variable: &CStr, value: &CStr) {
    // SAFETY: two C strings.
    unsafe { libc::setenv(variable.as_ptr().cast::<c_char>(), value.as_ptr(), 1) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observer_by(name: &str, value: &str) -> Option<&'static str> {
        observer(|asked| if asked == name { value.into() } else { String::new() })
    }

    #[test]
    fn observers_are_known_by_their_variables() {
        assert_eq!(observer_by("NV_SANITIZER_INJECTION_PORT_BASE", "49152"), Some("compute-sanitizer"));
        assert_eq!(observer_by("NV_NSIGHT_INJECTION_PORT_BASE", "49152"), Some("a profiler")); // ncu 2025.3
        assert_eq!(observer_by("CUDA_INJECTION64_PATH", "libcupti.so"), Some("a profiler"));
        assert_eq!(observer_by("LD_PRELOAD", "libxsched.so:libToolsInjection64.so"), Some("a profiler")); // nsys
        assert_eq!(observer_by("LD_PRELOAD", "libxsched.so"), None);
        assert_eq!(observer_by("NV_NSIGHT_INJECTION_PORT_BASE", ""), None);
    }
}
