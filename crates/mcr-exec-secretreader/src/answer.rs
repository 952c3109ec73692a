//! The answer: the credential in a Secret, and when it expires.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use mcr_access::{
    AccessError,
    internal::{InlineCertificate, InlineCredential, claims, inline_credential, list_names},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::request::Content;

/// The key of a token, as in the plugin `secretreader` of the Cluster Inventory API.
const TOKEN_KEY: &str = "token";

/// How long a credential is used that does not report when it expires. The caller then asks again, and finds a replaced one.
const UNKNOWN_LIFE: Duration = Duration::from_secs(60);

/// A credential with its expiry. Debug output shows no secret.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    credential: InlineCredential,
    expires: SystemTime,
}

/// Why a Secret has no usable credential. The texts hold names of keys, but nothing of their values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AnswerError {
    #[error("it has no key {key:?}, or the key is empty ({has}); add the key, or name the right one")]
    NoKey { key: String, has: String },
    #[error(
        "the value of the key \"token\" is no token: it is blank, or has spaces or characters that don't fit into a header; copy \
         the token again"
    )]
    Token,
    #[error("key {key:?}: {source}")]
    Kubeconfig { key: String, source: AccessError },
    #[error("the {credential} expired at {at}; renew it, or check the clock of this machine")]
    Expired { credential: &'static str, at: Timestamp },
}

impl AnswerError {
    /// The error without what it has of the Secret: names in it, and times. For readers who may not read the Secret.
    pub(crate) fn without_content(&self) -> String {
        match self {
            Self::NoKey { key, .. } => {
                format!("it has no key {key:?}, or the key is empty; add the key, or name the right one")
            }
            Self::Token => self.to_string(),
            Self::Kubeconfig { key, .. } => format!(
                "the value of the key {key:?} is no kubeconfig with a credential that can be used; to read why, run the program \
                 mcr-exec-secretreader by hand"
            ),
            Self::Expired { credential, .. } => {
                format!("the {credential} has expired; renew it, or check the clock of this machine")
            }
        }
    }
}

impl Answer {
    /// Finds the credential in the data of a Secret.
    pub(crate) fn find(
        content: &Content,
        data: &BTreeMap<String, ByteString>,
        now: SystemTime,
    ) -> Result<Self, AnswerError> {
        let value = |key: &str| {
            data.get(key)
                .map(|value| value.0.as_slice())
                .filter(|value| !value.is_empty())
                .ok_or_else(|| AnswerError::NoKey {
                    key: key.to_owned(),
                    has: list_names(data.keys().map(String::as_str)),
                })
        };
        let credential = match content {
            Content::Token => InlineCredential {
                token: Some(token(value(TOKEN_KEY)?).ok_or(AnswerError::Token)?),
                certificate: None,
            },
            Content::Kubeconfig { key, context } => inline_credential(value(key)?, context.as_deref())
                .map_err(|source| AnswerError::Kubeconfig {
                    key: key.clone(),
                    source,
                })?,
        };
        let expires = expiry(&credential, now)?;
        Ok(Self { credential, expires })
    }

    /// The `ExecCredential` in this version of the protocol.
    pub(crate) fn to_json(&self, version: &str) -> serde_json::Result<String> {
        let certificate = self.credential.certificate.as_ref();
        serde_json::to_string(&Output {
            api_version: version,
            kind: "ExecCredential",
            status: Status {
                expiration_timestamp: timestamp(self.expires).to_string(),
                token: self.credential.token.as_ref().map(ExposeSecret::expose_secret),
                client_certificate_data: certificate.map(|certificate| certificate.chain.as_str()),
                client_key_data: certificate.map(|certificate| certificate.key.expose_secret()),
            },
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Output<'a> {
    api_version: &'a str,
    kind: &'a str,
    status: Status<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    expiration_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_certificate_data: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_key_data: Option<&'a str>,
}

fn token(value: &[u8]) -> Option<SecretString> {
    let token = std::str::from_utf8(value).ok()?.trim();
    let fits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| token.to_owned().into())
}

/// When the first part of the credential expires.
fn expiry(credential: &InlineCredential, now: SystemTime) -> Result<SystemTime, AnswerError> {
    let token = credential.token.as_ref().map(|token| {
        let claims = claims::of(token.expose_secret());
        ("token", claims.and_then(|claims| claims.expires))
    });
    let certificate = credential
        .certificate
        .as_ref()
        .map(|certificate| ("client certificate", not_after(certificate)));
    let mut first = None;
    for (credential, at) in token.into_iter().chain(certificate) {
        let at = at.unwrap_or(now + UNKNOWN_LIFE);
        if at <= now {
            return Err(AnswerError::Expired {
                credential,
                at: timestamp(at),
            });
        }
        first = Some(first.map_or(at, |first: SystemTime| first.min(at)));
    }
    Ok(first.unwrap_or(now + UNKNOWN_LIFE))
}

fn not_after(certificate: &InlineCertificate) -> Option<SystemTime> {
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate.leaf).ok()?;
    let seconds = u64::try_from(parsed.validity().not_after.timestamp());
    // A time before 1970 has passed, like 1970.
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.unwrap_or(0)))
}

/// The time in whole seconds, as Kubernetes writes times. Certificates without an end have 9999-12-31T23:59:59, which is later
/// than the last time that jiff knows.
fn timestamp(time: SystemTime) -> Timestamp {
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let last = Timestamp::MAX.as_second();
    let seconds = i64::try_from(seconds).unwrap_or(last).min(last);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use base64::{
        Engine,
        engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
    };
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const CANARY: &str = "QQCANARYQQ";
    const VERSION: &str = "client.authentication.k8s.io/v1";

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn at(seconds: i64) -> String {
        Timestamp::from_second(seconds).unwrap().to_string()
    }

    fn jwt(payload: &str) -> String {
        format!("e30.{}.{CANARY}", URL_SAFE_NO_PAD.encode(payload))
    }

    fn data(key: &str, value: impl AsRef<[u8]>) -> BTreeMap<String, ByteString> {
        BTreeMap::from([(key.to_owned(), ByteString(value.as_ref().to_vec()))])
    }

    fn of_token(token: &str) -> Result<Value, AnswerError> {
        let answer = Answer::find(&Content::Token, &data("token", token), now())?;
        Ok(serde_json::from_str(&answer.to_json(VERSION).unwrap()).unwrap())
    }

    fn kubeconfig(user: Value) -> String {
        json!({
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
        })
        .to_string()
    }

    fn of_user(user: Value) -> Result<Value, AnswerError> {
        let content = Content::Kubeconfig {
            key: "value".into(),
            context: None,
        };
        let answer = Answer::find(&content, &data("value", kubeconfig(user)), now())?;
        assert!(!format!("{answer:?}").contains(CANARY));
        Ok(serde_json::from_str(&answer.to_json(VERSION).unwrap()).unwrap())
    }

    /// A certificate that ends in this year.
    fn certificate(year: i32) -> (Value, String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let (chain, key) = (params.self_signed(&key).unwrap().pem(), key.serialize_pem());
        let user = json!({
            "client-certificate-data": STANDARD.encode(&chain),
            "client-key-data": STANDARD.encode(&key),
        });
        (user, chain, key)
    }

    #[test]
    fn a_token_expires_at_its_exp() {
        let token = jwt(r#"{"exp": 1800003600}"#);
        let expected = json!({
            "apiVersion": VERSION,
            "kind": "ExecCredential",
            "status": {"token": token, "expirationTimestamp": "2027-01-15T09:00:00Z"},
        });
        assert_eq!(of_token(&format!("{token}\n")), Ok(expected.clone()));
        assert_eq!(of_user(json!({"token": token})), Ok(expected));
    }

    #[test]
    fn a_certificate_expires_at_its_not_after() {
        let (user, chain, key) = certificate(2031);
        let expected = json!({
            "apiVersion": VERSION,
            "kind": "ExecCredential",
            "status": {
                "clientCertificateData": chain,
                "clientKeyData": key,
                "expirationTimestamp": "2031-01-01T00:00:00Z",
            },
        });
        assert_eq!(of_user(user), Ok(expected));
    }

    #[test]
    fn a_credential_that_does_not_report_its_end_is_used_for_a_minute() {
        for token in [
            "opaque",
            "a.b.c",
            &jwt("{}"),
            &jwt(r#"{"exp": 18446744073709551615}"#),
        ] {
            let status = &of_token(token).unwrap()["status"];
            assert_eq!(status["expirationTimestamp"], at(1_800_000_060), "{token}");
        }
    }

    #[test]
    fn of_two_credentials_the_first_end_counts() {
        let (mut user, ..) = certificate(2031);
        for (token, end) in [
            (jwt(r#"{"exp": 1800003600}"#), at(1_800_003_600)),
            ("opaque".to_owned(), at(1_800_000_060)),
            (jwt(r#"{"exp": 99999999999}"#), "2031-01-01T00:00:00Z".to_owned()),
        ] {
            user["token"] = token.clone().into();
            let status = &of_user(user.clone()).unwrap()["status"];
            assert_eq!(status["expirationTimestamp"], end, "{token}");
            assert!(status["clientKeyData"].is_string() && status["token"] == token);
        }
    }

    #[test]
    fn the_end_of_time_is_a_time() {
        let year_9999 = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
        assert_eq!(
            timestamp(year_9999),
            Timestamp::from_second(Timestamp::MAX.as_second()).unwrap()
        );
        let status = &of_token(&jwt(r#"{"exp": 999999999999}"#)).unwrap()["status"];
        let written = status["expirationTimestamp"].as_str().unwrap();
        assert!(
            written.starts_with("9999-12-30T") && written.ends_with('Z'),
            "{written}"
        );
    }

    #[test]
    fn an_expired_credential_is_an_error() {
        let shown = |result: Result<Value, AnswerError>| result.unwrap_err().to_string();
        assert_eq!(
            shown(of_token(&jwt(r#"{"exp": 1800000000}"#))),
            "the token expired at 2027-01-15T08:00:00Z; renew it, or check the clock of this machine"
        );
        let (user, ..) = certificate(2026);
        assert!(shown(of_user(user)).starts_with("the client certificate expired at 2026-01-01T00:00:00Z"));
    }

    #[test]
    fn errors_name_the_key_and_what_to_do() {
        let content = Content::Kubeconfig {
            key: "value".into(),
            context: Some("b".into()),
        };
        let of = |data| Answer::find(&content, &data, now()).unwrap_err().to_string();
        assert_eq!(
            of(data("config", "x")),
            "it has no key \"value\", or the key is empty (there are \"config\"); add the key, or name the right one"
        );
        assert!(of(data("value", "")).starts_with("it has no key \"value\", or the key is empty"));
        assert_eq!(
            of(data("value", kubeconfig(json!({"token": "t"})))),
            "key \"value\": contexts[name=\"b\"]: context \"b\" is not defined (there are \"a\"); define it or correct the name"
        );
        for wrong in ["a b", " \n", "\u{7f}", "ä"] {
            assert_eq!(of_token(wrong), Err(AnswerError::Token));
        }
    }

    proptest! {
        #[test]
        fn hostile_secrets_cause_no_panic_and_no_error_repeats_them(
            start in ".{0,30}",
            middle in "[\\[{\\]}:,\"'&*!|>#\\n -]{0,20}",
            cut in 0usize..400,
            field in prop::sample::select(vec![
                "token", "client-certificate-data", "client-key-data", "client-key", "tokenFile", "as", "exec", "username",
            ]),
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let whole = kubeconfig(json!({field: format!("{start}{middle}{CANARY}")}));
            let mut cut_off = whole.clone().into_bytes();
            cut_off.truncate(cut);
            let mut mixed = bytes.clone();
            mixed.extend_from_slice(CANARY.as_bytes());
            mixed.extend_from_slice(middle.as_bytes());
            let yaml = format!("users: {middle}{CANARY}\n{start}");
            let content = Content::Kubeconfig { key: "value".into(), context: None };
            for value in [whole.into_bytes(), cut_off, mixed.clone(), yaml.into_bytes()] {
                for (content, key) in [(&content, "value"), (&Content::Token, "token")] {
                    match Answer::find(content, &data(key, &value), now()) {
                        Ok(answer) => {
                            let shown = format!("{answer:?}");
                            prop_assert!(!shown.contains(CANARY));
                            let json = answer.to_json(VERSION).unwrap();
                            prop_assert!(mcr_access::internal::exec_output(json.as_bytes(), mcr_access::ApiVersion::V1).is_ok());
                        }
                        Err(error) => {
                            let shown = format!("{error} {error:?}");
                            prop_assert!(!shown.contains(CANARY), "{}", shown);
                        }
                    }
                }
            }
        }
    }
}
