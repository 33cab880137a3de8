//! The injector against a fake runtime that speaks the Node Resource Interface over a socket in the test's folder.

mod common;

use std::path::Path;

use common::kubelet::Kubelet;
use common::runtime::{Runtime, container, pod};
use common::{Node, Program, block_on, until};
use xsched_kube::api::nri::{CdiDevice, Container, ContainerAdjustment, Empty, Hook, KeyValue, Mount, STOPPED};

const CEILINGS: &str = "[injector.ceilings]\nserving = \"high\"\nbatch = \"low\"\n";

fn start(node: &Node, configuration: &str) -> Program {
    start_with(node, configuration, &[])
}

fn start_with(node: &Node, configuration: &str, options: &[&str]) -> Program {
    let [socket, cdi, resources] = ["nri.sock", "cdi", "pod-resources/kubelet.sock"].map(|name| node.path(name));
    let [socket, cdi, resources] = [&socket, &cdi, &resources].map(|path| path.to_str().unwrap());
    let all = ["--runtime", socket, "--cdi", cdi, "--pod-resources", resources, "--listen", "127.0.0.1:0"];
    node.start("nri", configuration, &[&all, options].concat())
}

/// The node's kubelet. The tests here use its lists of containers.
fn kubelet(node: &Node) -> Kubelet {
    Kubelet::start(&node.path("device-plugins"), &node.path("pod-resources/kubelet.sock"))
}

fn mounts(container: &mut Container, destination: &str, source: &str) {
    let (destination, source) = (destination.to_owned(), source.to_owned());
    container.mounts.push(Mount { destination, source, ..Default::default() });
}

async fn started(node: &Node, configuration: &str, version: &str) -> (Program, Runtime) {
    let program = start(node, configuration);
    let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
    // The event has number 4, so its bit is the fourth.
    assert_eq!(runtime.configure("containerd", version).await, 0b1000);
    (program, runtime)
}

#[test]
fn an_annotated_pod_gets_its_class_as_a_cdi_device() {
    block_on(async {
        let node = Node::new();
        let mut program = start(&node, CEILINGS);
        let (mut runtime, registered) = Runtime::accept(&node.path("nri.sock")).await;
        assert_eq!((registered.plugin_name.as_str(), registered.plugin_idx.as_str()), ("xsched", "50"));
        runtime.configure("containerd", "v2.1.4").await;
        assert!(!runtime.synchronize(&[], &[], false).await);
        let pod = pod("serving", "web", Some("high"));
        let adjust = runtime.create(&pod, &container(&pod, "main")).await.unwrap();
        assert_eq!(adjust.cdi_devices, [CdiDevice { name: "xsched.dev/class=high".to_owned() }]);
        assert!(adjust.env.is_empty() && adjust.mounts.is_empty());
        program.end();
    });
}

#[test]
fn amounts_of_memory_in_annotations_come_with_a_class() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, CEILINGS, "2.0.0").await;
        let with = |name: &str, class: Option<&str>, limit: &str| {
            let mut pod = pod("serving", name, class);
            pod.annotations.insert("xsched.dev/memory-limit".to_owned(), limit.to_owned());
            pod.annotations.insert("xsched.dev/memory-reserve".to_owned(), "10%".to_owned());
            pod
        };
        let good = with("good", Some("high"), "20 GiB");
        let variable = |key: &str, value: &str| KeyValue { key: key.to_owned(), value: value.to_owned() };
        let (limit, reserve) = (variable("XSCHED_MEMORY_LIMIT", "20GiB"), variable("XSCHED_MEMORY_RESERVE", "10%"));
        let adjust = runtime.create(&good, &container(&good, "main")).await.unwrap();
        assert_eq!((adjust.env, adjust.cdi_devices.len()), (vec![limit, reserve], 1));
        // A container that has its class from elsewhere.
        let mut scheduled = container(&good, "main");
        scheduled.cdi_devices = vec![CdiDevice { name: "xsched.dev/class=low".to_owned() }];
        let adjust = runtime.create(&good, &scheduled).await.unwrap();
        assert_eq!((adjust.env.len(), adjust.cdi_devices.len()), (2, 0));
        drop(program);
    });
}

/// The runtime passes the reason on to the kubelet, which reports it on the pod.
#[test]
fn a_pod_with_a_wrong_annotation_or_with_an_amount_and_no_class_is_refused() {
    block_on(async {
        let node = Node::new();
        let kubelet = kubelet(&node);
        kubelet.give("train", &[("xsched.dev/gpu-low", "SIM-0::0")]);
        kubelet.give("side", &[]);
        let (program, mut runtime) = started(&node, CEILINGS, "2.0.0").await;
        let with = |mut pod: xsched_kube::api::nri::PodSandbox, annotation: &str, text: &str| {
            pod.annotations.insert(format!("xsched.dev/{annotation}"), text.to_owned());
            pod
        };
        let good = |name: &str| pod("serving", name, Some("high"));
        for (pod, why) in [
            (
                with(good("a"), "memory-limit", "much"),
                "pod serving/a: xsched.dev/memory-limit: 'much' is no amount: use an amount of memory such as 20GiB",
            ),
            (with(good("b"), "memory-reserve", "-1"), "pod serving/b: xsched.dev/memory-reserve: '-1' is no amount"),
            (
                pod("serving", "c", Some("urgent")),
                "pod serving/c: xsched.dev/class: 'urgent' is no class: use one of low,",
            ),
            (
                with(pod("serving", "d", None), "memory-limit", "20GiB"),
                "pod serving/d, container main: an amount of memory needs a class, and it has none",
            ),
        ] {
            let refusal = runtime.refused(&pod, &container(&pod, "main")).await;
            assert!(refusal.starts_with(why), "{refusal}");
            assert!(program.log().contains(&format!("{refusal}: refused")), "{}", program.log());
        }
        // One with its class from elsewhere, too.
        let wrong = with(pod("serving", "e", None), "memory-limit", "0.5.1GiB");
        let mut scheduled = container(&wrong, "main");
        scheduled.cdi_devices = vec![CdiDevice { name: "xsched.dev/class=low".to_owned() }];
        assert!(runtime.refused(&wrong, &scheduled).await.contains("is no amount"));
        // A container beside the one that has the class by a resource has no use for the amount.
        let beside = with(pod("team", "pod", None), "memory-limit", "20GiB");
        assert_eq!(runtime.create(&beside, &container(&beside, "side")).await, None);
        // Without a specification the class cannot be given, and the limit would not hold.
        assert!(runtime.refused(&beside, &container(&beside, "train")).await.contains("needs a class"));
        // Namespaces that are left alone are left alone.
        let system = with(pod("kube-system", "s", Some("urgent")), "memory-limit", "much");
        assert_eq!(runtime.create(&system, &container(&system, "main")).await, None);
        let line = "pod kube-system/s: xsched.dev/memory-limit has no effect, as its namespace is left alone";
        assert!(program.log().contains(line), "{}", program.log());
        assert!(program.http("/metrics").1.contains("\nxsched_injector_refused_total 6\n"));
    });
}

/// A kubelet that does not answer keeps no pod from starting.
#[test]
fn an_amount_without_a_class_is_told_where_the_kubelet_does_not_tell_of_the_pods_other_containers() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, CEILINGS, "2.0.0").await;
        let mut plain = pod("serving", "p", None);
        plain.annotations.insert("xsched.dev/memory-limit".to_owned(), "20GiB".to_owned());
        assert_eq!(runtime.create(&plain, &container(&plain, "main")).await, None);
        let line = "pod serving/p, container main: has no class, so amounts of memory have no effect on it";
        assert!(program.log().contains(line), "{}", program.log());
    });
}

#[test]
fn a_class_above_the_namespaces_ceiling_is_clamped_and_told() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, CEILINGS, "2.0.0").await;
        for (namespace, asked, given) in [
            ("serving", "system", "high"),
            ("batch", "high", "low"),
            ("other", "realtime", "normal"),
            ("other", "low", "low"),
        ] {
            let pod = pod(namespace, "p", Some(asked));
            let adjust = runtime.create(&pod, &container(&pod, "c")).await.unwrap();
            assert_eq!(adjust.cdi_devices[0].name, format!("xsched.dev/class={given}"), "{namespace} {asked}");
        }
        let line = "pod batch/p: asks for class high, gets low: the ceiling of namespace batch";
        assert!(program.log().contains(line), "{}", program.log());
        assert_eq!(program.log().matches("asks for class").count(), 3);
    });
}

#[test]
fn a_pod_without_an_annotation_gets_the_default() {
    block_on(async {
        let node = Node::new();
        let plain = pod("a", "plain", None);
        let (program, mut runtime) = started(&node, "", "2.0.0").await;
        assert_eq!(runtime.create(&plain, &container(&plain, "c")).await, None);
        drop((program, runtime));
        let (_program, mut runtime) = started(&node, "[injector]\ndefault_class = \"low\"\n", "2.0.0").await;
        let adjust = runtime.create(&plain, &container(&plain, "c")).await.unwrap();
        assert_eq!(adjust.cdi_devices[0].name, "xsched.dev/class=low");
    });
}

/// Checks that the adjustment of a class has everything in the specification's file, and nothing else.
fn assert_as_specified(adjust: &ContainerAdjustment, specification: &Path, class: &str) {
    let text = std::fs::read_to_string(specification).unwrap();
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    let device = said["devices"].as_array().unwrap().iter().find(|device| device["name"] == class).unwrap();
    let all = |what: &str| -> Vec<serde_json::Value> {
        let parts = [&said["containerEdits"], &device["containerEdits"]];
        parts.into_iter().flat_map(|edits| edits[what].as_array().cloned().unwrap_or_default()).collect()
    };
    let variables = adjust.env.iter().map(|v| format!("{}={}", v.key, v.value));
    assert_eq!(variables.collect::<Vec<_>>(), all("env"));
    let mounts = adjust.mounts.iter().map(|m| {
        assert_eq!(m.kind, "bind");
        serde_json::json!({"hostPath": m.source, "containerPath": m.destination, "options": m.options})
    });
    assert_eq!(mounts.collect::<Vec<_>>(), all("mounts"));
    let hooks = adjust.hooks.as_ref().unwrap();
    let named = |name: &'static str, hooks: &[Hook]| -> Vec<_> {
        let hook = |hook: &Hook| serde_json::json!({"hookName": name, "path": hook.path, "args": hook.args});
        hooks.iter().map(hook).collect()
    };
    let hooks = [named("poststop", &hooks.poststop), named("createContainer", &hooks.create_container)].concat();
    assert_eq!((hooks.len(), hooks), (2, all("hooks")));
    assert!(adjust.cdi_devices.is_empty());
}

/// `LD_PRELOAD` is not set: the hook checks the image before the library is loaded into it.
#[test]
fn a_runtime_without_cdi_in_nri_gets_what_the_nodes_specification_says_with_its_hooks() {
    block_on(async {
        let node = Node::new();
        let specification = node.generate_cdi();
        for (configuration, version) in
            [("[injector]\ndefault_class = \"low\"\n", "1.7.24"), ("delivery = \"environment\"\n", "2.1.4")]
        {
            let (program, mut runtime) = started(&node, configuration, version).await;
            assert!(program.log().contains("mounts, variables and hooks of the CDI spec"), "{}", program.log());
            let asks = pod("a", "p", Some("low"));
            let mut own = container(&asks, "c");
            own.env = vec!["PATH=/bin".to_owned(), "LD_PRELOAD=/lib/jemalloc.so".to_owned()];
            let adjust = runtime.create(&asks, &own).await.unwrap();
            assert_as_specified(&adjust, &specification, "low");
            assert!(adjust.env.iter().all(|variable| variable.key != "LD_PRELOAD"));
            let plain = pod("a", "plain", None);
            let given = runtime.create(&plain, &container(&plain, "c")).await;
            assert_eq!(given.is_some(), configuration.contains("default_class"), "{version}");
        }
    });
}

#[test]
fn a_container_without_cdi_in_nri_and_without_a_specification_is_left_alone_and_named() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "1.7.24").await;
        let asks = pod("a", "p", Some("low"));
        assert_eq!(runtime.create(&asks, &container(&asks, "c")).await, None);
        let line = "pod a/p, container c: has no class: there is no xsched.dev-class.json in /";
        assert!(program.log().contains(line), "{}", program.log());
        // The specification is searched for each time.
        let specification = node.generate_cdi();
        let adjust = runtime.create(&asks, &container(&asks, "c")).await.unwrap();
        assert_as_specified(&adjust, &specification, "low");
    });
}

#[test]
fn a_container_that_has_a_class_from_a_resource_keeps_it() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "2.0.0").await;
        let pod = pod("a", "p", Some("low"));
        let mut container = container(&pod, "c");
        container.mounts = vec![Mount { destination: "/usr/lib/xsched/libxsched.so".to_owned(), ..Default::default() }];
        assert_eq!(runtime.create(&pod, &container).await, None);
        assert!(program.log().contains("pod a/p, container c: keeps the class of its resource"), "{}", program.log());
    });
}

#[test]
fn containers_that_started_while_the_injector_was_away_are_named() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "2.0.0").await;
        let (asks, plain) = (pod("a", "asks", Some("low")), pod("a", "plain", None));
        let mut scheduled = container(&asks, "scheduled");
        scheduled.mounts = vec![Mount { destination: "/usr/lib/xsched/libxsched.so".to_owned(), ..Default::default() }];
        // In two requests, with the pod in one and its containers in the other.
        assert!(runtime.synchronize(&[asks.clone(), plain.clone()], &[], true).await);
        let containers = [container(&asks, "missed"), scheduled, container(&plain, "other")];
        assert!(!runtime.synchronize(&[], &containers, false).await);
        let log = program.log();
        let line =
            "pod a/asks, container missed: started while the injector was away and has no class, but asks for low";
        assert!(log.contains(line), "{log}");
        assert_eq!(log.matches("was away").count(), 1, "{log}");
    });
}

#[test]
fn a_runtime_that_restarts_is_registered_with_again() {
    block_on(async {
        let node = Node::new();
        let (program, runtime) = started(&node, "", "2.0.0").await;
        drop(runtime);
        until("the end is told", || program.log().contains("has closed the connection; trying again")).await;
        let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
        runtime.configure("containerd", "2.0.0").await;
        let pod = pod("a", "p", Some("low"));
        assert!(runtime.create(&pod, &container(&pod, "c")).await.is_some());
    });
}

#[test]
fn requests_may_come_in_pieces_and_unknown_ones_are_refused() {
    block_on(async {
        let node = Node::new();
        let (_program, mut runtime) = started(&node, "", "2.0.0").await;
        let refused = runtime.ask_in_pieces("StateChange", &Empty {}, 3).await;
        assert_eq!(refused.status.unwrap().code, 12);
        let shut = runtime.ask_in_pieces("Shutdown", &Empty {}, 1).await;
        assert_eq!(shut.status, None);
        // 2000 containers do not fit into one message.
        let asks = pod("a", "asks", None);
        let containers: Vec<_> = (0..2000).map(|n| container(&asks, &format!("container-{n}"))).collect();
        assert!(!runtime.synchronize(&[asks], &containers, false).await);
    });
}

/// containerd 1.7 resolves no CDI devices by default, and gives no message.
#[test]
fn a_class_of_a_resource_that_the_runtime_has_left_out_is_given_and_told() {
    block_on(async {
        for version in ["1.7.24", "2.1.4"] {
            let node = Node::new();
            let kubelet = kubelet(&node);
            // Namespace and pod as the fake kubelet names them.
            kubelet.give("train", &[("xsched.dev/gpu-low", "SIM-0::0"), ("example.com/nic", "n1")]);
            kubelet.give("other", &[("example.com/nic", "n2")]);
            let (program, mut runtime) = started(&node, "", version).await;
            // The class of the resource counts, whatever a tenant asks for.
            let asks = pod("team", "pod", Some("high"));
            assert_eq!(runtime.create(&asks, &container(&asks, "train")).await, None);
            let left_out =
                "pod team/pod, container train: the runtime has left out the CDI devices of xsched.dev/gpu-low";
            let unscheduled = format!(
                "{left_out}, and it runs UNSCHEDULED: set enable_cdi = true in containerd's configuration, under"
            );
            assert!(program.log().contains(&unscheduled), "{}", program.log());
            let specification = node.generate_cdi();
            let adjust = runtime.create(&asks, &container(&asks, "train")).await.unwrap();
            assert_as_specified(&adjust, &specification, "low");
            assert!(program.log().contains(&format!("{left_out}: it gets the class from here")), "{}", program.log());
            // A container that has the mounts already needs nothing more.
            let mut whole = container(&asks, "train");
            mounts(&mut whole, "/usr/lib/xsched/libxsched.so", "/opt/xsched/libxsched.so");
            assert_eq!(runtime.create(&asks, &whole).await, None);
            let plain = pod("team", "pod", None);
            assert_eq!(runtime.create(&plain, &container(&plain, "other")).await, None);
            let (_, metrics) = program.http("/metrics");
            for line in ["repaired_total 1", "failed_total 1", "given_total 1", "missed_total 0"] {
                assert!(metrics.contains(&format!("\nxsched_injector_{line}\n")), "{metrics}");
            }
            drop((program, runtime));
        }
    });
}

#[test]
fn a_kubelet_that_does_not_answer_holds_no_container_up_and_is_told_once() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "2.1.4").await;
        let asks = pod("team", "pod", Some("low"));
        for name in ["a", "b"] {
            assert!(runtime.create(&asks, &container(&asks, name)).await.is_some());
        }
        assert_eq!(program.log().matches("the kubelet does not tell").count(), 1, "{}", program.log());
    });
}

/// Above all the daemon's own container: with a class, the folder would be mounted over its own, read-only.
#[test]
fn a_container_with_the_sockets_folder_and_namespaces_that_are_left_alone_get_no_class() {
    block_on(async {
        let node = Node::new();
        let kubelet = kubelet(&node);
        kubelet.give("holder", &[("xsched.dev/gpu-low", "SIM-0::0")]);
        let configuration = "[injector]\ndefault_class = \"low\"\n";
        let (program, mut runtime) = started(&node, configuration, "2.0.0").await;
        for (destination, source) in [
            ("/run/xsched", "/run/xsched"),
            ("/run/xsched/", "/srv/x"),
            ("/var/run/xsched", "/srv/x"),
            ("/host/socket", "/run/xsched"),
            ("/x.sock", "/var/run/xsched/xsched.sock"),
        ] {
            for (pod, name) in [
                (pod("other", "node", None), "daemon"),
                (pod("other", "node", Some("low")), "daemon"),
                (pod("team", "pod", None), "holder"),
            ] {
                let mut holder = container(&pod, name);
                mounts(&mut holder, destination, source);
                assert_eq!(runtime.create(&pod, &holder).await, None, "{destination} {source}");
            }
        }
        let line = "pod other/node, container daemon: has /run/xsched by itself, and so gets no class";
        assert_eq!(program.log().matches(line).count(), 5, "those that ask: {}", program.log());
        let mut near = container(&pod("other", "near", None), "c");
        mounts(&mut near, "/run/xsched-containers", "/run/xsched-containers");
        assert!(runtime.create(&pod("other", "near", None), &near).await.is_some());

        let system = pod("kube-system", "proxy", None);
        assert_eq!(runtime.create(&system, &container(&system, "c")).await, None);
        let asks = pod("kube-system", "asks", Some("low"));
        assert_eq!(runtime.create(&asks, &container(&asks, "c")).await, None);
        let line = "pod kube-system/asks: asks for low, and its namespace is left alone";
        assert!(program.log().contains(line), "{}", program.log());
        drop((program, runtime));

        let configuration = format!("{configuration}namespaces = [\"in\", \"out\"]\nskip_namespaces = [\"out\"]\n");
        let (_program, mut runtime) = started(&node, &configuration, "2.0.0").await;
        for (namespace, has) in [("in", true), ("out", false), ("other", false), ("kube-system", false)] {
            let plain = pod(namespace, "p", None);
            assert_eq!(runtime.create(&plain, &container(&plain, "c")).await.is_some(), has, "{namespace}");
        }
    });
}

/// The manifests put the name of the namespace into the environment.
#[test]
fn the_injectors_own_namespace_is_left_alone() {
    block_on(async {
        let node = Node::new();
        let _program =
            node.with_variable("POD_NAMESPACE", "ours", || start(&node, "[injector]\ndefault_class = \"low\"\n"));
        let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
        runtime.configure("containerd", "2.0.0").await;
        for (namespace, has) in [("ours", false), ("other", true)] {
            let plain = pod(namespace, "p", None);
            assert_eq!(runtime.create(&plain, &container(&plain, "c")).await.is_some(), has, "{namespace}");
        }
    });
}

#[test]
fn two_classes_by_cdi_are_told() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "2.1.4").await;
        let plain = pod("a", "p", None);
        let mut both = container(&plain, "init");
        both.cdi_devices =
            ["xsched.dev/class=low", "xsched.dev/class=high"].map(|name| CdiDevice { name: name.to_owned() }).to_vec();
        assert_eq!(runtime.create(&plain, &both).await, None);
        let line =
            "pod a/p, container init: has xsched.dev/class=high and xsched.dev/class=low: the less urgent counts";
        assert!(program.log().contains(line), "{}", program.log());
    });
}

#[test]
fn missed_containers_are_those_that_run_and_ask_by_annotation_or_resource() {
    block_on(async {
        let node = Node::new();
        let kubelet = kubelet(&node);
        kubelet.give("train", &[("xsched.dev/gpu-low", "SIM-0::0")]);
        let (program, mut runtime) = started(&node, "[injector]\ndefault_class = \"low\"\n", "1.7.24").await;
        let state = |pod: &_, name, state| Container { state, ..container(pod, name) };
        let running = 3;
        let mut by_resource = pod("team", "pod", None);
        by_resource.id = "sandbox-by-resource".to_owned();
        let (asks, plain, system) =
            (pod("a", "asks", Some("low")), pod("a", "plain", None), pod("kube-system", "s", Some("low")));
        let mut daemon = state(&asks, "daemon", running);
        mounts(&mut daemon, "/run/xsched", "/run/xsched");
        let containers = [
            state(&asks, "late", running),
            state(&asks, "gone", STOPPED),
            daemon,
            state(&by_resource, "train", running),
            state(&plain, "plain", running),
            state(&system, "system", running),
        ];
        assert!(!runtime.synchronize(&[asks, by_resource, plain, system], &containers, false).await);
        let log = program.log();
        assert!(log.contains("pod a/asks, container late: started while the injector was away"), "{log}");
        assert!(
            log.contains("pod team/pod, container train: was given xsched.dev/gpu-low and runs UNSCHEDULED"),
            "{log}"
        );
        assert!(
            log.contains("enable_cdi = true") && log.contains("1 containers without an annotation started before"),
            "{log}"
        );
        assert_eq!(log.matches(", container ").count(), 2, "{log}");
        assert!(program.http("/metrics").1.contains("\nxsched_injector_missed_total 2\n"));
    });
}

/// A process in place of a container's: its cgroup is the test's.
#[test]
fn missed_containers_are_ended_where_that_is_asked_for_and_no_other_process_is() {
    block_on(async {
        let node = Node::new();
        let program = start_with(&node, "", &["--restart-missed"]);
        let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
        runtime.configure("containerd", "2.0.0").await;
        let sleeps = || std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (mut missed, mut other) = (sleeps(), sleeps());
        let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let asks = pod("a", "asks", Some("low"));
        let of = |name: &str, id: &str, process: &std::process::Child| Container {
            id: id.to_owned(),
            pid: process.id(),
            state: 3,
            ..container(&asks, name)
        };
        let containers = [of("late", cgroups.trim(), &missed), of("reused", "0123456789abcdef", &other)];
        assert!(!runtime.synchronize(std::slice::from_ref(&asks), &containers, false).await);
        until("it has ended", || missed.try_wait().unwrap().is_some()).await;
        let name = "pod a/asks, container late: has ended, for the kubelet to start it with its class";
        until("it is told", || program.log().contains(name)).await;
        let line =
            format!("pod a/asks, container reused: cannot be restarted: process {} is not in its cgroup", other.id());
        until("the other is told", || program.log().contains(&line)).await;
        assert!(other.try_wait().unwrap().is_none(), "it lives");
        other.kill().unwrap();
        other.wait().unwrap();
    });
}

#[test]
fn the_injector_is_ready_once_a_runtime_has_it_or_if_it_is_switched_off() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "", "2.0.0").await;
        let (code, text) = program.http("/ready");
        assert!(code == 503 && text.contains("is NRI switched on there?"), "{code} {text}");
        runtime.synchronize(&[], &[], false).await;
        assert_eq!(program.http("/ready"), (200, "ready\n".to_owned()));
        assert_eq!(program.http("/").0, 404);
        drop(runtime);
        until("it is not ready", || program.http("/ready").0 == 503).await;
        drop(program);
        let mut program = start(&node, "[injector]\nenabled = false\n");
        until("it is ready", || program.http("/ready").0 == 200).await;
        assert!(program.log().contains("switched off by `enabled = false`"), "{}", program.log());
        program.end();
    });
}
