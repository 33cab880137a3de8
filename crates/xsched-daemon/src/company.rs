//! Programs of one MPS server that is not ours, with `XSCHED_YIELD`: which of them yield to which, and the pages by which the urgent
//! ones tell how they keep up ([`xsched_proto::backlog`]).
//!
//! Without that variable the programs of such a server run side by side, whatever their class. With `XSCHED_YIELD=0` gates close among
//! them as they do elsewhere; with `XSCHED_YIELD=1` a gate that would close yields where it may.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use xsched_gatekeeper::company::Company;
use xsched_policy::{GroupId, PoolId};
use xsched_proto::wire::DaemonMsg;

use crate::pages::Beside;
use crate::server::{Conn, Server};

impl Server {
    /// The server whose programs run beside a group whatever their class.
    pub(crate) fn runs_beside(&self, spatial: Option<PoolId>) -> Option<PoolId> {
        spatial.filter(|_| self.beside == Beside::Open)
    }

    /// Connection and server of a group that is in the company of others: its level was not asked for by number, its commands are short, and
    /// its job has no other device.
    fn company_of(&self, id: GroupId) -> Option<(u64, PoolId)> {
        let group = self.groups.get(&id).filter(|group| self.beside == Beside::Yielding && !group.too_long)?;
        let client = self.conns.get(&group.conn).and_then(Conn::client)?;
        let alone = client.groups.len() == 1 && client.level.is_none_or(|level| level == 1);
        let spans = client.job.is_some()
            && self.groups.values().any(|other| {
                let theirs = self.conns.get(&other.conn).and_then(Conn::client).and_then(|client| client.job.as_ref());
                other.device != group.device && theirs == client.job.as_ref()
            });
        Some((group.conn, group.spatial().filter(|_| alone && !spans)?))
    }

    /// A group comes, or its commands turn out to be long: what the gatekeeper is to know of its company. Pages are told of to those
    /// that need them.
    pub(crate) fn keep_company(&mut self, id: GroupId) {
        let Some((conn, server)) = self.company_of(id) else { return self.gatekeeper.set_company(id, None) };
        let is_urgent = self.conns.get(&conn).and_then(Conn::client).is_some_and(|client| client.priority() > 0);
        let known = self.pages.of(conn);
        let page = known.or_else(|| is_urgent.then(|| self.pages.make(conn, server)).flatten());
        if known.is_none() && page.is_some() {
            self.tell_of_page(conn, server);
        }
        self.tell_pages(conn, server);
        self.gatekeeper.set_company(id, Some(Company { server: server.0, page }));
    }

    /// Tells the owner of a new page, and the others of its server.
    fn tell_of_page(&mut self, conn: u64, server: PoolId) {
        let Some((place, page)) = self.pages.pages.iter().find(|(_, page)| page.conn == conn) else { return };
        let (place, epoch) = (*place, page.epoch);
        let (Ok(file), Ok(read_only)) = (page.file.try_clone(), page.read_only.try_clone()) else { return };
        self.send(conn, &DaemonMsg::Backlog { page: place, epoch, own: true }, &[file.as_fd()]);
        let others = self.groups.values().filter(|group| group.spatial() == Some(server) && group.conn != conn);
        let others: BTreeSet<u64> = others.map(|group| group.conn).collect();
        for other in others {
            self.send(other, &DaemonMsg::Backlog { page: place, epoch, own: false }, &[read_only.as_fd()]);
        }
    }

    /// Tells a program of the pages of others in its server, the oldest first: it then has all up to the newest.
    fn tell_pages(&mut self, conn: u64, server: PoolId) {
        let others = self.pages.pages.iter().filter(|(_, page)| page.server == server && page.conn != conn);
        let mut others: Vec<_> =
            others.filter_map(|(place, page)| Some((page.epoch, *place, page.read_only.try_clone().ok()?))).collect();
        others.sort_by_key(|(epoch, ..)| *epoch);
        for (epoch, page, file) in others {
            self.send(conn, &DaemonMsg::Backlog { page, epoch, own: false }, &[file.as_fd()]);
        }
    }
}
