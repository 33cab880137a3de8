//! SIGHUP: the configuration is read again.

use std::sync::Arc;

use xsched_policy::{Choice, Event, GroupId};
use xsched_proto::wire::DaemonMsg;

use crate::client::Client;
use crate::config::Config;
use crate::server::{Conn, Server};
use crate::service;

impl Server {
    /// SIGHUP: a configuration that is right counts from now on, also for programs that run; one that is not changes nothing.
    pub(crate) fn reload(&mut self) {
        if self.has_terminal && service::terminal_is_gone() {
            self.say("the terminal is gone: the daemon ends");
            self.stop = true;
            return;
        }
        self.service.reloading(self.now_ns);
        match self.sources.read() {
            Ok((config, policy)) => {
                let notices = config.notices.clone();
                self.reconfigure(config, policy);
                notices.iter().for_each(|line| self.say(line));
                self.say("the configuration was read again");
            }
            Err(why) => self.say(&format!("the configuration stays as it was: {why}")),
        }
        self.service.ready();
    }

    fn reconfigure(&mut self, config: Config, policy: Choice) {
        let now_us = self.now_us();
        let before = std::mem::replace(&mut self.config, config);
        if before.metrics() != self.config.metrics() {
            self.say("[metrics] counts from the daemon's next start on");
        }
        let policy_before = std::mem::replace(&mut self.default_policy, policy);
        // A policy that a command has set stays, unless the configuration says something else than before.
        let mut news: Vec<(Option<String>, Choice)> = Vec::new();
        if policy_before != self.default_policy {
            news.push((None, self.default_policy.clone()));
            // All devices have that one then.
            news.extend(self.config.devices.iter().map(|(device, choice)| (Some(device.clone()), choice.clone())));
        } else {
            let devices = before.devices.keys().chain(self.config.devices.keys());
            for device in devices.collect::<std::collections::BTreeSet<_>>() {
                let now = self.config.devices.get(device);
                if before.devices.get(device) != now {
                    news.push((Some(device.clone()), now.unwrap_or(&self.default_policy).clone()));
                }
            }
        }
        for (device, choice) in &news {
            self.gatekeeper.set_policy(now_us, device.as_deref(), choice.clone());
        }
        let (classes, guard_us) = (self.config.class_rules(), self.config.guard_us());
        self.gatekeeper.reconfigure(now_us, classes, guard_us, self.config.pool_evenness(), self.config.budget_us());
        let conns: Vec<u64> = self.conns.iter().filter_map(|(id, c)| c.client().map(|_| *id)).collect();
        conns.iter().for_each(|conn| self.reconsider(*conn));
        for id in self.groups.keys().copied().collect::<Vec<_>>() {
            self.publish_level(id);
        }
        self.act();
        let mut devices: Vec<Arc<str>> = self.groups.values().map(|g| g.device.clone()).collect();
        devices.sort_unstable();
        devices.dedup();
        self.assign_timeslices(&devices);
        if !news.is_empty() {
            self.remember();
        }
    }

    /// A program gets what it would get if it came now, but for its level, threshold and batch, which it keeps.
    fn reconsider(&mut self, conn: u64) {
        let Some(client) = self.conns.get(&conn).and_then(Conn::client) else { return };
        let ceilings = self.ceilings(client.peer.user);
        let given = {
            let Client { peer, command, .. } = client;
            self.config.given(&peer.exe, &peer.names, command, peer.uid, &peer.place)
        };
        let Server { conns, config, .. } = self;
        let Some(client) = conns.get_mut(&conn).and_then(Conn::client_mut) else { return };
        let before = client.priority();
        client.entitle(&given, ceilings, config);
        let (priority, groups) = (client.priority(), client.groups.clone());
        if before != priority {
            let tells = |id: &GroupId| self.groups.get(id).is_some_and(|group| group.platform.has_priorities());
            if groups.iter().any(tells) {
                self.send(conn, &DaemonMsg::Priority { priority }, &[]);
            }
        }
        for id in groups {
            let of = |client: &Client| {
                let group = self.groups.get(&id)?;
                Some((client.group_priority(group), client.group_hints(group)))
            };
            let Some((priority, hints)) = self.conns.get(&conn).and_then(Conn::client).and_then(of) else { continue };
            let event = Event::Hint { group: id, priority: Some(priority), hints };
            self.gatekeeper.event(self.now_us(), event);
        }
    }
}
