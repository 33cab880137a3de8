//! Drawing: everything goes into a buffer of cells, for a screen or for a text.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use xsched_proto::text::escaped;
use xsched_proto::units;
use xsched_proto::wire::GroupState;

use super::app::{App, CLASSES, Mode, policies};
use super::model::{BUCKETS, Device, Row, state_name};
use crate::width::{Width, columns_of, cut};

/// Abilities of the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    /// True unless `NO_COLOR` is set.
    pub(super) colour: bool,
    /// True if the terminal can show block characters: its locale is UTF-8.
    pub(super) blocks: bool,
}

impl Theme {
    fn state(self, state: Option<GroupState>) -> Style {
        let colour = match state {
            Some(GroupState::Running) => Color::Green,
            Some(GroupState::Ready) => Color::Yellow,
            Some(GroupState::Suspended) => Color::Magenta,
            Some(GroupState::Detached) => Color::Red,
            Some(GroupState::Idle) | None => Color::Reset,
        };
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn accent(self) -> Style {
        if self.colour { Style::new().fg(Color::Cyan) } else { Style::new() }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Column of the table. Columns with a higher rank are left out first where there is no room.
struct Column {
    title: &'static str,
    width: usize,
    right: bool,
    rank: u8,
    text: fn(&Row, Theme) -> String,
}

const fn left(title: &'static str, width: usize, rank: u8, text: fn(&Row, Theme) -> String) -> Column {
    Column { title, width, right: false, rank, text }
}

const fn right(title: &'static str, width: usize, rank: u8, text: fn(&Row, Theme) -> String) -> Column {
    Column { title, width, right: true, rank, text }
}

/// Columns in the order of the screen; the program's name takes the rest of the width.
const COLUMNS: [Column; 14] = [
    right("PID", 7, 1, |row, _| row.pid.to_string()),
    left("USER", 6, 13, |row, _| escaped(&row.user).into_owned()),
    left("CLASS", 8, 3, |row, _| row.class.name().into()),
    right("WEIGHT", 6, 12, |row, _| row.weight.to_string()),
    left("LEVEL", 5, 14, |row, _| if row.level > 0 { row.level.to_string() } else { "-".into() }),
    left("STATE", 9, 2, |row, _| state_name(row.state).into()),
    right("GPU", 5, 4, |row, _| percent(row.gpu_percent)),
    right("MEMORY", 9, 11, |row, _| memory(row.memory_bytes)),
    right("LAUNCH/S", 8, 8, |row, _| row.launches_per_s.map_or("-".into(), count)),
    right("P50", WAIT, 9, |row, _| wait(row.wait_p50_us)),
    right("P99", WAIT, 5, |row, _| wait(row.wait_p99_us)),
    left("WAITS, 60 s", BUCKETS, 7, |row, theme| sparkline(&row.waits, theme)),
    right("LOST", 5, 10, |row, _| row.lost.to_string()),
    left("HELD BY", 11, 6, |row, _| held_by(row)),
];

/// Width of a wait, in characters.
const WAIT: usize = 7;
/// Smallest width of the program's name, in characters.
const NAME_LEAST: usize = 14;

/// Columns that fit into a line.
fn columns(width: usize) -> Vec<&'static Column> {
    let mut by_rank: Vec<&Column> = COLUMNS.iter().collect();
    by_rank.sort_by_key(|column| column.rank);
    let mut left = width.saturating_sub(NAME_LEAST);
    let mut least = u8::MAX;
    for column in by_rank {
        if column.width + 1 > left {
            least = column.rank;
            break;
        }
        left -= column.width + 1;
    }
    COLUMNS.iter().filter(|column| column.rank < least).collect()
}

/// Lines about the selected row.
const DETAILS: usize = 3;
/// Lines below them: why it is as slow as it is, and what to do.
const REASON: usize = 2;
/// Height from which on there are lines for the reason.
const REASON_HEIGHT: usize = 16;

/// Line of the table.
enum Line<'a> {
    Device(&'a Device),
    Row(&'a Row, bool),
}

/// Draws the whole screen. Returns the number of lines of the table.
pub(super) fn screen(app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) -> usize {
    let height = usize::from(area.height);
    // Above are the title and the heads; below are the lines about the selected row, and one about keys.
    let reason = if height >= REASON_HEIGHT { REASON } else { 0 };
    let below = if height >= 10 { DETAILS + reason + 1 } else { 1 };
    let room = height.saturating_sub(2 + below);
    title(app, theme, line(area, 0), buffer);
    heads(line(area, 1), buffer);
    let (lines, selected) = lines(app);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));
    for (at, entry) in lines.iter().skip(first).take(room).enumerate() {
        table_line(entry, theme, line(area, 2 + at), buffer);
    }
    if lines.is_empty() {
        let esc = if app.view.filter.is_empty() { "" } else { "; Esc shows all" };
        text(line(area, 2), buffer, &(nothing(app) + esc), theme.dim());
    }
    if below > 1 {
        details(app, height - below, area, buffer);
        if reason > 0 {
            why(app, theme, height - reason - 1, area, buffer);
        }
    }
    if app.trouble.is_some() {
        // The table shows the past.
        let table = Rect { y: area.y + 2, height: room as u16, ..area }.intersection(area);
        buffer.set_style(table, theme.dim());
    }
    bottom(app, theme, line(area, height.saturating_sub(1)), buffer);
    match app.mode {
        Mode::Help => help(theme, area, buffer),
        Mode::Policy(at) => policy_menu(at, area, buffer),
        _ => {}
    }
    in_signs_of(theme, buffer);
    room
}

/// Replaces what a terminal without UTF-8 cannot show.
fn in_signs_of(theme: Theme, buffer: &mut Buffer) {
    if theme.blocks {
        return;
    }
    for cell in &mut buffer.content {
        match cell.symbol() {
            "µ" => _ = cell.set_symbol("u"),
            "…" => _ = cell.set_symbol("~"),
            _ => {}
        }
    }
}

/// Whole output as text of this width.
pub(super) fn text_of(app: &App, theme: Theme, width: u16) -> String {
    let (lines, _) = lines(app);
    let area = Rect::new(0, 0, width, lines.len().max(1) as u16 + 2);
    let mut buffer = Buffer::empty(area);
    title(app, theme, line(area, 0), &mut buffer);
    heads(line(area, 1), &mut buffer);
    for (at, entry) in lines.iter().enumerate() {
        table_line(entry, theme, line(area, 2 + at), &mut buffer);
    }
    if lines.is_empty() {
        text(line(area, 2), &mut buffer, &nothing(app), Style::new());
    }
    in_signs_of(theme, &mut buffer);
    dump(&buffer) + &reasons(app, theme, width)
}

/// Characters of a buffer, line by line.
pub(super) fn dump(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let mut text = String::new();
        let mut skip = 0;
        for cell in cells {
            // Cells covered by a wide character have no symbol of their own.
            if skip == 0 {
                text.push_str(cell.symbol());
                skip = Span::raw(cell.symbol()).width().saturating_sub(1);
            } else {
                skip -= 1;
            }
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    };
    buffer.content.chunks(width.max(1)).map(row).collect()
}

fn line(area: Rect, at: usize) -> Rect {
    let at = at.min(usize::from(area.height)) as u16;
    Rect { y: area.y + at, height: u16::from(at < area.height), ..area }
}

/// Writes from the left end of an area, and returns the rest of it.
fn text(area: Rect, buffer: &mut Buffer, text: &str, style: Style) -> Rect {
    if area.is_empty() {
        return area;
    }
    let text = cut(text, usize::from(area.width));
    let (x, _) = buffer.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    let used = x - area.x;
    Rect { x, width: area.width - used, ..area }
}

fn title(app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let rest = text(area, buffer, "xsched top ", BOLD);
    let Some(daemon) = &app.model.daemon else { return };
    let up = units::of_s(daemon.uptime_s);
    let mut pids: Vec<u32> = app.model.rows.iter().map(|row| row.pid).collect();
    pids.dedup();
    let hidden = match daemon.hidden_programs {
        0 => String::new(),
        n => format!(", {n} of others"),
    };
    let order = if app.view.reverse { ", reversed" } else { "" };
    let filter = if app.view.filter.is_empty() { String::new() } else { format!(" ({})", escaped(&app.view.filter)) };
    let programs = if pids.len() == 1 { "program" } else { "programs" };
    if let Some(trouble) = &app.trouble {
        let age = units::of_s(trouble.age.as_secs());
        let told = format!("NOT LIVE, {age} old: {}", escaped(&trouble.line));
        text(rest, buffer, &told, REVERSED);
        return;
    }
    let told = format!(
        "{} {programs}{hidden}{filter}, by {}{order}, policy {}, daemon {} up {up}",
        pids.len(),
        app.view.sort.name(),
        escaped(&daemon.policy),
        daemon.pid
    );
    text(rest, buffer, &told, theme.dim());
}

fn heads(area: Rect, buffer: &mut Buffer) {
    let mut rest = area;
    for column in columns(usize::from(area.width)) {
        rest = cell(rest, buffer, column, column.title, BOLD);
    }
    text(rest, buffer, "PROGRAM", BOLD);
    buffer.set_style(area, REVERSED);
}

fn cell(area: Rect, buffer: &mut Buffer, column: &Column, content: &str, style: Style) -> Rect {
    let width = column.width.min(usize::from(area.width));
    let indent = if column.right { width.saturating_sub(Span::raw(content).width()) } else { 0 };
    let used = Rect { x: area.x + indent as u16, width: (width - indent) as u16, ..area };
    text(used, buffer, content, style);
    let used = (width + 1).min(usize::from(area.width)) as u16;
    Rect { x: area.x + used, width: area.width - used, ..area }
}

fn lines(app: &App) -> (Vec<Line<'_>>, Option<usize>) {
    let (rows, at) = app.rows();
    let (mut lines, mut selected, mut device) = (Vec::new(), None, "");
    for (n, row) in rows.iter().enumerate() {
        if row.device != device {
            device = &row.device;
            lines.extend(app.model.devices.iter().find(|d| d.key == device).map(Line::Device));
        }
        if at == Some(n) {
            selected = Some(lines.len());
        }
        lines.push(Line::Row(row, at == Some(n)));
    }
    (lines, selected)
}

fn table_line(entry: &Line<'_>, theme: Theme, area: Rect, buffer: &mut Buffer) {
    match entry {
        Line::Device(device) => {
            let rest = text(area, buffer, &escaped(&device.key), theme.accent().patch(BOLD));
            text(rest, buffer, &device_text(device), theme.dim());
        }
        Line::Row(row, selected) => {
            let mut rest = area;
            for column in columns(usize::from(area.width)) {
                let style = match column.title {
                    "STATE" => theme.state(row.state),
                    "WAITS, 60 s" => theme.accent(),
                    _ => Style::new(),
                };
                rest = cell(rest, buffer, column, &(column.text)(row, theme), style);
            }
            text(rest, buffer, &row.name, Style::new());
            if *selected {
                buffer.set_style(area, REVERSED);
            }
        }
    }
}

fn device_text(device: &Device) -> String {
    let running = match device.running.as_slice() {
        [] => "free".to_owned(),
        [one] => format!("{one} has it"),
        [first, others @ ..] => format!("{first} and {} more have it", others.len()),
    };
    let waiting = match device.waiting {
        0 => String::new(),
        1 => ", 1 waits".into(),
        n => format!(", {n} wait"),
    };
    let mut parts = vec![format!("{running}{waiting}")];
    if let Some(info) = &device.info {
        let state = &info.latest;
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        parts.extend(state.active_percent.map(|percent| format!("active {percent} %")));
        let used = state.memory_used_bytes.zip(state.memory_total_bytes);
        parts.extend(used.map(|(used, total)| format!("memory {:.1} of {:.1} GiB", gib(used), gib(total))));
        parts.extend(state.temperature_c.map(|c| format!("{c} °C")));
        parts.extend(state.power_w.map(|w| format!("{w} W")));
        if info.stale {
            parts.push("as of some time ago".into());
        }
    }
    format!("  {}", parts.join(", "))
}

/// Line for an empty table.
fn nothing(app: &App) -> String {
    match (app.model.rows.is_empty(), app.model.daemon.as_ref().map_or(0, |daemon| daemon.hidden_programs)) {
        (true, 0) => "no program is attached; start one with `xsched run -- COMMAND`".into(),
        (true, n) => format!("no program of yours is attached, and {n} of others"),
        (false, _) => format!("no program has '{}' in its line", escaped(&app.view.filter)),
    }
}

/// Draws the reason for which the selected program is as slow as it is, below `above` lines.
fn why(app: &App, theme: Theme, above: usize, area: Rect, buffer: &mut Buffer) {
    let (rows, at) = app.rows();
    let Some(answer) = at.and_then(|at| app.model.why(rows[at])) else { return };
    let arrow = if theme.blocks { "→" } else { "->" };
    let rest = text(line(area, above), buffer, "why ", theme.accent().patch(BOLD));
    text(rest, buffer, &answer.text, Style::new());
    text(line(area, above + 1), buffer, &format!("  {arrow} {}", answer.advice), Style::new());
}

/// Reasons of the visible programs that something makes slower, or of the only one, in a line for each.
fn reasons(app: &App, theme: Theme, width: u16) -> String {
    let (rows, _) = app.rows();
    let mut out = String::new();
    for row in &rows {
        let Some(answer) = app.model.why(row).filter(|answer| answer.is_news() || rows.len() == 1) else { continue };
        let mut content = format!("{:>7} {}: {}", row.pid, row.name, answer.line());
        if !theme.blocks {
            content = content.replace('→', "->").replace('µ', "u").replace('…', "~");
        }
        out += &Width::Columns(width.into()).fill(&content, 8);
    }
    out
}

/// Draws the details of the selected program, below `above` lines.
fn details(app: &App, above: usize, area: Rect, buffer: &mut Buffer) {
    let (rows, at) = app.rows();
    let Some(row) = at.map(|at| rows[at]) else { return };
    let name = format!("{} {}", row.pid, row.name);
    let (group, device) = match row.group {
        Some(group) => (format!("g{group}"), escaped(&row.device).into_owned()),
        None => ("-".into(), "no device".into()),
    };
    let who = format!(
        "{group} on {device}, user {}, {} (priority {}), weight {}, level {}",
        escaped(&row.user),
        row.class,
        row.priority,
        row.weight,
        row.level
    );
    let held = match (row.state, row.held_by.is_empty()) {
        (Some(GroupState::Suspended), _) => "; by `xsched suspend`, or priority -256".to_owned(),
        (_, true) => String::new(),
        (_, false) => format!("; held by {}", row.held_by.join(", ")),
    };
    let limit = row.memory_limit_bytes.map_or_else(String::new, |bytes| format!(" of {}", memory(Some(bytes))));
    let refused = if row.refused == 0 { String::new() } else { format!(", {} allocations refused", row.refused) };
    let memory =
        row.memory_bytes.map_or_else(String::new, |bytes| format!(", {}{limit}{refused}", memory(Some(bytes))));
    let does = format!(
        "{}, GPU {}, {} launches/s{memory}; waits P50 {}, P99 {}; lost {}{held}",
        state_name(row.state),
        percent(row.gpu_percent),
        row.launches_per_s.map_or("-".into(), count),
        wait(row.wait_p50_us),
        wait(row.wait_p99_us),
        row.lost
    );
    let filled = Width::Columns(usize::from(area.width)).fill(&format!("{name}  {who}; {does}"), 2);
    let mut lines = filled.lines();
    for n in 0..DETAILS {
        let is_last = n + 1 == DETAILS;
        let content =
            if is_last { lines.by_ref().collect::<Vec<_>>().join(" ") } else { lines.next().unwrap_or("").into() };
        let place = line(area, above + n);
        match content.strip_prefix(&name) {
            Some(others) if n == 0 => _ = text(text(place, buffer, &name, BOLD), buffer, others, Style::new()),
            _ => _ = text(place, buffer, &content, Style::new()),
        }
    }
}

fn bottom(app: &App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let prompt = match &app.mode {
        Mode::Filter(_) => Some(format!("filter: {}_   Enter keeps it, Esc does not", escaped(&app.view.filter))),
        Mode::Class(pid) => {
            let names: Vec<String> =
                CLASSES.iter().rev().map(|(letter, class)| format!("{letter} {}", class.name())).collect();
            Some(format!("class of {pid}: {}", names.join("  ")))
        }
        Mode::Policy(_) => Some("policy: up and down, Enter chooses, Esc leaves it".into()),
        Mode::Confirm(change) => Some(format!("{} y = yes", change.question())),
        Mode::Table | Mode::Help => None,
    };
    match (prompt, app.message.as_ref()) {
        (Some(prompt), _) => _ = text(area, buffer, &prompt, BOLD),
        (None, Some(message)) => _ = text(area, buffer, &escaped(message), BOLD),
        (None, None) => {
            let change = if app.is_suspended() { "r resume" } else { "x suspend" };
            let keys = format!("? help  q quit  s sort  / filter  c class  {change}  p policy");
            text(area, buffer, &keys, theme.dim());
        }
    }
}

const HELP: &[&str] = &[
    "up, down, PgUp, PgDn, Home, End   select a row (also k, j)",
    "s   sort by the next: gpu, wait, priority, launches, memory, pid, name",
    "S   the other way round",
    "/   filter by name, class, state, device or pid; Esc shows all",
    "c   change the class of the selected program",
    "x   suspend it: it keeps off its devices until it is resumed",
    "r   resume it",
    "p   change the policy of all devices",
    "q   quit (also Ctrl-C)",
    "",
    "GPU       part of the time that the device was charged to it",
    "P50, P99  waits for the device within 60 s; one that goes on counts",
    "WAITS     the longest wait of each 5 s, the newest on the right:",
    "          each step up is three times as long, from 0.1 to 100 ms",
    "LOST      times it lost the device within 60 s while it wanted it",
    "HELD BY   what has the device that it waits for",
];

fn help(theme: Theme, area: Rect, buffer: &mut Buffer) {
    window(" Keys and columns: any key goes back ", HELP.iter().map(|line| (*line).to_owned()), None, area, buffer);
    let _ = theme;
}

fn policy_menu(at: usize, area: Rect, buffer: &mut Buffer) {
    let lines = policies().map(|entry| format!("{:<6} {}", entry.name, entry.about));
    window(" Policy ", lines, Some(at), area, buffer);
}

/// Draws a list in a frame, in the middle of the screen.
fn window(title: &str, lines: impl Iterator<Item = String>, selected: Option<usize>, area: Rect, buffer: &mut Buffer) {
    use ratatui::widgets::{Block, Clear, Widget};
    let lines: Vec<String> = lines.collect();
    let widest = lines.iter().map(|line| Span::raw(line).width()).max().unwrap_or(0);
    let width = (widest as u16 + 4).min(area.width);
    let height = (lines.len() as u16 + 2).min(area.height.saturating_sub(1));
    let frame = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height);
    Clear.render(frame, buffer);
    let block = Block::bordered().title(title.to_owned());
    let inner = block.inner(frame);
    block.render(frame, buffer);
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(usize::from(inner.height)));
    for (n, content) in lines.iter().enumerate().skip(first).take(usize::from(inner.height)) {
        let at = line(inner, n - first);
        text(Rect { x: at.x + 1, width: at.width.saturating_sub(1), ..at }, buffer, content, Style::new());
        if selected == Some(n) {
            buffer.set_style(at, REVERSED);
        }
    }
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0} %"))
}

fn count(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{:.1} M", v / 1e6),
        v if v >= 9_999.5 => format!("{:.1} k", v / 1e3),
        v if v >= 9.95 => format!("{v:.0}"),
        v => format!("{v:.1}"),
    }
}

fn memory(bytes: Option<u64>) -> String {
    match bytes {
        None => "-".into(),
        Some(bytes) if bytes >= 1 << 30 => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        Some(bytes) => format!("{} MiB", bytes >> 20),
    }
}

/// Text of a wait.
fn wait(us: Option<u64>) -> String {
    let short =
        |us| Some(units::of_us(us)).filter(|text| columns_of(text) <= WAIT).unwrap_or_else(|| units::rough_us(us));
    us.map_or("-".into(), short)
}

fn held_by(row: &Row) -> String {
    match row.held_by.as_slice() {
        _ if row.state == Some(GroupState::Suspended) => "suspended".into(),
        [] => "-".into(),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    }
}

/// One character for each part of the window. Each step up stands for three times the wait.
fn sparkline(waits: &[Option<u64>], theme: Theme) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const SIGNS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let signs = if theme.blocks { BLOCKS } else { SIGNS };
    let sign = |wait: &Option<u64>| {
        let Some(us) = wait else { return ' ' };
        let bounds = [100, 300, 1_000, 3_000, 10_000, 30_000, 100_000];
        signs[bounds.iter().filter(|bound| us >= bound).count()]
    };
    waits.iter().map(sign).collect()
}
