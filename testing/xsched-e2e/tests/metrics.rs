//! Figures for monitors: their names and labels, and which names each reader gets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use xsched_e2e::{Place, Process, skipped, until};

/// Values of samples by name and labels, as written.
type Samples = BTreeMap<String, f64>;

/// Makes a request. Returns the status line with the headers, and the body.
fn exchange(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

fn get(place: &Place, target: &str) -> (String, String) {
    let stream = UnixStream::connect(place.join("m.sock")).expect("it listens");
    exchange(stream, &format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn page(place: &Place) -> String {
    let (head, body) = get(place, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n"), "{body}");
    body
}

fn samples(page: &str) -> Samples {
    let sample =
        |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().expect("a number")));
    page.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect()
}

/// Samples of a name, whatever their labels.
fn of<'a>(samples: &'a Samples, name: &str) -> Vec<(&'a str, f64)> {
    let is = |key: &&String| key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('{'));
    samples.keys().filter(is).map(|key| (key.as_str(), samples[key])).collect()
}

fn sum(samples: &Samples, name: &str) -> f64 {
    of(samples, name).iter().map(|(_, value)| value).sum()
}

fn daemon(place: &Place, listen: &str) -> Process {
    daemon_with(place, &format!("listen = \"{listen}\"\n"))
}

fn daemon_with(place: &Place, metrics: &str) -> Process {
    let config = place.join("config.toml");
    std::fs::write(&config, format!("[metrics]\n{metrics}")).unwrap();
    place.daemon(&["--config", config.to_str().unwrap(), "--log", place.join("log").to_str().unwrap()])
}

fn on_socket(place: &Place) -> Process {
    daemon(place, &format!("unix:{}", place.join("m.sock").display()))
}

fn steady(place: &Place, options: &[&str]) -> Process {
    let program = place.sim_program("steady");
    let mut program = place.run(options, &program, &["200", "8"]);
    program.expect("ready");
    program.progress_after(0);
    program
}

#[test]
fn programs_that_share_a_device_are_told_with_their_times() {
    let place = Place::new();
    let _daemon = on_socket(&place);
    let mut programs =
        [("high", "serve"), ("low", "train")].map(|(class, job)| steady(&place, &["--priority", class, "--job", job]));
    until("both have had the device", || {
        of(&samples(&page(&place)), "xsched_gpu_seconds_total").iter().all(|(_, s)| *s > 0.0)
    });
    let found = samples(&page(&place));
    let gpu = of(&found, "xsched_gpu_seconds_total");
    assert_eq!(gpu.len(), 2, "{gpu:?}");
    let serve = gpu.iter().find(|(key, _)| key.contains("job=\"serve\"")).expect("a series").0;
    for label in ["device=\"sim:0\"", "class=\"high\"", "program=\"steady\"", "user=\"0\""] {
        assert!(serve.contains(label) || label.starts_with("user"), "{label} in {serve}");
    }
    assert!(!serve.contains("pid="), "{serve}");
    let busy = sum(&found, "xsched_device_busy_seconds_total");
    let all = sum(&found, "xsched_gpu_seconds_total");
    // The figures are of one moment, and equal to the ns; the text has the precision of a double.
    assert!((busy - all).abs() < 1e-6, "{busy} {all}");
    assert!(sum(&found, "xsched_resident_seconds_total") >= all - 1e-6);
    assert!(sum(&found, "xsched_launches_total") > 16.0);
    assert_eq!((sum(&found, "xsched_programs"), sum(&found, "xsched_attached_programs")), (2.0, 2.0));
    assert_eq!((sum(&found, "xsched_weight"), sum(&found, "xsched_share_ratio")), (200.0, 1.0));
    assert_eq!(of(&found, "xsched_unscheduled_launches_total").len(), 6);
    assert!(sum(&found, "xsched_suspensions_total") >= 1.0 && sum(&found, "xsched_preemptions_total") >= 1.0);
    let decisions = ["xsched_decision_seconds_count", "xsched_decisions_total"].map(|name| sum(&found, name));
    assert!(decisions.iter().all(|count| *count >= 2.0), "{decisions:?}");
    let waits = of(&found, "xsched_wait_seconds_count");
    assert!(waits.iter().any(|(key, n)| key.contains("class=\"high\"") && *n >= 1.0), "{waits:?}");
    // A program that is gone still counts, and is not among the programs.
    let before = found[serve];
    let first = programs[0].pid();
    programs[0].tell("end");
    until("it is gone", || place.program(first).is_none());
    until("it is told so", || sum(&samples(&page(&place)), "xsched_programs") == 1.0);
    let after = samples(&page(&place));
    assert!(after[serve] >= before, "{} {before}", after[serve]);
}

#[test]
fn a_port_of_the_loopback_names_no_users_and_programs() {
    let place = Place::new();
    let _daemon = daemon(&place, "127.0.0.1:0");
    let _program = steady(&place, &["--job", "secret-job"]);
    assert_tells_no_names(&address(&place));
}

/// Address of a daemon at a port, from its log.
fn address(place: &Place) -> String {
    let log = std::fs::read_to_string(place.join("log")).unwrap();
    let (_, rest) = log.split_once("metrics at http://").expect("a line");
    rest.split_once("/metrics").expect("a line").0.to_owned()
}

fn assert_tells_no_names(address: &str) {
    let stream = TcpStream::connect(address).expect("it listens");
    let (_, body) = exchange(stream, "GET /metrics HTTP/1.0\r\n\r\n");
    let found = samples(&body);
    assert_eq!(of(&found, "xsched_gpu_seconds_total").len(), 1, "{body}");
    for word in ["secret-job", "steady", "user=", "pid=", "program="] {
        assert!(!body.contains(word), "{word} in {body}");
    }
}

#[test]
fn an_address_beyond_the_loopback_is_listened_at_if_that_is_allowed_and_names_no_users_and_programs() {
    let place = Place::new();
    let config = place.join("refused.toml");
    std::fs::write(&config, "[metrics]\nlisten = \"0.0.0.0:0\"\n").unwrap();
    let refused = place.xsched(&["daemon", "--config", config.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("refused.toml:2: '0.0.0.0:0' can be reached from other machines: use a loopback"), "{said}");
    let _daemon = daemon_with(&place, "listen = \"0.0.0.0:0\"\nnetwork = true\n");
    let _program = steady(&place, &["--job", "secret-job"]);
    let port = address(&place).rsplit_once(':').unwrap().1.to_owned();
    // Finds the machine's own address towards others; nothing is sent.
    let beyond = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    match beyond {
        Ok(own) => assert_tells_no_names(&format!("{}:{port}", own.ip())),
        Err(e) => skipped(&format!("metrics by the network: this machine has no address beyond the loopback: {e}")),
    }
}

#[test]
fn what_is_no_request_is_told_so_and_keeps_nobody_waiting() {
    let place = Place::new();
    let _daemon = on_socket(&place);
    assert!(get(&place, "/").0.starts_with("HTTP/1.1 404 "));
    let connect = || UnixStream::connect(place.join("m.sock")).expect("it listens");
    assert!(exchange(connect(), "POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    assert!(exchange(connect(), "hello\r\n\r\n").0.starts_with("HTTP/1.1 400 "));
    assert!(exchange(connect(), &"x".repeat(9_000)).0.starts_with("HTTP/1.1 400 "));
    // Some connections are silent: others are answered, and these are closed.
    let silent: Vec<UnixStream> = (0..3).map(|_| connect()).collect();
    assert!(get(&place, "/metrics").1.contains("xsched_build_info"));
    for mut stream in silent {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    }
}

/// Checked by the reference implementation of the format, where it is installed.
#[test]
fn the_text_is_openmetrics() {
    let place = Place::new();
    // A Debian package belongs to Debian's own Python, which may be another one.
    let has = |python: &&str| {
        let imports = Command::new(python).args(["-c", "import prometheus_client.openmetrics.parser"]).output();
        imports.is_ok_and(|done| done.status.success())
    };
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has) else {
        return skipped("prometheus_client is missing: apt-get install python3-prometheus-client");
    };
    let _daemon = on_socket(&place);
    let _programs = [steady(&place, &["--priority", "high"]), steady(&place, &["--job", "a \"quoted\" \\ name"])];
    let script = "import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n\
                  for family in parse(sys.stdin.read()): print(family.name, family.type, family.unit or '-', len(family.samples))";
    let mut python = Command::new(python);
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().expect("python runs");
    child.stdin.take().expect("a pipe").write_all(page(&place).as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    for family in [
        "xsched_gpu_seconds counter seconds 2",
        "xsched_wait_seconds histogram seconds ",
        "xsched_share_ratio gauge ratio 2",
        "xsched_launches counter - 2",
        "xsched_build_info gauge - 1",
    ] {
        assert!(text.contains(family), "{family} in {text}");
    }
}
