//! From the user entry of a kubeconfig to a source of credentials.

use std::{path::PathBuf, sync::Arc};

use super::entry::{Entry, base64, filled};
use crate::{
    credential::{Basic, ClientCertificate, Credential, CredentialSource, Impersonation, StaticCredential},
    document::{Cluster, Exec, Text, User},
    endpoint::Endpoint,
    endpoint_access::{Asks, Plugin},
    error::{AccessError, quote},
    exec::{ApiVersion, ExecPlugin},
    file_source::{FileSource, PemSource},
    pem,
};

/// The credential source of a user. Adds to `asks` what it needs beyond inline data.
pub(super) fn credential_source(
    entry: &Entry<'_>,
    user: User<'_>,
    cluster: &Cluster<'_>,
    endpoint: &Endpoint,
    asks: &mut Asks,
) -> Result<Arc<dyn CredentialSource>, AccessError> {
    if let Some(provider) = &user.auth_provider {
        let name = quote(provider.name.as_deref().unwrap_or_default());
        return Err(entry.refused(
            "auth-provider",
            format!("{name} is a login helper that Kubernetes removed in 1.26; use user.exec or a token"),
        ));
    }
    let mut base = Credential {
        impersonate: impersonation(entry, &user)?,
        ..Credential::default()
    };
    asks.impersonates = base.impersonate.is_some();
    let certificate = certificate(entry, &user)?;
    if let Some(certificate) = &certificate {
        for (field, source) in [
            ("client-certificate", &certificate.chain),
            ("client-key", &certificate.key),
        ] {
            if let PemSource::File(path) = source {
                asks.files.push((field, path.clone()));
            }
        }
    }
    let token = filled(user.token_file).map(|path| entry.access.absolute(&path));
    asks.files.extend(token.clone().map(|path| ("tokenFile", path)));
    if let Some(inline) = filled(user.token) {
        check_token(entry, &inline)?;
        base.token = Some(inline.0.into_owned().into());
    }
    if let Some(username) = filled(user.username) {
        let password = user.password.unwrap_or_default();
        base.basic = Some(Basic::new(username, password));
    }
    // As in client-go, a program runs only for a user without any other credential.
    let runs = base.token.is_none() && base.basic.is_none() && token.is_none() && certificate.is_none();
    if let Some(exec) = user.exec {
        let program = exec_plugin(entry, exec, cluster, endpoint)?.impersonate(base.impersonate.clone());
        let plugin = asks.plugin.insert(Plugin { program, runs });
        if runs {
            return Ok(Arc::new(plugin.program.clone()));
        }
    }
    match certificate {
        Some(Certificate {
            chain: PemSource::Inline(_),
            key: PemSource::Inline(_),
            parsed,
        }) if token.is_none() => {
            base.certificate = parsed;
            Ok(Arc::new(StaticCredential::new(base)))
        }
        None if token.is_none() => Ok(Arc::new(StaticCredential::new(base))),
        certificate => {
            let certificate = certificate.map(|certificate| (certificate.chain, certificate.key));
            Ok(Arc::new(FileSource::new(base, token, certificate)))
        }
    }
}

pub(super) struct Certificate {
    pub(super) chain: PemSource,
    pub(super) key: PemSource,
    /// `None` if one of the two is in a file.
    pub(super) parsed: Option<ClientCertificate>,
}

pub(super) fn check_token(entry: &Entry<'_>, token: &str) -> Result<(), AccessError> {
    if token.trim().bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err(entry.invalid(
            "token",
            "holds spaces or characters that don't fit into a header; copy the token again",
        ))
    }
}

fn impersonation(entry: &Entry<'_>, user: &User<'_>) -> Result<Option<Impersonation>, AccessError> {
    let groups = user.as_groups.clone().unwrap_or_default();
    let extra = user.as_user_extra.clone().unwrap_or_default();
    let uid = filled(user.as_uid.clone());
    let Some(name) = filled(user.as_user.clone()) else {
        if uid.is_some() || !groups.is_empty() || !extra.is_empty() {
            return Err(entry.invalid(
                "as",
                "is missing although as-uid, as-groups or as-user-extra is set; name the user to act as",
            ));
        }
        return Ok(None);
    };
    let values = extra.values().flatten().chain(&groups).chain([&name]).chain(&uid);
    for value in values {
        if http::HeaderValue::from_str(value).is_err() {
            return Err(entry.invalid(
                "as",
                "or one of its groups or extras holds characters that don't fit into a header; correct it",
            ));
        }
    }
    Ok(Some(Impersonation {
        user: name,
        uid,
        groups,
        extra,
    }))
}

/// Returns the client certificate and its key. Parses them if both are inline.
pub(super) fn certificate(entry: &Entry<'_>, user: &User<'_>) -> Result<Option<Certificate>, AccessError> {
    let chain = pem_source(
        entry,
        "client-certificate",
        &user.client_certificate,
        &user.client_certificate_data,
    )?;
    let key = pem_source(entry, "client-key", &user.client_key, &user.client_key_data)?;
    let ((chain_field, chain), (key_field, key)) = match (chain, key) {
        (None, None) => return Ok(None),
        (Some((field, _)), None) => {
            return Err(entry.invalid(
                &field,
                "is there without a client-key or client-key-data; add the key",
            ));
        }
        (None, Some((field, _))) => {
            return Err(entry.invalid(
                &field,
                "is there without a client-certificate or client-certificate-data; add the certificate",
            ));
        }
        (Some(chain), Some(key)) => (chain, key),
    };
    let mut parsed = None;
    if let (PemSource::Inline(chain), PemSource::Inline(key)) = (&chain, &key) {
        let Ok(key) = std::str::from_utf8(key) else {
            return Err(entry.invalid(&key_field, "holds no PEM private key; copy the key again"));
        };
        let certificate = ClientCertificate::parse(chain, key);
        parsed = Some(certificate.map_err(|(part, problem)| match part {
            pem::IdentityPart::Certificate => entry.invalid(&chain_field, problem),
            pem::IdentityPart::Key => entry.invalid(&key_field, problem),
        })?);
    }
    Ok(Some(Certificate { chain, key, parsed }))
}

/// Returns the source of a certificate or key, and the field that holds it. Inline data (`-data`) wins over a file.
fn pem_source(
    entry: &Entry<'_>,
    field: &str,
    file: &Option<String>,
    data: &Option<Text<'_>>,
) -> Result<Option<(String, PemSource)>, AccessError> {
    let data_field = format!("{field}-data");
    if let Some(data) = filled(data.clone()) {
        let bytes = base64(&data).map_err(|problem| entry.invalid(&data_field, problem))?;
        return Ok(Some((data_field, PemSource::Inline(bytes.into()))));
    }
    let file = filled(file.clone()).map(|path| PemSource::File(entry.access.absolute(&path)));
    Ok(file.map(|file| (field.to_owned(), file)))
}

fn exec_plugin(
    entry: &Entry<'_>,
    exec: Exec,
    cluster: &Cluster<'_>,
    endpoint: &Endpoint,
) -> Result<ExecPlugin, AccessError> {
    let Some(command) = filled(exec.command) else {
        return Err(entry.invalid("exec.command", "is missing; name the program to run"));
    };
    let bare = !command.contains(std::path::MAIN_SEPARATOR);
    let command = if bare {
        PathBuf::from(command)
    } else {
        entry.access.absolute(&command)
    };
    let args = exec.args.unwrap_or_default();
    let mut env = Vec::new();
    for variable in exec.env.into_iter().flatten() {
        let name = variable.name.unwrap_or_default();
        let value = variable.value.unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(entry.invalid(
                "exec.env",
                "holds a variable without a usable name or value; correct it",
            ));
        }
        env.push((name, value));
    }
    let version = match exec.api_version.as_deref() {
        Some("client.authentication.k8s.io/v1") => ApiVersion::V1,
        Some("client.authentication.k8s.io/v1beta1") => ApiVersion::V1Beta1,
        Some("") | None => {
            return Err(entry.invalid(
                "exec.apiVersion",
                "is missing; write client.authentication.k8s.io/v1",
            ));
        }
        Some(_) => {
            return Err(entry.invalid(
                "exec.apiVersion",
                "is none of client.authentication.k8s.io/v1 and v1beta1; use a version of the plugin that speaks one of these",
            ));
        }
    };
    match (exec.interactive_mode.as_deref(), version) {
        (Some("Never" | "IfAvailable"), _) | (None | Some(""), ApiVersion::V1Beta1) => {}
        (Some("Always"), _) => {
            return Err(entry.invalid(
                "exec.interactiveMode",
                "is Always, but there is no terminal here; use a plugin or login that needs none, with Never",
            ));
        }
        (None | Some(""), ApiVersion::V1) => {
            return Err(entry.invalid(
                "exec.interactiveMode",
                "is missing, which v1 requires; write Never",
            ));
        }
        (Some(_), _) => {
            return Err(entry.invalid(
                "exec.interactiveMode",
                "is none of Never, IfAvailable and Always; write Never",
            ));
        }
    }
    let mut program = ExecPlugin::new(command).api_version(version).args(args);
    for (name, value) in env {
        program = program.env(name, value);
    }
    if let Some(hint) = filled(exec.install_hint) {
        program = program.install_hint(hint);
    }
    if exec.provide_cluster_info == Some(true) {
        let mut extensions = cluster.extensions.iter().flatten();
        let config = extensions
            .find(|extension| extension.name.as_deref() == Some("client.authentication.k8s.io/exec"))
            .map(|extension| extension.extension.clone());
        program = program.cluster_info(endpoint, config, cluster.disable_compression == Some(true));
    }
    Ok(program)
}
