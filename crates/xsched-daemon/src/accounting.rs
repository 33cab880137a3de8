//! What the loop does with the gatekeeper's ledger: has it measured, and hands what is charged to the thread that keeps it.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use xsched_gatekeeper::ledger::LATE_NS;
use xsched_policy::ProgramId;
use xsched_proto::class::Class;
use xsched_proto::usage::UsageBy;
use xsched_proto::wire::DaemonMsg;

use crate::Error;
use crate::identity::User;
use crate::server::{Answer, Conn, Role, Server};
use crate::tuning::{DEVICE_STALE_NS, USAGE_QUEUE};
use crate::usage::Query;

impl Server {
    /// A client has a group, or another class.
    pub(crate) fn know_program(&mut self, conn: u64) {
        if self.accounting.programs.is_empty() {
            self.accounting.kept_ms = now_ms();
        }
        if let Some(client) = self.conns.get(&conn).and_then(Conn::client) {
            self.accounting.know(client);
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

    /// Hands over what was charged since the last time, and closes the books of programs that are gone.
    pub(crate) fn keep_usage(&mut self) {
        self.accounting.keep_at = None;
        self.measure();
        self.hand_over();
    }

    /// The same at the end, for all of them.
    pub(crate) fn finish_usage(&mut self) {
        let now_ns = self.now_ns;
        self.gatekeeper.ledger_mut().finish(now_ns);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let Server { accounting, conns, .. } = self;
        for client in conns.values().filter_map(Conn::client) {
            if let Some(program) = accounting.programs.get_mut(&client.program) {
                program.class = Class::of(client.priority);
            }
        }
        let (from_ms, to_ms) = (self.accounting.kept_ms, now_ms());
        let (mut records, mut closed) = (Vec::new(), Vec::new());
        for account in self.gatekeeper.ledger().accounts() {
            let Some(program) = self.accounting.programs.get(&account.program) else { continue };
            let before = program.kept.get(account.device).copied().unwrap_or_default();
            let usage = account.usage.since(before);
            if usage.resident_ns > 0 || usage.gpu_ns > 0 {
                records.push((account.program, account.usage, program.record(account.device, usage, from_ms, to_ms)));
            }
            if account.closed {
                closed.push((account.program, account.device.to_owned(), account.usage));
            }
        }
        let told = records.iter().map(|(_, _, record)| record.clone()).collect();
        if !self.usage.keep(told) {
            // With what comes later.
            return;
        }
        self.accounting.kept_ms = to_ms;
        for (id, usage, record) in records {
            if let Some(program) = self.accounting.programs.get_mut(&id) {
                program.kept.insert(record.device, usage);
            }
        }
        for (id, device, usage) in closed {
            self.keep_last_usage(id, &device, usage);
            self.gatekeeper.ledger_mut().close(&device, id);
            if let Some(program) = self.accounting.programs.get_mut(&id) {
                program.kept.remove(&device);
            }
        }
        let Server { accounting, gatekeeper, conns, .. } = self;
        let has_books: HashSet<ProgramId> = gatekeeper.ledger().accounts().map(|a| a.program).collect();
        let attached = |id: &ProgramId| conns.get(&id.0).is_some_and(|conn| conn.client().is_some());
        accounting.programs.retain(|id, _| has_books.contains(id) || attached(id));
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

    /// Has questions answered that are due.
    pub(crate) fn answer_usage(&mut self) {
        self.keep_usage();
        while self.accounting.query_at().is_some_and(|at| at <= self.now_ns) {
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
