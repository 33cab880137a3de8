//! Trials of `libshim*.so`, preloaded and linked.

use std::path::{Path, PathBuf};

use serde_json::json;
use xsched_e2e::{Gpu, HipGpu, Place, Process, beside, now_ns};

use crate::all_are_tried;

/// Folder as in an installation: the library, and links to it.
fn links(place: &Place) -> PathBuf {
    let folder = place.join("lib");
    std::fs::create_dir(&folder).unwrap();
    let library = folder.join("libxsched.so");
    std::os::unix::fs::symlink(beside("libxsched.so"), &library).unwrap();
    for name in ["cuda", "hip", "opencl"] {
        std::os::unix::fs::symlink("libxsched.so", folder.join(format!("libshim{name}.so"))).unwrap();
    }
    folder
}

/// Libraries of a folder, in the form of `LD_PRELOAD`.
fn list(folder: &Path, names: &[&str]) -> String {
    names.iter().map(|name| folder.join(name).display().to_string()).collect::<Vec<_>>().join(":")
}

#[test]
fn libraries_of_the_original_schedule_every_launch_once() {
    let opencl = "LD_PRELOAD=libshimopencl.so";
    {
        let place = Place::new();
        let folder = links(&place);
        let _daemon = place.daemon(&[]);
        let program = place.opencl_program("passes_cl");
        let launches = |preload: String| {
            let mut command = place.command(&program, &[]);
            command.env("LD_PRELOAD", preload);
            let mut program = Process::start(command);
            let pid = program.pid();
            program.expect("ready");
            program.tell("kernels 3");
            program.expect("kernels");
            assert!(place.group(pid).is_some(), "the daemon knows it");
            program.tell("end");
            let (code, lines, errors) = program.wait();
            assert_eq!((code, lines.last().map(String::as_str)), (0, Some("ok")));
            let stats = place.stats_of(pid);
            assert_eq!(stats["unscheduled"], json!({"attach": 0, "passthrough": 0, "error": 0}), "{stats}");
            (stats["launches"].clone(), errors)
        };
        let alone = launches(list(&folder, &["libxsched.so"]));
        assert!(alone.0.as_u64() > Some(2) && alone.1.is_empty(), "{alone:?}");
        assert_eq!(launches(list(&folder, &["libshimopencl.so"])), alone, "{opencl}");
        let all = ["libshimcuda.so", "libshimhip.so", "libshimopencl.so", "libxsched.so"];
        assert_eq!(launches(list(&folder, &all)), alone);
        // A copy is another library: it would schedule launches a second time.
        std::fs::copy(beside("libxsched.so"), folder.join("copy.so")).unwrap();
        for names in [["libshimopencl.so", "copy.so"], ["copy.so", "libshimopencl.so"]] {
            let (once, errors) = launches(list(&folder, &names));
            assert_eq!((once, errors.lines().count()), (alone.0.clone(), 1), "{errors}");
            assert!(errors.contains(&format!("{} steps aside for", names[1])), "{errors}");
        }
    }
    {
        let gpu = Gpu::new();
        let folder = links(&gpu.place);
        let _daemon = gpu.place.daemon(&[]);
        let program = gpu.program("steady");
        for names in [&["libshimcuda.so"][..], &["libshimcuda.so", "libxsched.so"]] {
            let mut command = gpu.place.command(&program, &[]);
            command.env("LD_LIBRARY_PATH", gpu.place.join("driver"));
            command.env("FAKECUDA_STATS", gpu.place.join("driver-stats")).env("LD_PRELOAD", list(&folder, names));
            let mut steady = Process::start(command);
            steady.expect("ready");
            // Asserts that its launches are equal to the driver's count.
            gpu.end(steady);
        }
        linked(&gpu.place, &folder);
    }
    let target = beside("libxsched.so").ancestors().nth(2).unwrap().join("hip-runtime");
    if target.join("libamdhip64.so.6").is_file() {
        let gpu = HipGpu::new();
        let folder = links(&gpu.place);
        let _daemon = gpu.place.daemon(&[]);
        let mut command = gpu.place.command(gpu.program("kernels", 6), &[]);
        command.env("LD_PRELOAD", list(&folder, &["libshimhip.so"]));
        let process = gpu.with_runtime(command);
        let pid = process.pid();
        let (code, _, errors) = process.wait();
        assert_eq!((code, errors.as_str()), (0, ""));
        gpu.assert_counts(pid);
    } else {
        xsched_e2e::skipped("LD_PRELOAD=libshimhip.so: no software HIP runtime; run `cargo xtask hip-runtime`");
    }
    all_are_tried(
        "Libraries",
        [
            "LD_PRELOAD=libshimcuda.so",
            "LD_PRELOAD=libshimhip.so",
            opencl,
            "LD_PRELOAD=libshimcuda.so:libxsched.so",
            "-lshimcuda",
        ],
    );
}

/// A program that is linked with the library ahead of its driver is scheduled without a preload, and with one each launch counts once.
fn linked(place: &Place, folder: &Path) {
    let search = format!("-L{}", folder.display());
    let rpath = format!("-Wl,--disable-new-dtags,-rpath,{}", folder.display());
    let program = place.compile(
        "programs/hazards/steady.c",
        &["-Wl,--no-as-needed", &search, &rpath, "-lshimcuda", "-lsimdev", "-lpthread", "-lm"],
    );
    for preload in [None, Some("libxsched.so")] {
        let mut command = place.command(&program, &[]);
        command.envs(preload.map(|name| ("LD_PRELOAD", list(folder, &[name]))));
        let mut steady = Process::start(command);
        steady.expect("ready");
        steady.progress_after(now_ns());
        steady.tell("end");
        let (code, lines, errors) = steady.wait();
        assert_eq!((code, errors.as_str()), (0, ""));
        place.assert_counts(&lines);
    }
}
