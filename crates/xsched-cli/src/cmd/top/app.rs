//! State of the screen and effect of keys: pure. Requests for the daemon are returned.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use xsched_policy::registry::{self, Entry};
use xsched_proto::class::Class;
use xsched_proto::hint::Hints;
use xsched_proto::wire::{GroupState, Request, Target};

use super::model::{Model, Row, Snapshot, View};

/// Part of the screen besides the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    Help,
    /// The user types a filter; the value is the former one.
    Filter(String),
    /// The user chooses a class for a process.
    Class(u32),
    /// The user chooses a policy, by its place in the list.
    Policy(usize),
    /// A change waits for the user's confirmation.
    Confirm(Change),
}

/// Change that a key may make, once it is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Class { pid: u32, name: String, class: Class },
    Suspend { pid: u32, name: String },
    Resume { pid: u32, name: String },
    Policy { name: &'static str },
}

impl Change {
    /// Question before the change.
    pub(super) fn question(&self) -> String {
        match self {
            Change::Class { pid, name, class } => format!("{pid} {name}: class {class}?"),
            Change::Suspend { pid, name } => format!("{pid} {name}: suspend, until it is resumed?"),
            Change::Resume { pid, name } => format!("{pid} {name}: resume?"),
            Change::Policy { name } => format!("policy {name} on all devices?"),
        }
    }

    /// Message after the change.
    pub(super) fn done(&self) -> String {
        match self {
            Change::Class { pid, name, class } => format!("{pid} {name}: class {class}"),
            Change::Suspend { pid, name } => format!("{pid} {name}: suspended"),
            Change::Resume { pid, name } => format!("{pid} {name}: resumed"),
            Change::Policy { name } => format!("policy {name}"),
        }
    }

    /// Request to the daemon.
    pub(super) fn request(&self) -> Request {
        match self {
            Change::Class { pid, class, .. } => Request::Hint {
                targets: vec![Target::Pid(*pid)],
                priority: Some(class.nominal()),
                hints: Hints::default(),
                level: None,
                threshold: None,
                batch: None,
            },
            Change::Suspend { pid, .. } => Request::Suspend { targets: vec![Target::Pid(*pid)] },
            Change::Resume { pid, .. } => Request::Resume { targets: vec![Target::Pid(*pid)] },
            Change::Policy { name } => {
                Request::PolicySet { name: (*name).to_owned(), params: Vec::new(), device: None }
            }
        }
    }
}

/// Classes by the keys that choose them.
pub(super) const CLASSES: [(char, Class); 5] =
    [('l', Class::Low), ('n', Class::Normal), ('h', Class::High), ('r', Class::Realtime), ('s', Class::System)];

/// Effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The screen is drawn.
    Draw,
    /// The daemon is asked for a change.
    Do(Change),
    /// Ends the program.
    Quit,
}

/// Lack of news from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Reason, as one line.
    pub(super) line: String,
    /// Time since the last news.
    pub(super) age: Duration,
}

/// State of the whole screen.
pub(super) struct App {
    pub(super) model: Model,
    pub(super) view: View,
    pub(super) mode: Mode,
    /// Row to which changes apply: its process and group.
    pub(super) selected: Option<(u32, Option<u64>)>,
    /// True if a key chose the selected row. Until then the first row is selected, whichever it is.
    chosen: bool,
    /// Result of the last key.
    pub(super) message: Option<String>,
    /// Reason for which there is no news from the daemon.
    pub(super) trouble: Option<Trouble>,
    /// Number of rows of a page, at the last drawing.
    pub(super) page: usize,
}

impl App {
    pub(super) fn new(view: View) -> App {
        App {
            model: Model::default(),
            view,
            mode: Mode::Table,
            selected: None,
            chosen: false,
            message: None,
            trouble: None,
            page: 10,
        }
    }

    /// Takes a snapshot of the daemon.
    pub(super) fn take(&mut self, snapshot: Snapshot) {
        self.model.take(snapshot);
        self.trouble = None;
        self.select_what_is_there();
    }

    /// Visible rows, and the place of the selected one.
    pub(super) fn rows(&self) -> (Vec<&Row>, Option<usize>) {
        let rows = self.view.rows(&self.model);
        let at = rows.iter().position(|row| Some((row.pid, row.group)) == self.selected);
        (rows, at)
    }

    fn selected_row(&self) -> Option<&Row> {
        let (rows, at) = self.rows();
        at.map(|at| rows[at])
    }

    /// Selects the row at a place, or the last one if there are fewer.
    fn select(&mut self, at: usize) {
        let (rows, _) = self.rows();
        self.selected = rows.get(at.min(rows.len().saturating_sub(1))).map(|row| (row.pid, row.group));
    }

    fn select_what_is_there(&mut self) {
        if !self.chosen || self.selected_row().is_none() {
            self.select(0);
        }
    }

    fn go(&mut self, by: isize) {
        let at = self.rows().1.unwrap_or(0);
        self.chosen = true;
        self.select(at.saturating_add_signed(by));
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Then {
        let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
        if interrupt {
            return Then::Quit;
        }
        self.message = None;
        match self.mode.clone() {
            Mode::Table => return self.key_in_table(key.code),
            Mode::Help => self.mode = Mode::Table,
            Mode::Filter(before) => self.key_in_filter(key.code, before),
            Mode::Class(pid) => self.key_for_class(key.code, pid),
            Mode::Policy(at) => self.key_for_policy(key.code, at),
            Mode::Confirm(change) => {
                self.mode = Mode::Table;
                if matches!(key.code, KeyCode::Char('y' | 'Y')) {
                    return Then::Do(change);
                }
                self.message = Some("nothing was changed".into());
            }
        }
        Then::Draw
    }

    fn key_in_table(&mut self, key: KeyCode) -> Then {
        let page = self.page.max(1) as isize;
        match key {
            KeyCode::Char('q') => return Then::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-page),
            KeyCode::PageDown => self.go(page),
            KeyCode::Home => self.go(isize::MIN),
            KeyCode::End => self.go(isize::MAX),
            KeyCode::Char('s') => self.view.sort = self.view.sort.next(),
            KeyCode::Char('S') => self.view.reverse = !self.view.reverse,
            KeyCode::Char('/') => self.mode = Mode::Filter(self.view.filter.clone()),
            KeyCode::Esc => {
                self.view.filter.clear();
                self.select_what_is_there();
            }
            KeyCode::Char('c') => self.for_selected(|row| Mode::Class(row.pid)),
            KeyCode::Char('x') => {
                self.for_selected(|row| Mode::Confirm(Change::Suspend { pid: row.pid, name: row.name.clone() }))
            }
            KeyCode::Char('r') => {
                self.for_selected(|row| Mode::Confirm(Change::Resume { pid: row.pid, name: row.name.clone() }));
            }
            KeyCode::Char('p') => {
                let in_force = self.model.daemon.as_ref().map(|daemon| daemon.policy.as_str()).unwrap_or_default();
                let is_it = |entry: &&'static Entry| in_force.split(' ').next() == Some(entry.name);
                self.mode = Mode::Policy(policies().position(|entry| is_it(&entry)).unwrap_or(0));
            }
            _ => {}
        }
        Then::Draw
    }

    fn for_selected(&mut self, mode: impl FnOnce(&Row) -> Mode) {
        self.chosen = true;
        match self.selected_row().map(mode) {
            Some(mode) => self.mode = mode,
            None => self.message = Some("there is no program to change".into()),
        }
    }

    fn key_in_filter(&mut self, key: KeyCode, before: String) {
        match key {
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Esc => {
                self.view.filter = before;
                self.mode = Mode::Table;
            }
            KeyCode::Backspace => _ = self.view.filter.pop(),
            // A longer filter would not fit on a narrow screen.
            KeyCode::Char(c) if !c.is_control() && self.view.filter.chars().count() < 40 => self.view.filter.push(c),
            _ => {}
        }
        self.select_what_is_there();
    }

    fn key_for_class(&mut self, key: KeyCode, pid: u32) {
        self.mode = Mode::Table;
        let chosen = CLASSES.into_iter().find(|(letter, _)| key == KeyCode::Char(*letter));
        // The program may have ended meanwhile.
        let row = self.model.rows.iter().find(|row| row.pid == pid);
        match (chosen, row) {
            (Some((_, class)), Some(row)) => {
                self.mode = Mode::Confirm(Change::Class { pid, name: row.name.clone(), class });
            }
            (Some(_), None) => self.message = Some(format!("{pid} has ended")),
            (None, _) => self.message = Some("nothing was changed".into()),
        }
    }

    fn key_for_policy(&mut self, key: KeyCode, at: usize) {
        let last = policies().count() - 1;
        self.mode = match key {
            KeyCode::Up | KeyCode::Char('k') => Mode::Policy(at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => Mode::Policy((at + 1).min(last)),
            KeyCode::Enter => match policies().nth(at) {
                Some(entry) => Mode::Confirm(Change::Policy { name: entry.name }),
                None => Mode::Table,
            },
            KeyCode::Esc | KeyCode::Char('q') => Mode::Table,
            _ => Mode::Policy(at),
        };
    }

    /// Reports whether the selected program is suspended: then `resume` is offered.
    pub(super) fn is_suspended(&self) -> bool {
        self.selected_row().is_some_and(|row| row.state == Some(GroupState::Suspended))
    }
}

/// Policies that can be chosen.
pub(super) fn policies() -> impl Iterator<Item = &'static Entry> {
    registry::listed()
}
