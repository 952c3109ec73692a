//! What to announce of the Secrets of the hub. No I/O.

use std::sync::Arc;

use mcr_core::{
    HubEvent, ObjectKey,
    hub::{Decide, Decoded, Inventory, Judge, Notice, Outcome, Verdict},
};
use tokio::time::Instant;

use crate::{config::Config, secret::SecretFacts};

pub(crate) struct Decisions {
    config: Arc<Config>,
    judge: Judge,
    inventory: Inventory<SecretFacts>,
}

impl Decide for Decisions {
    type Event = HubEvent<Decoded<SecretFacts>>;
    /// It parses kubeconfigs.
    const BLOCKS: bool = true;

    fn decide(&mut self, events: Vec<Self::Event>, _: Instant) -> Outcome<Self::Event> {
        let mut notices = Vec::new();
        for event in events {
            match event {
                HubEvent::Applied(key, facts) => notices.extend(self.applied(&key, facts)),
                HubEvent::Deleted(key) => {
                    self.inventory.deleted(&key);
                    notices.push(Notice::gone(&key));
                }
                HubEvent::Synced => self.inventory.listed(),
                // An outage, which the watch logs, is no change of a Secret.
                _ => {}
            }
        }
        let outcome = Outcome::from(self.inventory.take_changes());
        Outcome { notices, ..outcome }
    }
}

impl Decisions {
    pub(crate) fn new(config: Arc<Config>, judge: Judge) -> Self {
        let inventory = Inventory::new("Secret", 1, config.memory.clone());
        Self {
            config,
            judge,
            inventory,
        }
    }

    /// A Secret was created or changed.
    fn applied(&mut self, key: &ObjectKey, facts: Decoded<SecretFacts>) -> Option<Notice> {
        let name = self.config.hub.cluster_name(key)?;
        let object = format!("Secret {key}, key {:?}", self.config.rules.key);
        let (verdict, notice) = match &facts {
            Err(why) => (None, Notice::broken(key, Arc::default(), why.clone())),
            Ok(facts) => match facts
                .kubeconfig
                .as_ref()
                .map(|kubeconfig| kubeconfig.parse(&self.judge))
            {
                Ok(Ok(access)) => (Some(Verdict::Good(access)), Notice::well(key, facts.uid.clone())),
                Ok(Err(problem)) => {
                    let notice = Notice::broken(key, facts.uid.clone(), problem.public);
                    let why = problem.text;
                    (Some(Verdict::Broken { object, why }), notice)
                }
                Err(problem) => {
                    let why: Arc<str> = problem.why.as_str().into();
                    let notice = Notice::broken(key, facts.uid.clone(), why.clone());
                    let verdict = if problem.is_absent {
                        Verdict::Absent { object, why }
                    } else {
                        Verdict::Broken { object, why }
                    };
                    (Some(verdict), notice)
                }
            },
        };
        self.inventory.applied(key, name, facts);
        self.inventory.announce(key, verdict);
        Some(notice)
    }
}

#[cfg(test)]
mod tests;
