//! The startup taint: `xsched kube startup-taint` beside the real device plugin and injector, against fakes of the API
//! server, kubelet, runtime and daemon.

mod common;

use common::api_server::{ApiServer, Authority, NODE};
use common::kubelet::Kubelet;
use common::runtime::Runtime;
use common::{Node, Program, block_on, until};
use hyper::StatusCode;
use serde_json::{Value, json};

const KEY: &str = "xsched.dev/not-ready";
/// Short polls, so that a part that goes away is noticed at once.
const SOON: &str = "[startup_taint]\ninterval_ms = 10\nset_after_ms = 0\n";

fn others() -> Value {
    json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
}

/// Taint as the kubelet's `--register-with-taints` creates it.
fn registered() -> Value {
    json!({"key": KEY, "value": "true", "effect": "NoSchedule"})
}

fn kubelet(node: &Node) -> Kubelet {
    Kubelet::start(&node.path("device-plugins"), &node.path("pod-resources/kubelet.sock"))
}

/// Device plugin and injector of a node.
struct Parts {
    plugin: Program,
    injector: Program,
}

impl Parts {
    fn start(node: &Node) -> Parts {
        let plugin = node.start_device_plugin(
            "[device_plugin]\nhealth_interval_ms = 10\n",
            &["--simulated", "1", "--listen", "127.0.0.1:0"],
        );
        let [runtime, cdi, resources] = ["nri.sock", "cdi", "pod-resources/kubelet.sock"].map(|name| node.path(name));
        let [runtime, cdi, resources] = [&runtime, &cdi, &resources].map(|path| path.to_str().unwrap());
        let options = ["--runtime", runtime, "--cdi", cdi, "--pod-resources", resources, "--listen", "127.0.0.1:0"];
        Parts { plugin, injector: node.start("nri", "", &options) }
    }
}

/// A runtime that has accepted the injector.
async fn runtime(node: &Node) -> Runtime {
    let (mut runtime, _) = Runtime::accept(&node.path("nri.sock")).await;
    runtime.configure("containerd", "2.1.4").await;
    runtime.synchronize(&[], &[], false).await;
    runtime
}

/// Starts the program under test.
fn start(node: &Node, api: &ApiServer, parts: &Parts, configuration: &str) -> Program {
    let [plugin, injector] = [&parts.plugin, &parts.injector].map(|program| program.address());
    let (socket, credentials, url) = (node.socket(), node.path("account"), api.url());
    let options = ["--node", NODE, "--socket", socket.to_str().unwrap(), "--device-plugin", &plugin];
    let more = ["--injector", &injector, "--api", &url, "--credentials", credentials.to_str().unwrap()];
    node.start("startup-taint", configuration, &[&options[..], &more, &["--listen", "127.0.0.1:0"]].concat())
}

/// A node whose parts are all ready while this lives.
struct Whole {
    parts: Parts,
    _kubelet: Kubelet,
    _runtime: Runtime,
    daemon: Option<rustix::fd::OwnedFd>,
}

impl Whole {
    async fn start(node: &Node) -> Whole {
        let (daemon, kubelet) = (node.daemon(), kubelet(node));
        let parts = Parts::start(node);
        let runtime = runtime(node).await;
        until("the plugin is ready", || parts.plugin.http("/ready").0 == 200).await;
        Whole { parts, _kubelet: kubelet, _runtime: runtime, daemon: Some(daemon) }
    }
}

fn api(node: &Node, authority: &Authority, taints: Value) -> ApiServer {
    ApiServer::new(&node.path("account"), authority, taints)
}

fn waits_for(program: &Program, what: &str) -> bool {
    let (code, text) = program.http("/ready");
    code == 503 && text.contains(what)
}

fn counted(program: &Program, name: &str) -> u64 {
    let (_, metrics) = program.http("/metrics");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("xsched_startup_taint_{name}_total ")));
    line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().unwrap()
}

/// In each order, since the last of the three decides.
#[test]
fn the_taint_goes_once_daemon_plugin_and_injector_are_all_ready() {
    for last in ["the daemon at", "the device plugin at", "the injector at"] {
        block_on(async {
            let (node, authority) = (Node::new(), Authority::new());
            let mut api = api(&node, &authority, json!([others(), registered()]));
            api.start(&authority);
            let parts = Parts::start(&node);
            let program = start(&node, &api, &parts, SOON);
            let (mut is_daemon, mut is_kubelet, mut is_runtime) = (None, None, None);
            for part in ["the daemon at", "the device plugin at", "the injector at"] {
                match part {
                    part if part == last => {}
                    "the daemon at" => is_daemon = Some(node.daemon()),
                    "the device plugin at" => is_kubelet = Some(kubelet(&node)),
                    _ => is_runtime = Some(runtime(&node).await),
                }
            }
            // Without a daemon the plugin is not ready either; the daemon is named first.
            until("two are ready", || waits_for(&program, last)).await;
            assert_eq!(api.taints(KEY), [registered()], "{last}: {}", program.log());
            assert_eq!(api.asked("PATCH"), 0, "nothing to change yet");
            match last {
                "the daemon at" => is_daemon = Some(node.daemon()),
                "the device plugin at" => is_kubelet = Some(kubelet(&node)),
                _ => is_runtime = Some(runtime(&node).await),
            }
            until("the taint is gone", || api.taints(KEY).is_empty()).await;
            until("it is ready", || program.http("/ready").0 == 200).await;
            assert_eq!(api.node()["spec"], json!({"providerID": "test://1", "taints": [others()]}));
            assert!(program.log().contains("the taint xsched.dev/not-ready is removed"), "{}", program.log());
            assert_eq!((counted(&program, "set"), counted(&program, "removed")), (0, 1));
            drop((is_daemon, is_kubelet, is_runtime));
        });
    }
}

/// The kubelet does not set the taint of its registration again, since the node's object still exists.
#[test]
fn after_a_reboot_the_taint_is_set_until_all_are_ready_again() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([others()]));
        api.start(&authority);
        let whole = Whole::start(&node).await;
        // An upgrade, like any other end, sets nothing: the taint might stay for good.
        let mut program = start(&node, &api, &whole.parts, SOON);
        until("it is ready", || program.http("/ready").0 == 200).await;
        program.end();
        assert_eq!((api.taints(KEY), api.asked("PATCH")), (vec![], 0), "{}", program.log());
        // The system shuts down, as the kubelet reports: the node comes back with the taint.
        let mut program = start(&node, &api, &whole.parts, SOON);
        until("it is ready", || program.http("/ready").0 == 200).await;
        api.set_ready(false, "node is shutting down");
        program.end();
        assert_eq!(api.taints(KEY), [json!({"key": KEY, "effect": "NoSchedule"})], "{}", program.log());
        assert!(program.log().contains("has the taint xsched.dev/not-ready:NoSchedule: its system shuts down"));
        drop(whole);
        let parts = Parts::start(&node);
        let mut program = start(&node, &api, &parts, SOON);
        until("it waits", || waits_for(&program, "the daemon at")).await;
        assert_eq!(api.taints(KEY).len(), 1, "it has it once");
        // The power fails instead: the first poll after the start sets the taint.
        program.kill();
        api.set_ready(true, "kubelet is posting ready status");
        api.change(&json!({"spec": {"taints": [others()]}}));
        let program = start(&node, &api, &parts, SOON);
        until("it is set", || api.taints(KEY).len() == 1).await;
        assert_eq!(api.taints("nvidia.com/gpu"), [others()]);
        drop(parts);
        drop(program);
        let whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("it is removed", || api.taints(KEY).is_empty()).await;
        assert_eq!(api.node()["spec"]["taints"], json!([others()]));
        assert_eq!(counted(&program, "api_errors"), 0, "{}", program.log());
    });
}

#[test]
fn a_part_that_goes_brings_the_taint_back_unless_it_is_soon_there_again() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([]));
        api.start(&authority);
        let mut whole = Whole::start(&node).await;
        let patient = start(&node, &api, &whole.parts, "[startup_taint]\ninterval_ms = 10\nset_after_ms = 3600000\n");
        until("it is ready", || patient.http("/ready").0 == 200).await;
        whole.daemon = None;
        until("it is not ready", || waits_for(&patient, "the daemon at")).await;
        whole.daemon = Some(node.daemon());
        until("it is ready again", || patient.http("/ready").0 == 200).await;
        assert_eq!(api.asked("PATCH"), 0, "{}", patient.log());
        drop(patient);
        until("the plugin is ready", || whole.parts.plugin.http("/ready").0 == 200).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("it is ready", || program.http("/ready").0 == 200).await;
        whole.daemon = None;
        until("it is set", || api.taints(KEY).len() == 1).await;
        whole.daemon = Some(node.daemon());
        until("it is removed", || api.taints(KEY).is_empty()).await;
        until("both are counted", || counted(&program, "removed") == 1).await;
        assert_eq!(counted(&program, "set"), 1);
    });
}

#[test]
fn a_node_that_others_change_at_the_same_time_keeps_their_changes() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([registered(), others()]));
        api.change_before_patch(3);
        api.start(&authority);
        let whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
        assert_eq!(api.asked("PATCH"), 4, "three conflicts");
        let theirs = |n: u32| json!({"key": format!("example.com/{n}"), "effect": "NoSchedule"});
        assert_eq!(api.node()["spec"]["taints"], json!([others(), theirs(2), theirs(3), theirs(4)]));
        until("it is ready", || program.http("/ready").0 == 200).await;
        assert_eq!(counted(&program, "api_errors"), 0, "{}", program.log());
    });
}

/// The kubelet replaces the file long before the old token expires.
#[test]
fn a_token_that_is_replaced_is_read_anew() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([registered()]));
        api.start(&authority);
        let mut whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
        until("it is ready", || program.http("/ready").0 == 200).await;
        // The first token is invalid now; no request is made in between.
        api.write("token", "second\n");
        api.set_token("second");
        whole.daemon = None;
        until("the taint is set", || api.taints(KEY).len() == 1).await;
        assert_eq!(counted(&program, "api_errors"), 0, "{}", program.log());
        // A file that comes late is logged once, and read when it is there.
        api.set_token("third");
        whole.daemon = Some(node.daemon());
        until("it is refused", || waits_for(&program, "it answers 401 Unauthorized: Unauthorized")).await;
        api.write("token", "third");
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
        until("it is told", || program.log().contains("answers again")).await;
        assert_eq!(program.log().matches("401 Unauthorized").count(), 1, "{}", program.log());
        assert!(!program.log().contains("second"), "no token in a log: {}", program.log());
    });
}

#[test]
fn a_server_that_is_down_is_told_once_and_waited_for() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([registered()]));
        let mut whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("it is asked for twice", || counted(&program, "api_errors") >= 2).await;
        let line = format!("node {NODE}: the API server at {}: no connection: ", &api.url()["https://".len()..]);
        assert!(program.log().contains(&format!("{line}Connection refused")), "{}", program.log());
        assert_eq!(program.log().matches(&line).count(), 1, "{}", program.log());
        assert!(waits_for(&program, "Connection refused"));
        api.start(&authority);
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
        until("it is told", || program.log().matches("answers again").count() == 1).await;
        // Up, then down: the parts are polled meanwhile.
        api.stop();
        whole.daemon = None;
        until("it is told anew", || program.log().matches(&line).count() == 2).await;
        until("the part is named first", || waits_for(&program, "the daemon at")).await;
        api.start(&authority);
        until("it is set", || api.taints(KEY).len() == 1).await;
    });
}

/// The token is for the cluster's own server, and is sent to no other.
#[test]
fn a_server_of_another_authority_or_name_is_refused_before_it_is_asked() {
    block_on(async {
        let (node, authority, other) = (Node::new(), Authority::new(), Authority::new());
        let mut api = api(&node, &other, json!([registered()]));
        api.start(&authority);
        let whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        let line = "no connection by TLS: invalid peer certificate: ";
        until("it is refused", || waits_for(&program, line)).await;
        assert_eq!((api.all_asked(), program.log().matches(line).count()), (0, 1), "{}", program.log());
        // The cluster's authority changes, and pods have the new one: it is read again.
        api.write_authority(&authority);
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
        drop((program, api));
        let mut api = self::api(&node, &authority, json!([registered()]));
        api.start_as(&authority, "other.test");
        let program = start(&node, &api, &whole.parts, SOON);
        until("it is refused", || waits_for(&program, "invalid peer certificate: certificate not valid for name"))
            .await;
        assert_eq!(api.all_asked(), 0);
        drop(api);
        let api = self::api(&node, &authority, json!([registered()]));
        api.write("ca.crt", "nothing");
        let program = start(&node, &api, &whole.parts, SOON);
        until("it is told", || waits_for(&program, "ca.crt has no certificate")).await;
    });
}

#[test]
fn what_the_role_does_not_allow_is_told_in_the_servers_words() {
    block_on(async {
        let (node, authority) = (Node::new(), Authority::new());
        let mut api = api(&node, &authority, json!([registered()]));
        api.start(&authority);
        let message = "nodes \"node-1\" is forbidden: User \"x\" cannot get resource \"nodes\"\nat the cluster scope";
        api.refuse(Some((StatusCode::FORBIDDEN, message)));
        let whole = Whole::start(&node).await;
        let program = start(&node, &api, &whole.parts, SOON);
        until("it tries again", || counted(&program, "api_errors") >= 2).await;
        let line =
            "it answers 403 Forbidden: nodes \"node-1\" is forbidden: User \"x\" cannot get resource \"nodes\" at";
        assert_eq!(program.log().matches(line).count(), 1, "{}", program.log());
        api.refuse(None);
        until("the taint is gone", || api.taints(KEY).is_empty()).await;
    });
}

#[test]
fn bad_options_are_told_in_one_line() {
    let node = Node::new();
    for (options, code, line) in [
        (&["--api", "http://127.0.0.1:1", "--node", "n"][..], 2, "is no address of an API server"),
        (&["--api", "https://127.0.0.1:1"], 2, "no name of the node: use --node NAME, or the variable NODE_NAME"),
        (&["--api", "https://127.0.0.1:1", "--node", "../pods"], 2, "'../pods' is no name of a node"),
        (&["--node", "n"], 3, "this is no pod of a cluster: name the API server by --api"),
    ] {
        let mut program = node.start("startup-taint", "", options);
        assert_eq!(program.wait(), code, "{}", program.log());
        let log = program.log();
        assert!(log.contains(line) && log.lines().count() == 1, "{log}");
    }
}
