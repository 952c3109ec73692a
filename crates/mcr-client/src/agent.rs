//! The User-Agent, by which API servers count requests and audit logs tell programs apart.

use std::{
    env::{self, consts},
    fmt,
    path::Path,
    sync::LazyLock,
};

use http::HeaderValue;

/// Who in a program sends a request: the last word of its User-Agent. An extension of the request. Requests of the program's own code
/// have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A provider, which watches objects of a hub.
    Provider,
    /// The fleet, which probes and identifies clusters.
    Fleet,
    /// The lists and watches of controllers.
    Controllers,
}

/// The User-Agent of a program: `PROGRAM mcr/VERSION (OS/ARCH)`, with a last word that tells who in the program sends a request:
/// `provider` for the watches of providers, `fleet` for probes, `controllers` for lists and watches of kinds, and none for
/// requests of the program's own code.
///
/// The default has the name of the executable file for `PROGRAM`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserAgent {
    own: HeaderValue,
    senders: [HeaderValue; 3],
}

/// A text that does not fit into a header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the user agent {0:?} is empty or holds characters that don't fit into a header; write NAME/VERSION")]
pub struct InvalidUserAgent(String);

impl UserAgent {
    /// The User-Agent of a program, which is best given as `NAME/VERSION`.
    ///
    /// # Errors
    /// If the text is empty or does not fit into a header.
    pub fn new(program: &str) -> Result<Self, InvalidUserAgent> {
        let invalid = || InvalidUserAgent(program.chars().take(100).collect());
        if program.trim().is_empty() {
            return Err(invalid());
        }
        Self::of(&format!("{} {}", program.trim(), library())).ok_or_else(invalid)
    }

    fn of(own: &str) -> Option<Self> {
        let value = |text: String| HeaderValue::try_from(text).ok();
        Some(Self {
            own: value(own.to_owned())?,
            senders: [
                value(format!("{own} provider"))?,
                value(format!("{own} fleet"))?,
                value(format!("{own} controllers"))?,
            ],
        })
    }

    /// The value of the header.
    pub(crate) fn value(&self, sender: Option<Sender>) -> &HeaderValue {
        let [provider, fleet, controllers] = &self.senders;
        match sender {
            None => &self.own,
            Some(Sender::Provider) => provider,
            Some(Sender::Fleet) => fleet,
            Some(Sender::Controllers) => controllers,
        }
    }
}

impl Default for UserAgent {
    fn default() -> Self {
        static DEFAULT: LazyLock<UserAgent> = LazyLock::new(|| {
            let program = env::args_os().next().unwrap_or_default();
            let name = Path::new(&program)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            UserAgent::new(&name)
                .ok()
                .or_else(|| UserAgent::of(&library()))
                .unwrap_or_else(|| {
                    let own = HeaderValue::from_static("mcr");
                    UserAgent {
                        senders: [own.clone(), own.clone(), own.clone()],
                        own,
                    }
                })
        });
        DEFAULT.clone()
    }
}

impl fmt::Debug for UserAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.fmt(f)
    }
}

/// mcr itself, with the names that Go has for the machine, as in the User-Agents of Kubernetes.
fn library() -> String {
    let os = match consts::OS {
        "macos" => "darwin",
        os => os,
    };
    let arch = match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    format!("mcr/{} ({os}/{arch})", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_the_program_and_who_sends() {
        let agent = UserAgent::new(" fleet-policy/1.2.3 ").unwrap();
        let all = [
            None,
            Some(Sender::Provider),
            Some(Sender::Fleet),
            Some(Sender::Controllers),
        ]
        .map(|sender| agent.value(sender).to_str().unwrap());
        let own = format!("fleet-policy/1.2.3 {}", library());
        assert_eq!(
            all,
            [
                own.clone(),
                format!("{own} provider"),
                format!("{own} fleet"),
                format!("{own} controllers")
            ]
        );
        let default = UserAgent::default();
        let default = default.value(None).to_str().unwrap();
        assert!(
            default.starts_with("mcr_client-") && default.ends_with(&library()),
            "{default}"
        );
        for wrong in ["", " ", "a\nb", "a\0"] {
            assert!(UserAgent::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
