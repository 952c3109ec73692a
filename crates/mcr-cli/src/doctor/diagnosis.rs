//! Turns facts about a cluster into findings. Without I/O, so that each case can be tested.

use std::time::Duration;

use super::{
    advice,
    command::Command,
    diagnosis_cluster_api::obstacle,
    diagnosis_inventory::waits,
    facts::{Api, Bad, ClusterFacts, Connection, Origin, Reach, Right, Tls, Verdict, Version},
    finding::{Check, Finding},
    fix::Fix,
};
use crate::{level::Level, values::long};

/// A warning above this difference of clocks, in seconds.
const SKEW_WARNS: u64 = 5;
const SKEW_BREAKS: u64 = 60;
/// A warning for a certificate or token that expires within this time.
const SOON: Duration = Duration::from_secs(14 * 86_400);
/// A warning for an answer that takes longer.
const SLOW: Duration = Duration::from_secs(2);
/// The versions of Kubernetes that STABILITY.md names.
pub(super) const SUPPORTED: std::ops::RangeInclusive<u32> = 33..=37;

/// The findings about a cluster, in the order of the steps of a connection.
pub(super) fn diagnose(facts: &ClusterFacts) -> Vec<Finding> {
    let mut diagnosis = Diagnosis {
        facts,
        found: Vec::new(),
    };
    diagnosis.all();
    diagnosis.found
}

struct Diagnosis<'a> {
    facts: &'a ClusterFacts,
    found: Vec<Finding>,
}

impl Diagnosis<'_> {
    fn add(&mut self, check: Check, result: Level, saw: impl Into<String>, fix: Option<Fix>) {
        self.found.push(Finding {
            provider: Some(self.facts.provider.clone()),
            cluster: Some(self.facts.name.clone()),
            check,
            result,
            saw: saw.into(),
            fix,
        });
    }

    fn all(&mut self) {
        let facts = self.facts;
        let reason = facts.reason.as_deref().unwrap_or("the reason is unknown");
        match facts.state.as_str() {
            "Broken" => {
                self.add(
                    Check::Description,
                    Level::Problem,
                    reason,
                    Some(advice::refused(&facts.origin, reason)),
                );
                return;
            }
            "Suspended" => {
                let of_profile = || Some(waits(facts.profile.as_ref()?, reason));
                let found = facts.cluster_api.as_ref().and_then(obstacle).or_else(of_profile);
                let (level, saw, fix) = match found {
                    Some(found) => (found.level, found.saw, found.fix),
                    None => (Level::Warning, reason.to_owned(), advice::wake(&facts.origin)),
                };
                self.add(Check::State, level, format!("suspended: {saw}"), fix);
                return;
            }
            _ => {}
        }
        for warning in &facts.warnings {
            self.add(
                Check::Description,
                Level::Warning,
                warning.as_str(),
                Some(advice::refused(&facts.origin, warning)),
            );
        }
        let reached = match &facts.connection {
            Some(connection) => self.connection(connection),
            None => true,
        };
        if let Some(api) = &facts.api {
            self.api(api);
        }
        let reported = self.found.iter().any(|finding| finding.result == Level::Problem);
        match facts.state.as_str() {
            "Ready" => {
                // The only finding about such a cluster.
                if let Origin::KcpWorkspace { address, path, .. } = &facts.origin {
                    let workspace = path.as_deref().unwrap_or(address);
                    self.add(
                        Check::State,
                        Level::Ok,
                        format!("Ready; workspace {workspace}"),
                        None,
                    );
                }
            }
            // The finding of an earlier step explains this state already.
            _ if !reached || reported => {}
            _ if reason.contains("401") => {
                self.add(
                    Check::Credentials,
                    Level::Problem,
                    reason,
                    Some(advice::renew(&self.facts.origin)),
                );
            }
            _ if reason.contains("exec plugin ") => {
                self.add(
                    Check::Credentials,
                    Level::Problem,
                    reason,
                    advice::look_closer(self.facts),
                );
            }
            "Connecting" | "Discovered" => {
                let saw = "the API server does not answer requests with these credentials in time";
                self.add(Check::State, Level::Problem, saw, advice::look_closer(self.facts));
            }
            state => self.add(
                Check::State,
                Level::Problem,
                format!("{state}: {reason}"),
                advice::look_closer(self.facts),
            ),
        }
    }

    /// Adds the findings about the connection. Returns whether the API server was reached, as far as the probe shows.
    fn connection(&mut self, connection: &Connection) -> bool {
        if connection.insecure {
            let saw = "insecure-skip-tls-verify is set: anyone on the way to the server can read and change everything";
            self.add(
                Check::Tls,
                Level::Warning,
                saw,
                Some(advice::describe_again(&self.facts.origin)),
            );
        }
        let reached = match &connection.reach {
            Some(reach) => self.reach(connection, reach),
            None if connection.proxied => {
                self.add(
                    Check::Connection,
                    Level::Ok,
                    format!("{}, by a proxy: not looked at", connection.address),
                    None,
                );
                true
            }
            None => true,
        };
        self.credential(connection);
        reached
    }

    fn reach(&mut self, connection: &Connection, reach: &Reach) -> bool {
        match &reach.resolved {
            Some(Err(failure)) => {
                let fix = Command::Resolve(connection.host.clone());
                self.add(
                    Check::Dns,
                    self.in_the_way(),
                    failure.text.as_str(),
                    Some(fix.into()),
                );
                return false;
            }
            Some(Ok(addresses)) => {
                let shown: Vec<String> = addresses.iter().take(4).map(ToString::to_string).collect();
                self.add(
                    Check::Dns,
                    Level::Ok,
                    format!("{} is {}", connection.host, shown.join(", ")),
                    None,
                );
            }
            None => {}
        }
        if let Some(refused) = &reach.forbidden {
            let fix = advice::other_address(&self.facts.origin, refused);
            self.add(Check::Address, Level::Problem, refused.as_str(), Some(fix));
            return false;
        }
        match &reach.connected {
            Some(Err(failure)) => {
                let fix = advice::unreached(&self.facts.origin, connection, failure);
                self.add(
                    Check::Connection,
                    self.in_the_way(),
                    format!("{}: {}", connection.address, failure.text),
                    Some(fix),
                );
                return false;
            }
            Some(Ok(took)) => {
                let saw = format!("{} in {} ms", connection.address, took.as_millis());
                self.add(Check::Connection, Level::Ok, saw, None);
            }
            None => {}
        }
        let mut good = true;
        match &reach.greeted {
            Some(Err(failure)) => {
                let fix = advice::unanswered(&self.facts.origin, connection, failure);
                self.add(Check::Tls, self.in_the_way(), failure.text.as_str(), Some(fix));
                return false;
            }
            Some(Ok(tls)) => good = self.tls(connection, tls),
            None => {}
        }
        match &reach.answered {
            Some(Err(failure)) => {
                let fix = advice::unanswered(&self.facts.origin, connection, failure);
                self.add(Check::Answer, self.in_the_way(), failure.text.as_str(), Some(fix));
                return false;
            }
            Some(Ok(answer)) => {
                if answer.took > SLOW {
                    let saw = format!(
                        "an answer took {:.1} s; it may be overloaded or far away",
                        answer.took.as_secs_f32()
                    );
                    self.add(Check::Answer, Level::Warning, saw, None);
                }
                self.clock(answer.ahead);
            }
            None => {}
        }
        good
    }

    /// The level of a failed step. The probe has no credentials: if the cluster is Ready, its server answers clients with
    /// credentials, for example with a client certificate.
    fn in_the_way(&self) -> Level {
        match self.facts.state.as_str() {
            "Ready" => Level::Warning,
            _ => Level::Problem,
        }
    }

    fn tls(&mut self, connection: &Connection, tls: &Tls) -> bool {
        let now = self.facts.now;
        if let Some(Verdict::Bad { why, text }) = &tls.verdict
            && !connection.insecure
        {
            let fix = match why {
                Bad::UnknownIssuer => advice::describe_again(&self.facts.origin),
                Bad::Other => Fix::action("give the server another certificate, as this finding says"),
                Bad::Expired => advice::renew_certificate(),
                Bad::NotYetValid => advice::compare_clocks(),
                Bad::OtherName => advice::other_name(&self.facts.origin),
            };
            self.add(Check::Tls, self.in_the_way(), text.as_str(), Some(fix));
            return false;
        }
        match tls.expires.map(|at| at.duration_since(now)) {
            Some(Ok(left)) if left < SOON => {
                let saw = format!("the server's certificate expires in {}", long(left));
                self.add(Check::Tls, Level::Warning, saw, Some(advice::renew_certificate()));
            }
            Some(Err(_)) => {
                let level = if connection.insecure {
                    Level::Warning
                } else {
                    Level::Problem
                };
                self.add(
                    Check::Tls,
                    level,
                    "the server's certificate has expired",
                    Some(advice::renew_certificate()),
                );
            }
            Some(Ok(left)) => {
                let verified = match tls.verdict {
                    Some(Verdict::Good) => {
                        "the server's certificate is signed by a trusted authority and valid"
                    }
                    _ => "the server's certificate was not verified; it claims to be valid",
                };
                self.add(
                    Check::Tls,
                    Level::Ok,
                    format!("{verified} for {}", long(left)),
                    None,
                );
            }
            None => {}
        }
        if tls.valid_from.is_some_and(|from| from > now) {
            self.add(
                Check::Clock,
                Level::Warning,
                "the server's certificate is not valid yet",
                Some(advice::compare_clocks()),
            );
        }
        true
    }

    fn clock(&mut self, ahead: Option<i64>) {
        let Some(ahead) = ahead else { return };
        let by = ahead.unsigned_abs();
        let where_to = if ahead > 0 { "ahead of" } else { "behind" };
        let span = long(Duration::from_secs(by));
        let saw = format!("its clock is {span} {where_to} this machine's");
        let fix = advice::set_clock();
        match by {
            0..=SKEW_WARNS => self.add(Check::Clock, Level::Ok, "the clocks agree", None),
            _ if by < SKEW_BREAKS => self.add(Check::Clock, Level::Warning, saw, Some(fix)),
            _ => {
                let saw = format!("{saw}; tokens and certificates are refused as expired or not yet valid");
                self.add(Check::Clock, Level::Problem, saw, Some(fix));
            }
        }
    }

    fn credential(&mut self, connection: &Connection) {
        let now = self.facts.now;
        let credential = &connection.credential;
        if credential.none {
            let saw = "the kubeconfig has no credentials for its user";
            self.add(
                Check::Credentials,
                Level::Warning,
                saw,
                Some(advice::renew(&self.facts.origin)),
            );
        }
        let both = [
            ("token", credential.token_expires),
            ("client certificate", credential.certificate_expires),
        ];
        for (what, expires) in both {
            let Some(expires) = expires else { continue };
            match expires.duration_since(now) {
                Err(ago) => {
                    let saw = format!("the {what} has expired {} ago", long(ago.duration()));
                    self.add(
                        Check::Credentials,
                        Level::Problem,
                        saw,
                        Some(advice::renew(&self.facts.origin)),
                    );
                }
                // A token that is valid for hours only has some process that renews it.
                Ok(left) if left < SOON && credential.plugin.is_none() && !is_file(&self.facts.origin) => {
                    let saw = format!("the {what} expires in {}", long(left));
                    self.add(
                        Check::Credentials,
                        Level::Warning,
                        saw,
                        Some(advice::renew(&self.facts.origin)),
                    );
                }
                Ok(left) => {
                    self.add(
                        Check::Credentials,
                        Level::Ok,
                        format!("the {what} is valid for {}", long(left)),
                        None,
                    );
                }
            }
        }
    }

    fn api(&mut self, api: &Api) {
        match &api.version {
            Ok(version) => {
                let Version { shown, minor, took } = version;
                let saw = format!("Kubernetes {shown}, answers in {} ms", took.as_millis());
                match minor {
                    Some(minor) if !SUPPORTED.contains(minor) => {
                        let range = format!("1.{} to 1.{}", SUPPORTED.start(), SUPPORTED.end());
                        let saw = format!("{saw}; mcr is made for {range} and not tested with this one");
                        self.add(Check::Version, Level::Warning, saw, None);
                    }
                    _ => self.add(Check::Version, Level::Ok, saw, None),
                }
            }
            Err(why) => {
                let saw = format!("/version can't be read: {why}");
                self.add(Check::Version, Level::Warning, saw, None);
            }
        }
        for right in &api.rights {
            self.right(right, api);
        }
    }

    fn right(&mut self, right: &Right, api: &Api) {
        let place = api.namespace.as_deref().map_or_else(
            || "in all namespaces".to_owned(),
            |name| format!("in namespace {name}"),
        );
        let resource = &right.resource;
        match &right.denied {
            Ok(denied) if denied.is_empty() => {
                let saw = format!("may {} {resource} {place}", right.verbs.join(", "));
                self.add(Check::Rights, Level::Ok, saw, None);
            }
            Ok(denied) => {
                let saw = format!("may not {} {resource} {place} (403)", denied.join(", "));
                let fix = advice::grant(&self.facts.origin, right, api);
                self.add(Check::Rights, Level::Problem, saw, Some(fix));
            }
            Err(why) => {
                let saw = format!("it is unknown whether {resource} may be read {place}: {why}");
                self.add(Check::Rights, Level::Warning, saw, None);
            }
        }
    }
}

fn is_file(origin: &Origin) -> bool {
    matches!(origin, Origin::File { .. })
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
