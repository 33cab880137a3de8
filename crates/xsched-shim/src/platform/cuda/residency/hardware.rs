//! Other hardware that accesses memory of the process without a call of the driver: network cards, disks. Their libraries give memory to
//! them through devices of the kernel, so that nothing leaves while one of these is open.

/// Parts of the paths of such devices: RDMA verbs, GDRCopy, GPUDirect Storage.
const DEVICES: [&str; 3] = ["/dev/infiniband/uverbs", "/dev/gdrdrv", "/dev/nvidia-fs"];

/// Reports whether the process has such a device open.
pub(super) fn is_open() -> bool {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return false };
    let is_one =
        |path: &std::path::Path| path.to_str().is_some_and(|path| DEVICES.iter().any(|one| path.contains(one)));
    all.flatten().any(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| is_one(&path)))
}
