//! GPUs and their faults, from NVIDIA's management library, which is opened when needed and never linked.

use tokio::sync::mpsc;
use xsched_proto::Error;
use xsched_vendor::nvml::{Device, LIBRARY, Nvml, Refusal, Waited};

use super::Gpu;
use crate::log;

/// Length of one wait for an event, in ms. The wait cannot be interrupted; the thread ends with the program.
const WAIT_MS: u32 = 1000;
/// Xids that report a fault of a program and leave the GPU healthy, as in the list of NVIDIA's own plugin
/// (k8s-device-plugin).
const OF_PROGRAMS: [u64; 6] = [13, 31, 43, 45, 68, 109];

/// UUIDs of boards that fail.
pub type Faults = mpsc::UnboundedReceiver<String>;

/// GPUs of this node, and the UUIDs of boards as they fail.
///
/// # Errors
/// If NVIDIA's library is missing or cannot be used.
pub fn list() -> Result<(Vec<Gpu>, Faults), Error> {
    let nvml = Nvml::open().map_err(|why| match why {
        Refusal::NotOpened(e) => {
            Error::environment(format!("cannot load {LIBRARY}: {e}; --simulated N offers GPUs without it"))
        }
        Refusal::Unusable => Error::environment(format!("{LIBRARY} cannot be used: is NVIDIA's driver loaded?")),
    })?;
    let Some(count) = nvml.count() else {
        return Err(Error::environment(format!("{LIBRARY} does not tell which GPUs there are")));
    };
    let mut boards = Vec::new();
    let mut gpus = Vec::new();
    for index in 0..count {
        let Some(device) = nvml.board(index) else {
            log(format!("GPU {index} cannot be used: the driver does not hand it out"));
            continue;
        };
        let Some(board) = device.uuid() else {
            log(format!("GPU {index} has no UUID and is not offered"));
            continue;
        };
        let (minor, numa) = (device.minor(), numa(&device));
        let gpu = |uuid| Gpu { uuid, board: board.clone(), minor, numa, is_simulated: false };
        let parts = device.parts().map(|parts| parts.iter().filter_map(Device::uuid).collect());
        gpus.extend(parts.unwrap_or_else(|| vec![board.clone()]).into_iter().map(gpu));
        boards.push((device, board));
    }
    let (sender, faults) = mpsc::unbounded_channel();
    std::thread::spawn(move || watch(&nvml, &boards, &sender));
    Ok((gpus, faults))
}

/// NUMA node of a board, which the kernel lists by the board's PCI address; the kernel's -1 means none.
fn numa(board: &Device) -> Option<i64> {
    let text = std::fs::read_to_string(format!("/sys/bus/pci/devices/{}/numa_node", board.address()?)).ok()?;
    text.trim().parse().ok().filter(|node| *node >= 0)
}

/// Sends the boards that fail; never returns.
fn watch(nvml: &Nvml, boards: &[(Device, String)], sender: &mpsc::UnboundedSender<String>) {
    let Some(faults) = nvml.faults() else {
        return log("the driver does not tell of faults: the GPUs count as well");
    };
    for (device, board) in boards {
        if !faults.watch(device) {
            log(format!("{board}: the driver does not tell of its faults: it counts as well"));
        }
    }
    loop {
        match faults.wait(WAIT_MS) {
            Waited::Fault(device, xid) => {
                let Some((_, board)) = boards.iter().find(|(board, _)| board.is(&device)) else { continue };
                if OF_PROGRAMS.contains(&xid) {
                    log(format!("{board}: Xid {xid}, a program's fault: the GPU goes on"));
                } else {
                    log(format!("{board}: Xid {xid}: no further container gets it until this plugin is restarted"));
                    if sender.send(board.clone()).is_err() {
                        return;
                    }
                }
            }
            Waited::Nothing => {}
            Waited::Failed(code) => {
                log(format!("waiting for faults failed with NVML's code {code}: no further container gets a GPU"));
                for (_, board) in boards {
                    let _ = sender.send(board.clone());
                }
                return;
            }
        }
    }
}
