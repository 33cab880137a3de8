//! Reload of the configuration on SIGHUP.

use std::collections::{BTreeMap, BTreeSet};

use xsched_engine::Settings;
use xsched_policy::Choice;
use xsched_proto::wire::DaemonMsg;

use crate::commands::Answer;
use crate::config::Config;
use crate::programs::client::Client;
use crate::programs::pages;
use crate::server::Server;
use crate::server::service;
use crate::services::configuration::{Outcome, Task};
use crate::{Error, Input};

impl Server {
    /// Reads the configuration again at a signal, which is also sent when the terminal is gone.
    pub(crate) fn reload_or_end(&mut self) {
        if self.life.has_terminal && service::terminal_is_gone() {
            self.say("the terminal is gone: the daemon ends");
            self.life.stop = true;
            return;
        }
        self.reload();
    }

    /// Begins to read the configuration again, on another thread. A correct one applies from then on, also to running programs; a faulty
    /// one changes nothing. The log has the outcome. Returns the number of the reading.
    pub(crate) fn reload(&mut self) -> u64 {
        self.life.service.reloading(self.now_ns);
        self.services.configuration.push(Task::Read(Box::new(self.sources.clone())));
        self.commands.readings.begun += 1;
        self.commands.readings.begun
    }

    /// Takes configurations that were read, and accounts that were looked up.
    pub(crate) fn take_configuration(&mut self) {
        while let Some(outcome) = self.services.configuration.take() {
            match outcome {
                Outcome::Read(read) => self.take_read(read),
                Outcome::Accounts(ids) => self.take_accounts(ids),
            }
        }
    }

    fn take_read(&mut self, read: Result<Box<(Config, Choice)>, Error>) {
        let done = read.map(|read| {
            let (config, policy) = *read;
            let mut notices = config.notices.clone();
            notices.extend(self.reconfigure(config, policy));
            notices
        });
        self.life.service.ready();
        match &done {
            Ok(notices) => {
                self.history.configuration = self.sources.names();
                self.history.configuration_fault = None;
                notices.iter().for_each(|line| self.say(line));
                self.say("the configuration was read again");
            }
            Err(why) => {
                let line = format!("the configuration stays as it was: {why}");
                self.say(&line);
                self.history.configuration_fault = Some(line);
            }
        }
        self.commands.readings.done += 1;
        self.answer_reload(&done);
    }

    /// Answers the commands that wait for the readings that have ended: with the notices, or with the fault.
    fn answer_reload(&mut self, outcome: &Result<Vec<String>, Error>) {
        let done = self.commands.readings.done;
        let waits = |answer: &Answer| matches!(answer, Answer::OfReload(number) if *number <= done);
        let asked: Vec<u64> =
            self.commands.answers.iter().filter(|(_, answer)| waits(answer)).map(|(id, _)| *id).collect();
        for id in asked {
            match outcome {
                Ok(notices) => {
                    for text in notices {
                        self.net.send(id, &DaemonMsg::Note { text: text.clone() }, &[]);
                    }
                    self.finish(id, &DaemonMsg::End);
                }
                Err(why) => self.finish(id, &DaemonMsg::Refused(why.clone())),
            }
        }
    }

    /// Has accounts looked up that the configuration names and that are not known.
    pub(crate) fn find_accounts(&mut self) {
        self.services.configuration.push(Task::Accounts(self.config.unknown_accounts()));
    }

    fn take_accounts(&mut self, ids: BTreeMap<String, u32>) {
        // The configuration may have been read again meanwhile.
        let awaited = self.config.unknown_accounts();
        let ids: BTreeMap<String, u32> = ids.into_iter().filter(|(name, _)| awaited.contains(name)).collect();
        if ids.is_empty() {
            return;
        }
        for (name, id) in &ids {
            self.say(&format!("account '{name}' is user {id}: the configuration's part for it counts now"));
        }
        let mut config = self.config.clone();
        config.learn(ids);
        let policy = self.engine.settings().policy.clone();
        self.reconfigure(config, policy);
    }

    /// Applies another configuration. Returns a notice on a part that does not apply yet.
    fn reconfigure(&mut self, config: Config, policy: Choice) -> Option<String> {
        let before = std::mem::replace(&mut self.config, config);
        let is_late = before.metrics() != self.config.metrics();
        let Settings { policy: policy_before, has_details, .. } = self.engine.settings().clone();
        // A policy that a command has set stays, unless the configuration has changed it since.
        let mut policies: Vec<(Option<String>, Choice)> = Vec::new();
        if policy_before != policy {
            policies.push((None, policy.clone()));
            // All devices then have the policy of the configuration.
            policies.extend(self.config.devices.iter().map(|(device, choice)| (Some(device.clone()), choice.clone())));
        } else {
            let devices = before.devices.keys().chain(self.config.devices.keys());
            for device in devices.collect::<BTreeSet<_>>() {
                let now = self.config.devices.get(device);
                if before.devices.get(device) != now {
                    policies.push((Some(device.clone()), now.unwrap_or(&policy).clone()));
                }
            }
        }
        let has_news = !policies.is_empty();
        let terms = |client: &Client| self.config.terms(&client.peer, &client.command);
        let terms = self.programs.clients.iter().map(|(id, client)| (*id, terms(client))).collect();
        let settings = Box::new(self.config.settings(policy, pages::may_yield().unwrap_or(true), has_details));
        self.input(Input::Configured { settings, policies, terms });
        if has_news {
            self.remember();
        }
        is_late.then(|| "[metrics] counts from the daemon's next start on".to_owned())
    }
}
