//! A real Prometheus scrapes the daemon: every expression of the alert rules and the dashboard returns data.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;
use xsched_e2e::{Place, Process, skipped, until};

fn has(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn source(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

/// Expressions of the rules, without their comparisons, and of the dashboard.
fn expressions() -> Vec<String> {
    let rules = std::fs::read_to_string(source("dist/prometheus/xsched.rules.yml")).expect("the rules");
    let rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let rules = rules.map(|expr| expr.rsplit_once(" > ").map_or(expr, |(left, _)| left).to_owned());
    let board = std::fs::read_to_string(source("dist/grafana/xsched.json")).expect("the dashboard");
    let board: Value = serde_json::from_str(&board).expect("JSON");
    let panels = board["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let board = targets.map(|target| target["expr"].as_str().expect("text").replace("$__rate_interval", "5m"));
    rules.chain(board).collect()
}

fn ask(port: u16, expression: &str) -> Option<Value> {
    let coded: String = expression.bytes().map(|b| format!("%{b:02X}")).collect();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /api/v1/query?query={coded} HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    Some(answer["data"]["result"].clone())
}

#[test]
fn rules_are_right() {
    if !has("promtool") {
        return skipped("promtool is missing: apt-get install prometheus");
    }
    let output = Command::new("promtool")
        .args(["test", "rules", "xsched.rules.test.yml"])
        .current_dir(source("dist/prometheus"))
        .output();
    let output = output.expect("promtool runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_expression_returns_data_from_prometheus() {
    if !has("prometheus") {
        return skipped("prometheus is missing: apt-get install prometheus");
    }
    let place = Place::new();
    let config = place.join("config.toml");
    std::fs::write(&config, "[metrics]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let log = place.join("log");
    let _daemon = place.daemon(&["--config", config.to_str().unwrap(), "--log", log.to_str().unwrap()]);
    let text = std::fs::read_to_string(&log).unwrap();
    let address = text
        .split_once("metrics at http://")
        .and_then(|(_, rest)| rest.split_once("/metrics"))
        .expect("a line")
        .0
        .to_owned();
    // An urgent program with pauses, and one that it preempts.
    let load = place.compile("programs/sim/simload.c", &["-lsimdev", "-lpthread", "-lm"]);
    place.device();
    let args = ["lc", "--kernels", "2", "--us", "500", "--period-us", "10000", "--requests", "6000"];
    let _urgent = place.run(&["--priority", "high"], &load, &args);
    // The preemption of a group that drains before it is off the device is timed.
    let _other = place.run(&["--priority", "low", "--level", "1"], &load, &["be", "--us", "200", "--secs", "60"]);
    let yml = place.join("prometheus.yml");
    let job = format!("- {{job_name: xsched, static_configs: [{{targets: [\"{address}\"]}}]}}");
    std::fs::write(
        &yml,
        format!("global: {{scrape_interval: 200ms}}\nscrape_configs: [{}]\n", job.trim_start_matches("- ")),
    )
    .unwrap();
    // A port that was free a moment ago, since Prometheus does not report a port that it has chosen.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut prometheus = place.command("prometheus", &["--log.level=error"]);
    prometheus
        .arg(format!("--config.file={}", yml.display()))
        .arg(format!("--storage.tsdb.path={}", place.join("tsdb").display()));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _prometheus = Process::start(prometheus);
    for expression in expressions() {
        until(&expression, || {
            let result = ask(port, &expression);
            result
                .is_some_and(|rows| rows.as_array().is_some_and(|rows| rows.iter().any(|row| row["value"][1] != "NaN")))
        });
    }
}
