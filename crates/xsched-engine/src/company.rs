//! Company: programs of one MPS server that is not ours, with `XSCHED_YIELD`. Which of them yield to which, and which have pages.
//!
//! Without that variable the programs of such a server run side by side, whatever their class. With `XSCHED_YIELD=0` gates close among
//! them as they do elsewhere. With `XSCHED_YIELD=1` a gate that would close yields where it may.

use std::collections::BTreeSet;

use xsched_gatekeeper::company::Company;
use xsched_policy::{GroupId, PoolId};

use crate::io::Effect;
use crate::memory::Memory;
use crate::state::Engine;
use crate::terms::Beside;

impl<M: Memory> Engine<M> {
    /// The server whose programs run beside a group whatever their class.
    pub(crate) fn runs_beside(&self, spatial: Option<PoolId>) -> Option<PoolId> {
        spatial.filter(|_| self.settings.beside == Beside::Open)
    }

    /// Program and server of a group that has company: its level was not asked for by number, its commands are short, and its job has no
    /// other device.
    fn company_of(&self, id: GroupId) -> Option<(u64, PoolId)> {
        let is_yielding = self.settings.beside == Beside::Yielding;
        let group = self.groups.get(&id).filter(|group| is_yielding && !group.too_long)?;
        let program = self.program_of(group)?;
        let alone = program.groups.len() == 1 && program.level.is_none_or(|level| level == 1);
        let spans = program.job.is_some()
            && self.groups.values().any(|other| {
                let theirs = self.program_of(other).and_then(|program| program.job.as_ref());
                other.device != group.device && theirs == program.job.as_ref()
            });
        Some((group.program.0, group.spatial().filter(|_| alone && !spans)?))
    }

    /// Tells the gatekeeper of the company of a group that comes, and programs of each other's pages.
    pub(crate) fn keep_company(&mut self, id: GroupId) {
        let Some((program, server)) = self.company_of(id) else { return self.gatekeeper.set_company(id, None) };
        let is_urgent = self.programs.get(&program).is_some_and(|program| program.priority() > 0);
        let known = self.pages.of(program);
        let page = known.or_else(|| is_urgent.then(|| self.pages.add(program, server)).flatten());
        if let (None, Some((place, epoch))) = (known, page) {
            self.emit(Effect::Page { to: program, owner: program, page: place, epoch });
            let others = self.groups.values().filter(|g| g.spatial() == Some(server) && g.program.0 != program);
            let others: BTreeSet<u64> = others.map(|group| group.program.0).collect();
            for to in others {
                self.emit(Effect::Page { to, owner: program, page: place, epoch });
            }
        }
        // All up to the newest are known then.
        for (owner, page, epoch) in self.pages.of_others(server, program) {
            self.emit(Effect::Page { to: program, owner, page, epoch });
        }
        self.gatekeeper.set_company(id, Some(Company { server: server.0, page }));
    }

    /// The page of a program could not be made: it has company without one.
    pub(crate) fn page_failed(&mut self, program: u64) {
        self.pages.remove(program);
        let groups: Vec<(GroupId, Option<PoolId>)> = self
            .programs
            .get(&program)
            .into_iter()
            .flat_map(|known| self.groups_of(known).map(|(id, group)| (id, group.spatial())))
            .collect();
        for (id, server) in groups {
            if let Some(server) = server {
                self.gatekeeper.set_company(id, Some(Company { server: server.0, page: None }));
            }
        }
    }
}
