//! Company: programs of one MPS server, a pool's or another. A gate that would close among them yields where it may: its group goes on while
//! the queues of the more urgent ones keep up, as those tell on pages ([`xsched_proto::backlog`]).
//!
//! A program gets its page when it first keeps another one of its server from the device, and is urgent or pauses by itself
//! (`interactive`). With `[yield] enabled = false` no gate yields: those of a pool close, and programs of a server that is not ours run
//! side by side whatever their class.

use std::collections::{BTreeSet, HashSet};

use xsched_gatekeeper::company::Company;
use xsched_policy::{GroupId, PoolId};
use xsched_proto::wire::Sharing;

use crate::io::{Effect, NewGroup};
use crate::memory::Memory;
use crate::state::Engine;

impl<M: Memory> Engine<M> {
    /// Puts a new group that names an MPS server into the server that its user's programs name so.
    pub(crate) fn in_server_of_its_user(&mut self, program: u64, mut new: NewGroup) -> NewGroup {
        let Some(user) = self.programs.get(&program).map(|program| program.user) else { return new };
        if let Sharing::Spatial(named) = new.sharing {
            if self.servers.has_too_many(self.groups.len()) {
                let used = self.groups.values().filter_map(|group| match group.sharing {
                    Sharing::Spatial(number) => Some(number),
                    Sharing::Time | Sharing::Pool => None,
                });
                self.servers.keep(&HashSet::from_iter(used));
            }
            new.sharing = Sharing::Spatial(self.servers.number(user, named));
        }
        new
    }

    /// The server whose programs run beside a group whatever their class.
    pub(crate) fn runs_beside(&self, spatial: Option<PoolId>) -> Option<PoolId> {
        spatial.filter(|_| !self.settings.yields)
    }

    /// Program and server of a group that has company: its level was not asked for by number, its commands are short, and its job has no
    /// other device.
    fn company_of(&self, id: GroupId) -> Option<(u64, PoolId)> {
        let group = self.groups.get(&id).filter(|group| self.settings.yields && !group.too_long)?;
        let program = self.program_of(group)?;
        let alone = program.groups.len() == 1 && program.level.is_none_or(|level| level == 1);
        let spans = program.job.is_some()
            && self.groups.values().any(|other| {
                let theirs = self.program_of(other).and_then(|program| program.job.as_ref());
                other.device != group.device && theirs == program.job.as_ref()
            });
        Some((group.program.0, group.server().filter(|_| alone && !spans)?))
    }

    /// Tells the gatekeeper of the company of a group, and its program of the pages of the others there.
    pub(crate) fn keep_company(&mut self, id: GroupId) {
        let company = self.company_of(id);
        let Some((program, server)) = company else { return self.gatekeeper.set_company(id, None) };
        // All up to the newest are known then.
        for (owner, page, epoch) in self.pages.of_others(server, program) {
            self.emit(Effect::Page { to: program, owner, page, epoch });
        }
        self.gatekeeper.set_company(id, Some(Company { server: server.0, page: self.pages.of(program) }));
    }

    /// Gives pages to programs that keep others from the device and have none. Returns true if there were some.
    pub(crate) fn give_pages(&mut self) -> bool {
        let before = self.pages.len();
        let pageless: BTreeSet<GroupId> = self.gatekeeper.pageless().collect();
        for id in pageless {
            let status = self.arbiter().status(self.now_us(), id);
            if status.is_some_and(|status| status.priority > 0 || status.interactive) {
                self.give_page(id);
            }
        }
        self.pages.len() > before
    }

    fn give_page(&mut self, id: GroupId) {
        let Some((program, server)) = self.company_of(id).filter(|(program, _)| self.pages.of(*program).is_none())
        else {
            return;
        };
        let Some(user) = self.programs.get(&program).map(|program| program.user) else { return };
        let Some((page, epoch)) = self.pages.add(program, user, server) else { return };
        self.emit(Effect::Page { to: program, owner: program, page, epoch });
        let others = self.groups.values().filter(|g| g.server() == Some(server) && g.program.0 != program);
        let others: BTreeSet<u64> = others.map(|group| group.program.0).collect();
        for to in others {
            self.emit(Effect::Page { to, owner: program, page, epoch });
        }
        self.gatekeeper.set_company(id, Some(Company { server: server.0, page: Some((page, epoch)) }));
    }

    /// The page of a program could not be made: it has company without one.
    pub(crate) fn page_failed(&mut self, program: u64) {
        self.pages.remove(program);
        let groups: Vec<(GroupId, Option<PoolId>)> = self
            .programs
            .get(&program)
            .into_iter()
            .flat_map(|known| self.groups_of(known).map(|(id, group)| (id, group.server())))
            .collect();
        for (id, server) in groups {
            if let Some(server) = server {
                self.gatekeeper.set_company(id, Some(Company { server: server.0, page: None }));
            }
        }
    }

    /// Another configuration is in force: gates yield from now on, or no more.
    pub(crate) fn reconsider_company(&mut self) {
        let groups: Vec<(GroupId, Option<PoolId>)> = self
            .groups
            .iter()
            .filter(|(_, g)| g.server().is_some())
            .map(|(id, group)| (*id, group.spatial()))
            .collect();
        for (id, spatial) in groups {
            let beside = self.runs_beside(spatial);
            self.gatekeeper.set_spatial(self.now_us(), id, beside);
            self.keep_company(id);
        }
    }
}
