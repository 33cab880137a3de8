//! Scenarios whose outcome is known.

use xsched_simulate::{Outcome, ProgramOutcome, Run, Scenario};

fn play(text: &str, policy: &str) -> Outcome {
    let scenario = Scenario::read(text, |_| unreachable!()).expect(text);
    Run::new(&scenario, policy, scenario.placement.strategy).expect("a policy").play()
}

fn of<'a>(outcome: &'a Outcome, name: &str) -> &'a ProgramOutcome {
    outcome.programs.iter().find(|program| program.name == name).expect("a program")
}

fn p99_us(outcome: &Outcome, name: &str) -> u64 {
    of(outcome, name).requests.quantile_ns(0.99).expect("requests") / 1_000
}

const ALONE: &str = "time = \"2s\"
[[device]]
[[program]]
name = \"server\"
class = \"high\"
arrivals = { every = \"10ms\" }
host = \"100us\"
kernels = [{ count = 10, time = \"100us\", launch = \"5us\" }, { count = 1, copy = 1.0 }]
";

#[test]
fn alone_a_request_takes_its_host_time_and_its_device_time() {
    for policy in ["native", "hpf"] {
        let outcome = play(ALONE, policy);
        let server = of(&outcome, "server");
        // 100 µs of the host, ten kernels of 100 µs, and 1 MiB at 10 GB/s.
        assert_eq!(server.requests.longest_ns(), 100_000 + 1_000_000 + 104_857, "{policy}");
        assert!((199..=200).contains(&server.requests.count()), "{policy}");
        assert_eq!(outcome.switches, 0);
    }
}

const BESIDE: &str = "[[program]]
name = \"training\"
class = \"low\"
kernels = [{ count = 200, time = \"400us\", launch = \"5us\" }]
";

#[test]
fn beside_a_training_the_server_waits_for_what_is_in_flight_only() {
    let text = format!("{ALONE}{BESIDE}");
    let with = |preemption: &str| text.replace("[[device]]", &format!("[[device]]\npreemption = \"{preemption}\""));
    let alone_us = 1_205;
    // At level 1 the budget of 500 µs, a kernel, and their switches; at level 2 the kernel that runs; at level 3 a slice or a switch.
    for (preemption, most_us) in [("host", 1_300), ("gates", 700), ("slices", 500), ("interrupt", 300)] {
        let waits_us = p99_us(&play(&with(preemption), "hpf"), "server") - alone_us;
        assert!(waits_us < most_us, "{preemption}: {waits_us} us");
        let native_us = p99_us(&play(&with(preemption), "native"), "server") - alone_us;
        assert!(native_us > 2_000, "{preemption}: {native_us} us");
    }
}

#[test]
fn what_changes_over_time_has_its_effect() {
    let text = format!("{ALONE}{BESIDE}");
    let killed = play(&format!("{text}[[event]]\nat = \"1s\"\nkill = \"training\"\n"), "hpf");
    let half = of(&killed, "training");
    assert_eq!(half.present_ns, 1_000_000_000);
    assert!((of(&play(&text, "hpf"), "training").device_ns as f64 / half.device_ns as f64 - 2.0).abs() < 0.1);
    // Without a daemon gates stand open; a device that cannot cut a kernel then serves in turns.
    let host = text.replace("[[device]]", "[[device]]\npreemption = \"host\"");
    let away = play(&format!("{host}[[event]]\nat = \"500ms\"\nrestart = \"1s\"\n"), "hpf");
    assert!(p99_us(&away, "server") > p99_us(&play(&host, "hpf"), "server") + 1_000);
    let later = play(&format!("{host}[[event]]\nat = \"1s\"\nrestart = \"1ms\"\n"), "hpf");
    assert!(of(&later, "server").requests.quantile_ns(0.9) < of(&away, "server").requests.quantile_ns(0.9));
    let urgent = format!("{text}[[event]]\nat = \"0s\"\nprogram = \"training\"\nclass = \"realtime\"\n");
    assert!(of(&play(&urgent, "hpf"), "server").requests.count() < of(&play(&text, "hpf"), "server").requests.count());
    let turns = play(&format!("{text}[[event]]\nat = \"0s\"\npolicy = \"up\"\n"), "hpf");
    assert_eq!(of(&play(&text, "hpf"), "server").preemptions, 0);
    assert!(of(&turns, "server").preemptions > 50, "they take turns");
}

#[test]
fn a_job_goes_on_when_all_its_devices_have_done_their_part() {
    let text = "time = \"1s\"\n[[device]]\ncount = 2\n[[program]]\nname = \"job\"\ndevices = 2\n\
                kernels = [{ count = 10, time = \"1ms\", launch = \"5us\" }]\n\
                [[program]]\nname = \"other\"\ndevice = [1]\nkernels = [{ count = 10, time = \"1ms\", launch = \"5us\" }]\n";
    let outcome = play(text, "fair");
    let [job, other] = ["job", "other"].map(|name| of(&outcome, name));
    assert_eq!(job.placed, 1);
    // The job has two devices for the half of the time that it has the second one.
    assert!((job.share_percent() - 50.0).abs() < 8.0, "{}", job.share_percent());
    assert!(other.share_percent() > 40.0, "{}", other.share_percent());
    assert!(job.requests.count() > 30, "{}", job.requests.count());
}

#[test]
fn requests_come_at_the_times_of_a_file() {
    let text = "time = \"1s\"\n[[device]]\n[[program]]\nname = \"a\"\narrivals = { file = \"times\" }\n\
                kernels = [{ time = \"10ms\" }]\n";
    let read = |name: &str| {
        assert_eq!(name, "times");
        Ok("# ms\n100\n100\n900.5\n1200\n".to_owned())
    };
    let scenario = Scenario::read(text, read).expect("a scenario");
    let outcome = Run::new(&scenario, "hpf", scenario.placement.strategy).expect("a policy").play();
    let requests = &outcome.programs[0].requests;
    assert_eq!((requests.count(), requests.longest_ns()), (3, 20_000_000), "the second waits for the first");
    let bad = Scenario::read(text, |_| Ok("1\nsoon\n".to_owned())).unwrap_err();
    assert_eq!(bad.line(), "program a: times, line 2: 'soon' is no time in ms");
}

/// At the begin of a pool all others are held for each program in turn, to find out how fast it is alone, for 200 ms.
#[test]
fn programs_of_a_pool_are_not_held_for_several_others_at_a_stretch() {
    let text = "time = \"3s\"\n[[device]]\npool = true\n[[program]]\nname = \"a\"\nwidth = 60\nkernels = [{ count = 100, time = \"150us\" }]\n\
        [[program]]\nname = \"b\"\ncount = 3\nwidth = 40\nkernels = [{ count = 100, time = \"100us +- 20%\" }]\n";
    let outcome = play(text, "hpf");
    for name in ["a", "b"] {
        let longest_ms = of(&outcome, name).requests.longest_ns() / 1_000_000;
        assert!((200..300).contains(&longest_ms), "{name}: {longest_ms} ms");
    }
}
