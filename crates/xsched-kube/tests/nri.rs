//! The injector against a stand-in runtime, which speaks the Node Resource Interface over a socket below a folder of the test's.

mod common;

use common::runtime::{Runtime, container, pod};
use common::{Node, Program, block_on, until};
use xsched_kube::api::nri::{CdiDevice, Empty, Mount};

const CEILINGS: &str = "[injector.ceilings]\nserving = \"high\"\nbatch = \"low\"\n";

fn start(node: &Node, configuration: &str) -> Program {
    let socket = node.path("nri.sock");
    node.start("nri", configuration, &["--runtime", socket.to_str().unwrap()])
}

async fn started(node: &Node, configuration: &str, version: &str) -> (Program, Runtime) {
    let program = start(node, configuration);
    let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
    // The number of the event is 4.
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
fn a_pod_without_an_annotation_or_with_a_wrong_one_gets_the_default() {
    block_on(async {
        let node = Node::new();
        let (plain, wrong) = (pod("a", "plain", None), pod("a", "wrong", Some("urgent")));
        let (program, mut runtime) = started(&node, "", "2.0.0").await;
        assert_eq!(runtime.create(&plain, &container(&plain, "c")).await, None);
        assert_eq!(runtime.create(&wrong, &container(&wrong, "c")).await, None);
        let line = "pod a/wrong: 'urgent' is no class: use one of low, normal, high, realtime, system";
        assert!(program.log().contains(line), "{}", program.log());
        drop((program, runtime));
        let (_program, mut runtime) = started(&node, "[injector]\ndefault_class = \"low\"\n", "2.0.0").await;
        for pod in [&plain, &wrong] {
            let adjust = runtime.create(pod, &container(pod, "c")).await.unwrap();
            assert_eq!(adjust.cdi_devices[0].name, "xsched.dev/class=low");
        }
    });
}

#[test]
fn a_runtime_without_cdi_in_nri_gets_variables_and_mounts_and_the_containers_own_preloads_stay() {
    block_on(async {
        let node = Node::new();
        let (program, mut runtime) = started(&node, "[injector]\ndefault_class = \"low\"\n", "1.7.24").await;
        let pod = pod("a", "p", Some("low"));
        let mut container = container(&pod, "c");
        container.env = vec!["PATH=/bin".to_owned(), "LD_PRELOAD=/lib/jemalloc.so".to_owned()];
        let adjust = runtime.create(&pod, &container).await.unwrap();
        assert!(adjust.cdi_devices.is_empty());
        let variables: Vec<_> = adjust.env.iter().map(|v| (v.key.as_str(), v.value.as_str())).collect();
        assert_eq!(
            variables,
            [
                ("XSCHED_PRIORITY", "low"),
                ("XSCHED_SOCKET", "/run/xsched/x.sock"),
                ("LD_PRELOAD", "/usr/lib/xsched/libxsched.so:/lib/jemalloc.so"),
            ]
        );
        let folder = node.path("run").display().to_string();
        let mounts: Vec<_> = adjust.mounts.iter().map(|m| (m.source.clone(), m.destination.as_str())).collect();
        let library = "/usr/lib/xsched/libxsched.so";
        assert_eq!(mounts, [(library.to_owned(), library), (folder, "/run/xsched")]);
        assert!(adjust.mounts.iter().all(|m| m.options.contains(&"ro".to_owned())));
        // Without the hook of CDI, a library that an image cannot load would keep it from starting.
        let plain = common::runtime::pod("a", "plain", None);
        assert_eq!(runtime.create(&plain, &common::runtime::container(&plain, "c")).await, None);
        assert!(program.log().contains("default_class is left out"), "{}", program.log());
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
        // In two requests, the pod in one and its containers in the other.
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
        // 2000 containers are more than one piece.
        let asks = pod("a", "asks", None);
        let containers: Vec<_> = (0..2000).map(|n| container(&asks, &format!("container-{n}"))).collect();
        assert!(!runtime.synchronize(&[asks], &containers, false).await);
    });
}
