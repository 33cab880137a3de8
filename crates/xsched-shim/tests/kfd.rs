//! Comparison of the layouts that level 3 on AMD's compute driver relies on with the system's headers.

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use xsched::platform::hsa::hooks::AmdQueue;
use xsched::platform::hsa::uapi::{
    CREATE_QUEUE, CreateQueue, DESTROY_QUEUE, DestroyQueue, GET_VERSION, GET_VERSION_REQUEST, GetVersion, PERCENT,
    TYPE_COMPUTE, TYPE_COMPUTE_AQL, UPDATE_QUEUE, UPDATE_QUEUE_REQUEST, UpdateQueue,
};

/// C that compiles only if each expression has the value that it has here.
fn assertions(pairs: &[(String, usize)]) -> String {
    pairs.iter().fold(String::new(), |mut text, (expression, value)| {
        writeln!(text, "_Static_assert(({expression}) == {value}ul, \"{expression}\");").expect("a string");
        text
    })
}

/// Compiles the text; the compiler's messages if that fails.
fn compile(headers: &[&str], body: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("kfd-layout-{}-{:x}.c", std::process::id(), body.len()));
    let mut text: String = headers.iter().map(|h| format!("#include <{h}>\n")).collect();
    text.push_str("#include <stddef.h>\n");
    text.push_str(body);
    std::fs::write(&file, text).expect("a file");
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testing/stand-ins/kfd/include");
    let output = Command::new("cc").args(["-std=gnu11", "-fsyntax-only", "-I"]).arg(include).arg(&file).output();
    let output = output.expect("a C compiler");
    let _ = std::fs::remove_file(&file);
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

macro_rules! layout {
    ($rust:ty, $c:literal; $($field:ident $(as $other:literal)?),* $(,)?) => {{
        let mut pairs = Vec::new();
        $(
            #[allow(unused_mut, unused_assignments)]
            let mut name = stringify!($field);
            $(name = $other;)?
            pairs.push((format!("offsetof({}, {name})", $c), offset_of!($rust, $field)));
        )*
        pairs
    }};
}

fn kernel_pairs() -> Vec<(String, usize)> {
    let mut pairs = layout!(CreateQueue, "struct kfd_ioctl_create_queue_args";
        ring_base_address, write_pointer_address, read_pointer_address, doorbell_offset, ring_size, gpu_id, queue_type,
        queue_percentage, queue_priority, queue_id, eop_buffer_address, eop_buffer_size, ctx_save_restore_address,
        ctx_save_restore_size, ctl_stack_size);
    pairs.extend(layout!(UpdateQueue, "struct kfd_ioctl_update_queue_args";
        ring_base_address, queue_id, ring_size, queue_percentage, queue_priority));
    pairs.extend(layout!(DestroyQueue, "struct kfd_ioctl_destroy_queue_args"; queue_id, pad));
    pairs.extend(layout!(GetVersion, "struct kfd_ioctl_get_version_args"; major_version, minor_version));
    for (name, size) in [
        ("update_queue", size_of::<UpdateQueue>()),
        ("destroy_queue", size_of::<DestroyQueue>()),
        ("get_version", size_of::<GetVersion>()),
    ] {
        pairs.push((format!("sizeof(struct kfd_ioctl_{name}_args)"), size));
    }
    for (name, number) in [
        ("GET_VERSION", GET_VERSION),
        ("CREATE_QUEUE", CREATE_QUEUE),
        ("DESTROY_QUEUE", DESTROY_QUEUE),
        ("UPDATE_QUEUE", UPDATE_QUEUE),
    ] {
        pairs.push((format!("_IOC_NR(AMDKFD_IOC_{name})"), number.into()));
    }
    pairs.push(("AMDKFD_IOC_UPDATE_QUEUE".into(), UPDATE_QUEUE_REQUEST as usize));
    pairs.push(("AMDKFD_IOC_GET_VERSION".into(), GET_VERSION_REQUEST as usize));
    pairs.push(("KFD_IOC_QUEUE_TYPE_COMPUTE".into(), TYPE_COMPUTE as usize));
    pairs.push(("KFD_IOC_QUEUE_TYPE_COMPUTE_AQL".into(), TYPE_COMPUTE_AQL as usize));
    pairs.push(("KFD_MAX_QUEUE_PERCENTAGE & ~0xff".into(), 0));
    assert_eq!(PERCENT, 0xff);
    pairs
}

#[test]
fn requests_are_laid_out_as_the_kernels_header_says() {
    let headers = ["linux/kfd_ioctl.h"];
    compile(&headers, &assertions(&kernel_pairs())).unwrap();
    // A newer header's structure is longer, never shorter.
    let size = size_of::<CreateQueue>();
    let body = format!("_Static_assert(sizeof(struct kfd_ioctl_create_queue_args) >= {size}, \"size\");");
    compile(&headers, &body).unwrap();
    // Checks that the comparison itself can fail.
    let wrong = [("offsetof(struct kfd_ioctl_update_queue_args, queue_id)".to_owned(), 12)];
    assert!(compile(&headers, &assertions(&wrong)).is_err());
}

#[test]
fn a_queues_indices_lie_where_amds_header_says() {
    let pairs = layout!(AmdQueue, "amd_queue_t"; before as "hsa_queue", write_dispatch_id, read_dispatch_id);
    compile(&["hsa/amd_hsa_queue.h"], &assertions(&pairs)).unwrap();
}

#[test]
fn every_function_of_amds_runtime_is_in_exactly_one_class() {
    use std::collections::BTreeSet;
    let library = "/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1";
    let output = Command::new("nm").args(["-D", "--defined-only", library]).output().expect("nm");
    assert!(output.status.success(), "{library}: apt-get install libhsa-runtime64-1");
    let listing = String::from_utf8(output.stdout).expect("text");
    let names = listing.lines().filter_map(|line| line.split_whitespace().nth(2)?.split('@').next());
    let exported: BTreeSet<&str> = names.filter(|name| name.starts_with("hsa_")).collect();
    let mut known = BTreeSet::new();
    let hooked = xsched::platform::hsa::HOOKS.iter().flat_map(|group| group.hooks);
    let hooked = hooked.map(|hook| hook.name.to_str().expect("an identifier"));
    let others = include_str!("../src/platform/hsa/no_device_work.txt").lines();
    for name in hooked.chain(others.filter(|line| !line.is_empty() && !line.starts_with('#'))) {
        assert!(known.insert(name), "{name} is in two classes");
    }
    let unknown: Vec<_> = exported.difference(&known).collect();
    assert!(exported.len() > 200 && unknown.is_empty(), "in no class: {unknown:?}");
}
