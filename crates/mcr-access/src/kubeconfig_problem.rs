//! Why a provider can't use a kubeconfig: in words for the log, and in words for everybody.
//!
//! The texts of this crate hold no secrets, but they do hold names: of contexts, clusters, users, programs, and an address. That
//! is right for the log of this process. An event on a Secret can be read by everybody who may read events, and those are
//! usually not allowed to read Secrets.

use std::sync::Arc;

use crate::{
    endpoint_access::EndpointAccess, error::AccessError, kubeconfig::KubeconfigAccess, policy::AccessPolicy,
};

/// Stands for what is left out.
const LEFT_OUT: &str = "\"…\"";

/// Why a kubeconfig can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeconfigProblem {
    /// For logs and the fleet's state.
    pub text: Arc<str>,
    /// For an event, which more people may read than the Secret: nothing that stands in the kubeconfig.
    pub public: Arc<str>,
}

impl KubeconfigProblem {
    /// A problem whose text has nothing of the kubeconfig.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self {
            public: text.clone(),
            text,
        }
    }
}

/// Parses a kubeconfig before a provider announces it, and judges it.
///
/// `policy` is that of the provider, if it has one.
///
/// # Errors
/// The first problem.
pub fn parse_announced(
    kubeconfig: &KubeconfigAccess,
    policy: Option<&AccessPolicy>,
    fleet_policy: &AccessPolicy,
) -> Result<EndpointAccess, KubeconfigProblem> {
    let parsed = kubeconfig.parse();
    let admitted = parsed.and_then(|parsed| policy.unwrap_or(fleet_policy).admit(&parsed));
    admitted.map_err(|error| {
        let hint = match &error {
            // Of the few things refused that no policy allows.
            AccessError::Refused { problem, .. } if problem.contains("AccessPolicy::") => match policy {
                Some(_) => {
                    "; both policies must allow it: the `access_policy` of the provider and `FleetSettings::access_policy`"
                }
                None => "; the policy is in `FleetSettings::access_policy`",
            },
            _ => "",
        };
        KubeconfigProblem {
            text: format!("{error}{hint}").into(),
            public: format!("{}{hint}", public(&error)).into(),
        }
    })
}

/// The problem in words that hold nothing of the kubeconfig.
fn public(error: &AccessError) -> String {
    match error {
        AccessError::Empty | AccessError::Syntax { .. } => error.to_string(),
        // An address is quoted by nobody.
        AccessError::Refused { field, .. } if field.ends_with(".server") => format!(
            "{}: leads to an address that untrusted kubeconfigs may not use; correct it, or allow it with \
             AccessPolicy::addresses",
            without_quoted(field)
        ),
        AccessError::Reference { field, problem }
        | AccessError::Invalid { field, problem }
        | AccessError::Refused { field, problem } => {
            format!("{}: {}", without_quoted(field), without_quoted(problem))
        }
        AccessError::Read { field, kind, .. } => {
            format!(
                "{}: the file that it names can't be read: {kind}",
                without_quoted(field)
            )
        }
    }
}

/// Leaves out everything between quotes, which is where this crate puts what somebody else has written.
fn without_quoted(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '"' {
            left.push(char);
            continue;
        }
        left.push_str(LEFT_OUT);
        while let Some(char) = chars.next() {
            match char {
                // Whatever is escaped does not end it.
                '\\' => drop(chars.next()),
                '"' => break,
                _ => {}
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::Trust;

    #[test]
    fn quoted_parts_are_left_out_whatever_is_in_them() {
        for (text, left) in [
            ("nothing", "nothing"),
            (r#"users[name="a"].user: x"#, r#"users[name="…"].user: x"#),
            (r#"a "b\"c\\" d "e"... f"#, r#"a "…" d "…"... f"#),
            (r#"open "and never closed"#, r#"open "…""#),
            (r#"ends in "\"#, r#"ends in "…""#),
        ] {
            assert_eq!(without_quoted(text), left);
        }
    }

    /// Each way to be wrong, with a canary in every place that somebody else writes.
    #[test]
    fn nothing_of_a_kubeconfig_is_in_the_text() {
        let kubeconfig = |cluster: &str, user: &str| {
            format!(
                "contexts: [{{name: CANARY-x, context: {{cluster: 'CANARY\"c', user: 'CANARY\\u'}}}}]\n\
                 current-context: CANARY-x\n\
                 clusters: [{{name: 'CANARY\"c', cluster: {{{cluster}}}}}]\n\
                 users: [{{name: 'CANARY\\u', user: {{{user}}}}}]\n"
            )
        };
        let good = "server: 'https://CANARY.example'";
        let all = [
            "CANARY: [".to_owned(),
            "CANARY".to_owned(),
            "current-context: CANARY".to_owned(),
            kubeconfig(good, "").replace("current-context: CANARY-x", "current-context: CANARY-y"),
            kubeconfig(good, "").replace("cluster: 'CANARY\"c', user", "cluster: 'CANARY\"d', user"),
            kubeconfig(good, "").replace("user: 'CANARY\\u'", "user: CANARY-v"),
            kubeconfig("server: CANARY", ""),
            kubeconfig("server: 'https://CANARY:CANARY@CANARY'", ""),
            kubeconfig("server: 'ftp://CANARY'", ""),
            kubeconfig("server: 'https://169.254.169.254/CANARY'", ""),
            kubeconfig("server: 'https://x', tls-server-name: 'CANARY CANARY'", ""),
            kubeconfig("server: 'https://x', certificate-authority: /CANARY", ""),
            kubeconfig("server: 'https://x', certificate-authority-data: CANARY", ""),
            kubeconfig(
                "server: 'https://x', insecure-skip-tls-verify: true",
                "token: CANARY",
            ),
            kubeconfig("server: 'https://x', proxy-url: 'http://CANARY:1'", ""),
            kubeconfig("server: 'https://x', proxy-url: 'CANARY'", ""),
            kubeconfig(good, "tokenFile: /CANARY"),
            kubeconfig(good, "client-certificate: /CANARY, client-key: /CANARY"),
            kubeconfig(good, "client-certificate-data: CANARY"),
            kubeconfig(good, "auth-provider: {name: CANARY}"),
            kubeconfig(
                good,
                "exec: {command: CANARY, apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}",
            ),
            kubeconfig(good, "exec: {command: CANARY, apiVersion: CANARY}"),
            kubeconfig(good, "token: \"CANARY\\n\""),
            kubeconfig(good, "as: \"CANARY\\n\""),
        ];
        for trust in [Trust::Untrusted, Trust::Trusted] {
            let mut wrong = 0;
            for kubeconfig in &all {
                let access = KubeconfigAccess::new(kubeconfig, trust).parse();
                let policy = AccessPolicy::default();
                let Err(error) = access.and_then(|access| policy.admit(&access)?.check_files()) else {
                    continue;
                };
                wrong += 1;
                let text = public(&error);
                for secret in ["CANARY", "169.254", "http://"] {
                    let advice = text
                        .replace("write http://host:port", "")
                        .replace("begin with http://", "");
                    let advice = advice.replace("(or http://)", "");
                    assert!(!advice.contains(secret), "{trust:?} {kubeconfig}\n{text}");
                }
            }
            assert!(wrong >= 18, "{wrong} of {} are wrong for {trust:?}", all.len());
        }
    }
}
