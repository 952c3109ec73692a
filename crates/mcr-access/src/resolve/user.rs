//! From the user entry of a kubeconfig to a source of credentials.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::entry::{Entry, base64, filled};
use crate::{
    credential::{Basic, ClientCertificate, Credential, CredentialSource, Impersonation, StaticCredential},
    document::{Cluster, Exec, Text, User},
    endpoint::Endpoint,
    error::{AccessError, quote},
    exec::{ApiVersion, ExecPlugin},
    file_source::{FileSource, PemSource},
    pem,
    policy::PluginRefusal,
};

pub(super) fn credential_source(
    entry: &Entry<'_>,
    user: User<'_>,
    cluster: &Cluster<'_>,
    endpoint: &Endpoint,
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
    let certificate = certificate(entry, &user)?;
    let token = match filled(user.token_file) {
        Some(path) => {
            let path = entry.allowed_path("tokenFile", &path, "put the token itself into the field token")?;
            if entry.read_files {
                entry.read("tokenFile", &path)?;
            }
            Some(path)
        }
        None => None,
    };
    if let Some(inline) = filled(user.token) {
        check_token(entry, &inline)?;
        base.token = Some(inline.0.into_owned().into());
    }
    if let Some(username) = filled(user.username) {
        let password = user.password.unwrap_or_default();
        base.basic = Some(Basic::new(username, password));
    }
    let exec = match user.exec {
        Some(exec) => Some(exec_plugin(entry, exec, cluster, endpoint)?),
        None => None,
    };
    // As in client-go, a program runs only for a user without any other credential.
    let needs_no_plugin =
        base.token.is_some() || base.basic.is_some() || token.is_some() || certificate.is_some();
    if let Some(exec) = exec.filter(|_| !needs_no_plugin) {
        check_foreign(entry, endpoint, &base, "exec")?;
        return Ok(Arc::new(exec.impersonate(base.impersonate)));
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
            let field = token.as_ref().map_or("client-certificate", |_| "tokenFile");
            check_foreign(entry, endpoint, &base, field)?;
            let certificate = certificate.map(|certificate| (certificate.chain, certificate.key));
            Ok(Arc::new(FileSource::new(base, token, certificate)))
        }
    }
}

/// Checks what becomes of a credential that an untrusted kubeconfig does not hold itself: whoever wrote it must not send it over
/// plain http, nor choose whose rights it uses. A token that stands in the kubeconfig is the writer's own.
fn check_foreign(
    entry: &Entry<'_>,
    endpoint: &Endpoint,
    base: &Credential,
    field: &str,
) -> Result<(), AccessError> {
    if !entry.is_untrusted() {
        return Ok(());
    }
    if base.impersonate.is_some() {
        return Err(entry.refused(
            "as",
            format!(
                "asks to act as another user with a credential that does not stand in this kubeconfig ({field}), which \
                 untrusted kubeconfigs may not do; remove the fields that begin with as"
            ),
        ));
    }
    if endpoint.server.scheme_str() == Some("https") {
        return Ok(());
    }
    Err(entry.refused(
        field,
        "leads to a credential that does not stand in this kubeconfig, and the server of the cluster is not https, so it would \
         travel unencrypted; write the https address of the server",
    ))
}

pub(super) struct Certificate {
    pub(super) chain: PemSource,
    pub(super) key: PemSource,
    /// `None` if one of the two is in a file that is not read now.
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

/// Returns the client certificate and its key. Parses them if both are inline, or in files that are read now.
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
    if let (Some(chain), Some(key)) = (
        read_pem(entry, &chain_field, &chain)?,
        read_pem(entry, &key_field, &key)?,
    ) {
        let Ok(key) = std::str::from_utf8(&key) else {
            return Err(entry.invalid(&key_field, "holds no PEM private key; copy the key again"));
        };
        let certificate = ClientCertificate::parse(&chain, key);
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
    match filled(file.clone()) {
        Some(path) => {
            let path = entry.allowed_path(field, &path, &format!("use {data_field}"))?;
            Ok(Some((field.to_owned(), PemSource::File(path))))
        }
        None => Ok(None),
    }
}

/// Returns the PEM of a source. `None`: it is in a file that is not read now.
fn read_pem(entry: &Entry<'_>, field: &str, source: &PemSource) -> Result<Option<Arc<[u8]>>, AccessError> {
    match source {
        PemSource::Inline(bytes) => Ok(Some(bytes.clone())),
        PemSource::File(path) if entry.read_files => Ok(Some(entry.read(field, path)?.into())),
        PemSource::File(_) => Ok(None),
    }
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
    let cluster_info = exec.provide_cluster_info == Some(true);
    let command = if entry.is_untrusted() {
        let checked = entry
            .policy
            .credential_plugins
            .check(&command, &args, &env, cluster_info);
        checked.map_err(|refusal| refused(entry, &command, refusal))?
    } else {
        command
    };
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
    let mut plugin = ExecPlugin::new(command)
        .api_version(version)
        .args(args)
        .deadline(entry.policy.plugin_deadline);
    for (name, value) in env {
        plugin = plugin.env(name, value);
    }
    if let Some(hint) = filled(exec.install_hint) {
        plugin = plugin.install_hint(hint);
    }
    if cluster_info {
        let extensions = cluster.extensions.iter().flatten();
        let config = extensions
            .filter(|extension| extension.name.as_deref() == Some("client.authentication.k8s.io/exec"))
            .map(|extension| extension.extension.clone())
            .next();
        plugin = plugin.cluster_info(endpoint, config, cluster.disable_compression == Some(true));
    }
    Ok(plugin)
}

fn refused(entry: &Entry<'_>, command: &Path, refusal: PluginRefusal) -> AccessError {
    let may_not = "which untrusted kubeconfigs may not do";
    let command = quote(&command.to_string_lossy());
    let (field, problem) = match refusal {
        PluginRefusal::Command => (
            "exec",
            format!(
                "asks to run {command}, {may_not}; use a token or client certificate, or allow the command with \
                 AccessPolicy::credential_plugins"
            ),
        ),
        PluginRefusal::Args => (
            "exec.args",
            format!(
                "passes other arguments to {command} than those listed for it, {may_not}; list them with AllowedPlugin::args"
            ),
        ),
        PluginRefusal::Env(name) => (
            "exec.env",
            format!(
                "sets or leaves out {name} for {command}, {may_not}; correct it, or list it with AllowedPlugin::env"
            ),
        ),
        PluginRefusal::ClusterInfo => (
            "exec.provideClusterInfo",
            format!(
                "is set for {command}, {may_not}; remove it, or allow it with AllowedPlugin::cluster_info"
            ),
        ),
    };
    entry.refused(field, problem)
}
