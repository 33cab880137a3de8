//! Tests: rows from snapshots, changes from keys, and the screen from both.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use xsched_proto::account::MemoryUse;
use xsched_proto::class::Class;
use xsched_proto::device::{DeviceInfo, DeviceProcess, DeviceState, Source};
use xsched_proto::trace::{Record, What, Why};
use xsched_proto::wire::{
    ClassFrom, DaemonInfo, GroupInfo, GroupState, MemoryInfo, Platform, ProgramInfo, Request, Target, TracedGroup,
    TracedProgram,
};

use super::app::{App, Change, Mode, Then, Trouble};
use super::draw::{self, Theme};
use super::model::{BUCKETS, Model, Snapshot, Sort, View};

const PLAIN: Theme = Theme { colour: false, blocks: true };
const COLOURED: Theme = Theme { colour: true, blocks: true };

fn view() -> View {
    View { sort: Sort::Gpu, reverse: false, filter: String::new() }
}

fn group(id: u64, device: &str, state: GroupState, device_us: u64, launches: u64) -> GroupInfo {
    GroupInfo { priority: 128, level: 2, state, launches, device_us, ..GroupInfo::new(id, device, Platform::Sim) }
}

fn program(pid: u32, exe: &str, class: Class, groups: Vec<GroupInfo>) -> ProgramInfo {
    ProgramInfo { attached_s: 1, class_from: ClassFrom::Option, groups, ..ProgramInfo::new(pid, 60_001, exe, class) }
}

fn traced(id: u64, device: &str, exe: Option<&str>, ready: bool, granted: bool) -> TracedGroup {
    let of = |exe: &str| TracedProgram {
        pid: 1,
        uid: 60_001,
        exe: exe.into(),
        name: exe.rsplit('/').next().unwrap_or_default().into(),
        class: Class::High,
        platform: Platform::Sim,
    };
    let program = exe.map(of);
    TracedGroup {
        id,
        device: device.into(),
        program,
        ended: false,
        ready,
        granted,
        why: Why::Policy,
        policy: 0,
        level: 1,
    }
}

fn record(at_us: u64, group: u64, what: What) -> Record {
    Record { at_us, group, what, why: Why::Policy, policy: 0, level: 2, value: 0 }
}

fn daemon() -> DaemonInfo {
    DaemonInfo {
        pid: 7,
        version: "0".into(),
        policy: "hpf".into(),
        device_policies: Default::default(),
        uptime_s: 61,
        dropped_clients: 0,
        hidden_programs: 1,
        configuration: Vec::new(),
        configuration_fault: None,
        scheduler_failure: None,
        warnings: Vec::new(),
        panics: 0,
    }
}

/// Snapshot at 100 s: `serve` (high) runs on sim:0, where `train` (low) waits; a rival without a name has sim:1.
fn snapshot(at_us: u64, gpu_us: u64, launches: u64) -> Snapshot {
    Snapshot {
        fresh: false,
        at_us,
        daemon: Some(daemon()),
        devices: Vec::new(),
        programs: vec![
            program(42, "/bin/serve", Class::High, vec![group(2, "sim:0", GroupState::Running, gpu_us, launches)]),
            program(
                41,
                "/bin/t\x1b[31mn",
                Class::Low,
                vec![group(1, "sim:0", GroupState::Ready, 500, 10), group(3, "sim:1", GroupState::Ready, 0, 0)],
            ),
        ],
        groups: vec![
            traced(1, "sim:0", Some("/bin/train"), true, false),
            traced(2, "sim:0", Some("/bin/serve"), true, true),
            traced(3, "sim:1", Some("/bin/train"), true, false),
            traced(4, "sim:1", None, true, true),
        ],
        records: Vec::new(),
        whole_since_us: at_us.saturating_sub(60_000_000),
    }
}

fn first() -> Snapshot {
    let records = vec![
        record(70_000_000, 2, What::Ready),
        record(70_000_000, 2, What::Opened),
        record(80_000_000, 1, What::Closed),
        record(80_000_400, 1, What::Opened),
        record(96_000_000, 1, What::Closed),
        record(98_000_000, 3, What::Ready),
        record(98_000_000, 3, What::Waits),
    ];
    Snapshot { fresh: true, records, ..snapshot(100_000_000, 1_000_000, 5_000) }
}

fn app() -> App {
    let mut app = App::new(view());
    app.take(first());
    app.take(snapshot(101_000_000, 1_750_000, 17_345));
    app
}

fn key(app: &mut App, key: char) -> Then {
    press(app, KeyCode::Char(key))
}

fn press(app: &mut App, code: KeyCode) -> Then {
    app.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// Screen of this size.
fn screen(app: &App, theme: Theme, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| _ = draw::screen(app, theme, frame.area(), frame.buffer_mut())).unwrap();
    terminal
}

fn shown(app: &App, width: u16, height: u16) -> String {
    draw::dump(screen(app, PLAIN, width, height).backend().buffer())
}

#[test]
fn rates_follow_from_two_snapshots_and_waits_from_records() {
    let mut model = Model::default();
    model.take(first());
    let row = |model: &Model, group| model.rows.iter().find(|row| row.group == Some(group)).unwrap().clone();
    assert_eq!((row(&model, 2).gpu_percent, row(&model, 2).launches_per_s), (None, None), "nothing to compare with");
    let low = row(&model, 1);
    assert_eq!((low.wait_p50_us, low.wait_p99_us, low.lost), (Some(400), Some(4_000_000), 2), "one goes on");
    assert_eq!(low.held_by, ["serve"]);
    assert_eq!(row(&model, 3).held_by, ["another program"]);
    assert_eq!((low.name.as_str(), low.level, low.class), ("t\\u{1b}[31mn", 2, Class::Low));

    model.take(snapshot(101_000_000, 1_750_000, 17_345));
    let high = row(&model, 2);
    assert_eq!((high.gpu_percent, high.launches_per_s), (Some(75.0), Some(12_345.0)));
    assert_eq!((high.wait_p99_us, high.lost, high.held_by.len()), (Some(0), 0, 0));
    assert_eq!(row(&model, 1).wait_p99_us, Some(5_000_000), "a second later");
    // The wait of 0.4 ms ended 21 s ago; the wait that still lasts is the newest.
    let waits = row(&model, 1).waits;
    assert_eq!((waits[BUCKETS - 5], waits[BUCKETS - 1]), (Some(400), Some(5_000_000)));
    assert_eq!(waits.iter().flatten().count(), 2);
    assert_eq!(
        model.devices.iter().map(|d| (d.key.as_str(), d.waiting)).collect::<Vec<_>>(),
        [("sim:0", 1), ("sim:1", 1)]
    );
    assert_eq!(model.devices[0].running, ["serve"]);
}

#[test]
fn what_is_older_than_the_window_is_forgotten() {
    let mut model = Model::default();
    model.take(first());
    let records = vec![record(150_000_000, 1, What::Opened)];
    model.take(Snapshot { records, ..snapshot(200_000_000, 0, 0) });
    let low = model.rows.iter().find(|row| row.group == Some(1)).unwrap();
    assert_eq!((low.wait_p50_us, low.lost), (Some(54_000_000), 0));
    model.take(snapshot(211_000_000, 0, 0));
    let low = model.rows.iter().find(|row| row.group == Some(1)).unwrap();
    assert_eq!((low.wait_p50_us, low.waits), (None, [None; BUCKETS]));
}

#[test]
fn another_daemon_begins_anew() {
    let mut model = Model::default();
    model.take(first());
    model.take(Snapshot { fresh: true, ..snapshot(5_000_000, 9, 9) });
    let row = model.rows.iter().find(|row| row.group == Some(2)).unwrap();
    assert_eq!((row.gpu_percent, row.wait_p99_us), (None, None));
}

#[test]
fn rows_are_sorted_within_devices_and_filtered_by_any_of_their_words() {
    let mut app = app();
    let order = |view: &View, app: &App| view.rows(&app.model).iter().map(|r| r.group.unwrap()).collect::<Vec<_>>();
    for (sort, reverse, filter, expected) in [
        (Sort::Gpu, false, "", vec![2, 1, 3]),
        (Sort::Gpu, true, "", vec![1, 2, 3]),
        (Sort::Wait, false, "", vec![1, 2, 3]),
        (Sort::Pid, false, "", vec![1, 2, 3]),
        (Sort::Name, false, "", vec![2, 1, 3]),
        (Sort::Launches, false, "", vec![2, 1, 3]),
        (Sort::Gpu, false, "SERVE", vec![2]),
        (Sort::Gpu, false, "low sim:1", vec![3]),
        (Sort::Gpu, false, "41", vec![1, 3]),
        (Sort::Gpu, false, "running", vec![2]),
        (Sort::Gpu, false, "nothing", vec![]),
    ] {
        let view = View { sort, reverse, filter: filter.into() };
        assert_eq!(order(&view, &app), expected, "{sort:?} {reverse} {filter}");
    }
    assert_eq!(key(&mut app, 's'), Then::Draw);
    assert_eq!(app.view.sort, Sort::Wait);
    key(&mut app, 'S');
    assert!(app.view.reverse);
}

#[test]
fn a_change_is_done_after_a_yes_only() {
    let mut app = app();
    assert_eq!(app.selected, Some((42, Some(2))), "the first row");
    press(&mut app, KeyCode::Down);
    assert_eq!(app.selected, Some((41, Some(1))));
    key(&mut app, 'x');
    assert_eq!(key(&mut app, 'n'), Then::Draw);
    assert_eq!((&app.mode, app.message.as_deref()), (&Mode::Table, Some("nothing was changed")));
    key(&mut app, 'x');
    let Then::Do(change) = key(&mut app, 'y') else { panic!("it was confirmed") };
    assert_eq!(change.request(), Request::Suspend { targets: vec![Target::Pid(41)] });
    key(&mut app, 'r');
    let Then::Do(change) = key(&mut app, 'y') else { panic!("it was confirmed") };
    assert_eq!(change.request(), Request::Resume { targets: vec![Target::Pid(41)] });

    key(&mut app, 'c');
    key(&mut app, 'h');
    let question = "41 t\\u{1b}[31mn: class high?";
    assert!(matches!(&app.mode, Mode::Confirm(change) if change.question() == question), "{:?}", app.mode);
    let Then::Do(change) = key(&mut app, 'y') else { panic!("it was confirmed") };
    let Request::Hint { targets, priority: Some(128), .. } = change.request() else { panic!("{change:?}") };
    assert_eq!(targets, [Target::Pid(41)]);
    key(&mut app, 'c');
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.mode, Mode::Table);

    key(&mut app, 'p');
    assert_eq!(app.mode, Mode::Policy(0), "the one in force");
    press(&mut app, KeyCode::Down);
    press(&mut app, KeyCode::Enter);
    assert_eq!(key(&mut app, 'y'), Then::Do(Change::Policy { name: "hhpf" }));
    assert_eq!(key(&mut app, 'q'), Then::Quit);
    assert_eq!(app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Then::Quit);
}

#[test]
fn the_selection_follows_its_program_and_falls_back_to_the_first() {
    let mut app = app();
    press(&mut app, KeyCode::End);
    assert_eq!(app.selected, Some((41, Some(3))));
    press(&mut app, KeyCode::Down);
    assert_eq!(app.selected, Some((41, Some(3))), "there is no further one");
    key(&mut app, '/');
    "serve".chars().for_each(|c| _ = key(&mut app, c));
    assert_eq!(app.selected, Some((42, Some(2))));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.view.filter, "", "as it was");
    key(&mut app, '/');
    "zz".chars().for_each(|c| _ = key(&mut app, c));
    press(&mut app, KeyCode::Backspace);
    press(&mut app, KeyCode::Enter);
    assert_eq!((app.view.filter.as_str(), app.selected), ("z", None));
    key(&mut app, 'x');
    assert_eq!((&app.mode, app.message.as_deref()), (&Mode::Table, Some("there is no program to change")));
    press(&mut app, KeyCode::Esc);
    assert_eq!(app.selected, Some((42, Some(2))));
    // The selection is an existing program, whichever ends.
    app.take(Snapshot { programs: Vec::new(), ..snapshot(102_000_000, 0, 0) });
    assert_eq!(app.selected, None);
}

#[test]
fn a_screen_of_80_by_24_has_what_matters_and_the_rest_of_the_selected_one() {
    let mut app = app();
    press(&mut app, KeyCode::Down);
    let text = shown(&app, 80, 24);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 24);
    assert_eq!(lines[0], "xsched top 2 programs, 1 of others, by gpu, policy hpf, daemon 7 up 1 m 1 s");
    assert_eq!(lines[1], "    PID CLASS    STATE       GPU     P99 WAITS, 60 s  HELD BY     PROGRAM");
    assert_eq!(lines[2], "sim:0  serve has it, 1 waits");
    assert_eq!(lines[3], "     42 high     running    75 %    0 µs      ▁       -           serve");
    assert_eq!(lines[4], "     41 low      ready       0 %     5 s        ▃   █ serve       t\\u{1b}[31mn");
    assert_eq!(lines[5], "sim:1  free, 1 waits");
    assert!(lines[6].contains("another pr…"), "{}", lines[6]);
    assert_eq!(lines[18], "41 t\\u{1b}[31mn  g1 on sim:0, user 60001, low (priority 128), weight 100, level");
    assert_eq!(lines[19], "  2; ready, GPU 0 %, 0.0 launches/s; waits P50 400 µs, P99 5 s; lost 2; held by");
    assert_eq!(lines[20], "  serve");
    assert!(lines[21].starts_with("why ") && lines[22].starts_with("  → "), "{text}");
    assert_eq!(lines[23], "? help  q quit  s sort  / filter  c class  x suspend  p policy");
}

#[test]
fn a_screen_of_140_by_50_has_all_columns() {
    let text = shown(&app(), 140, 50);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 50);
    let heads = "    PID USER   CLASS    WEIGHT LEVEL STATE       GPU    MEMORY LAUNCH/S     P50     P99 WAITS, 60 s   LOST \
                 HELD BY     PROGRAM";
    assert_eq!(lines[1], heads);
    let row = "     42 60001  high        100 2     running    75 %         -   12.3 k    0 µs    0 µs      ▁           0 \
               -           serve";
    assert_eq!(lines[3], row);
}

#[test]
fn devices_tell_what_their_driver_tells() {
    let mut app = app();
    let device = DeviceInfo {
        device: "sim:0".into(),
        name: None,
        source: Source::Nvml,
        stale: false,
        latest: DeviceState {
            memory_used_bytes: Some(61 << 30),
            memory_total_bytes: Some(80 << 30),
            active_percent: Some(97),
            temperature_c: Some(64),
            power_w: Some(310),
            ..DeviceState::default()
        },
        processes: Some(vec![DeviceProcess { pid: 42, name: None, memory_bytes: Some(3 << 29), outside: false }]),
        history: Vec::new(),
    };
    app.take(Snapshot { devices: vec![device], ..snapshot(102_000_000, 2_000_000, 20_000) });
    let text = shown(&app, 140, 50);
    let line = "sim:0  serve has it, 1 waits, active 97 %, memory 61.0 of 80.0 GiB, 64 °C, 310 W";
    assert_eq!(text.lines().nth(2), Some(line));
    assert!(text.lines().nth(3).unwrap().contains(" 1.5 GiB "), "{text}");
}

#[test]
fn colours_tell_states_apart_and_without_them_words_do() {
    let app = app();
    let style = |theme: Theme, x: u16, y: u16| screen(&app, theme, 80, 24).backend().buffer()[(x, y)].style();
    // First letter of the state in the second row; the first row is selected.
    assert_eq!(style(COLOURED, 17, 4).fg, Some(Color::Yellow));
    assert_eq!(style(PLAIN, 17, 4).fg, Some(Color::Reset));
    let all = screen(&app, PLAIN, 80, 24);
    let coloured = |cell: &&ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
    assert_eq!(all.backend().buffer().content.iter().filter(coloured).count(), 0);
    assert!(style(PLAIN, 17, 3).add_modifier.contains(Modifier::REVERSED), "the selected row");
    // Without block characters, the whole text is ASCII.
    let theme = Theme { colour: false, blocks: false };
    assert!(draw::text_of(&app, theme, 140).is_ascii());
}

#[test]
fn help_and_menus_fit_a_small_screen_and_any_size_is_drawn() {
    let mut app = app();
    key(&mut app, '?');
    let text = shown(&app, 80, 24);
    assert!(text.contains("Keys and columns") && text.contains("HELD BY   what has the device"), "{text}");
    key(&mut app, ' ');
    assert_eq!(app.mode, Mode::Table);
    key(&mut app, 'p');
    let text = shown(&app, 80, 24);
    assert!(text.contains("┌ Policy ") && text.contains("mlfq"), "{text}");
    for (width, height) in [(1, 1), (5, 3), (20, 6), (79, 9), (80, 10), (300, 100)] {
        screen(&app, PLAIN, width, height);
    }
}

#[test]
fn a_long_table_shows_the_selected_row() {
    let mut app = App::new(view());
    let programs =
        (1..=60).map(|n| program(n, "/bin/a", Class::Low, vec![group(n.into(), "sim:0", GroupState::Idle, 0, 0)]));
    app.take(Snapshot { programs: programs.collect(), ..snapshot(1_000_000, 0, 0) });
    app.page = 19;
    press(&mut app, KeyCode::PageDown);
    press(&mut app, KeyCode::PageDown);
    assert_eq!(app.selected, Some((39, Some(39))));
    assert!(shown(&app, 80, 24).lines().any(|line| line.starts_with("     39 ")));
}

#[test]
fn an_empty_table_says_why() {
    let mut app = App::new(view());
    app.take(Snapshot { programs: Vec::new(), groups: Vec::new(), ..snapshot(1_000_000, 0, 0) });
    assert!(shown(&app, 80, 24).contains("no program of yours is attached, and 1 of others"));
    let mut app = self::app();
    app.view.filter = "zz".into();
    assert!(shown(&app, 80, 24).contains("no program has 'zz' in its line; Esc shows all"));
    assert!(draw::text_of(&app, PLAIN, 140).ends_with("no program has 'zz' in its line\n"), "nothing can be pressed");
}

#[test]
fn a_table_without_news_says_so_and_since_when() {
    let mut app = app();
    app.trouble = Some(Trouble { line: "no daemon answers at /s".into(), age: Duration::from_millis(65_200) });
    let screen = screen(&app, PLAIN, 80, 24);
    let text = draw::dump(screen.backend().buffer());
    assert!(text.starts_with("xsched top NOT LIVE, 1 m 5 s old: no daemon answers at /s\n"), "{text}");
    let style = |y: u16| screen.backend().buffer()[(17, y)].style();
    assert!(style(4).add_modifier.contains(Modifier::DIM), "the rows are of the past");
    app.take(snapshot(103_000_000, 0, 0));
    assert!(!shown(&app, 80, 24).contains("NOT LIVE"));
}

#[test]
fn what_does_not_fit_is_cut_where_it_is_seen() {
    let mut app = app();
    app.view.filter = "s".repeat(40);
    let text = shown(&app, 80, 24);
    assert!(text.lines().next().unwrap().ends_with('…'), "{text}");
    key(&mut app, 'p');
    let text = shown(&app, 60, 24);
    assert!(text.lines().any(|line| line.contains('…') && line.contains('│')), "{text}");
}

#[test]
fn one_that_is_suspended_is_held_by_no_program() {
    let mut app = app();
    let mut now = snapshot(102_000_000, 2_000_000, 20_000);
    now.programs.iter_mut().flat_map(|p| &mut p.groups).for_each(|g| g.state = GroupState::Suspended);
    app.take(now);
    let text = draw::text_of(&app, PLAIN, 140);
    assert!(text.lines().any(|line| line.contains("suspended   ") && line.trim_end().ends_with("serve")), "{text}");
    assert!(!text.lines().any(|line| line.contains(" ready ")), "{text}");
}

/// `train` has left the device and waits for it since 96 s.
fn slowed() -> App {
    let mut records = first().records;
    records.insert(5, record(96_000_100, 1, What::Drained));
    records.sort_by_key(|record| record.at_us);
    let less_urgent = |snapshot: Snapshot| {
        let mut snapshot = snapshot;
        snapshot.programs[1].groups[0].priority = -128;
        snapshot
    };
    let mut app = App::new(view());
    app.take(less_urgent(Snapshot { records, ..first() }));
    app.take(less_urgent(snapshot(101_000_000, 1_750_000, 17_345)));
    app
}

#[test]
fn the_selected_program_is_told_why_it_is_slow_and_what_to_do() {
    let mut app = slowed();
    press(&mut app, KeyCode::Down);
    let text = shown(&app, 100, 24);
    let reason = "why waits 8 % of the time: serve (high) has the device, and goes first\n  \
                  → usual for low; for more: `xsched hint 41 -p high`, or `xsched policy set fair`\n? help";
    assert!(text.contains(reason), "{text}");
    press(&mut app, KeyCode::Up);
    assert!(!shown(&app, 100, 24).contains("why waits"), "another program is selected");
    // There is room for it only where the table keeps some.
    assert!(!shown(&app, 100, 15).contains("\nwhy ") && shown(&app, 100, 16).contains("\nwhy "));
}

#[test]
fn a_table_that_is_printed_tells_the_reasons_below() {
    let text = draw::text_of(&slowed(), PLAIN, 200);
    let line =
        "     41 t\\u{1b}[31mn: waits 8 % of the time: serve (high) has the device, and goes first → usual for low;";
    assert!(text.lines().any(|it| it.starts_with(line)), "{text}");
    assert!(!text.contains("     42 serve: "), "it is not slowed, and not the only one: {text}");
}

#[test]
fn memory_that_a_program_counts_is_told_where_its_driver_tells_none_and_with_its_limit() {
    let mut app = app();
    let mut next = snapshot(102_000_000, 2_000_000, 20_000);
    let program = next.programs.iter_mut().find(|program| program.pid == 42).expect("serve");
    let held = MemoryUse { used_bytes: 3 << 29, refused: 4, ..MemoryUse::default() };
    program.memory = vec![MemoryInfo {
        device: program.groups[0].device.clone(),
        held,
        capacity_bytes: 80 << 30,
        limit_bytes: Some(2 << 30),
        allowance_bytes: None,
        program_used_bytes: 3 << 29,
        reserve_bytes: 0,
        ..MemoryInfo::default()
    }];
    app.take(next);
    let text = shown(&app, 200, 50);
    assert!(text.lines().nth(3).is_some_and(|line| line.contains(" 1.5 GiB ")), "{text}");
    assert!(text.contains(", 1.5 GiB of 2.0 GiB, 4 allocations refused; waits"), "{text}");
}
