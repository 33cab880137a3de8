//! Start of the process's runtime, with every platform, at the first device call.

use std::sync::atomic::{AtomicBool, Ordering::*};

use xsched_agent::{Host, say};
use xsched_core::{Runtime, Scheduler, journal, thread};
use xsched_proto::settings::{Log, Mode, Settings};
use xsched_proto::variables;
use xsched_proto::wire::Described;

use super::{PLATFORMS, cuda, hsa, shadowed};
use crate::enabled::disabled;
use crate::interpose::resolve;
use crate::lock::Lock;
use crate::stage::Told;
use crate::{domain, follow, process, python, stage, stats};

/// The runtime, started if this is the first device call. `None` if this process is not scheduled.
#[inline(always)]
pub(crate) fn runtime() -> Option<&'static Runtime> {
    match process::running() {
        Some(rt) => Some(rt),
        None => process::begin(start),
    }
}

/// Scheduler that the program itself chose, instead of the environment's.
static CHOSEN: Lock<Option<Scheduler>> = Lock::new();

/// Longest time that the agent may take to change to another scheduler, in ns: a daemon must release the program first.
const CHANGE_NS: u64 = 2_000_000_000;

/// Chooses the program's scheduler, now or for its first device call. Returns false if the agent has not changed to it
/// in time.
pub(crate) fn choose(scheduler: Scheduler) -> bool {
    *CHOSEN.lock() = Some(scheduler.clone());
    process::running().is_none_or(|rt| rt.choose_scheduler(scheduler, CHANGE_NS))
}

/// Abandons the choice in a forked child, if another thread of the parent was changing it.
pub(crate) fn forget_if_held() {
    CHOSEN.forget_if_held();
}

fn start() -> Option<&'static Runtime> {
    if disabled() {
        return None;
    }
    super::wipe_cells();
    start_journal();
    xsched_core::ask_before_waiting(python::holds_the_lock);
    xsched_core::ask_at_signals(python::runs_handlers);
    process::let_go_by(hsa::release);
    let host = Host { platforms: PLATFORMS, describe };
    let mut settings = Settings::of_process();
    stage::tell_children(&Told { required: settings.required, says: settings.log >= Log::Info });
    settings.options.command = follow::start::command().unwrap_or_default();
    domain::start(super::hooked_names, settings.options.domains);
    if let Some(scheduler) = CHOSEN.lock().clone() {
        settings.mode = xsched_agent::changed(&settings.mode, scheduler);
    } else if settings.mode == Mode::Unscheduled && !settings.told && !settings.required && settings.log >= Log::Info {
        say("runs unscheduled: XSCHED_NO_DAEMON or XSCHED_SCHEDULER=APP asks for no scheduler");
    }
    let (required, quiet) = (settings.required, settings.told || settings.log < Log::Error);
    let rt = match xsched_agent::start(settings, host) {
        Ok(rt) => rt,
        Err(e) if required => xsched_agent::refuse(&e),
        Err(e) => {
            if !quiet {
                say(&format!("runs unscheduled: {e}"));
            }
            return None;
        }
    };
    // Only one thread at a time gets here. (Without a `Once`: a fork at this point would leave one in the child that is
    // never completed.)
    static HANDLERS: AtomicBool = AtomicBool::new(false);
    if !HANDLERS.load(Acquire) {
        register_handlers();
        HANDLERS.store(true, Release);
    }
    Some(rt)
}

/// Starts the journal of the models' inputs and answers, in the folder that `XSCHED_JOURNAL` names.
fn start_journal() {
    let Some(folder) = variables::get("XSCHED_JOURNAL") else { return };
    if let Err(e) = journal::start(folder.as_ref()) {
        say(&format!("XSCHED_JOURNAL ignored: cannot write in {}: {e}", folder.display()));
    }
}

fn register_handlers() {
    process::watch_threads_by(thread_ends);
    // SAFETY: a handler that only touches atomics and this thread's own plain data.
    unsafe { libc::atexit(at_exit) };
}

/// Opens all gates at the end of the program, since a driver then waits for its streams. The driver of a client of an
/// MPS server does not wait, and opening its gates may end the other clients (`docs/internals/pool.md`): as long as such
/// a client has work, its gates follow the daemon until the process has ended.
extern "C" fn at_exit() {
    stage::leave_unless_ours(stage::Occasion::End);
    stats::write(cuda::stats::members);
    stats::say_at_end();
    let _ = std::panic::catch_unwind(|| {
        match process::running() {
            Some(rt) if cuda::api::is_mps_client() && !rt.say_idle_at_end() => (),
            Some(rt) => {
                rt.detach_for_good();
                rt.end_looking();
            }
            None => (),
        }
        hsa::release();
        journal::end();
    });
}

unsafe extern "C" fn thread_ends(_: *mut std::ffi::c_void) {
    let _ = std::panic::catch_unwind(|| {
        stage::leave_unless_ours(stage::Occasion::End);
        if let Some(rt) = process::running() {
            rt.thread_exit();
        }
        domain::thread_ends();
        thread::forget_all();
    });
}

fn describe() -> Vec<Described> {
    let mut lines: Vec<Described> = resolve::found()
        .into_iter()
        .map(|f| Described::Function {
            name: f.hook.name.to_string_lossy().into_owned(),
            address: f.address as u64,
            file: resolve::object_of(f.address).map_or_else(|| "?".into(), |o| o.1.to_string_lossy().into_owned()),
            via: f.via.into(),
        })
        .collect();
    lines.sort_by_key(|line| match line {
        Described::Function { name, .. } => name.clone(),
        _ => String::new(),
    });
    lines.extend(
        domain::launches_by_library()
            .unwrap_or_default()
            .into_iter()
            .map(|(name, n)| Described::Note { text: format!("{n} launches came from {name}") }),
    );
    lines.extend(shadowed::line().map(|text| Described::Note { text }));
    lines.extend(
        stats::added()
            .into_iter()
            .map(|(name, n)| Described::Note { text: format!("{n} calls of {name} were added to follow completions") }),
    );
    lines
}
