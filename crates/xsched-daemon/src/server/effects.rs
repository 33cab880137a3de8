//! The engine in the daemon: the daemon passes inputs to the engine, and carries out the engine's effects at once, in order.

use std::os::fd::AsFd;

use xsched_engine::Effect;
use xsched_engine::tuning::DEVICES_MAX;
use xsched_proto::wire::DaemonMsg;

use crate::Input;
use crate::identity::User;
use crate::net::socket::unread_bytes;
use crate::programs::pages;
use crate::server::Server;
use crate::server::timers::Timer;
use crate::services::warnings::OptionalPart;
use crate::tuning::{REMEMBER_NS, UNREAD_BYTES};

impl Server {
    /// Gives the engine an input and carries out its effects.
    pub(crate) fn input(&mut self, input: Input) {
        let source = input.source();
        self.engine.handle(self.now_ns, input);
        self.count_outcomes();
        while let Some(effect) = self.engine.next_effect() {
            match effect {
                Effect::Log(uid, line) => self.record(self.author(source, uid), &line),
                effect => self.carry_out(effect),
            }
        }
    }

    /// User of a line of the engine's, which has the number only: the sender of the input with that number. A line without a sender is
    /// no user's with rights, since the number 0 may be a container's root.
    fn author(&self, source: Option<u64>, uid: u32) -> User {
        let sender = source.and_then(|id| self.net.conns.get(&id)).map(|conn| conn.user);
        sender.filter(|user| user.uid == uid).unwrap_or(User::unknown(uid))
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(id, message) => self.net.send(id, &message, &[]),
            Effect::Finish(id, last) => self.finish(id, &last),
            Effect::Refuse(id, why) => self.refuse_program(id, why),
            Effect::Drop(id, why) => self.net.doom(id, Some(why)),
            Effect::Timeslice { program, slot, us, before_us } => self.tell_timeslice(program, slot, us, before_us),
            Effect::Page { to, owner, page, epoch } => self.tell_page(to, owner, page, epoch),
            Effect::PageGone(owner) => _ = self.programs.pages.remove(&owner),
            Effect::LookAt(programs) => {
                for id in programs {
                    if let Some(user) = self.net.conns.get(&id).map(|conn| conn.user) {
                        self.net.rations.looks.push(user, id);
                    }
                }
            }
            // Done before the same user's next program: the partial sum takes memory, and one such sum is kept per user.
            Effect::LookAgain(id) => {
                if let Some(user) = self.net.conns.get(&id).map(|conn| conn.user) {
                    self.net.rations.looks.push_first(user, id);
                }
            }
            Effect::Log(uid, line) => self.record(User::unknown(uid), &line),
            Effect::Burst(line) => self.write_burst(&line),
            Effect::Remember => self.timers.set_if_none(Timer::State, self.now_ns + REMEMBER_NS),
            Effect::DevicesInUse => {
                let groups = self.engine.groups().values().map(|group| &*group.device);
                // Contexts without a group have memory, too.
                let with_memory = self.engine.memory().devices().map(|device| &**device).take(DEVICES_MAX);
                self.services.devices.want(groups.chain(with_memory));
            }
            Effect::Measure(device) => {
                if !self.services.devices.look_soon(&device) {
                    self.engine.handle(self.now_ns, Input::Unmeasured(device));
                }
            }
            Effect::BlankBook(program, device) => self.close_accounts(xsched_policy::ProgramId(program), &device),
        }
    }

    /// Sends a program its time slice, unless the program leaves its messages unread: a stopped one would then have no room for later
    /// messages that it must get.
    fn tell_timeslice(&mut self, id: u64, slot: u16, us: u64, before_us: Option<u64>) {
        let reads = |server: &Server| server.net.conns.get(&id).is_some_and(|c| unread_bytes(&c.socket) < UNREAD_BYTES);
        if reads(self) {
            return self.net.send(id, &DaemonMsg::Timeslice { slot, us }, &[]);
        }
        self.engine.handle(self.now_ns, Input::TimesliceUnsent { program: id, before_us });
    }

    /// Sends a program a backlog page. The page's owner gets it first, and no program of another user.
    fn tell_page(&mut self, to: u64, owner: u64, page: u8, epoch: u32) {
        let own = to == owner;
        let user = |id| self.net.conns.get(&id).map(|conn| conn.user);
        if user(to) != user(owner) {
            return;
        }
        if own && !self.programs.pages.contains_key(&owner) {
            match pages::make() {
                Ok(file) => _ = self.programs.pages.insert(owner, file),
                Err(_) => return self.engine.handle(self.now_ns, Input::PageFailed(owner)),
            }
        }
        let Some(file) = self.programs.pages.get(&owner) else { return };
        let message = DaemonMsg::Backlog { page, epoch, own };
        if own {
            self.net.send(to, &message, &[file.to_write()]);
        } else if let Ok(file) = file.to_read() {
            self.net.send(to, &message, &[file.as_fd()]);
        }
    }

    pub(super) fn write_burst(&mut self, line: &str) {
        if let Some(Err(e)) = self.services.bursts.as_mut().map(|bursts| bursts.write(line)) {
            self.services.bursts = None;
            self.note_part(OptionalPart::Bursts, Some(&format!("they are written no more: {e}")));
        }
    }
}
