//! `xsched run --share`: environment of the programs, with a stand-in for NVIDIA's `nvidia-cuda-mps-control`. Work under MPS and in pools
//! is tested elsewhere (`xsched-e2e`, `tests/pool.rs`).

mod common;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use common::{Place, Said, said, until};

/// Stand-in for the control program: with `-f` it serves the pipe directory until it is killed.
const STAND_IN: &str = r#"#!/bin/sh
pipe=${CUDA_MPS_PIPE_DIRECTORY:?}
mkfifo "$pipe/control" || exit 1
exec 3<> "$pipe/control"
echo started >> "$MPS_STAND_IN_NOTES"
while read -r line <&3; do :; done
"#;

/// Script that the programs run: it prints their variables.
const SHOW: &str = "echo ${CUDA_MPS_PIPE_DIRECTORY-none} ${CUDA_MPS_CLIENT_PRIORITY-none} ${XSCHED_SHARE-none}";

struct Machine {
    place: Place,
}

impl Machine {
    /// Makes a machine without MPS.
    fn new() -> Machine {
        let machine = Machine { place: Place::new() };
        machine.place.stand_in("stand-in.so");
        std::fs::create_dir(machine.place.join("bin")).unwrap();
        for tool in ["sh", "mkfifo", "rm", "cat"] {
            std::os::unix::fs::symlink(Path::new("/bin").join(tool), machine.place.join("bin").join(tool)).unwrap();
        }
        machine
    }

    fn with_mps() -> Machine {
        let machine = Machine::new();
        let file = machine.place.join("bin/nvidia-cuda-mps-control");
        std::fs::write(&file, STAND_IN).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        machine
    }

    fn surround(&self, command: &mut Command) {
        command.env("XSCHED_PRELOAD", self.place.join("stand-in.so")).env("PATH", self.place.join("bin"));
        command.env("MPS_STAND_IN_NOTES", self.place.join("notes"));
        // No MPS daemon answers at this path, whatever the real machine has.
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.place.join("usual")).env_remove("CUDA_MPS_CLIENT_PRIORITY");
    }

    fn run(&self, options: &[&str], script: &str) -> Command {
        let mut command = self.place.xsched(&["run"]);
        command.args(options).args(["--", "sh", "-c", script]);
        self.surround(&mut command);
        command
    }

    fn show(&self, options: &[&str]) -> Said {
        said(self.run(options, SHOW))
    }

    fn notes(&self) -> String {
        std::fs::read_to_string(self.place.join("notes")).unwrap_or_default()
    }

    /// Starts a user's own MPS daemon at the usual path.
    fn somebodys_mps(&self) -> Somebodys {
        let pipe = self.place.join("usual");
        std::fs::create_dir_all(&pipe).unwrap();
        let mut command = Command::new(self.place.join("bin/nvidia-cuda-mps-control"));
        self.surround(&mut command);
        command.arg("-f").env("CUDA_MPS_LOG_DIRECTORY", &pipe);
        let child = command.spawn().unwrap();
        until("it has started", || self.notes().contains("started"));
        Somebodys { pipe, child }
    }
}

struct Somebodys {
    pipe: PathBuf,
    child: Child,
}

impl Drop for Somebodys {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_mps_spatial_sharing_is_refused_with_what_to_do() {
    let machine = Machine::new();
    machine.show(&["--share", "spatial"]).one_line(3, "start one with `nvidia-cuda-mps-control -d`");
    machine.show(&["--share", "spatial", "--local", "hpf"]).one_line(3, "no MPS daemon answers at");
    let mut nested = machine.run(&[], SHOW);
    nested.env("XSCHED_SHARE", "sideways");
    said(nested).one_line(2, "XSCHED_SHARE=sideways: use time, pool, spatial or auto");
    // A program that shares by time needs no MPS: it runs, and its pipe directory stays as it was.
    let plain = machine.show(&["--share", "time"]);
    plain.quiet(0);
    assert!(plain.out.ends_with("usual none time\n"), "{plain:?}");
}

#[test]
fn a_program_that_may_join_a_pool_finds_where_the_library_names_it() {
    let machine = Machine::new();
    let nowhere = machine.place.join("xsched/no-mps");
    let pool = machine.show(&["--share", "pool"]);
    pool.quiet(0);
    assert_eq!(pool.out, format!("{} 1 pool\n", nowhere.display()));
    assert_eq!(std::fs::read_dir(&nowhere).unwrap().count(), 0);
    // Without a daemon there is no pool.
    let local = machine.show(&["--share", "pool", "--local", "hpf"]);
    local.quiet(0);
    assert!(local.out.ends_with("usual none pool\n"), "{local:?}");
    // Within another run, the program shares as that run says.
    let mut nested = machine.place.xsched(&["run", "--share", "pool", "--", env!("CARGO_BIN_EXE_xsched")]);
    nested.args(["run", "--", "sh", "-c", SHOW]);
    machine.surround(&mut nested);
    assert_eq!(said(nested).out, pool.out);
}

#[test]
fn an_mps_daemon_that_runs_is_used_when_asked_for_and_else_kept_away_from() {
    let machine = Machine::with_mps();
    let somebodys = machine.somebodys_mps();
    let spatial = machine.show(&["--share", "spatial", "--priority", "200"]);
    spatial.one_line(0, "a GPU fault of one program ends all that share it");
    assert_eq!(spatial.out, format!("{} 0 spatial\n", somebodys.pipe.display()));
    let alone = machine.show(&["--share", "spatial", "--local", "hpf"]);
    assert_eq!(alone.out, format!("{} 1 spatial\n", somebodys.pipe.display()));
    let nowhere = machine.place.join("xsched/no-mps");
    let time = machine.show(&["--share", "time"]);
    time.quiet(0);
    assert_eq!(time.out, format!("{} none time\n", nowhere.display()));
    let auto = machine.show(&[]);
    auto.one_line(0, "not under the MPS daemon at");
    assert_eq!(auto.out, format!("{} 1 auto\n", nowhere.display()));
    drop(somebodys);
    // Files that the ended daemon left in the folder do not count.
    machine.show(&["--share", "time"]).quiet(0);
    machine.show(&["--share", "spatial"]).one_line(3, "no MPS daemon answers");
}
