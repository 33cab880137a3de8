//! Reload of the configuration on SIGHUP.

use std::collections::BTreeSet;

use xsched_engine::Settings;
use xsched_policy::Choice;

use crate::client::Client;
use crate::config::Config;
use crate::pages;
use crate::server::Server;
use crate::service;
use crate::{Error, Input};

impl Server {
    /// Reads the configuration again at a signal, which is also sent when the terminal is gone.
    pub(crate) fn reload_or_end(&mut self) {
        if self.life.has_terminal && service::terminal_is_gone() {
            self.say("the terminal is gone: the daemon ends");
            self.life.stop = true;
            return;
        }
        // The log has the outcome.
        let _ = self.reload();
    }

    /// Reads the configuration again. A correct one applies from now on, also to running programs; a faulty one changes nothing. Returns
    /// what is odd about it.
    ///
    /// # Errors
    /// Returns the fault.
    pub(crate) fn reload(&mut self) -> Result<Vec<String>, Error> {
        self.life.service.reloading(self.now_ns);
        let done = self.sources.read().map(|(config, policy)| {
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
        done
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
