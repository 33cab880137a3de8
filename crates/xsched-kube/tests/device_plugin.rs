//! The device plugin against a fake kubelet that speaks the kubelet's gRPC over sockets in the test's folder.

mod common;

use common::kubelet::Kubelet;
use common::{Node, block_on, until};

const CLASSES: [&str; 3] = ["xsched.dev/gpu-high", "xsched.dev/gpu-normal", "xsched.dev/gpu-low"];
const COUNTS: &str =
    "[device_plugin]\nhealth_interval_ms = 10\n[device_plugin.counts]\nhigh = 1\nnormal = 2\nlow = 3\n";

fn kubelet(node: &Node) -> Kubelet {
    Kubelet::start(&node.path("device-plugins"), &node.path("pod-resources/kubelet.sock"))
}

async fn until_healthy(kubelet: &Kubelet, counts: [usize; 3]) {
    until("the devices are healthy", || {
        CLASSES.iter().zip(counts).all(|(class, count)| kubelet.devices(class, "Healthy").len() == count)
    })
    .await;
}

fn board(n: u32) -> String {
    format!("GPU-00000000-0000-0000-0000-00000000000{n}")
}

#[test]
fn each_class_is_registered_with_its_devices_on_every_gpu() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        let kubelet = kubelet(&node);
        let mut plugin = node.start_device_plugin(COUNTS, &["--simulated", "2"]);
        until_healthy(&kubelet, [2, 4, 6]).await;
        let registered = kubelet.registered();
        assert_eq!(registered.iter().map(|r| r.resource_name.as_str()).collect::<Vec<_>>(), CLASSES);
        assert!(registered.iter().all(|r| r.version == "v1beta1" && !r.endpoint.contains('/')));
        assert_eq!(kubelet.devices(CLASSES[0], "Healthy"), ["SIM-0::0", "SIM-1::0"]);
        let answer = kubelet.allocate(CLASSES[0], &["SIM-1::0"]).await.unwrap();
        assert_eq!(answer.cdi_devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["xsched.dev/class=high"]);
        assert!(answer.envs.is_empty() && answer.mounts.is_empty());
        let refused = kubelet.allocate(CLASSES[0], &["SIM-7::0"]).await.unwrap_err();
        assert_eq!(refused.message(), "there is no GPU SIM-7 on this node");
        plugin.end();
        let left = std::fs::read_dir(node.path("device-plugins")).unwrap().flatten();
        assert_eq!(left.map(|e| e.file_name()).collect::<Vec<_>>(), ["kubelet.sock"], "its sockets go with it");
        until("no device is healthy without the plugin", || {
            CLASSES.iter().all(|class| kubelet.devices(class, "Healthy").is_empty())
        })
        .await;
    });
}

#[test]
fn a_kubelet_that_restarts_is_registered_with_again_and_so_does_a_plugin_that_restarts() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        let first = kubelet(&node);
        let mut plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until_healthy(&first, [1, 2, 3]).await;
        first.end();
        let second = kubelet(&node);
        until_healthy(&second, [1, 2, 3]).await;
        assert_eq!(second.registered().len(), 3);
        plugin.end();
        plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until("the new plugin registers", || second.registered().len() == 6).await;
        until_healthy(&second, [1, 2, 3]).await;
        // A plugin that was killed leaves its sockets; the next one replaces them.
        drop(plugin);
        let _plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until("the next plugin registers", || second.registered().len() == 9).await;
        until_healthy(&second, [1, 2, 3]).await;
    });
}

#[test]
fn a_kubelet_that_comes_later_or_refuses_at_first_is_registered_with() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        let plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until("the plugin listens", || node.path("device-plugins/xsched-gpu-low.sock").exists()).await;
        let kubelet = kubelet(&node);
        kubelet.refuse(true);
        until("the plugin is refused", || plugin.log().contains("the kubelet does not take the plugin: ")).await;
        kubelet.refuse(false);
        until_healthy(&kubelet, [1, 2, 3]).await;
    });
}

#[test]
fn no_device_is_healthy_while_the_daemon_is_away() {
    block_on(async {
        let node = Node::new();
        let kubelet = kubelet(&node);
        let plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until("the devices are there and not healthy", || kubelet.devices(CLASSES[2], "Unhealthy").len() == 3).await;
        let daemon = node.daemon();
        until_healthy(&kubelet, [1, 2, 3]).await;
        // The socket's file stays, as after a crash.
        drop(daemon);
        until("the devices are not healthy", || kubelet.devices(CLASSES[2], "Unhealthy").len() == 3).await;
        let _daemon = node.daemon();
        until_healthy(&kubelet, [1, 2, 3]).await;
        assert!(plugin.log().contains("does not answer: no device is healthy"), "{}", plugin.log());
    });
}

#[test]
fn a_board_with_a_fault_takes_no_further_container_and_a_programs_fault_costs_nothing() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        node.nvml("count", 2);
        let kubelet = kubelet(&node);
        let plugin = node.start_device_plugin(COUNTS, &[]);
        until_healthy(&kubelet, [2, 4, 6]).await;
        node.nvml("xid", 31);
        until("the program's fault is told", || plugin.log().contains("Xid 31, a program's fault")).await;
        assert_eq!(kubelet.devices(CLASSES[0], "Healthy").len(), 2);
        node.nvml("xid_of", 1);
        node.nvml("xid", 79);
        until_healthy(&kubelet, [1, 2, 3]).await;
        assert_eq!(kubelet.devices(CLASSES[0], "Healthy"), [format!("{}::0", board(0))]);
        assert_eq!(kubelet.devices(CLASSES[0], "Unhealthy"), [format!("{}::0", board(1))]);
    });
}

#[test]
fn a_container_gets_its_class_and_its_gpu_by_cdi() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        node.nvml("count", 2);
        let kubelet = kubelet(&node);
        let counts = format!("{COUNTS}[device_plugin.gpus.\"{}\"]\nlow = 5\n", board(1));
        let _plugin = node.start_device_plugin(&counts, &[]);
        until_healthy(&kubelet, [2, 6, 8]).await;
        let all = kubelet.devices(CLASSES[2], "Healthy");
        let preferred = kubelet.preferred(CLASSES[2], &all, 2).await;
        assert_eq!(preferred, [format!("{}::0", board(1)), format!("{}::1", board(1))], "the one with most free");
        kubelet.give("server", &[(CLASSES[0], &format!("{}::0", board(1)))]);
        let beside = kubelet.preferred(CLASSES[2], &all, 1).await;
        assert_eq!(beside, [format!("{}::0", board(0))], "the other one has no company");
        let ids: Vec<&str> = preferred.iter().map(String::as_str).collect();
        let answer = kubelet.allocate(CLASSES[2], &ids).await.unwrap();
        let names: Vec<&str> = answer.cdi_devices.iter().map(|d| d.name.as_str()).collect();
        assert_eq!(names, ["xsched.dev/class=low", &format!("nvidia.com/gpu={}", board(1))]);
    });
}

#[test]
fn parts_of_a_board_are_devices_of_their_own() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        node.nvml("mig", 1);
        let kubelet = kubelet(&node);
        let _plugin = node.start_device_plugin(COUNTS, &[]);
        until_healthy(&kubelet, [2, 4, 6]).await;
        let all = kubelet.devices(CLASSES[0], "Healthy");
        assert!(all.iter().all(|id| id.starts_with("MIG-") && id.len() <= 63), "{all:?}");
        let answer = kubelet.allocate(CLASSES[0], &[&all[1]]).await.unwrap();
        let uuid = all[1].split("::").next().unwrap();
        assert_eq!(answer.cdi_devices[1].name, format!("nvidia.com/gpu={uuid}"));
        // A fault of a board is one of all its parts.
        node.nvml("xid", 79);
        until_healthy(&kubelet, [0, 0, 0]).await;
    });
}

#[test]
fn a_gpu_that_another_plugin_offers_too_takes_no_container_until_it_is_offered_once() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        node.nvml("count", 2);
        let kubelet = kubelet(&node);
        let (first, second) = (board(0), board(1));
        kubelet.offer("nvidia.com/gpu", &[&first]);
        let mut plugin = node.start_device_plugin(COUNTS, &[]);
        until_healthy(&kubelet, [1, 2, 3]).await;
        assert_eq!(kubelet.devices(CLASSES[0], "Unhealthy"), [format!("{first}::0")]);
        let line = format!("{first}: nvidia.com/gpu offers it too, and would give it away twice");
        // Time-slicing by NVIDIA's plugin: several devices of one GPU, under names of their own.
        kubelet.offer("nvidia.com/gpu.shared", &[&format!("{second}::0"), &format!("{second}::1")]);
        until_healthy(&kubelet, [0, 0, 0]).await;
        kubelet.offer("nvidia.com/gpu", &[]);
        until("the first is healthy", || kubelet.devices(CLASSES[0], "Healthy") == [format!("{first}::0")]).await;
        kubelet.offer("nvidia.com/gpu.shared", &[]);
        until_healthy(&kubelet, [2, 4, 6]).await;
        let log = plugin.log();
        assert_eq!((log.matches(&line).count(), log.matches("offers it too").count()), (1, 2), "{log}");
        assert_eq!(log.matches("no other plugin offers it any more").count(), 2, "{log}");
        plugin.end();
        // An operator may allow it.
        kubelet.offer("nvidia.com/gpu", &[&first]);
        let allowed = COUNTS.replace("[device_plugin]\n", "[device_plugin]\noffered_twice = \"allowed\"\n");
        let plugin = node.start_device_plugin(&allowed, &[]);
        until("it is told", || plugin.log().contains(&line)).await;
        until_healthy(&kubelet, [2, 4, 6]).await;
    });
}

#[test]
fn without_cdi_a_container_gets_variables_and_mounts() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        node.compile_nvml();
        let kubelet = kubelet(&node);
        let configuration = format!("delivery = \"environment\"\n{COUNTS}");
        let _plugin = node.start_device_plugin(&configuration, &["--library", "/opt/xsched/libxsched.so"]);
        until_healthy(&kubelet, [1, 2, 3]).await;
        let answer = kubelet.allocate(CLASSES[1], &[&format!("{}::1", board(0))]).await.unwrap();
        assert!(answer.cdi_devices.is_empty());
        for (name, value) in [
            ("XSCHED_PRIORITY", "normal"),
            ("XSCHED_SOCKET", "/run/xsched/x.sock"),
            ("LD_PRELOAD", "/usr/lib/xsched/libxsched.so"),
            ("NVIDIA_VISIBLE_DEVICES", &board(0)),
        ] {
            assert_eq!(answer.envs[name], value, "{name}");
        }
        let mounts: Vec<_> = answer.mounts.iter().map(|m| (m.host_path.clone(), m.container_path.as_str())).collect();
        let folder = node.path("run").display().to_string();
        let library = "/opt/xsched/libxsched.so".to_owned();
        assert_eq!(mounts, [(library, "/usr/lib/xsched/libxsched.so"), (folder, "/run/xsched")]);
        assert!(answer.mounts.iter().all(|m| m.read_only));
    });
}

#[test]
fn two_classes_in_one_container_are_refused_before_it_starts() {
    block_on(async {
        let node = Node::new();
        let _daemon = node.daemon();
        let kubelet = kubelet(&node);
        let plugin = node.start_device_plugin(COUNTS, &["--simulated", "1"]);
        until_healthy(&kubelet, [1, 2, 3]).await;
        kubelet.give("good", &[(CLASSES[0], "SIM-0::0"), ("example.com/nic", "SIM-0::0")]);
        kubelet.give("bad", &[(CLASSES[1], "SIM-0::1"), (CLASSES[2], "SIM-0::0")]);
        kubelet.before_start(CLASSES[0], "SIM-0::0").await.unwrap();
        let refused = kubelet.before_start(CLASSES[2], "SIM-0::0").await.unwrap_err();
        let line = "container bad of pod team/pod asks for xsched.dev/gpu-low and xsched.dev/gpu-normal: use one class for a container";
        assert_eq!(refused.message(), line);
        assert!(plugin.log().contains(line));
    });
}

/// Writes a container's record, as CDI's hook does.
fn record(node: &Node, id: &str, namespace: &str, pod: &str, name: &str) {
    let text =
        format!(r#"{{"id": "{id}", "name": "{name}", "pod": "{pod}", "namespace": "{namespace}", "class": "low"}}"#);
    std::fs::write(node.path("run-containers").join(format!("{id}.json")), text).unwrap();
}

#[test]
fn a_container_that_its_class_does_not_reach_is_named() {
    block_on(async {
        let node = Node::new();
        std::fs::create_dir(node.path("run-containers")).unwrap();
        let _daemon = node.daemon();
        let kubelet = kubelet(&node);
        let configuration = COUNTS.replace("[device_plugin]\n", "[device_plugin]\ndelivered_within_ms = 10\n");
        let plugin = node.start_device_plugin(&configuration, &["--simulated", "1", "--listen", "127.0.0.1:0"]);
        until_healthy(&kubelet, [1, 2, 3]).await;
        for n in 0..3 {
            kubelet.give(["lost", "again", "other"][n], &[(CLASSES[2], &format!("SIM-0::{n}"))]);
        }
        // The record of an earlier container of the same name.
        record(&node, "before", "team", "pod", "again");
        for (n, name) in ["lost", "again"].iter().enumerate() {
            kubelet.before_start(CLASSES[2], &format!("SIM-0::{n}")).await.unwrap();
            let line = format!(
                "pod team/pod, container {name}: was given xsched.dev/gpu-low, and no class has reached it in 0.01 s (no record in "
            );
            until("it is named", || plugin.log().contains(&line)).await;
            assert!(plugin.log().contains(
                "set enable_cdi = true in containerd's configuration, under [plugins.\"io.containerd.grpc.v1.cri\"]"
            ));
            record(&node, "another", "team", "pod", "other");
        }
        assert_eq!(plugin.log().matches("no class has reached").count(), 2, "{}", plugin.log());
        assert!(plugin.http("/metrics").1.contains("\nxsched_device_plugin_undelivered_total 2\n"));
        assert!(!plugin.log().contains("container other"), "{}", plugin.log());
    });
}

/// Delivery by variables leaves no record, so none is waited for.
#[test]
fn a_container_that_gets_its_class_by_variables_is_not_named() {
    block_on(async {
        let node = Node::new();
        std::fs::create_dir(node.path("run-containers")).unwrap();
        let daemon = node.daemon();
        let kubelet = kubelet(&node);
        let configuration = COUNTS.replace("[device_plugin]\n", "[device_plugin]\ndelivered_within_ms = 10\n");
        let configuration = format!("delivery = \"environment\"\n{configuration}");
        let plugin = node.start_device_plugin(&configuration, &["--simulated", "1"]);
        until_healthy(&kubelet, [1, 2, 3]).await;
        kubelet.give("train", &[(CLASSES[2], "SIM-0::0")]);
        kubelet.before_start(CLASSES[2], "SIM-0::0").await.unwrap();
        // Longer than it would have waited, and until one poll later.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        drop(daemon);
        until("the daemon's end is told", || plugin.log().contains("does not answer: no device is healthy")).await;
        assert!(!plugin.log().contains("no class has reached"), "{}", plugin.log());
    });
}

#[test]
fn the_plugin_is_ready_while_kubelet_and_daemon_have_it() {
    block_on(async {
        let node = Node::new();
        let plugin = node.start_device_plugin(COUNTS, &["--simulated", "1", "--listen", "127.0.0.1:0"]);
        let (code, text) = plugin.http("/ready");
        assert!(code == 503 && text.contains("not ready: "), "{code} {text}");
        let kubelet = kubelet(&node);
        until("the kubelet has it", || plugin.log().contains("registered with the kubelet")).await;
        until("the daemon is missed", || plugin.http("/ready").1.contains("does not answer")).await;
        let daemon = node.daemon();
        until("it is ready", || plugin.http("/ready") == (200, "ready\n".to_owned())).await;
        drop(daemon);
        until("it is not ready", || plugin.http("/ready").0 == 503).await;
        drop(kubelet);
    });
}

#[test]
fn bad_input_is_one_line_with_its_exit_code() {
    let node = Node::new();
    let run = |configuration: &str, options: &[&str]| {
        let mut program = node.start_device_plugin(configuration, options);
        let code = program.wait();
        (code, program.log())
    };
    let (code, log) = run("counts = 1", &["--simulated", "1"]);
    assert_eq!((code, log.lines().count()), (2, 1), "{log}");
    assert!(log.contains("kubernetes.toml: line 1: unknown field `counts`"), "{log}");
    let (code, log) = run("", &["--simulate", "1"]);
    assert_eq!((code, log.lines().count()), (2, 1), "{log}");
    let (code, log) = run("", &[]);
    assert_eq!(code, 3, "{log}");
    assert!(log.contains("cannot load libnvidia-ml.so.1") && log.contains("--simulated N"), "{log}");
}
