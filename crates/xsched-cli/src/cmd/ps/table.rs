//! Table of programs: its columns, and the choice of those that a terminal has room for.

use std::cmp::Reverse;

use xsched_proto::account::of_bytes;
use xsched_proto::text::escaped;
use xsched_proto::units::{of_us, rough_us};
use xsched_proto::wire::{GroupInfo, GroupState, PoolSide, ProgramInfo, Share};

use super::{Sort, memory};
use crate::users::Names;
use crate::width::{Width, columns_of, cut};

/// Width up to which a program's name is not cut while another column can be left out.
const NAME_COLUMNS: usize = 8;

/// Row of the table: a program on a device. A program that has used none yet has one row too.
struct Row<'a> {
    program: &'a ProgramInfo,
    group: Option<&'a GroupInfo>,
    user: String,
}

impl Row<'_> {
    fn device(&self) -> Option<&str> {
        self.group.map(|group| &*group.device)
    }

    /// Memory that the program holds on the device, or in all. One that has ended holds none.
    fn held(&self) -> Option<u64> {
        memory::held(self.program, self.device()).filter(|_| self.program.ended_s.is_none())
    }
}

/// Condition under which a column is shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    Always,
    /// Shown unless it has only `-`.
    IfAny,
    /// Shown with `--wide`, or if it has something noteworthy.
    WideOrIfAny,
    /// Shown with `--wide`.
    Wide,
}

struct Column {
    name: &'static str,
    /// True for numbers, which are aligned to the right.
    right: bool,
    shown: Shown,
    /// Rank of the column: the one with the highest is left out first where there is no room; 0 = never left out.
    rank: u8,
    /// Largest width of a cell where there is no room.
    most: usize,
    cell: fn(&Row<'_>) -> String,
}

const NOTHING: &str = "-";

const fn column(name: &'static str, shown: Shown, rank: u8, cell: fn(&Row<'_>) -> String) -> Column {
    Column { name, right: false, shown, rank, most: 18, cell }
}

const fn number(name: &'static str, shown: Shown, rank: u8, cell: fn(&Row<'_>) -> String) -> Column {
    Column { name, right: true, shown, rank, most: 18, cell }
}

const fn narrow(column: Column, most: usize) -> Column {
    Column { most, ..column }
}

const COLUMNS: [Column; 21] = [
    number("PID", Shown::Always, 0, |row| row.program.pid.to_string()),
    narrow(column("USER", Shown::Always, 5, |row| escaped(&row.user).into_owned()), 8),
    narrow(column("JOB", Shown::IfAny, 7, |row| text(row.program.job.as_deref())), 10),
    narrow(column("CONTAINER", Shown::IfAny, 8, |row| text(row.program.container().as_deref())), 9),
    column("CLASS", Shown::Always, 2, |row| row.program.class.name().to_owned()),
    column("BY", Shown::Wide, 13, |row| {
        format!("{}{}", row.program.class_from.text(), if row.program.limited { "+" } else { "" })
    }),
    number("PRIO", Shown::Wide, 13, |row| row.group.map_or(row.program.priority, |group| group.priority).to_string()),
    number("WEIGHT", Shown::Wide, 13, |row| row.program.weight.to_string()),
    narrow(column("DEVICE", Shown::Always, 4, |row| text(row.group.map(|group| short(&group.device)))), 12),
    column("HOW", Shown::IfAny, 9, |row| match row.program.share {
        Some(Share::Time) => "time".into(),
        Some(Share::Pool) if row.program.pool == Some(PoolSide::Inner) => "inner".into(),
        Some(Share::Pool) => "pool".into(),
        Some(Share::Spatial) => "spatial".into(),
        None => NOTHING.into(),
    }),
    number("LEVEL", Shown::Always, 10, |row| or_nothing(row.group.map(|group| group.level))),
    column("STATE", Shown::Always, 1, state),
    number("SHARE", Shown::IfAny, 6, share),
    number("GPU TIME", Shown::Always, 3, |row| or_nothing(row.group.map(|group| of_us(group.gpu_us)))),
    number("MEM", Shown::IfAny, 5, |row| or_nothing(row.held().map(of_bytes))),
    number("LIMIT", Shown::Wide, 13, |row| or_nothing(memory::limit(row.program, row.device()).map(of_bytes))),
    number("P99WAIT", Shown::Always, 4, |row| {
        or_nothing(row.group.and_then(|group| group.waits.p99_us).map(|us| of_us(us as u64)))
    }),
    number("WAITED", Shown::Wide, 13, |row| or_nothing(row.group.map(|group| of_us(group.wait_us)))),
    number("LAUNCHES", Shown::Wide, 13, |row| or_nothing(row.group.map(|group| group.launches))),
    number("UNSCHED", Shown::WideOrIfAny, 11, |row| or_nothing(row.group.map(unscheduled).filter(|n| *n > 0))),
    number("ATTACHED", Shown::Wide, 13, |row| of_us(row.program.attached_s.saturating_mul(1_000_000))),
];

/// Table within its width, without control characters from other users.
pub(super) fn table(programs: &[ProgramInfo], wide: bool, sort: Sort, width: Width) -> String {
    let mut names = Names::default();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for program in programs {
        let user = names.of(program.uid).to_owned();
        let groups = program.groups.iter().map(Some).chain(program.groups.is_empty().then_some(None));
        rows.extend(groups.map(|group| Row { program, group, user: user.clone() }));
    }
    sorted(&mut rows, sort);
    let mut columns: Vec<(&Column, Vec<String>)> =
        COLUMNS.iter().map(|column| (column, rows.iter().map(|row| (column.cell)(row)).collect())).collect();
    columns.retain(|(column, cells): &(&Column, Vec<String>)| match column.shown {
        Shown::Always => true,
        Shown::IfAny => cells.iter().any(|cell| cell != NOTHING),
        Shown::WideOrIfAny => wide || cells.iter().any(|cell| cell != NOTHING),
        Shown::Wide => wide,
    });
    let last: Vec<String> = rows.iter().map(|row| what(row, wide)).collect();
    let longest = last.iter().map(|name| columns_of(name)).max().unwrap_or(0);
    if let Width::Columns(all) = width {
        for (column, cells) in &mut columns {
            cells.iter_mut().for_each(|cell| *cell = cut(cell, column.most));
        }
        while used(&columns) + longest.min(NAME_COLUMNS) > all {
            let Some(at) = (0..columns.len()).filter(|at| columns[*at].0.rank > 0).max_by_key(|at| columns[*at].0.rank)
            else {
                break;
            };
            columns.remove(at);
        }
    }
    let room = match width {
        Width::Columns(all) => all.saturating_sub(used(&columns)).max(1),
        Width::Unlimited => usize::MAX,
    };
    let widths: Vec<usize> = columns.iter().map(|(column, cells)| width_of(column, cells)).collect();
    let line = |cell: &dyn Fn(usize) -> String, last: &str| {
        let mut line = String::new();
        for (at, (column, _)) in columns.iter().enumerate() {
            let cell = cell(at);
            let blank = " ".repeat(widths[at].saturating_sub(columns_of(&cell)));
            let (before, after) = if column.right { (blank, String::new()) } else { (String::new(), blank) };
            line.push_str(&format!("{before}{cell}{after} "));
        }
        line + last + "\n"
    };
    let head = cut(if wide { "COMMAND" } else { "PROGRAM" }, room);
    let mut out = line(&|at| columns[at].0.name.to_owned(), &head);
    for (number, name) in last.iter().enumerate() {
        out.push_str(&line(&|at| columns[at].1[number].clone(), &cut(name, room)));
    }
    out
}

/// Number of columns of the terminal that all of these take, each with a blank after it.
fn used(columns: &[(&Column, Vec<String>)]) -> usize {
    columns.iter().map(|(column, cells)| width_of(column, cells) + 1).sum()
}

fn width_of(column: &Column, cells: &[String]) -> usize {
    cells.iter().map(|cell| columns_of(cell)).chain([column.name.len()]).max().unwrap_or(0)
}

fn sorted(rows: &mut [Row<'_>], sort: Sort) {
    let of = |row: &Row<'_>, value: fn(&GroupInfo) -> u64| Reverse(row.group.map(value));
    let percent = |group: &GroupInfo| group.share_got_percent.map_or(0, |percent| (percent * 1_000.0) as u64 + 1);
    match sort {
        // The daemon's order, with recently ended programs.
        Sort::Pid => (),
        Sort::User => rows.sort_by(|a, b| a.user.cmp(&b.user)),
        // Programs without one come last.
        Sort::Job => rows.sort_by_key(|row| (row.program.job.is_none(), row.program.job.clone())),
        Sort::Container => rows.sort_by_key(|row| (row.program.container.is_none(), row.program.container())),
        Sort::Class => rows.sort_by_key(|row| Reverse((row.program.class, row.program.priority))),
        Sort::Device => rows.sort_by_key(|row| (row.group.is_none(), row.group.map(|group| group.device.clone()))),
        Sort::State => rows.sort_by_key(|row| row.group.map_or(9, |group| order(row.program, group.state))),
        Sort::Share => rows.sort_by_key(|row| of(row, percent)),
        Sort::GpuTime => rows.sort_by_key(|row| of(row, |group| group.gpu_us)),
        Sort::Mem => rows.sort_by_key(|row| Reverse(row.held())),
        Sort::P99wait => rows.sort_by_key(|row| of(row, |group| group.waits.p99_us.map_or(0, |us| us as u64 + 1))),
        Sort::Waited => rows.sort_by_key(|row| of(row, |group| group.wait_us)),
        Sort::Launches => rows.sort_by_key(|row| of(row, |group| group.launches)),
        Sort::Program => rows.sort_by(|a, b| a.program.name.cmp(&b.program.name)),
    }
}

/// Rank of a row: the most interesting state comes first.
fn order(program: &ProgramInfo, state: GroupState) -> u8 {
    match (program.ended_s, state) {
        (Some(_), _) => 8,
        (None, GroupState::Running) => 0,
        (None, GroupState::Ready) => 1,
        (None, GroupState::Suspended) => 2,
        (None, GroupState::Detached) => 3,
        (None, GroupState::Idle) => 4,
    }
}

fn text(text: Option<&str>) -> String {
    text.map_or_else(|| NOTHING.to_owned(), |text| escaped(text).into_owned())
}

fn or_nothing(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| value.to_string())
}

/// Device's key without the parts that are equal on most machines.
fn short(device: &str) -> &str {
    device.strip_prefix("pci:0000:").unwrap_or(device)
}

fn state(row: &Row<'_>) -> String {
    if let Some(s) = row.program.ended_s {
        // To the second: a program that ended in this second has ended 0 s ago.
        return match s {
            0 => "ended 0 s".into(),
            s => format!("ended {}", rough_us(s.saturating_mul(1_000_000))),
        };
    }
    if row.program.is_frozen() {
        return "frozen".into();
    }
    let Some(group) = row.group else { return NOTHING.into() };
    match group.state {
        GroupState::Idle => "idle".into(),
        GroupState::Ready if group.waits.now > 0 => format!("ready {}", rough_us(group.waits.now_us)),
        GroupState::Ready => "ready".into(),
        GroupState::Running => "running".into(),
        GroupState::Suspended => "suspended".into(),
        GroupState::Detached => "detached".into(),
    }
}

/// Share asked for / share got. Where the policy goes by no shares, the share got, with its unit.
fn share(row: &Row<'_>) -> String {
    let Some(group) = row.group.filter(|_| row.program.ended_s.is_none()) else { return NOTHING.into() };
    let percent = |percent: Option<f64>| or_nothing(percent.map(|percent| percent.round() as u32));
    match (group.share_asked_percent, group.share_got_percent) {
        (None, None) => NOTHING.into(),
        (None, got) => format!("{} %", percent(got)),
        (asked, got) => format!("{}/{}", percent(asked), percent(got)),
    }
}

fn unscheduled(group: &GroupInfo) -> u64 {
    group.unscheduled.attach + group.unscheduled.passthrough + group.unscheduled.error
}

/// Last cell of a row: the program's name.
fn what(row: &Row<'_>, wide: bool) -> String {
    let program = row.program;
    let mut name = if wide && !program.command.is_empty() { program.command.join(" ") } else { program.name.clone() };
    if let Some(title) = program.title.as_ref().filter(|_| wide) {
        name = format!("{name} [{title}]");
    }
    escaped(&name).into_owned()
}
