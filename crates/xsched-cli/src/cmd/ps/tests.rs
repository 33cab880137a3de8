use xsched_proto::account::MemoryUse;
use xsched_proto::wire::{ClassFrom, MemoryInfo, Share, Waits};

use super::*;
use xsched_proto::class::Class;
use xsched_proto::device::{DeviceProcess, DeviceState, Source, Throttle};
use xsched_proto::wire::{GroupInfo, GroupState, Platform, QueueInfo, Unscheduled};

/// Table as it is printed to a pipe.
fn shown(answer: &Answer) -> String {
    table(answer, false, Sort::Pid, Width::Unlimited, 0)
}

fn answer() -> Answer {
    let group = GroupInfo {
        priority: 128,
        threshold: 16,
        state: GroupState::Running,
        queues: vec![QueueInfo { id: "q1".into(), launches: 7 }],
        launches: 7,
        unscheduled: Unscheduled { attach: 1, passthrough: 0, error: 1 },
        suspensions: 2,
        gpu_us: 1_500,
        device_us: 1_600,
        wait_us: 12,
        completed: 6,
        ..GroupInfo::new(1, "sim:0", Platform::Sim)
    };
    let program = ProgramInfo {
        attached_s: 1,
        class_from: ClassFrom::Option,
        groups: vec![group],
        ..ProgramInfo::new(42, 1000, "/bin/a\x1b[31mpp", Class::High)
    };
    Answer {
        version: 2,
        daemon: None,
        devices: Vec::new(),
        programs: vec![program],
        refused: Vec::new(),
        other_daemons: Vec::new(),
    }
}

#[test]
fn a_device_has_a_line_and_what_uses_it_unattached_another() {
    let process =
        |pid, name: &str, outside| DeviceProcess { pid, name: Some(name.into()), memory_bytes: Some(3 << 29), outside };
    let device = DeviceInfo {
        device: "pci:0000:41:00.0".into(),
        name: None,
        source: Source::Nvml,
        stale: false,
        latest: DeviceState {
            memory_used_bytes: Some(61 << 30),
            memory_total_bytes: Some(80 << 30),
            active_percent: Some(97),
            temperature_c: Some(64),
            temperature_limit_c: Some(93),
            power_w: Some(310),
            throttle: Some(vec![Throttle::SwThermal, Throttle::HwThermal, Throttle::PowerCap]),
            ..DeviceState::default()
        },
        processes: Some(vec![process(42, "app", false), process(43, "b\x1b[31m", true)]),
        history: Vec::new(),
    };
    let lines = "pci:0000:41:00.0: memory 61.0 of 80.0 GiB, active 97 %, 64 °C of 93 °C, 310 W, slowed down (heat, power limit)\n\
                 pci:0000:41:00.0: used by processes that are not attached: b\\u{1b}[31m (43, 1.5 GiB)\n";
    let with_device = Answer { devices: vec![device.clone()], ..answer() };
    assert!(shown(&with_device).ends_with(lines), "{}", shown(&with_device));
    let old = DeviceInfo {
        stale: true,
        latest: DeviceState { age_ms: 12_345, ..DeviceState::default() },
        processes: None,
        ..device
    };
    assert_eq!(
        devices::lines(&old, Width::Unlimited),
        "pci:0000:41:00.0: as of 12.3 s ago, its driver does not answer\n"
    );
}

#[test]
fn json_has_the_published_shape() {
    let v = serde_json::to_value(answer()).unwrap();
    assert_eq!(v["version"], 2);
    let p = &v["programs"][0];
    assert_eq!((p["class"].as_str(), p["priority"].as_i64(), p["pid"].as_u64()), (Some("high"), Some(128), Some(42)));
    let g = &p["groups"][0];
    assert_eq!(
        (g["state"].as_str(), g["platform"].as_str(), g["level"].as_u64()),
        (Some("running"), Some("sim"), Some(1))
    );
    assert_eq!(g["unscheduled"], serde_json::json!({"attach": 1, "passthrough": 0, "error": 1}));
    assert_eq!(g["interactive"], false);
    assert_eq!(g["queues"][0], serde_json::json!({"id": "q1", "launches": 7}));
}

#[test]
fn programs_of_others_are_counted() {
    let mut answer = answer();
    let daemon = |hidden_programs| DaemonInfo {
        pid: 1,
        version: "0".into(),
        policy: "hpf".into(),
        device_policies: Default::default(),
        uptime_s: 1,
        dropped_clients: 0,
        hidden_programs,
        configuration: Vec::new(),
        configuration_fault: None,
        scheduler_failure: None,
        warnings: Vec::new(),
        panics: 0,
    };
    answer.daemon = Some(daemon(0));
    assert!(!shown(&answer).contains("not shown"));
    let told = DaemonInfo {
        configuration_fault: Some("it has a fault".into()),
        scheduler_failure: Some("the scheduler failed".into()),
        ..daemon(0)
    };
    answer.daemon = Some(told);
    let text = shown(&answer);
    assert_eq!(text.lines().skip(1).take(2).collect::<Vec<_>>(), ["the scheduler failed", "it has a fault"], "{text}");
    answer.daemon = Some(daemon(3));
    assert!(shown(&answer).ends_with("\n3 programs of other users are not shown\n"));
    answer.programs.clear();
    answer.daemon = Some(daemon(1));
    let text = shown(&answer);
    assert!(text.contains("\nno program of yours is attached;"), "{text}");
    assert!(text.ends_with("\n1 program of another user is not shown\n"), "{text}");
}

#[test]
fn the_table_lines_up_and_holds_no_control_characters() {
    let mut answer = answer();
    let idle = ProgramInfo { groups: Vec::new(), share: Some(Share::Spatial), ..answer.programs[0].clone() };
    answer.programs.push(idle);
    let text = shown(&answer);
    let lines: Vec<_> = text.lines().collect();
    let at = lines[0].find("PROGRAM").unwrap();
    for line in &lines[1..] {
        assert_eq!(line.chars().skip(at).collect::<String>(), "a\\u{1b}[31mpp", "{text}");
    }
    let at = lines[0].find("HOW").unwrap();
    assert!(lines[1][at..].starts_with("- ") && lines[2][at..].starts_with("spatial "), "{text}");
    assert!(!text.contains('\x1b'));
    let text = queues(&answer);
    assert_eq!(text.lines().count(), 2, "{text}");
    for word in ["q1", " 42 ", " 128 ", "sim:0", " 16 ", " auto ", "running", " 7 ", "a\\u{1b}[31mpp"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// Answer with three programs that have something in each column, on a GPU.
fn full() -> Answer {
    let of = |pid, name: &str, state, waits: Waits| {
        let mut program = answer().programs.remove(0);
        (program.pid, program.uid) = (pid, 0);
        program.name = name.into();
        program.command = ["python3", "/home/a/train.py", "--name", "a\x1b"].map(str::to_owned).to_vec();
        program.job = Some("night".into());
        program.share = Some(Share::Time);
        let group = &mut program.groups[0];
        group.device = "pci:0000:41:00.0".into();
        group.state = state;
        group.waits = waits;
        (group.share_asked_percent, group.share_got_percent) = (Some(25.0), Some(31.4));
        program
    };
    let waits = |now, p99_us| Waits { now, now_us: 12_345, count: 9, p50_us: p99_us, p99_us };
    let mut answer = answer();
    answer.programs = vec![
        of(4711, "train.py", GroupState::Ready, waits(1, Some(61_700.0))),
        of(123_456, "模型训练-with-a-long-name.py", GroupState::Running, waits(0, None)),
        ProgramInfo { ended_s: Some(75), ..of(99, "old", GroupState::Idle, waits(0, Some(3.0))) },
    ];
    answer.programs[0].groups[0].gpu_us = 11_600_000;
    answer
}

#[test]
fn the_table_fits_its_terminal_and_is_whole_where_there_is_none() {
    let answer = full();
    let at = |columns| table(&answer, false, Sort::Pid, Width::Columns(columns), 0);
    for columns in [20, 40, 60, 80, 100, 132] {
        let text = at(columns);
        let longest = text.lines().map(crate::width::columns_of).max().unwrap();
        assert!(longest <= columns, "{longest} of {columns}:\n{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
    let text = at(80);
    let head = text.lines().next().unwrap();
    for column in ["PID", "USER", "JOB", "CLASS", "DEVICE", "STATE", "SHARE", "GPU TIME", "P99WAIT", "PROGRAM"] {
        assert!(head.contains(column), "{column}: {text}");
    }
    for cell in
        ["4711 ", " 41:00.0 ", " ready 12 ms ", " 25/31 ", " 11.6 s ", " 61.7 ms ", " train.py\n", "ended 1 m", "…"]
    {
        assert!(text.contains(cell), "{cell}: {text}");
    }
    let mut usual = full();
    usual.programs.iter_mut().for_each(|p| p.job = None);
    let text = table(&usual, false, Sort::Pid, Width::Columns(80), 0);
    let head = text.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(head, "PID USER CLASS DEVICE HOW LEVEL STATE SHARE GPU TIME P99WAIT PROGRAM", "{text}");
    usual.programs.iter_mut().flat_map(|p| &mut p.groups).for_each(|group| group.share_asked_percent = None);
    let text = table(&usual, false, Sort::Pid, Width::Unlimited, 0);
    assert!(text.contains(" 31 % ") && !text.contains("-/31"), "{text}");
    assert!(at(20).contains("PID"), "what it is and how it is stays");
    let wide = table(&answer, true, Sort::Pid, Width::Unlimited, 0);
    for column in
        [" BY ", " PRIO ", " WEIGHT ", " LEVEL ", " WAITED ", " LAUNCHES ", " UNSCHED ", " ATTACHED ", " COMMAND\n"]
    {
        assert!(wide.contains(column), "{column}: {wide}");
    }
    assert!(wide.contains(" python3 /home/a/train.py --name a\\u{1b}\n"), "{wide}");
}

#[test]
fn what_goes_before_its_equals_is_named_where_there_are_such() {
    let mut answer = full();
    let line = |answer: &Answer, width| {
        let text = table(answer, false, Sort::Pid, width, 0);
        text.lines().skip(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(line(&answer, Width::Unlimited).is_empty());
    answer.programs[0].groups[0].interactive = true;
    let whole = "interactive, before equals that never pause: train.py (4711)";
    assert_eq!(line(&answer, Width::Unlimited), [whole]);
    assert_eq!(line(&answer, Width::Columns(80)), [whole]);
    assert!(line(&answer, Width::Columns(40)).iter().all(|line| line.len() <= 40));
    answer.programs[1].groups[0].priority = 0;
    assert!(line(&answer, Width::Unlimited).is_empty(), "none is its equal, and one has ended");
}

#[test]
fn rows_are_sorted_by_any_column_and_filtered() {
    let answer = full();
    let order = |sort| -> Vec<String> {
        let text = table(&answer, false, sort, Width::Unlimited, 0);
        text.lines().skip(1).map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(order(Sort::GpuTime)[0], "4711");
    assert_eq!(order(Sort::P99wait), ["4711", "99", "123456"]);
    assert_eq!(order(Sort::State), ["123456", "4711", "99"]);
    assert_eq!(order(Sort::Program), ["99", "4711", "123456"]);
    for sort in Sort::value_variants() {
        assert_eq!(order(*sort).len(), 3, "{sort:?}");
    }
    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }
    let left = |words: &[&str]| -> Vec<u32> {
        let typed = <Typed as clap::Parser>::try_parse_from([&["ps"], words].concat()).unwrap();
        let mut answer = full();
        answer.programs[1].groups[0].device = "sim:0".into();
        answer.programs[2].class = Class::Low;
        typed.args.select(&mut answer);
        answer.programs.iter().map(|p| p.pid).collect()
    };
    assert_eq!(left(&[]), [4711, 123_456, 99]);
    assert_eq!(left(&["99", "4711"]), [4711, 99]);
    assert_eq!(left(&["--device", "41:00.0"]), [4711, 99]);
    assert_eq!(left(&["--class", "batch"]), [99]);
    assert_eq!(left(&["--user", "root", "--job", "night"]).len(), 3);
    assert!(left(&["--user", "1"]).is_empty() && left(&["--job", "day"]).is_empty());
    let none = Answer { programs: Vec::new(), ..full() };
    assert_eq!(table(&none, false, Sort::Pid, Width::Unlimited, 3), "3 programs are attached, none as asked for\n");
}

#[test]
fn a_program_that_was_refused_is_shown_with_the_limit() {
    let why = "user 7 has 1 programs attached, as many as a user may have";
    let refused = |pid, uid, name: &str| RefusedProgram {
        pid,
        uid,
        name: name.into(),
        why: format!("{why}: see xsched ps"),
        since_s: 12,
    };
    let refused = || vec![refused(55, 7, "train.py"), refused(56, 8, "")];
    let mut some = Answer { refused: refused(), ..answer() };
    let text = table(&some, false, Sort::Pid, Width::Unlimited, 0);
    let line = format!(
        "\n      55 train.py of user 7: refused, runs unscheduled for 12 s: {why}\n      56 of user 8: refused"
    );
    assert!(text.contains(&line) && !text.contains("see xsched ps"), "{text}");
    let none = Answer { programs: Vec::new(), refused: refused(), ..answer() };
    let text = table(&none, false, Sort::Pid, Width::Unlimited, 0);
    assert!(text.contains("no program is attached") && text.contains(line.trim_start_matches('\n')), "{text}");
    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }
    let typed = <Typed as clap::Parser>::try_parse_from(["ps", "--user", "7"]).unwrap();
    typed.args.select(&mut some);
    assert_eq!(some.refused.iter().map(|refused| refused.pid).collect::<Vec<_>>(), [55]);
}

#[test]
fn memory_has_a_column_where_it_is_counted_and_a_line_of_details() {
    let gib = |n: u64| n << 30;
    let mut answer = answer();
    assert!(!shown(&answer).contains("MEM"), "it is not counted");
    let held = MemoryUse {
        used_bytes: gib(12),
        plain_bytes: gib(11),
        overhead_bytes: gib(1),
        exported_bytes: gib(2),
        refused: 3,
        wanted_bytes: gib(5),
        ..MemoryUse::default()
    };
    let memory = MemoryInfo {
        device: "sim:0".into(),
        held,
        capacity_bytes: gib(80),
        limit_bytes: Some(gib(20)),
        allowance_bytes: Some(gib(12)),
        program_used_bytes: gib(20),
        reserve_bytes: gib(30),
        keep_free_bytes: 0,
        idle_s: Some(300),
        idle_leaves: 2,
    };
    let elsewhere = MemoryInfo { device: "sim:1".into(), ..memory.clone() };
    answer.programs[0].memory = vec![memory, elsewhere];
    let text = table(&answer, true, Sort::Mem, Width::Unlimited, 0);
    let cell = |name: &str| {
        let mut lines = text.lines();
        let end =
            lines.next().and_then(|head| Some(head.find(&format!(" {name} "))? + 1 + name.len())).expect("a column");
        lines.next().and_then(|row| Some(row.get(end - 6..end)?.trim().to_owned())).expect("a row")
    };
    assert_eq!((cell("MEM"), cell("LIMIT")), ("12 GiB".to_owned(), "20 GiB".to_owned()), "{text}");
    let ended = ProgramInfo { ended_s: Some(1), ..answer.programs[0].clone() };
    assert!(!shown(&Answer { programs: vec![ended], ..self::answer() }).contains("MEM"), "it holds none any more");
    let line = memory::lines(&answer.programs[0]).next().expect("a line");
    assert_eq!(
        line,
        "      42 a\\u{1b}[31mpp on sim:0: memory 12 GiB of 80 GiB (11 GiB plain, 1 GiB of contexts and modules), limit 20 GiB, \
         8 GiB more in other processes of the program, 2 GiB exported, leaves after 5 m idle, 2 times so far, \
         30 GiB reserved, 3 allocations refused, the last lacked 5 GiB"
    );
}
