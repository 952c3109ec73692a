//! Turns the facts about a cluster into findings. Without I/O.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use mcr_core::doctor::{Doctor, Fault, Finding, Fix, Level, Obstacle, Values};

use super::{
    ask::{Answer, Api, Grant, place},
    finding::ok,
    fix::{advise, is_normal, plain},
    probe::{Bad, Connection, Reach, Tls, Verdict},
};
use crate::values::long;

/// The minor versions of Kubernetes that are tested, and the next one.
const SUPPORTED: std::ops::RangeInclusive<u32> = 33..=37;
/// A certificate or token that expires sooner than this leads to a warning.
const SOON: Duration = Duration::from_secs(14 * 86_400);
/// An answer that takes longer than this leads to a warning.
const SLOW: Duration = Duration::from_secs(2);
/// Up to this difference, in seconds, the clocks count as equal.
const SKEW_WARNS: u64 = 5;
/// From this difference on, in seconds, tokens and certificates are refused.
const SKEW_BREAKS: u64 = 60;

/// The facts about a cluster.
pub(super) struct ClusterFacts {
    pub(super) doctor: Arc<dyn Doctor>,
    /// The values of placeholders in the advice on the cluster.
    pub(super) values: Values,
    /// The state, as in [`mcr_core::ClusterStatus::state`].
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) warnings: Vec<String>,
    /// `None` if the access has no visible address.
    pub(super) connection: Option<Connection>,
    pub(super) api: Option<Api>,
    /// Why a Suspended cluster is suspended, with the advice.
    pub(super) obstacle: Option<(Obstacle, Option<Fix>)>,
    /// The finding of the provider about a Ready cluster.
    pub(super) ready: Option<Finding>,
    pub(super) now: SystemTime,
}

/// The findings about a cluster.
pub(super) fn diagnose(facts: &ClusterFacts) -> Vec<Finding> {
    let mut diagnosis = Diagnosis {
        facts,
        doctor: &*facts.doctor,
        found: Vec::new(),
    };
    diagnosis.run();
    diagnosis.found
}

/// The findings about an address of a provider. Each names the address. `error`: why requests with credentials to this
/// address fail.
pub(super) fn address(doctor: &dyn Doctor, connection: Connection, error: Option<&str>) -> Vec<Finding> {
    let (address, host) = (connection.address.clone(), connection.host.clone());
    let facts = ClusterFacts {
        doctor: Arc::new(crate::providers::NoDoctor),
        values: Values::new(),
        state: error.map_or("Ready", |_| "Unreachable").to_owned(),
        reason: error.map(str::to_owned),
        warnings: Vec::new(),
        connection: Some(connection),
        api: None,
        obstacle: None,
        ready: None,
        now: SystemTime::now(),
    };
    let mut diagnosis = Diagnosis {
        facts: &facts,
        doctor,
        found: Vec::new(),
    };
    diagnosis.run();
    for finding in &mut diagnosis.found {
        if !finding.message.starts_with(&address) {
            finding.message = format!("{host}: {}", finding.message);
        }
    }
    diagnosis.found
}

struct Diagnosis<'a> {
    facts: &'a ClusterFacts,
    doctor: &'a dyn Doctor,
    found: Vec<Finding>,
}

impl Diagnosis<'_> {
    fn add(&mut self, check: &'static str, level: Level, message: impl Into<String>, fix: Option<Fix>) {
        self.found.push(Finding {
            level,
            fix,
            ..ok(check, message)
        });
    }

    fn ok(&mut self, check: &'static str, message: impl Into<String>) {
        self.found.push(ok(check, message));
    }

    /// The advice on a fault.
    fn advise(&self, on: Fault, reason: &str) -> Option<Fix> {
        let mut values = self.facts.values.clone();
        let connection = self.facts.connection.as_ref();
        values.extend(connection.map(|connection| ("address", connection.address.clone())));
        let mut fix = advise(self.doctor, on, reason, &values)?;
        if let Some(path) = fix.command.strip_prefix("request ") {
            let request = self.request(path)?;
            fix.command = request.command;
            fix.values.extend(request.values);
        }
        Some(fix)
    }

    /// The command for a request. A provider's command uses a kubeconfig, which contains the certificate authority.
    /// Without one, the command is curl without credentials. curl skips the verification of the certificate only if
    /// this program has verified the certificate, or the kubeconfig forbids that. Otherwise the certificate may be the
    /// fault, and skipping the verification would hide it.
    fn request(&self, path: &str) -> Option<Fix> {
        let mut values = self.facts.values.clone();
        values.insert("request", path.to_owned());
        if let Some(fix) = advise(self.doctor, Fault::Request, "", &values) {
            return Some(fix);
        }
        let connection = self.facts.connection.as_ref()?;
        let handshake = connection
            .reach
            .as_ref()
            .and_then(|reach| reach.handshake.as_ref());
        let is_good = matches!(handshake, Some(Ok(tls)) if tls.verdict == Some(Verdict::Good));
        let unverified = is_good || connection.insecure;
        Some(Fix {
            values: Values::from([("url", format!("{}{path}", connection.address))]),
            ..plain(
                "",
                if unverified {
                    "curl -vk {url}"
                } else {
                    "curl -v {url}"
                },
            )
        })
    }

    /// The advice on a description that is refused for this reason.
    fn refused(&self, reason: &str) -> Option<Fix> {
        // These reasons have their own advice, because the general advice would restore the same description.
        if reason.contains("kube-system UID") {
            let choose =
                "choose one name for the cluster and remove the others, or let the program allow duplicates";
            Some(plain(choose, ""))
        } else if reason.contains("untrusted access may not use") {
            self.advise(Fault::Address, reason)
        } else if reason.contains("can't be read in the hub") {
            Some(plain(
                "grant the rights that the findings about the provider name",
                "",
            ))
        } else {
            self.advise(Fault::Description, reason)
        }
    }

    /// The advice if no check has found the cause.
    fn advice_without_cause(&self) -> Option<Fix> {
        match &self.facts.connection.as_ref()?.credential.plugin {
            Some(plugin) => Some(plain(
                &format!("run the program {plugin} by hand: the credentials come from it"),
                "",
            )),
            None => self.request("/livez?verbose"),
        }
    }

    /// Adds all findings.
    fn run(&mut self) {
        let facts = self.facts;
        let reason = facts.reason.as_deref().unwrap_or("the reason is unknown");
        match facts.state.as_str() {
            "Broken" => return self.add("description", Level::Problem, reason, self.refused(reason)),
            "Suspended" => {
                let (level, message, fix) = match &facts.obstacle {
                    Some((obstacle, fix)) => (obstacle.level, obstacle.message.as_str(), fix.clone()),
                    None => (Level::Warning, reason, self.advise(Fault::Suspended, reason)),
                };
                return self.add("state", level, format!("suspended: {message}"), fix);
            }
            _ => {}
        }
        for warning in &facts.warnings {
            self.add(
                "description",
                Level::Warning,
                warning.as_str(),
                self.refused(warning),
            );
        }
        let reached = facts
            .connection
            .as_ref()
            .is_none_or(|connection| self.connection(connection));
        if let Some(api) = &facts.api {
            self.api(api);
        }
        let explained = !reached || self.found.iter().any(|finding| finding.level == Level::Problem);
        match facts.state.as_str() {
            "Ready" => self.found.extend(facts.ready.clone()),
            _ if explained => {}
            _ if reason.contains("401") => {
                self.add(
                    "credentials",
                    Level::Problem,
                    reason,
                    self.advise(Fault::Credentials, ""),
                );
            }
            _ if reason.contains("exec plugin ") => {
                self.add("credentials", Level::Problem, reason, self.advice_without_cause());
            }
            "Connecting" | "Discovered" => {
                let message = "the API server does not answer requests with these credentials in time";
                self.add("state", Level::Problem, message, self.advice_without_cause());
            }
            state => self.add(
                "state",
                Level::Problem,
                format!("{state}: {reason}"),
                self.advice_without_cause(),
            ),
        }
    }

    /// Adds the findings about the connection. Returns whether the probe has reached the API server.
    fn connection(&mut self, connection: &Connection) -> bool {
        if connection.insecure {
            let message = "insecure-skip-tls-verify is set: anyone on the way to the server can read and change everything";
            self.add(
                "tls",
                Level::Warning,
                message,
                self.advise(Fault::Description, ""),
            );
        }
        let reached = match &connection.reach {
            Some(reach) => self.reach(connection, reach).is_some(),
            None => {
                if connection.proxied {
                    self.ok(
                        "connection",
                        format!("{}, by a proxy: not examined", connection.address),
                    );
                }
                true
            }
        };
        self.credential(connection);
        reached
    }

    /// Adds the findings about the steps of the probe. `None` if a step failed.
    fn reach(&mut self, connection: &Connection, reach: &Reach) -> Option<()> {
        let address = &connection.address;
        match &reach.resolved {
            Some(Err(failure)) => {
                let values = Values::from([("host", connection.host.clone())]);
                let fix = Fix {
                    values,
                    ..plain("", "getent hosts {host}")
                };
                return self.failed("dns", failure, Some(fix));
            }
            Some(Ok(addresses)) => {
                let shown: Vec<String> = addresses.iter().take(4).map(ToString::to_string).collect();
                self.ok("dns", format!("{} is {}", connection.host, shown.join(", ")));
            }
            None => {}
        }
        if let Some(refused) = &reach.forbidden {
            self.add(
                "address",
                Level::Problem,
                refused.as_str(),
                self.advise(Fault::Address, refused),
            );
            return None;
        }
        match &reach.connected {
            Some(Err(failure)) => {
                let fix = self.advise(Fault::Unreached, failure);
                return self.failed("connection", &format!("{address}: {failure}"), fix);
            }
            Some(Ok(took)) => self.ok("connection", format!("{address} in {} ms", took.as_millis())),
            None => {}
        }
        let mut trusted = Some(());
        match &reach.handshake {
            Some(Err(failure)) => {
                return self.failed("tls", failure, self.advise(Fault::Unanswered, failure));
            }
            Some(Ok(tls)) => trusted = self.tls(connection, tls),
            None => {}
        }
        match &reach.answered {
            Some(Err(failure)) => {
                return self.failed("answer", failure, self.advise(Fault::Unanswered, failure));
            }
            Some(Ok(answer)) => {
                if answer.took > SLOW {
                    let took = answer.took.as_secs_f32();
                    let message = format!("an answer took {took:.1} s; it may be overloaded or far away");
                    self.add("answer", Level::Warning, message, None);
                }
                self.clock(answer.ahead);
            }
            None => {}
        }
        trusted
    }

    /// Adds a failed step. It is no problem if the cluster is Ready: the probe has no credentials, and the server may
    /// require them, for example a client certificate.
    fn failed(&mut self, check: &'static str, message: &str, fix: Option<Fix>) -> Option<()> {
        let level = match self.facts.state.as_str() {
            "Ready" => Level::Warning,
            _ => Level::Problem,
        };
        self.add(check, level, message, fix);
        None
    }

    fn tls(&mut self, connection: &Connection, tls: &Tls) -> Option<()> {
        let now = self.facts.now;
        let renew = || {
            let action = "renew the certificate on the control-plane node, or as the distribution documents";
            Some(plain(action, "kubeadm certs renew apiserver"))
        };
        let compare = || {
            Some(plain(
                "compare the clocks of both machines, one of which is wrong",
                "timedatectl",
            ))
        };
        if let Some(Verdict::Bad { why, text }) = &tls.verdict
            && !connection.insecure
        {
            let other = "give the server another certificate, as this finding shows";
            let fix = match why {
                Bad::UnknownIssuer => self.advise(Fault::Description, ""),
                Bad::Other => Some(plain(other, "")),
                Bad::Expired => renew(),
                Bad::NotYetValid => compare(),
                Bad::OtherName => self.advise(Fault::OtherName, ""),
            };
            return self.failed("tls", text, fix);
        }
        match tls.expires.map(|at| at.duration_since(now)) {
            Some(Ok(left)) if left < SOON => {
                let message = format!("the server's certificate expires in {}", long(left));
                self.add("tls", Level::Warning, message, renew());
            }
            Some(Err(_)) => {
                let level = if connection.insecure {
                    Level::Warning
                } else {
                    Level::Problem
                };
                self.add("tls", level, "the server's certificate has expired", renew());
            }
            Some(Ok(left)) => {
                let verified = match tls.verdict {
                    Some(Verdict::Good) => {
                        "the server's certificate is signed by a trusted authority and valid"
                    }
                    _ => "the server's certificate was not verified; it claims to be valid",
                };
                self.ok("tls", format!("{verified} for {}", long(left)));
            }
            None => {}
        }
        if tls.valid_from.is_some_and(|from| from > now) {
            self.add(
                "clock",
                Level::Warning,
                "the server's certificate is not valid yet",
                compare(),
            );
        }
        Some(())
    }

    fn clock(&mut self, ahead: Option<i64>) {
        let Some(ahead) = ahead else { return };
        let by = ahead.unsigned_abs();
        let where_to = if ahead > 0 { "ahead of" } else { "behind" };
        let span = long(Duration::from_secs(by));
        let message = format!("its clock is {span} {where_to} this machine's");
        let set = "synchronize the clock that is wrong (compare with https://time.is)";
        let fix = Some(plain(set, "timedatectl set-ntp true"));
        match by {
            0..=SKEW_WARNS => self.ok("clock", "the clocks agree"),
            _ if by < SKEW_BREAKS => self.add("clock", Level::Warning, message, fix),
            _ => {
                let message =
                    format!("{message}; tokens and certificates are refused as expired or not yet valid");
                self.add("clock", Level::Problem, message, fix);
            }
        }
    }

    fn credential(&mut self, connection: &Connection) {
        let now = self.facts.now;
        let credential = &connection.credential;
        let renew = self.advise(Fault::Credentials, "");
        if credential.none {
            let message = "the kubeconfig has no credentials for its user";
            self.add("credentials", Level::Warning, message, renew.clone());
        }
        // A plugin renews its token in time.
        let is_normal =
            credential.plugin.is_some() || is_normal(self.doctor, Fault::Expiring, &self.facts.values);
        let both = [
            ("token", credential.token_expires),
            ("client certificate", credential.certificate_expires),
        ];
        for (what, expires) in both
            .into_iter()
            .filter_map(|(what, expires)| Some((what, expires?)))
        {
            match expires.duration_since(now) {
                Err(ago) => {
                    let message = format!("the {what} has expired {} ago", long(ago.duration()));
                    self.add("credentials", Level::Problem, message, renew.clone());
                }
                Ok(left) if left < SOON && !is_normal => {
                    let message = format!("the {what} expires in {}", long(left));
                    self.add("credentials", Level::Warning, message, renew.clone());
                }
                Ok(left) => self.ok("credentials", format!("the {what} is valid for {}", long(left))),
            }
        }
    }

    fn api(&mut self, api: &Api) {
        match &api.version {
            Ok(version) if version.minor.is_some_and(|minor| !SUPPORTED.contains(&minor)) => {
                let range = format!("1.{} to 1.{}", SUPPORTED.start(), SUPPORTED.end());
                let message = format!("{version}; mcr is made for {range} and not tested with this one");
                self.add("version", Level::Warning, message, None);
            }
            Ok(version) => self.ok("version", version.to_string()),
            Err(why) => self.add(
                "version",
                Level::Warning,
                format!("/version can't be read: {why}"),
                None,
            ),
        }
        for right in &api.rights {
            self.right(right, api);
        }
    }

    fn right(&mut self, right: &Answer, api: &Api) {
        let (resource, place) = (&right.resource, place(api.namespace.as_deref()));
        match &right.denied {
            Ok(denied) if denied.is_empty() => {
                self.ok(
                    "rights",
                    format!("may {} {resource} {place}", right.verbs.join(", ")),
                );
            }
            Ok(denied) => {
                let message = format!("may not {} {resource} {place} (403)", denied.join(", "));
                self.add("rights", Level::Problem, message, Some(self.grant(right, api)));
            }
            Err(why) => {
                let message = format!("it is unknown whether {resource} may be read {place}: {why}");
                self.add("rights", Level::Warning, message, None);
            }
        }
    }

    fn grant(&self, right: &Answer, api: &Api) -> Fix {
        let verbs = right.verbs.join(",");
        let mut values = self.facts.values.clone();
        values.extend([("resource", right.resource.clone()), ("verbs", verbs.clone())]);
        if let Some(fix) = advise(self.doctor, Fault::Rights, "", &values) {
            return fix;
        }
        let kind = right
            .resource
            .replace(|char: char| !char.is_ascii_alphanumeric(), "-");
        let kind = match kind.trim_matches('-') {
            "" => "all",
            kind => kind,
        };
        let elsewhere = match api.namespace {
            Some(_) => "",
            None => ", or choose one namespace with --in-namespace",
        };
        let grant = Grant {
            kubectl: "kubectl --context CONTEXT",
            role: format!("mcr-{kind}"),
            namespace: api.namespace.as_deref(),
            verbs,
            resource: &right.resource,
            name: None,
            user: api.user.as_deref().unwrap_or("USER"),
        };
        grant.fix(&format!("grant it as an administrator of the cluster{elsewhere}"))
    }
}

#[cfg(test)]
#[path = "diagnosis_tests.rs"]
mod tests;
