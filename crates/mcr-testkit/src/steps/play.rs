//! Runs a scenario, and compares what happens after each step.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use mcr_core::{Access, Change, ClusterSpec, Discovery, Provider, Refresh};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    HubProvider, Options,
    hub::{Hub, PROVIDER},
    scenario::{Expected, File, Rights, Step},
};
use crate::{
    discovery::{address_and_token, line, loopback_policy},
    log::Log,
    sim::{SimAuditEvent, SimAuditLog, SimError},
    suite::fail,
};

/// A word that every secret in the scenarios contains.
const CANARY: &str = "sesame";

pub(super) async fn play<P: HubProvider>(file: &File, name: &str) {
    let steps = file.scenarios.get(name);
    let steps = steps.unwrap_or_else(|| fail(format!("there is no scenario {name}")));
    let hub = Hub::new(file);
    hub.grant(P::roles(), &Rights::default());
    for named in &file.given {
        done(hub.server.create(hub.object(named, 0)));
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
        let at = InStep(format!("{name}, step {}: {}", number + 1, step.about));
        player.step(step).await;
        drop(at);
    }
}

/// Prints the step if the test fails.
struct InStep(String);

impl Drop for InStep {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {}", self.0);
        }
    }
}

#[track_caller]
fn done<T>(result: Result<T, SimError>) -> T {
    result.unwrap_or_else(|error| fail(error))
}

fn has_no_secret(text: &str) {
    if let Some(line) = text.lines().find(|line| line.contains(CANARY)) {
        fail(format!("a secret is shown: {line}"));
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
    async fn step(&mut self, step: &Step) {
        let (mark, events) = (self.hub.server.audit().mark(), self.hub.events());
        let warned = self.log.lines_with("WARN").len();
        let counts = step.requests.keys().map(|what| self.subject.count(what));
        let counts: Vec<Option<usize>> = counts.collect();
        self.act(step);
        for name in &step.refuse {
            let Access::Endpoint(access) = &self.spec(name).access else {
                fail(format!("{name} has no source of credentials"))
            };
            let fetched = access.credentials.credential(Refresh::Unauthorized).await;
            fetched.unwrap_or_else(|error| fail(error));
        }
        let lines = self.listen(step).await;
        compare(&lines, &step.expect);
        for (name, expected) in &step.fleet {
            let spec = self.spec(name);
            let facts = json!({
                "access": address_and_token(&spec.access), "identity": spec.identity.as_deref(),
                "labels": strings(&spec.labels), "properties": strings(&spec.properties),
            });
            must_have(&facts, &self.hub.filled(expected, 0));
        }
        let audit = self.hub.server.audit().since(mark);
        for ((what, expected), before) in step.requests.iter().zip(counts) {
            let times = match (self.subject.count(what), before) {
                (Some(now), Some(before)) => now - before,
                _ => requests(&audit, what),
            };
            if times != *expected {
                fail(format!("{what}: {times} times, and not {expected}"));
            }
        }
        let of_provider = |event: &&SimAuditEvent| event.user == PROVIDER && event.is_start();
        for event in audit.events().filter(of_provider) {
            let reads = matches!(event.verb.as_str(), "list" | "watch");
            let part = step.uris.get(&event.resource).filter(|_| reads);
            if let Some(part) = part.filter(|part| !event.uri.contains(*part)) {
                fail(format!("{part} is not in {}", event.uri));
            }
            if event.code == 403 && self.rights_are_those_of_the_manifest {
                fail(format!("the manifest grants too little: {event:?}"));
            }
        }
        let new = self.hub.events().into_iter();
        let new = new.filter(|(name, _)| !events.contains_key(name));
        let new: Vec<String> = new.map(|(_, line)| line).collect();
        has_no_secret(&new.concat());
        if let Some(expected) = &step.events {
            compare(&new, &Expected::Lines(expected.clone()));
        }
        let warnings = self.log.lines_with("WARN").split_off(warned);
        for (part, expected) in &step.warns {
            if warnings.iter().filter(|line| line.contains(part)).count() != *expected {
                fail(format!("{part:?} is not {expected} times in {warnings:#?}"));
            }
        }
        has_no_secret(&self.log.text());
    }

    #[track_caller]
    fn spec(&self, name: &str) -> &ClusterSpec {
        let spec = self.announced.get(name);
        spec.unwrap_or_else(|| fail(format!("{name} is not announced")))
    }

    fn act(&mut self, step: &Step) {
        let (hub, server) = (&self.hub, &self.hub.server);
        if let Some(rights) = &step.rights {
            self.rights_are_those_of_the_manifest = false;
            hub.grant(P::roles(), rights);
        }
        if let Some(away) = step.away {
            hub.set_away(away);
        }
        hub.set_answers(&step.answers);
        for round in 0..step.repeat {
            for (action, value) in &step.own {
                self.subject.act(server, action, &hub.filled(value, round));
            }
            for named in &step.delete {
                let (resource, key) = hub.place(named, round);
                done(server.delete(&resource, &key));
            }
            for named in &step.create {
                let object = hub.object(named, round);
                if object["metadata"]["uid"].is_string() {
                    done(server.restore(object));
                } else {
                    done(server.create(object));
                }
            }
            for named in &step.apply {
                done(server.apply(hub.object(named, round)));
            }
            for (named, patch) in &step.merge {
                let mut object = hub.get(named, round);
                json_patch::merge(&mut object, &hub.filled(patch, round));
                done(server.update(object));
            }
        }
        if step.expire {
            server.end_watches();
            for name in ["expired-a", "expired-b"] {
                let metadata = json!({"name": name, "namespace": "default"});
                done(server.apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})));
            }
            server.compact(server.resource_version());
        }
    }

    /// The announcements of a step, as lines.
    async fn listen(&mut self, step: &Step) -> Vec<String> {
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
                    none.insert(provider.discover_with(CancellationToken::new(), &loopback_policy().into()))
                }
                (None, None) => fail("there is no provider"),
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
                Err(_) if complete => return lines,
                Err(_) => fail(format!("not within {:?}; announced: {lines:#?}", step.within.0)),
                Ok(_) if waits.is_some() => fail(format!("announced before {waits:?}: {item:?}")),
                Ok(None) => fail("the discovery has ended"),
                Ok(Some(Err(error))) => {
                    self.discovery = None;
                    must_match(&error.to_string(), step.fails.as_deref().unwrap_or_default());
                    return lines;
                }
                Ok(Some(Ok(change))) => change,
            };
            lines.push(line(&change));
            has_no_secret(&format!("{change:?}"));
            match change {
                Change::Upsert(spec) => drop(self.announced.insert(spec.name.to_string(), spec)),
                Change::Remove(name) => drop(self.announced.remove(name.as_str())),
                _ => {}
            }
        }
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

/// Fails unless `there` contains what is expected. Null stands for nothing.
fn must_have(there: &Value, expected: &Value) {
    match (there, expected) {
        (Value::Object(there), Value::Object(expected)) => {
            for (name, expected) in expected {
                must_have(there.get(name).unwrap_or(&Value::Null), expected);
            }
        }
        (Value::String(there), Value::String(expected)) => must_match(there, expected),
        _ if there == expected => {}
        _ => fail(format!("{there} is not {expected}")),
    }
}

fn must_match(text: &str, pattern: &str) {
    if !matches(text, pattern) {
        fail(format!("{text:?} is not {pattern:?}"));
    }
}

fn compare(lines: &[String], expected: &Expected) {
    let same = match expected {
        Expected::Count(count) => lines.len() == *count,
        Expected::Lines(patterns) => are_like(lines, patterns),
    };
    if !same {
        fail(format!("expected: {expected:#?}\nannounced: {lines:#?}"));
    }
}

/// Whether the lines match the patterns: the lines of each cluster in their order, and the lines before and after
/// `synced` separately.
fn are_like(lines: &[String], patterns: &[String]) -> bool {
    let by_cluster = |lines: &[String]| {
        let mut all = Vec::new();
        for part in lines.split_inclusive(|line| line == "synced") {
            let mut part = part.to_vec();
            part.sort_by_key(|line| {
                let cluster = line.get(1..).and_then(|line| line.split(": ").next());
                (line == "synced", cluster.unwrap_or_default().to_owned())
            });
            all.extend(part);
        }
        all
    };
    let (lines, patterns) = (by_cluster(lines), by_cluster(patterns));
    let mut pairs = lines.iter().zip(&patterns);
    lines.len() == patterns.len() && pairs.all(|(line, pattern)| matches(line, pattern))
}

/// Whether a text matches a pattern, in which `...` stands for any text.
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
        let same = |a: &[&str], b: &[&str]| are_like(&lines(a), &lines(b));
        assert!(same(&["+b", "+a", "synced"], &["+a", "+b", "synced"]));
        assert!(!same(&["+a", "synced", "+b"], &["+a", "+b", "synced"]));
        assert!(!same(&["+a", "-a"], &["-a", "+a"]));
        assert!(!same(&["+a"], &["+a", "+a"]));
    }
}
