//! Charging of the gatekeeper's ledger by the loop: it has usage measured, and hands the charged records to the thread that keeps them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use xsched_gatekeeper::ledger::LATE_NS;
use xsched_policy::ProgramId;
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::DaemonMsg;

use crate::commands::Answer;
use crate::identity::User;
use crate::server::Server;
use crate::services::warnings::OptionalPart;
use crate::tuning::{BOOKS_PIECE, USAGE_QUEUE};
use crate::usage::{Query, Sweep};
use crate::{Error, Input};

impl Server {
    /// Opens accounts for a program that has a group, or updates its class.
    pub(crate) fn open_accounts(&mut self, id: u64) {
        let client = self.programs.clients.get(&id);
        if let Some((program, client)) = self.engine.programs().get(&id).zip(client) {
            self.history.accounting.know(program, &client.peer, now_ms());
        }
    }

    /// Forgets an account of a program that is closed, and the program with its last one.
    pub(crate) fn close_accounts(&mut self, program: ProgramId, device: &str) {
        let Some(known) = self.history.accounting.programs.get_mut(&program) else { return };
        known.kept.remove(device);
        known.memory.remove(device);
        let is_attached = self.engine.programs().contains_key(&program.0);
        if !is_attached && !self.engine.gatekeeper().ledger().has_books(program) {
            self.history.accounting.programs.remove(&program);
        }
    }

    /// Begins to hand over the charges since the last time, and to close the accounts of programs that are gone.
    pub(crate) fn begin_usage_sweep(&mut self) {
        if self.history.accounting.sweep.is_some() {
            return;
        }
        self.measure();
        self.add_memory_time();
        let left = self.engine.books().keys().cloned().collect();
        self.history.accounting.sweep = Some(Sweep { left, began_ns: self.now_ns, began_ms: now_ms() });
    }

    /// Hands over the charges of some more accounts. Questions that were due at the beginning are answered after the last one.
    pub(crate) fn continue_usage_sweep(&mut self) {
        let Some(mut sweep) = self.history.accounting.sweep.take() else { return };
        let some = sweep.left.split_off(sweep.left.len().saturating_sub(BOOKS_PIECE));
        self.hand_over(&some, sweep.began_ms);
        if sweep.left.is_empty() {
            self.answer_usage(sweep.began_ns);
        } else {
            self.history.accounting.sweep = Some(sweep);
        }
    }

    /// Adds up the memory that programs hold.
    pub(crate) fn add_memory_time(&mut self) {
        for ((id, _), holder) in self.engine.memory().holders() {
            if let Some(known) = self.history.accounting.programs.get_mut(&ProgramId(id)) {
                let held = known.memory.entry(holder.device().clone()).or_default();
                held.look(self.now_ns, holder.present_bytes(), holder.away_bytes());
            }
        }
    }

    /// Hands over all charges, at the end.
    pub(crate) fn finish_usage(&mut self) {
        let now_ns = self.now_ns;
        self.add_memory_time();
        self.engine.gatekeeper_mut().ledger_mut().finish(now_ns);
        let all: Vec<_> = self.engine.books().keys().cloned().collect();
        all.chunks(BOOKS_PIECE).for_each(|some| self.hand_over(some, now_ms()));
    }

    fn hand_over(&mut self, books: &[(ProgramId, Arc<str>)], to_ms: u64) {
        let (mut records, mut closed) = (Vec::new(), Vec::new());
        for (id, device) in books {
            let class = self.engine.programs().get(&id.0).map(|program| program.class());
            let (Some(account), Some(program)) =
                (self.engine.gatekeeper().ledger().account(device, *id), self.history.accounting.programs.get_mut(id))
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
        if !self.services.usage.keep(told) {
            // The queue was full: these records go with the next ones.
            return;
        }
        for (id, device, usage, record) in records {
            if let Some(program) = self.history.accounting.programs.get_mut(&id) {
                if let Some(memory) = program.memory.get_mut(device) {
                    memory.kept(&record);
                }
                program.kept.insert(device.clone(), (usage, to_ms));
            }
        }
        if !closed.is_empty() {
            self.history.ended.charge(self.engine.gatekeeper().ledger());
        }
        for (id, device, usage) in closed {
            self.keep_last_usage(id, device, usage);
            self.engine.handle(self.now_ns, Input::BookClosed(id.0, device.clone()));
            self.close_accounts(id, device);
        }
    }

    /// Takes a command's request for usage. It is answered once the thread has received all earlier records.
    ///
    /// # Errors
    /// Too many requests are pending.
    pub(crate) fn ask_usage(&mut self, conn: u64, user: User, since_ms: u64, by: UsageBy) -> Result<Answer, Error> {
        if self.history.accounting.queries.len() >= USAGE_QUEUE {
            return Err(Error::environment("too many ask for usage at this moment: try again"));
        }
        let of_user = (!user.is_root()).then(|| user.to_string());
        let query = Query { conn, of_user, since_ms, by };
        self.history.accounting.queries.push_back((self.now_ns + LATE_NS, query));
        Ok(Answer::OfUsage)
    }

    /// Has questions answered that were due at `by_ns`.
    fn answer_usage(&mut self, by_ns: u64) {
        while self.history.accounting.query_at().is_some_and(|at| at <= by_ns) {
            let Some((_, query)) = self.history.accounting.queries.pop_front() else { return };
            let conn = query.conn;
            if let Err(why) = self.services.usage.ask(query) {
                self.finish(conn, &DaemonMsg::Refused(why));
            }
        }
    }

    /// Sends commands their results.
    pub(crate) fn take_usage(&mut self) {
        while let Some((id, found)) = self.services.usage.take() {
            if !self.net.conns.contains_key(&id) {
                continue;
            }
            match found {
                Ok(rows) => {
                    self.set_answer(id, Some(Answer::Usage(rows.into())));
                    self.net.enqueue(id);
                }
                Err(why) => self.finish(id, &DaemonMsg::Refused(why)),
            }
        }
        let failed = self.services.usage.failed.clone();
        self.note_part(OptionalPart::Usage, failed.as_deref());
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
