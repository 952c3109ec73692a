//! Turns facts about a cluster into findings. Without I/O, so that each case can be tested.

use std::time::Duration;

use super::{
    facts::{
        Api, Bad, ClusterFacts, Connection, Failure, FailureKind, Origin, Reach, Right, Tls, Verdict, Version,
    },
    finding::{Check, Finding, Level, word},
};
use crate::values::short;

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
    fn say(&mut self, check: Check, result: Level, saw: impl Into<String>, fix: Option<String>) {
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
        let reason = facts.reason.as_deref().unwrap_or("nobody knows why");
        match facts.state.as_str() {
            "Broken" => {
                self.say(
                    Check::Description,
                    Level::Problem,
                    reason,
                    Some(self.describe_again()),
                );
                return;
            }
            "Suspended" => {
                self.say(
                    Check::State,
                    Level::Warning,
                    format!("suspended: {reason}"),
                    self.wake(),
                );
                return;
            }
            _ => {}
        }
        for warning in &facts.warnings {
            self.say(
                Check::Description,
                Level::Warning,
                warning.as_str(),
                Some(self.describe_again()),
            );
        }
        let reached = match &facts.connection {
            Some(connection) => self.connection(connection),
            None => true,
        };
        if let Some(api) = &facts.api {
            self.api(api);
        }
        let told = self.found.iter().any(|finding| finding.result == Level::Problem);
        match facts.state.as_str() {
            "Ready" => {}
            // The finding of an earlier step explains this state already.
            _ if !reached || told => {}
            _ if reason.contains("401") => {
                self.say(Check::Credentials, Level::Problem, reason, Some(self.renew()));
            }
            "Connecting" | "Discovered" => {
                let saw = "it answers nobody in time who shows these credentials";
                self.say(Check::State, Level::Problem, saw, self.look_closer());
            }
            state => self.say(
                Check::State,
                Level::Problem,
                format!("{state}: {reason}"),
                self.look_closer(),
            ),
        }
    }

    /// Adds the findings about the connection. Returns whether the API server was reached, as far as the probe shows.
    fn connection(&mut self, connection: &Connection) -> bool {
        if connection.insecure {
            let saw = "insecure-skip-tls-verify is set: whoever is in between can read and change everything";
            self.say(Check::Tls, Level::Warning, saw, Some(self.describe_again()));
        }
        let reached = match &connection.reach {
            Some(reach) => self.reach(connection, reach),
            None if connection.proxied => {
                self.say(
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
                let fix = format!("getent hosts {}", word(&connection.host));
                self.say(Check::Dns, self.in_the_way(), failure.text.as_str(), Some(fix));
                return false;
            }
            Some(Ok(addresses)) => {
                let shown: Vec<String> = addresses.iter().take(4).map(ToString::to_string).collect();
                self.say(
                    Check::Dns,
                    Level::Ok,
                    format!("{} is {}", connection.host, shown.join(", ")),
                    None,
                );
            }
            None => {}
        }
        if let Some(refused) = &reach.forbidden {
            let fix = match &self.facts.origin {
                Origin::Secret { namespace, name } => format!(
                    "mcr kubeconfig-secret create --context CONTEXT --name {} -n {} --server https://ADDRESS-THAT-PODS-REACH \
                     (or, where it is meant, --allow-loopback here and AccessPolicy::addresses in the controller)",
                    word(name),
                    word(namespace)
                ),
                _ => "give an address that others reach, or allow it with --allow-loopback".to_owned(),
            };
            self.say(Check::Address, Level::Problem, refused.as_str(), Some(fix));
            return false;
        }
        match &reach.connected {
            Some(Err(failure)) => {
                let fix = self.unreached(connection, failure);
                self.say(
                    Check::Connection,
                    self.in_the_way(),
                    format!("{}: {}", connection.address, failure.text),
                    Some(fix),
                );
                return false;
            }
            Some(Ok(took)) => {
                let saw = format!("{} in {} ms", connection.address, took.as_millis());
                self.say(Check::Connection, Level::Ok, saw, None);
            }
            None => {}
        }
        let mut good = true;
        match &reach.greeted {
            Some(Err(failure)) => {
                let fix = format!("curl -vk {}/version", word(&connection.address));
                self.say(Check::Tls, self.in_the_way(), failure.text.as_str(), Some(fix));
                return false;
            }
            Some(Ok(tls)) => good = self.tls(connection, tls),
            None => {}
        }
        match &reach.answered {
            Some(Err(failure)) => {
                let fix = format!("curl -vk {}/version", word(&connection.address));
                self.say(Check::Answer, self.in_the_way(), failure.text.as_str(), Some(fix));
                return false;
            }
            Some(Ok(answer)) => {
                if answer.took > SLOW {
                    let saw = format!(
                        "an answer took {:.1} s; it may be overloaded or far away",
                        answer.took.as_secs_f32()
                    );
                    self.say(Check::Answer, Level::Warning, saw, None);
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

    fn unreached(&self, connection: &Connection, failure: &Failure) -> String {
        match (&self.facts.origin, failure.kind) {
            (Origin::KindCluster { name, engine }, _) => on_node(engine, "start", name),
            (_, FailureKind::Refused) => format!(
                "curl -vk {}/livez where the API server runs",
                word(&connection.address)
            ),
            (_, FailureKind::TimedOut) => {
                format!(
                    "look at firewalls and routes between here and {}",
                    word(&connection.address)
                )
            }
            _ => format!("curl -vk {}/livez", word(&connection.address)),
        }
    }

    fn tls(&mut self, connection: &Connection, tls: &Tls) -> bool {
        let now = self.facts.now;
        if let Some(Verdict::Bad { why, text }) = &tls.verdict
            && !connection.insecure
        {
            let fix = match why {
                Bad::UnknownIssuer | Bad::Other => self.describe_again(),
                Bad::Expired => {
                    "kubeadm certs renew apiserver on its control plane, or as its distribution says"
                        .to_owned()
                }
                Bad::NotYetValid => "timedatectl on both sides: one of the clocks is wrong".to_owned(),
                Bad::OtherName => match &self.facts.origin {
                    Origin::Secret { namespace, name } => format!(
                        "mcr kubeconfig-secret create --context CONTEXT --name {} -n {} --server https://A-NAME-IN-THE-CERTIFICATE",
                        word(name),
                        word(namespace)
                    ),
                    _ => "correct the address, or set tls-server-name".to_owned(),
                },
            };
            self.say(Check::Tls, self.in_the_way(), text.as_str(), Some(fix));
            return false;
        }
        match tls.expires.map(|at| at.duration_since(now)) {
            Some(Ok(left)) if left < SOON => {
                let saw = format!("the server's certificate expires in {}", short(left));
                let fix = "kubeadm certs renew apiserver on its control plane, or as its distribution says";
                self.say(Check::Tls, Level::Warning, saw, Some(fix.to_owned()));
            }
            Some(Err(_)) => {
                let level = if connection.insecure {
                    Level::Warning
                } else {
                    Level::Problem
                };
                let fix = "kubeadm certs renew apiserver on its control plane, or as its distribution says";
                self.say(
                    Check::Tls,
                    level,
                    "the server's certificate has expired",
                    Some(fix.to_owned()),
                );
            }
            Some(Ok(left)) => {
                let verified = match tls.verdict {
                    Some(Verdict::Good) => "the server's certificate is signed by the cluster's authority",
                    _ => "the server shows a certificate",
                };
                self.say(
                    Check::Tls,
                    Level::Ok,
                    format!("{verified} and valid for {}", short(left)),
                    None,
                );
            }
            None => {}
        }
        if tls.valid_from.is_some_and(|from| from > now) {
            let fix = "timedatectl on both sides: one of the clocks is wrong".to_owned();
            self.say(
                Check::Clock,
                Level::Warning,
                "the server's certificate is not valid yet",
                Some(fix),
            );
        }
        true
    }

    fn clock(&mut self, ahead: Option<i64>) {
        let Some(ahead) = ahead else { return };
        let by = ahead.unsigned_abs();
        let where_to = if ahead > 0 { "ahead of" } else { "behind" };
        let span = short(Duration::from_secs(by));
        let saw = format!("its clock is {span} {where_to} this machine's");
        let fix =
            "timedatectl set-ntp true, on the side that is wrong (compare with https://time.is)".to_owned();
        match by {
            0..=SKEW_WARNS => self.say(Check::Clock, Level::Ok, "the clocks agree", None),
            _ if by < SKEW_BREAKS => self.say(Check::Clock, Level::Warning, saw, Some(fix)),
            _ => {
                let saw = format!("{saw}; tokens and certificates are refused as expired or not yet valid");
                self.say(Check::Clock, Level::Problem, saw, Some(fix));
            }
        }
    }

    fn credential(&mut self, connection: &Connection) {
        let now = self.facts.now;
        let credential = &connection.credential;
        if credential.none {
            let saw = "the kubeconfig has no credentials for its user";
            self.say(Check::Credentials, Level::Warning, saw, Some(self.renew()));
        }
        let both = [
            ("token", credential.token_expires),
            ("client certificate", credential.certificate_expires),
        ];
        for (what, expires) in both {
            let Some(expires) = expires else { continue };
            match expires.duration_since(now) {
                Err(ago) => {
                    let saw = format!("the {what} has expired {} ago", short(ago.duration()));
                    self.say(Check::Credentials, Level::Problem, saw, Some(self.renew()));
                }
                // A token that is valid for hours only has some process that renews it.
                Ok(left) if left < SOON && credential.plugin.is_none() && !is_file(&self.facts.origin) => {
                    let saw = format!("the {what} expires in {}", short(left));
                    self.say(Check::Credentials, Level::Warning, saw, Some(self.renew()));
                }
                Ok(left) => {
                    self.say(
                        Check::Credentials,
                        Level::Ok,
                        format!("the {what} is valid for {}", short(left)),
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
                        self.say(Check::Version, Level::Warning, saw, None);
                    }
                    _ => self.say(Check::Version, Level::Ok, saw, None),
                }
            }
            Err(why) => {
                let saw = format!("/version can't be read: {why}");
                self.say(Check::Version, Level::Warning, saw, None);
            }
        }
        for right in &api.rights {
            self.right(right, api.namespace.as_deref());
        }
    }

    fn right(&mut self, right: &Right, namespace: Option<&str>) {
        let place = namespace.map_or_else(
            || "in all namespaces".to_owned(),
            |name| format!("in namespace {name}"),
        );
        let resource = &right.resource;
        match &right.denied {
            Ok(denied) if denied.is_empty() => {
                let saw = format!("may {} {resource} {place}", right.verbs.join(", "));
                self.say(Check::Rights, Level::Ok, saw, None);
            }
            Ok(denied) => {
                let saw = format!("may not {} {resource} {place} (403)", denied.join(", "));
                let verbs = right.verbs.join(",");
                let fix = match &self.facts.origin {
                    Origin::Secret { namespace: hub, name } => format!(
                        "add {resource} with {verbs} to a rules file, and repeat: mcr kubeconfig-secret create --context CONTEXT \
                         --name {} -n {} --rules-file rules.yaml",
                        word(name),
                        word(hub)
                    ),
                    _ => format!(
                        "kubectl create clusterrole mcr --verb={verbs} --resource={} in that cluster, and a clusterrolebinding to its \
                         user; or choose one namespace with --in-namespace",
                        word(resource)
                    ),
                };
                self.say(Check::Rights, Level::Problem, saw, Some(fix));
            }
            Err(why) => {
                let saw = format!("nobody knows whether {resource} may be read {place}: {why}");
                self.say(Check::Rights, Level::Warning, saw, None);
            }
        }
    }

    /// The advice for a description that can't be used.
    fn describe_again(&self) -> String {
        match &self.facts.origin {
            Origin::Secret { namespace, name } => format!(
                "mcr kubeconfig-secret create --context CONTEXT --name {} -n {}",
                word(name),
                word(namespace)
            ),
            Origin::File { path, .. } => format!("correct {}", word(path)),
            Origin::KindCluster { name, .. } => {
                format!(
                    "kind delete cluster --name {0}; kind create cluster --name {0}",
                    word(name)
                )
            }
            Origin::Other => "correct what describes it".to_owned(),
        }
    }

    /// The advice for credentials that have to be renewed.
    fn renew(&self) -> String {
        match &self.facts.origin {
            Origin::Secret { namespace, name } => format!(
                "mcr kubeconfig-secret create --context CONTEXT --name {} -n {} --rotate",
                word(name),
                word(namespace)
            ),
            Origin::File { path, context } => format!(
                "renew the credentials in {0}; try them with kubectl --kubeconfig {0} --context {1} auth whoami",
                word(path),
                word(context)
            ),
            Origin::KindCluster { name, engine } => on_node(engine, "restart", name),
            Origin::Other => "renew the credentials where its provider has them from".to_owned(),
        }
    }

    fn wake(&self) -> Option<String> {
        match &self.facts.origin {
            Origin::KindCluster { name, engine } => Some(on_node(engine, "start", name)),
            _ => None,
        }
    }

    /// The advice if no step shows the cause.
    fn look_closer(&self) -> Option<String> {
        let found = self.facts.connection.as_ref()?;
        Some(match &found.credential.plugin {
            Some(plugin) => format!("run {} by hand: it hands out the credentials", word(plugin)),
            None => format!("curl -vk {}", word(&format!("{}/livez?verbose", found.address))),
        })
    }
}

/// The command for the container of a kind cluster.
fn on_node(engine: &str, what: &str, cluster: &str) -> String {
    format!(
        "{} {what} {}",
        word(engine),
        word(&format!("{cluster}-control-plane"))
    )
}

fn is_file(origin: &Origin) -> bool {
    matches!(origin, Origin::File { .. })
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
