//! From a kubeconfig's user to a source of credentials.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use crate::{
    Endpoint, Trust,
    credential::{Basic, ClientCertificate, Credential, CredentialSource, Impersonation, StaticCredential},
    document::{Cluster, Exec, Text, User},
    error::{AccessError, quote},
    exec::{ApiVersion, ExecPlugin},
    fields::{Fields, base64, filled},
    file::{FileSource, Part},
    pem,
    policy::CredentialPluginPolicy,
};

pub(crate) fn source(
    at: &Fields<'_>,
    user: User<'_>,
    cluster: &Cluster<'_>,
    endpoint: &Endpoint,
) -> Result<Arc<dyn CredentialSource>, AccessError> {
    if let Some(provider) = &user.auth_provider {
        let name = quote(provider.name.as_deref().unwrap_or_default());
        return Err(at.refused(
            "auth-provider",
            format!("{name} is a login helper that Kubernetes removed in 1.26; use user.exec or a token"),
        ));
    }
    let mut base = Credential {
        impersonate: impersonation(at, &user)?,
        ..Credential::default()
    };
    let certificate = certificate(at, &user)?;
    let token = match filled(user.token_file) {
        Some(path) => {
            let path = at.file("tokenFile", &path, "put the token itself into the field token")?;
            if at.read {
                at.read("tokenFile", &path)?;
            }
            Some(path)
        }
        None => None,
    };
    if let Some(inline) = filled(user.token) {
        header(at, "token", &inline)?;
        base.token = Some(inline.0.into_owned().into());
    }
    if let Some(username) = filled(user.username) {
        let password = user.password.unwrap_or_default();
        base.basic = Some(Basic::new(username, password));
    }
    let exec = match user.exec {
        Some(exec) => Some(plugin(at, exec, cluster, endpoint)?),
        None => None,
    };
    // As in client-go, what the user brings along is preferred to what a program would fetch.
    let own = base.token.is_some() || base.basic.is_some() || token.is_some() || certificate.is_some();
    if let Some(exec) = exec.filter(|_| !own) {
        return Ok(Arc::new(exec.impersonate(base.impersonate)));
    }
    match certificate {
        Some(Certificate {
            chain: Part::Inline(_),
            key: Part::Inline(_),
            checked,
        }) if token.is_none() => {
            base.certificate = checked;
            Ok(Arc::new(StaticCredential::new(base)))
        }
        None if token.is_none() => Ok(Arc::new(StaticCredential::new(base))),
        certificate => Ok(Arc::new(FileSource {
            base,
            token,
            certificate: certificate.map(|certificate| (certificate.chain, certificate.key)),
            last: Mutex::new(None),
        })),
    }
}

struct Certificate {
    chain: Part,
    key: Part,
    /// The two together, if they can be read now.
    checked: Option<ClientCertificate>,
}

fn header(at: &Fields<'_>, field: &str, text: &str) -> Result<(), AccessError> {
    let fits = text.trim().bytes().all(|byte| byte.is_ascii_graphic());
    if fits {
        Ok(())
    } else {
        Err(at.invalid(
            field,
            "holds spaces or characters that don't fit into a header; copy the token again",
        ))
    }
}

fn impersonation(at: &Fields<'_>, user: &User<'_>) -> Result<Option<Impersonation>, AccessError> {
    let groups = user.as_groups.clone().unwrap_or_default();
    let extra = user.as_user_extra.clone().unwrap_or_default();
    let uid = filled(user.as_uid.clone());
    let Some(name) = filled(user.as_user.clone()) else {
        if uid.is_some() || !groups.is_empty() || !extra.is_empty() {
            return Err(at.invalid(
                "as",
                "is missing although as-uid, as-groups or as-user-extra is set; name the user to act as",
            ));
        }
        return Ok(None);
    };
    let values = extra.values().flatten().chain(&groups).chain([&name]).chain(&uid);
    for value in values {
        if http::HeaderValue::from_str(value).is_err() {
            return Err(at.invalid(
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

/// The client certificate and key, checked as far as they can be read now.
fn certificate(at: &Fields<'_>, user: &User<'_>) -> Result<Option<Certificate>, AccessError> {
    let chain = part(
        at,
        "client-certificate",
        &user.client_certificate,
        &user.client_certificate_data,
    )?;
    let key = part(at, "client-key", &user.client_key, &user.client_key_data)?;
    let ((chain_field, chain), (key_field, key)) = match (chain, key) {
        (None, None) => return Ok(None),
        (Some((field, _)), None) => {
            return Err(at.invalid(
                &field,
                "is there without a client-key or client-key-data; add the key",
            ));
        }
        (None, Some((field, _))) => {
            return Err(at.invalid(
                &field,
                "is there without a client-certificate or client-certificate-data; add the certificate",
            ));
        }
        (Some(chain), Some(key)) => (chain, key),
    };
    let mut checked = None;
    if let (Some(chain), Some(key)) = (content(at, &chain_field, &chain)?, content(at, &key_field, &key)?) {
        let Ok(key) = std::str::from_utf8(&key) else {
            return Err(at.invalid(&key_field, "holds no PEM private key; copy the key again"));
        };
        let both = ClientCertificate::checked(&chain, key);
        checked = Some(both.map_err(|(half, problem)| match half {
            pem::Half::Certificate => at.invalid(&chain_field, problem),
            pem::Half::Key => at.invalid(&key_field, problem),
        })?);
    }
    Ok(Some(Certificate { chain, key, checked }))
}

fn part(
    at: &Fields<'_>,
    field: &str,
    file: &Option<String>,
    data: &Option<Text<'_>>,
) -> Result<Option<(String, Part)>, AccessError> {
    let data_field = format!("{field}-data");
    if let Some(data) = filled(data.clone()) {
        let bytes = base64(&data).map_err(|problem| at.invalid(&data_field, problem))?;
        return Ok(Some((data_field, Part::Inline(bytes.into()))));
    }
    match filled(file.clone()) {
        Some(path) => {
            let path = at.file(field, &path, &format!("use {data_field}"))?;
            Ok(Some((field.to_owned(), Part::File(path))))
        }
        None => Ok(None),
    }
}

fn content(at: &Fields<'_>, field: &str, part: &Part) -> Result<Option<Arc<[u8]>>, AccessError> {
    match part {
        Part::Inline(bytes) => Ok(Some(bytes.clone())),
        Part::File(path) if at.read => Ok(Some(at.read(field, path)?.into())),
        Part::File(_) => Ok(None),
    }
}

fn plugin(
    at: &Fields<'_>,
    exec: Exec,
    cluster: &Cluster<'_>,
    endpoint: &Endpoint,
) -> Result<ExecPlugin, AccessError> {
    let Some(command) = filled(exec.command) else {
        return Err(at.invalid("exec.command", "is missing; name the program to run"));
    };
    let bare = !command.contains(std::path::MAIN_SEPARATOR);
    let command = if bare {
        PathBuf::from(command)
    } else {
        at.access.absolute(&command)
    };
    if at.access.trust == Trust::Untrusted {
        allowed(
            at,
            &command,
            exec.env.iter().flatten().filter_map(|env| env.name.as_deref()),
        )?;
    }
    let version = match exec.api_version.as_deref() {
        Some("client.authentication.k8s.io/v1") => ApiVersion::V1,
        Some("client.authentication.k8s.io/v1beta1") => ApiVersion::V1Beta1,
        Some("") | None => {
            return Err(at.invalid(
                "exec.apiVersion",
                "is missing; write client.authentication.k8s.io/v1",
            ));
        }
        Some(_) => {
            return Err(at.invalid(
                "exec.apiVersion",
                "is none of client.authentication.k8s.io/v1 and v1beta1; use a version of the plugin that speaks one of these",
            ));
        }
    };
    match (exec.interactive_mode.as_deref(), version) {
        (Some("Never" | "IfAvailable"), _) | (None | Some(""), ApiVersion::V1Beta1) => {}
        (Some("Always"), _) => {
            return Err(at.invalid(
                "exec.interactiveMode",
                "is Always, but there is no terminal here; use a plugin or login that needs none, with Never",
            ));
        }
        (None | Some(""), ApiVersion::V1) => {
            return Err(at.invalid(
                "exec.interactiveMode",
                "is missing, which v1 requires; write Never",
            ));
        }
        (Some(_), _) => {
            return Err(at.invalid(
                "exec.interactiveMode",
                "is none of Never, IfAvailable and Always; write Never",
            ));
        }
    }
    let mut plugin = ExecPlugin::new(command)
        .api_version(version)
        .args(exec.args.unwrap_or_default())
        .deadline(at.policy.plugin_deadline);
    for env in exec.env.into_iter().flatten() {
        let name = env.name.unwrap_or_default();
        let value = env.value.unwrap_or_default();
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(at.invalid(
                "exec.env",
                "holds a variable without a usable name or value; correct it",
            ));
        }
        plugin = plugin.env(name, value);
    }
    if let Some(hint) = filled(exec.install_hint) {
        plugin = plugin.install_hint(hint);
    }
    if exec.provide_cluster_info == Some(true) {
        let extensions = cluster.extensions.iter().flatten();
        let config = extensions
            .filter(|extension| extension.name.as_deref() == Some("client.authentication.k8s.io/exec"))
            .map(|extension| extension.extension.clone())
            .next();
        plugin = plugin.cluster_info(endpoint, config, cluster.disable_compression == Some(true));
    }
    Ok(plugin)
}

fn allowed<'a>(
    at: &Fields<'_>,
    command: &Path,
    mut env: impl Iterator<Item = &'a str>,
) -> Result<(), AccessError> {
    let policy = &at.policy.credential_plugins;
    if !policy.allows(command) {
        return Err(at.refused(
            "exec",
            format!(
                "asks to run {}, which untrusted kubeconfigs may not do; use a token or client certificate, or allow \
                 the command with AccessPolicy::credential_plugins",
                quote(&command.to_string_lossy())
            ),
        ));
    }
    // These make an allowed program load and run another one.
    let loads = |name: &str| name == "PATH" || name.starts_with("LD_") || name.starts_with("DYLD_");
    if matches!(policy, CredentialPluginPolicy::Allowlist(_)) && env.any(loads) {
        return Err(at.refused(
            "exec.env",
            "sets PATH, LD_* or DYLD_*, which untrusted kubeconfigs may not do; remove it",
        ));
    }
    Ok(())
}
