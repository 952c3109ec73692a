//! Plays a scenario, and compares what happens after each step.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use mcr_core::{Access, BoxError, Change, ClusterSpec, Discovery, Provider, Refresh};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    HubProvider, Options,
    hub::{Hub, PROVIDER},
    scenario::{Expected, Facts, File, Rights, Step},
};
use crate::{
    discovery::{address_and_token, line, locally},
    log::Log,
    sim::{SimAuditEvent, SimAuditLog},
    suite::fail,
};

/// What is secret in the scenarios.
const CANARY: &str = "sesame";

pub(super) async fn play<P: HubProvider>(file: &File, name: &str) {
    let Some(steps) = file.scenarios.get(name) else {
        fail(format!("there is no scenario {name}"))
    };
    let hub = Hub::new(file);
    hub.grant(P::roles(), &Rights::default());
    for named in &file.given {
        let created = hub.object(named, 0).map(|object| hub.server.create(object));
        if let Err(error) = created.map_err(BoxError::from).and_then(|made| made.map_err(BoxError::from)) {
            fail(format!("{named:?}: {error}"));
        }
    }
    let mut player = Player {
        subject: P::start(),
        hub,
        log: Log::of_this_thread(tracing::Level::TRACE),
        provider: None,
        discovery: None,
        announced: BTreeMap::new(),
        rights_are_those_of_the_manifest: true,
    };
    for (number, step) in steps.iter().enumerate() {
        if let Err(error) = player.step(step).await {
            fail(format!("{name}, step {} ({}): {error}", number + 1, step.about));
        }
    }
}

struct Player<'a, P> {
    subject: P,
    hub: Hub<'a>,
    log: Log,
    provider: Option<Arc<dyn Provider>>,
    discovery: Option<Discovery>,
    announced: BTreeMap<String, ClusterSpec>,
    rights_are_those_of_the_manifest: bool,
}

impl<P: HubProvider> Player<'_, P> {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let server = self.hub.server.clone();
        let (mark, events) = (server.audit().mark(), self.hub.events());
        let warned = self.log.lines_with("WARN").len();
        let counts = step
            .requests
            .keys()
            .map(|what| self.subject.count(what))
            .collect::<Vec<_>>();
        self.act(step).map_err(|error| error.to_string())?;
        for name in &step.refuse {
            let spec = self.announced.get(name).ok_or(format!("there is no {name}"))?;
            let Access::Endpoint(access) = &spec.access else {
                return Err(format!("{name} has no source of credentials"));
            };
            let fetched = access.credentials.credential(Refresh::Unauthorized).await;
            fetched.map_err(|error| error.to_string())?;
        }
        let lines = self.listen(step).await?;
        compare(&lines, &step.expect)?;
        for (name, facts) in &step.fleet {
            let spec = self.announced.get(name).ok_or(format!("there is no {name}"))?;
            self.compare_facts(spec, facts)
                .map_err(|error| format!("{name}: {error}"))?;
        }
        let audit = server.audit().since(mark);
        for ((what, expected), before) in step.requests.iter().zip(counts) {
            let times = match (self.subject.count(what), before) {
                (Some(now), Some(before)) => now - before,
                _ => requests(&audit, what),
            };
            if times != *expected {
                return Err(format!("{what}: {times} times, and not {expected}"));
            }
        }
        let of_provider = |event: &&SimAuditEvent| event.user == PROVIDER && event.is_start();
        for event in audit.events().filter(of_provider) {
            let reads = matches!(event.verb.as_str(), "list" | "watch");
            let part = step.uris.get(&event.resource).filter(|_| reads);
            if let Some(part) = part.filter(|part| !event.uri.contains(*part)) {
                return Err(format!("{part} is not in {}", event.uri));
            }
            if event.code == 403 && self.rights_are_those_of_the_manifest {
                return Err(format!("the manifest grants too little: {event:?}"));
            }
        }
        let new = self.hub.events().into_iter();
        let new = new
            .filter(|(name, _)| !events.contains_key(name))
            .map(|(_, line)| line);
        let new: Vec<String> = new.collect();
        compare_texts("events", new.clone(), step.events.as_ref())?;
        let warnings = self.log.lines_with("WARN").split_off(warned);
        for (part, expected) in &step.warns {
            let times = warnings.iter().filter(|line| line.contains(part)).count();
            if times != *expected {
                return Err(format!("{part:?} is {times} times in {warnings:#?}"));
            }
        }
        let shown = [self.log.text(), new.concat(), lines.concat()].concat();
        match shown.lines().find(|line| line.contains(CANARY)) {
            Some(line) => Err(format!("a secret is shown: {line}")),
            None => Ok(()),
        }
    }

    fn act(&mut self, step: &Step) -> Result<(), BoxError> {
        let (hub, server) = (&self.hub, &self.hub.server);
        if let Some(rights) = &step.rights {
            self.rights_are_those_of_the_manifest = false;
            hub.grant(P::roles(), rights);
        }
        if let Some(away) = step.away {
            hub.set_away(away);
        }
        hub.set_answers(&step.answers)?;
        for round in 0..step.repeat {
            for (action, value) in &step.own {
                let mut value = value.clone();
                hub.fill(&mut value, round)?;
                self.subject.act(server, action, &value);
            }
            for named in &step.delete {
                let (resource, key) = hub.place(named, round)?;
                server.delete(&resource, &key)?;
            }
            for named in &step.create {
                let object = hub.object(named, round)?;
                match object["metadata"]["uid"].is_string() {
                    true => server.restore(object)?,
                    false => drop(server.create(object)?),
                }
            }
            for named in &step.apply {
                server.apply(hub.object(named, round)?)?;
            }
            for (named, patch) in &step.merge {
                let (mut object, mut patch) = (hub.get(named, round)?, patch.clone());
                hub.fill(&mut patch, round)?;
                json_patch::merge(&mut object, &patch);
                server.update(object)?;
            }
        }
        if step.expire {
            server.end_watches();
            for name in ["expired-a", "expired-b"] {
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
                server.apply(map)?;
            }
            server.compact(server.resource_version());
        }
        Ok(())
    }

    /// The announcements of a step, as lines.
    async fn listen(&mut self, step: &Step) -> Result<Vec<String>, String> {
        if step.provider.is_some() || self.provider.is_none() {
            let options = Options::of(step.provider.as_ref().unwrap_or(&json!({})));
            self.provider = Some(self.subject.provider(self.hub.client(), &options));
            options.must_be_used();
            self.discovery = None;
        }
        if step.restart {
            self.discovery = None;
        }
        let mut lines = Vec::new();
        let mut waits = step.after.map(|time| time.0);
        let end = Instant::now() + step.within.0 + waits.unwrap_or_default();
        loop {
            let discovery = match (&mut self.discovery, &self.provider) {
                (Some(discovery), _) => discovery,
                (none, Some(provider)) => {
                    self.announced.clear();
                    none.insert(provider.discover_with(CancellationToken::new(), &locally().into()))
                }
                (None, None) => return Err("there is no provider".to_owned()),
            };
            let complete = lines.len() >= step.expect.count() && step.fails.is_none();
            let limit = match (waits, complete) {
                (Some(silence), _) => silence,
                (None, true) => step.quiet.0,
                (None, false) => end.saturating_duration_since(Instant::now()),
            };
            let item = timeout(limit.max(Duration::from_millis(1)), discovery.next()).await;
            let change = match item {
                Err(_) if waits.take().is_some() => continue,
                Err(_) if complete => return Ok(lines),
                Err(_) => return Err(format!("not within {:?}; announced: {lines:#?}", step.within.0)),
                Ok(_) if waits.is_some() => return Err(format!("announced before {waits:?}: {item:?}")),
                Ok(None) => return Err("the discovery has ended".to_owned()),
                Ok(Some(Err(error))) => {
                    self.discovery = None;
                    let error = error.to_string();
                    let pattern = step.fails.as_deref().unwrap_or_default();
                    return match matches(&error, pattern) {
                        true => Ok(lines),
                        false => Err(format!("the discovery fails: {error}")),
                    };
                }
                Ok(Some(Ok(change))) => change,
            };
            lines.push(line(&change));
            if format!("{change:?}").contains(CANARY) {
                return Err(format!("a secret is shown: {change:?}"));
            }
            match change {
                Change::Upsert(spec) => drop(self.announced.insert(spec.name.to_string(), spec)),
                Change::Remove(name) => drop(self.announced.remove(name.as_str())),
                _ => {}
            }
        }
    }

    fn compare_facts(&self, spec: &ClusterSpec, facts: &Facts) -> Result<(), String> {
        let text = |text: &Option<String>| text.as_ref().map(|text| self.hub.text(text, 0)).transpose();
        if let Some(expected) = text(&facts.access)? {
            let access = address_and_token(&spec.access);
            if !matches(&access, &expected) {
                return Err(format!("its access is {access:?}"));
            }
        }
        if facts.identity.is_some() && spec.identity.as_deref() != text(&facts.identity)?.as_deref() {
            return Err(format!("its identity is {:?}", spec.identity));
        }
        let labels: BTreeMap<String, String> = strings(&spec.labels);
        let properties: BTreeMap<String, String> = strings(&spec.properties);
        for (there, expected) in [(&labels, &facts.labels), (&properties, &facts.properties)] {
            for (name, value) in expected {
                if there.get(name) != text(value)?.as_ref() {
                    return Err(format!("its {name} is {:?}", there.get(name)));
                }
            }
        }
        Ok(())
    }
}

fn strings<K: ToString, V: ToString>(map: impl IntoIterator<Item = (K, V)>) -> BTreeMap<String, String> {
    let pairs = map.into_iter();
    pairs
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn requests(audit: &SimAuditLog, what: &str) -> usize {
    let (verb, resource) = what.split_once(' ').unwrap_or((what, ""));
    audit.count(|event| {
        let counts = match verb {
            "list" => event.is_list(resource),
            _ => event.verb == verb && event.resource == resource && event.is_start(),
        };
        counts && event.user == PROVIDER
    })
}

fn compare(lines: &[String], expected: &Expected) -> Result<(), String> {
    let Expected::Lines(patterns) = expected else {
        return match lines.len() == expected.count() {
            true => Ok(()),
            false => Err(format!("announced: {lines:#?}")),
        };
    };
    let (lines, patterns) = (by_cluster(lines), by_cluster(patterns));
    let same = lines.len() == patterns.len();
    match same
        && lines
            .iter()
            .zip(&patterns)
            .all(|(line, pattern)| matches(line, pattern))
    {
        true => Ok(()),
        false => Err(format!("expected: {patterns:#?}\nannounced: {lines:#?}")),
    }
}

/// The lines in the order of their clusters, those before `synced` and those after it by themselves.
fn by_cluster(lines: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for part in lines.split_inclusive(|line| line == "synced") {
        let mut part = part.to_vec();
        part.sort_by_key(|line| match line.as_str() {
            "synced" => (true, String::new()),
            line => (
                false,
                line.get(1..)
                    .unwrap_or_default()
                    .split(": ")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            ),
        });
        all.extend(part);
    }
    all
}

fn compare_texts(what: &str, texts: Vec<String>, expected: Option<&Vec<String>>) -> Result<(), String> {
    let Some(expected) = expected else { return Ok(()) };
    let mut left: BTreeSet<usize> = (0..texts.len()).collect();
    for pattern in expected {
        let found = left.iter().find(|at| matches(&texts[**at], pattern)).copied();
        match found {
            Some(at) => left.remove(&at),
            None => return Err(format!("{what}: none is {pattern:?} in {texts:#?}")),
        };
    }
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("{what}: more than expected: {texts:#?}")),
    }
}

/// Whether a text is like a pattern, in which `...` stands for any text.
fn matches(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("...");
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_any_text() {
        for (text, pattern, like) in [
            ("-a", "-a", true),
            ("-ab", "-a", false),
            ("!a: Secret a: no key", "!a: ...: no...", true),
            ("!a: Secret a: no key", "!a: ...no", false),
            ("~a: b", "...", true),
        ] {
            assert_eq!(matches(text, pattern), like, "{text} {pattern}");
        }
    }

    #[test]
    fn the_order_counts_for_each_cluster_and_across_synced() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let same = |a: &[&str], b: &[&str]| compare(&lines(a), &Expected::Lines(lines(b))).is_ok();
        assert!(same(&["+b", "+a", "synced"], &["+a", "+b", "synced"]));
        assert!(!same(&["+a", "synced", "+b"], &["+a", "+b", "synced"]));
        assert!(!same(&["+a", "-a"], &["-a", "+a"]));
        assert!(!same(&["+a"], &["+a", "+a"]));
    }
}
