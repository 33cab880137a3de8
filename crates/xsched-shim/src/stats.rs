//! Statistics of this process, to be compared with counts made elsewhere.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::*};

use xsched_agent::{say, say_debug};
use xsched_proto::account::MemoryUse;
use xsched_proto::settings::{Log, Settings};
use xsched_proto::{files, variables, writing};

use crate::{domain, process};

/// Number of marker commands enqueued to observe completions, as on OpenCL.
pub(crate) static ADDED_MARKERS: AtomicU64 = AtomicU64::new(0);

/// Vendor calls that this library added to the application's, with their numbers.
pub(crate) fn added() -> Vec<(&'static str, u64)> {
    let markers = ADDED_MARKERS.load(Relaxed);
    if markers == 0 { Vec::new() } else { vec![("clEnqueueMarkerWithWaitList", markers)] }
}

/// Launches by domain and by library, as further JSON members; empty if launches are not attributed.
fn domains(rt: &xsched_core::Runtime, launches: u64) -> String {
    let Some(libraries) = domain::launches_by_library() else { return String::new() };
    let system = rt.system_launches();
    let quoted = |name: &str| name.replace(|c: char| c == '"' || c == '\\' || c.is_control(), "?");
    let libraries: Vec<String> = libraries.iter().map(|(name, n)| format!("\"{}\":{n}", quoted(name))).collect();
    format!(
        ",\"domains\":{{\"system\":{system},\"application\":{}}},\"exempt\":{},\"libraries\":{{{}}}",
        launches.wrapping_sub(system),
        rt.exempt_launches(),
        libraries.join(",")
    )
}

/// Memory by device at this moment, in bytes, as a further JSON member; empty if none was counted.
fn memory(rt: &xsched_core::Runtime) -> String {
    let described = |is: MemoryUse| {
        let members = [
            ("used", is.used_bytes),
            ("peak", is.peak_bytes),
            ("plain", is.plain_bytes),
            ("pooled", is.pooled_bytes),
            ("virtual", is.virtual_bytes),
            ("graph", is.graph_bytes),
            ("array", is.array_bytes),
            ("overhead", is.overhead_bytes),
            ("exported", is.exported_bytes),
            ("host", is.host_bytes),
            ("refused", is.refused),
        ];
        format!("{{{}}}", members.map(|(name, value)| format!("\"{name}\":{value}")).join(","))
    };
    let devices: Vec<String> = rt.memory_slots().map(|slot| described(MemoryUse::of(rt.memory(slot)))).collect();
    if devices.is_empty() { String::new() } else { format!(",\"memory\":[{}]", devices.join(",")) }
}

/// Logs one line about the program's launches at exit, with `XSCHED_LOG=debug`.
pub(crate) fn say_at_end() {
    let _ = std::panic::catch_unwind(|| {
        let Some(rt) = process::running() else { return };
        if Settings::of_process().log < Log::Debug {
            return;
        }
        let (launches, unscheduled) = rt.totals();
        let (at_gate_us, at_budget_us) = rt.waited_us();
        let (liveness_overrides, _) = rt.overrides();
        say_debug(&format!(
            "ends: {launches} launches, {} of them unscheduled; {} waits at the closed gate, {} ms; {} ms for the in-flight budget; \
             {} times idle; {liveness_overrides} liveness overrides",
            unscheduled.iter().sum::<u64>(),
            rt.gate_waits(),
            at_gate_us / 1000,
            at_budget_us / 1000,
            rt.idles(),
        ));
    });
}

/// Appends one line of JSON, with the members of `more`, to the file that `XSCHED_STATS` names. Called at exit.
pub(crate) fn write(more: fn() -> String) {
    let _ = std::panic::catch_unwind(|| {
        let (Some(path), Some(rt)) = (variables::get("XSCHED_STATS"), process::running()) else { return };
        let (launches, [attach, passthrough, error]) = rt.totals();
        let (liveness_overrides, signal_overrides) = rt.overrides();
        let (at_gate_us, at_budget_us) = rt.waited_us();
        let (late, stalls, releases) = rt.overlaps();
        let yields = rt.yielded();
        let added: Vec<String> = added().iter().map(|(name, n)| format!("\"{name}\":{n}")).collect();
        let domains = domains(rt, launches);
        let memory = memory(rt);
        let line = format!(
            "{{\"pid\":{},\"launches\":{launches},\"unscheduled\":{{\"attach\":{attach},\"passthrough\":{passthrough},\
             \"error\":{error}}},\"gate_waits\":{},\"at_gate_us\":{at_gate_us},\"at_budget_us\":{at_budget_us},\"idles\":{},\
             \"liveness_overrides\":{liveness_overrides},\"signal_overrides\":{signal_overrides},\
             \"heard_late\":{{\"count\":{},\"us\":{},\"longest_us\":{}}},\"stalls\":{stalls},\"releases\":{releases},\
             \"yields\":{{\"holds\":{},\"held_us\":{},\"passed\":{}}},\"added\":{{{}}}{domains}{memory}{}}}\n",
            std::process::id(),
            rt.gate_waits(),
            rt.idles(),
            late.count,
            late.us,
            late.longest_us,
            yields.holds,
            yields.held_us,
            yields.passed,
            added.join(","),
            more()
        );
        let file = files::to_write(path.as_ref(), std::fs::OpenOptions::new().append(true).create(true));
        if let Err(why) = file.and_then(|mut file| writing::without_signals(|| file.write_all(line.as_bytes())))
            && Settings::of_process().log >= Log::Error
        {
            say(&format!("XSCHED_STATS: nothing is written to {}: {why}; name a file", path.display()));
        }
    });
}
