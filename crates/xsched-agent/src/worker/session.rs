//! The session with a daemon: its greeting, and its messages.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use xsched_core::{MemoryAnswer, Registration};
use xsched_flow::tuning::DESCRIPTION_LINES;
use xsched_proto::class::Class;
use xsched_proto::settings::Log;
use xsched_proto::wire::{ClientMsg, DaemonMsg, Described, MemoryOrder};
use xsched_proto::{Error, PROTOCOL_VERSION, variables};

use super::Worker;
use crate::connection::{Connection, Received};

impl Worker {
    /// Takes the daemon's first message: attaches, and introduces all groups and queues.
    pub(super) fn welcome(&mut self, connection: &mut Connection, (message, fd): Received) -> Result<(), Error> {
        let (priority, domains, streams_apart) = match message {
            DaemonMsg::Welcome { version, priority, domains, streams_apart, .. } if version == PROTOCOL_VERSION => {
                (priority, domains, streams_apart)
            }
            DaemonMsg::Welcome { version, .. } => {
                return Err(Error::environment(format!(
                    "the daemon speaks protocol {version}, this library {PROTOCOL_VERSION}"
                )));
            }
            DaemonMsg::Refused(why) => return Err(why.within("refused by the daemon")),
            _ => return Err(Error::environment("the daemon did not greet back")),
        };
        let page = fd.ok_or_else(|| Error::environment("the daemon sent no heartbeat page"))?;
        let heartbeat =
            self.heartbeat.map(&page).map_err(|e| Error::environment(format!("cannot map the heartbeat page: {e}")))?;
        // Before its priority: a thread that waits for that reads this page next.
        self.rt.attach(heartbeat);
        self.rt.set_priority(priority);
        self.set_priority(priority);
        self.report.debug(|| format!("the daemon answers: class {}, priority {priority}", Class::of(priority)));
        // Before any gate of this daemon's can hold a launch.
        self.rt.set_domains(domains);
        self.rt.set_streams_apart(streams_apart);
        self.send_all(connection, self.rt.introduce())
    }

    /// Sends what waits to be sent, and takes the messages of the daemon that are there.
    pub(super) fn exchange(&mut self, connection: &mut Connection) -> Result<(), Error> {
        if self.rt.is_detached() {
            // At its end the program itself has opened its gates, perhaps only just: the daemon needs no more messages.
            return if self.rt.is_over() { Ok(()) } else { Err(Error::environment("the daemon was silent")) };
        }
        connection.push()?;
        self.send_all(connection, self.rt.take_outbox())?;
        let mut timeslices = BTreeMap::new();
        while let Some((message, fd)) = connection.receive()? {
            match message {
                DaemonMsg::Timeslice { slot, us } => _ = timeslices.insert(slot, us),
                message => self.take(connection, message, fd)?,
            }
        }
        // Last, and only the newest: it may take the driver milliseconds, in which others wait for us.
        for (slot, us) in timeslices {
            if let Some((device, platform)) = self.rt.device_of(slot) {
                platform.set_timeslice(&device, us);
            }
        }
        Ok(())
    }

    fn send_all(&self, connection: &mut Connection, messages: Vec<ClientMsg>) -> Result<(), Error> {
        for message in messages {
            self.report.group_added(&message, self.settings.options.level);
            connection.send(&message)?;
        }
        Ok(())
    }

    /// Takes one message of the daemon.
    fn take(&mut self, connection: &mut Connection, message: DaemonMsg, fd: Option<OwnedFd>) -> Result<(), Error> {
        match message {
            DaemonMsg::Backlog { page, epoch, own } => self.map_backlog(page, epoch, own, fd),
            DaemonMsg::GroupAdded { slot, priority, policy, .. } => {
                if let Some(group) = self.rt.groups().find(|g| g.index() == slot) {
                    self.report.attached_to_daemon(self.rt, slot, priority, &policy);
                    group.set_registration(self.rt, Registration::Attached);
                    self.refusals = 0;
                }
            }
            DaemonMsg::QueuePriority { slot, priority } => self.rt.move_queue(slot, priority),
            DaemonMsg::Interrupt { slot, on } => self.interrupt(connection, slot, on)?,
            DaemonMsg::Priority { priority } => {
                self.report.debug(|| format!("its priority is {priority} now, class {}", Class::of(priority)));
                self.set_priority(priority);
            }
            // The daemon sends each note once.
            DaemonMsg::Note { text } => self.report.line(Log::Info, &text),
            DaemonMsg::Describe { token } => self.describe(connection, token)?,
            DaemonMsg::MemoryAnswer { slot, number, granted, on_host, why } => {
                self.rt.memory_answered(slot, number, MemoryAnswer { granted, on_host, why });
            }
            DaemonMsg::MemoryWait { number } => self.rt.memory_waits(number),
            DaemonMsg::MemoryMove { slot, number, order } => self.move_memory(connection, slot, number, order)?,
            DaemonMsg::Refused(why) => return Err(why.within("refused by the daemon")),
            _ => {}
        }
        Ok(())
    }

    /// Maps a page of backlogs: this process's own, or that of another one, to which it may yield. Without its own page no program
    /// sees how this one keeps up; without another's it does not yield, and its gate holds as otherwise.
    fn map_backlog(&mut self, page: u8, epoch: u32, own: bool, fd: Option<OwnedFd>) {
        let fd = fd.filter(|_| may_yield());
        match fd.and_then(|fd| self.pages.map((!own).then_some(page), fd).ok()) {
            Some(mapped) if own => self.rt.set_own_page(mapped),
            Some(mapped) => self.rt.set_page(page, epoch, mapped),
            None => {}
        }
    }

    /// Answers a question of `xsched doctor --pid`.
    fn describe(&self, connection: &mut Connection, token: u64) -> Result<(), Error> {
        let mut lines = (self.host.describe)();
        lines.extend(self.rt.queues().map(|q| Described::Queue {
            handle: q.handle().addr() as u64,
            slot: q.index(),
            group: q.group(self.rt).index(),
        }));
        while lines.len() > DESCRIPTION_LINES {
            let rest = lines.split_off(DESCRIPTION_LINES);
            connection.send(&ClientMsg::Description { token, more: true, lines })?;
            lines = rest;
        }
        connection.send(&ClientMsg::Description { token, more: false, lines })
    }

    /// Interrupts a group, or lets it go on.
    fn interrupt(&mut self, connection: &mut Connection, slot: u16, on: bool) -> Result<(), Error> {
        if self.interrupts.set(self.rt, slot, on) { Ok(()) } else { self.lower(connection, slot) }
    }

    /// Reports to the daemon that a group has lost a level.
    fn lower(&self, connection: &mut Connection, slot: u16) -> Result<(), Error> {
        let Some((device, platform)) = self.rt.device_of(slot) else { return Ok(()) };
        connection.send(&ClientMsg::Levels { slot, levels: platform.levels(&device) })
    }

    /// Has memory move. The platform reports the end.
    fn move_memory(
        &self,
        connection: &mut Connection,
        slot: u16,
        number: u32,
        order: MemoryOrder,
    ) -> Result<(), Error> {
        if self.host.platforms.iter().any(|platform| platform.move_memory(slot, number, order)) {
            return Ok(());
        }
        let why = Some("none of its memory can leave the device".to_owned());
        connection.send(&ClientMsg::MemoryMoved { slot, number, why })
    }

    /// Passes the program's priority on to hardware that has priorities of its own.
    fn set_priority(&self, priority: i32) {
        for platform in self.host.platforms {
            platform.set_priority(self.rt, priority);
        }
    }
}

/// True unless the environment of this process forbids it to yield, and others to yield to it.
fn may_yield() -> bool {
    variables::text("XSCHED_YIELD").and_then(|text| variables::flag(&text)) != Some(false)
}
