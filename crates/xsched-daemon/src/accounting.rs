//! What the loop does with the gatekeeper's ledger: has it measured, and hands what is charged to the thread that keeps it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use xsched_gatekeeper::ledger::LATE_NS;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::DaemonMsg;

use crate::Error;
use crate::identity::User;
use crate::server::{Answer, Conn, Role, Server};
use crate::tuning::{
    BOOKS_MAX, BOOKS_PIECE, DEVICE_STALE_NS, DEVICES_MAX, USAGE_QUEUE, USER_BOOKS_MAX, USER_DEVICES_MAX, of_user,
};
use crate::usage::{Query, Sweep};

impl Server {
    /// A client has a group, or another class.
    pub(crate) fn know_program(&mut self, conn: u64) {
        if let Some(client) = self.conns.get(&conn).and_then(Conn::client) {
            self.accounting.know(client, now_ms());
            for group in client.groups.iter().filter_map(|id| self.groups.get(id)) {
                self.accounting.books.open(client.program, &group.device, client.peer.user);
            }
        }
    }

    /// Reasons for which a user may not have a group on a further device, or a further book.
    pub(crate) fn too_many_books(&self, user: User, device: &str) -> Option<(usize, &'static str)> {
        let (books, devices) = self.accounting.books.of(user, device);
        let most = |bounds| of_user(bounds, user.is_own());
        if devices >= most(USER_DEVICES_MAX) {
            return Some((devices, "devices with time that is not recorded yet"));
        }
        (books >= most(USER_BOOKS_MAX)).then_some((books, "programs with time that is not recorded yet"))
    }

    /// Of what all users together, but for root and the daemon's own, have as much as there may be, if they have a group more on a device.
    pub(crate) fn all_books_taken(&self, device: &str) -> Option<&'static str> {
        let books = &self.accounting.books;
        if books.devices_beside(device).is_some_and(|devices| devices >= DEVICES_MAX) {
            return Some("devices with time that is not recorded yet");
        }
        (books.len() >= BOOKS_MAX).then_some("programs with time that is not recorded yet")
    }

    /// Closes the book of a program whose last group on a device is gone, if nothing was ever charged to it.
    pub(crate) fn close_blank(&mut self, program: ProgramId, device: &str) {
        if self.gatekeeper.ledger().is_blank(device, program) {
            self.close_book(program, device);
        }
    }

    fn close_book(&mut self, program: ProgramId, device: &str) {
        self.gatekeeper.ledger_mut().close(device, program);
        self.accounting.books.close(program, device);
        if let Some(known) = self.accounting.programs.get_mut(&program) {
            known.kept.remove(device);
            let is_attached = self.conns.get(&program.0).is_some_and(|conn| conn.client().is_some());
            if !is_attached && !self.gatekeeper.ledger().has_books(program) {
                self.accounting.programs.remove(&program);
            }
        }
    }

    /// Has the time measured that was not followed.
    pub(crate) fn measure(&mut self) {
        self.accounting.measure_at = None;
        let now_ns = self.now_ns;
        self.gatekeeper.ledger_mut().settle(now_ns);
        let devices: Vec<String> = self.gatekeeper.ledger().unmeasured().map(str::to_owned).collect();
        self.accounting.measured.retain(|device, _| devices.contains(device));
        for device in &devices {
            let active = self.devices.state(device, now_ns).map(|state| state.active_percent);
            let before_ns = *self.accounting.measured.entry(device.clone()).or_insert(now_ns);
            // A driver that is being opened tells later.
            if active.is_none() && self.devices.may_tell(device) && now_ns < before_ns + DEVICE_STALE_NS {
                continue;
            }
            self.accounting.measured.insert(device.clone(), now_ns);
            self.gatekeeper.ledger_mut().measured(now_ns, device, active.flatten());
        }
    }

    /// Begins to hand over what was charged since the last time, and to close the books of programs that are gone.
    pub(crate) fn keep_usage(&mut self) {
        self.accounting.keep_at = None;
        if self.accounting.sweep.is_some() {
            return;
        }
        self.measure();
        let left = self.accounting.books.keys().cloned().collect();
        self.accounting.sweep = Some(Sweep { left, began_ns: self.now_ns, began_ms: now_ms() });
    }

    /// Hands over what some more books have. Questions that were due when that began are answered after the last one.
    pub(crate) fn go_on_keeping(&mut self) {
        let Some(mut sweep) = self.accounting.sweep.take() else { return };
        let some = sweep.left.split_off(sweep.left.len().saturating_sub(BOOKS_PIECE));
        self.hand_over(&some, sweep.began_ms);
        if sweep.left.is_empty() {
            self.answer_usage(sweep.began_ns);
        } else {
            self.accounting.sweep = Some(sweep);
        }
    }

    /// Hands over all, at the end.
    pub(crate) fn finish_usage(&mut self) {
        let now_ns = self.now_ns;
        self.gatekeeper.ledger_mut().finish(now_ns);
        let all: Vec<_> = self.accounting.books.keys().cloned().collect();
        all.chunks(BOOKS_PIECE).for_each(|some| self.hand_over(some, now_ms()));
    }

    fn hand_over(&mut self, books: &[(ProgramId, Arc<str>)], to_ms: u64) {
        let (mut records, mut closed) = (Vec::new(), Vec::new());
        for (id, device) in books {
            let class = self.conns.get(&id.0).and_then(Conn::client).map(|client| Class::of(client.priority));
            let (Some(account), Some(program)) =
                (self.gatekeeper.ledger().account(device, *id), self.accounting.programs.get_mut(id))
            else {
                continue;
            };
            program.class = class.unwrap_or(program.class);
            if let Some(record) = program.record(device, account.usage, to_ms) {
                records.push((*id, device, account.usage, record));
            }
            if account.closed {
                closed.push((*id, device, account.usage));
            }
        }
        let told = records.iter().map(|(.., record)| record.clone()).collect();
        if !self.usage.keep(told) {
            // With what comes later.
            return;
        }
        for (id, device, usage, _) in records {
            if let Some(program) = self.accounting.programs.get_mut(&id) {
                program.kept.insert(device.clone(), (usage, to_ms));
            }
        }
        for (id, device, usage) in closed {
            self.keep_last_usage(id, device, usage);
            self.close_book(id, device);
        }
    }

    /// A command asks for usage. It is answered when all is told that came before.
    ///
    /// # Errors
    /// Too much is asked.
    pub(crate) fn ask_usage(&mut self, conn: u64, user: User, since_ms: u64, by: UsageBy) -> Result<Answer, Error> {
        if self.accounting.queries.len() >= USAGE_QUEUE {
            return Err(Error::environment("too many ask for usage at this moment: try again"));
        }
        let of_user = (!user.is_root()).then(|| user.to_string());
        let query = Query { conn, of_user, since_ms, by };
        self.accounting.queries.push_back((self.now_ns + LATE_NS, query));
        Ok(Answer::OfUsage)
    }

    /// Has questions answered that were due at a time, ns.
    fn answer_usage(&mut self, by_ns: u64) {
        while self.accounting.query_at().is_some_and(|at| at <= by_ns) {
            let Some((_, query)) = self.accounting.queries.pop_front() else { return };
            let conn = query.conn;
            if let Err(why) = self.usage.ask(query) {
                self.finish(conn, &DaemonMsg::Refused(why));
            }
        }
    }

    /// Tells commands what was found.
    pub(crate) fn hear_usage(&mut self) {
        while let Some((id, found)) = self.usage.take() {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            match found {
                Ok(rows) => {
                    conn.role = Role::Command(Some(Answer::Usage(rows.into())));
                    self.watch_socket(id);
                    self.enqueue(id);
                }
                Err(why) => self.finish(id, &DaemonMsg::Refused(why)),
            }
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
