//! The injector against a stand-in runtime, which speaks the Node Resource Interface over a socket below a folder of the test's.

mod common;

use std::path::Path;

use common::runtime::{Runtime, container, pod};
use common::{Node, Program, block_on, until};
use xsched_kube::api::nri::{CdiDevice, ContainerAdjustment, Empty, Hook, Mount};

const CEILINGS: &str = "[injector.ceilings]\nserving = \"high\"\nbatch = \"low\"\n";

fn start(node: &Node, configuration: &str) -> Program {
    let (socket, cdi) = (node.path("nri.sock"), node.path("cdi"));
    node.start("nri", configuration, &["--runtime", socket.to_str().unwrap(), "--cdi", cdi.to_str().unwrap()])
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

/// Whether the adjustment of a class has all that the specification's file says, and nothing else.
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

/// Not `LD_PRELOAD`: the hook looks at the image before the library is loaded into it.
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
        // It is looked for each time.
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
