//! The credentials that stand in a kubeconfig itself.

use std::sync::Arc;

use secrecy::SecretString;

use super::{
    context,
    entry::{Entry, filled},
    user::{certificate, check_token},
};
use crate::{
    document::{Document, Text, User},
    error::{AccessError, quote},
    file_source::PemSource,
    index::{Index, find_user},
    kubeconfig::KubeconfigAccess,
    trust::Trust,
};

/// The credentials of a user that stand in the kubeconfig itself. At least one of the fields is set.
#[derive(Debug, Clone)]
pub struct InlineCredential {
    /// The bearer token.
    pub token: Option<SecretString>,
    /// The client certificate with its key.
    pub certificate: Option<InlineCertificate>,
}

/// A client certificate and its key, which belong together.
#[derive(Debug, Clone)]
pub struct InlineCertificate {
    /// The certificate chain in PEM.
    pub chain: String,
    /// The private key in PEM.
    pub key: SecretString,
    /// The first certificate of the chain in DER.
    pub leaf: Vec<u8>,
}

/// Finds the token and the client certificate of a context's user, for a program that hands them on. `wanted` is the name of the
/// context. `None`: the current context. Reads no file, runs no program, and does not look at the cluster of the context.
///
/// # Errors
/// [`AccessError`] if the user has neither of the two, or if one of them can't be used, or if the user acts as another one: a
/// token or a certificate alone would give other rights than the kubeconfig.
pub fn inline_credential(kubeconfig: &[u8], wanted: Option<&str>) -> Result<InlineCredential, AccessError> {
    let access = KubeconfigAccess::new(kubeconfig, Trust::Untrusted);
    let document = Document::parse(&access.yaml)?;
    let index = Index::of(&document);
    let (name, context) = context(&document, &index, wanted)?;
    let Some((_, user)) = find_user(std::iter::once(&index), |index| index, &name, &context)? else {
        return Err(AccessError::reference(
            format!("contexts[name={}].context.user", quote(&name)),
            "is missing; name the user whose token or client certificate is wanted",
        ));
    };
    let entry = Entry {
        path: format!(
            "users[name={}].user",
            quote(user.name.as_deref().unwrap_or_default())
        ),
        access: &access,
    };
    let user = user.user.unwrap_or_default();
    refuse_what_is_not_inline(&entry, &user)?;

    let certificate = match certificate(&entry, &user)? {
        Some(found) => match (found.chain, found.key, found.parsed) {
            (PemSource::Inline(chain), PemSource::Inline(key), Some(parsed)) => {
                let identity = parsed
                    .identity()
                    .map_err(|(_, problem)| entry.invalid("client-certificate-data", problem))?;
                Some(InlineCertificate {
                    chain: text(&entry, "client-certificate-data", &chain)?,
                    key: text(&entry, "client-key-data", &key)?.into(),
                    leaf: identity
                        .cert
                        .first()
                        .map(|leaf| leaf.to_vec())
                        .unwrap_or_default(),
                })
            }
            _ => None,
        },
        None => None,
    };
    let token = match filled(user.token) {
        Some(token) => {
            check_token(&entry, &token)?;
            Some(token.trim().to_owned().into())
        }
        None => None,
    };
    if token.is_none() && certificate.is_none() {
        return Err(entry.invalid(
            "token",
            "is missing, and so is client-certificate-data; write a token or a client certificate into the kubeconfig \
             itself: files, programs and passwords are not used here",
        ));
    }
    Ok(InlineCredential { token, certificate })
}

fn refuse_what_is_not_inline(entry: &Entry<'_>, user: &User<'_>) -> Result<(), AccessError> {
    let is_file = |file: &Option<String>, data: &Option<Text<'_>>| {
        filled(file.as_deref()).is_some() && filled(data.as_deref()).is_none()
    };
    for (field, file, data) in [
        (
            "client-certificate",
            &user.client_certificate,
            &user.client_certificate_data,
        ),
        ("client-key", &user.client_key, &user.client_key_data),
    ] {
        if is_file(file, data) {
            return Err(entry.refused(
                field,
                format!("names a file, which is not read here; write its content into {field}-data"),
            ));
        }
    }
    let acts_as_another = filled(user.as_user.as_deref()).is_some()
        || filled(user.as_uid.as_deref()).is_some()
        || user.as_groups.iter().flatten().next().is_some()
        || user.as_user_extra.iter().flatten().next().is_some();
    if acts_as_another {
        return Err(entry.refused(
            "as",
            "asks to act as another user, which a token or a client certificate alone can't do; write the credentials of \
             that user into the kubeconfig, and remove the fields that begin with as",
        ));
    }
    Ok(())
}

fn text(entry: &Entry<'_>, field: &str, pem: &Arc<[u8]>) -> Result<String, AccessError> {
    let text = std::str::from_utf8(pem).map_err(|_| {
        entry.invalid(
            field,
            "holds bytes that are not text beside its PEM; copy the PEM alone",
        )
    })?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use secrecy::ExposeSecret;

    use super::*;

    fn of(user: &str) -> Result<InlineCredential, String> {
        let yaml = format!(
            "current-context: a\ncontexts: [{{name: a, context: {{user: u}}}}, {{name: b, context: {{user: v}}}}, {{name: c}}]\n\
             users: [{{name: u, user: {{{user}}}}}, {{name: v, user: {{token: of-v}}}}]"
        );
        inline_credential(yaml.as_bytes(), None).map_err(|error| error.to_string())
    }

    fn certificate_and_key() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_token_and_a_certificate_are_found_without_a_cluster() {
        let (chain, key) = certificate_and_key();
        let data = |pem: &str| STANDARD.encode(pem);
        let fields = format!(
            "client-certificate-data: {}, client-key-data: {}",
            data(&chain),
            data(&key)
        );
        let found = of(&format!("token: ' t ', {fields}")).unwrap();
        assert_eq!(found.token.unwrap().expose_secret(), "t");
        let certificate = found.certificate.unwrap();
        assert_eq!(certificate.chain, chain);
        assert_eq!(certificate.key.expose_secret(), key);
        assert!(!certificate.leaf.is_empty());
        // Data wins over a file, as everywhere.
        assert!(of(&format!("client-certificate: /x, client-key: /y, {fields}")).is_ok());
        // client-go ignores a program beside a token.
        assert!(of("token: t, exec: {command: x}").is_ok());
    }

    #[test]
    fn the_context_can_be_chosen() {
        let yaml =
            b"contexts: [{name: a, context: {user: u}}, {name: c}]\nusers: [{name: u, user: {token: t}}]";
        assert!(inline_credential(yaml, Some("a")).is_ok());
        let fails = |context| inline_credential(yaml, context).unwrap_err().to_string();
        assert!(fails(None).starts_with("current-context: is missing and no context was chosen"));
        assert!(fails(Some("b")).starts_with("contexts[name=\"b\"]: context \"b\" is not defined"));
        assert!(fails(Some("c")).starts_with("contexts[name=\"c\"].context.user: is missing"));
    }

    #[test]
    fn no_file_is_read_and_nobody_gets_the_rights_of_another_user() {
        let (chain, _) = certificate_and_key();
        let chain = STANDARD.encode(chain);
        for (user, field, problem) in [
            (
                "client-certificate: /x, client-key: /y",
                "client-certificate",
                "names a file",
            ),
            (
                &format!("client-certificate-data: {chain}, client-key: /y"),
                "client-key",
                "names a file",
            ),
            ("token: t, as: admin", "as", "asks to act as another user"),
            ("token: t, as-groups: [g]", "as", "asks to act as another user"),
            ("tokenFile: /x", "token", "is missing"),
            ("exec: {command: x}", "token", "is missing"),
            ("username: u, password: p", "token", "is missing"),
            ("token: 'a b'", "token", "holds spaces"),
            (
                &format!("client-certificate-data: {chain}"),
                "client-certificate-data",
                "is there without",
            ),
        ] {
            let error = of(user).unwrap_err();
            let expected = format!("users[name=\"u\"].user.{field}: {problem}");
            assert!(error.starts_with(&expected), "{user}: {error}");
        }
    }
}
