//! Judging what an access asks for: the one place where a policy is applied.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    credential::ClientCertificate,
    endpoint_access::{Asks, EndpointAccess, Plugin},
    error::{AccessError, quote},
    exec::PluginService,
    file_source::read_file,
    fingerprint::Fingerprint,
    kubeconfig::{NUMBER, is_number, literal_ip},
    pem::{self, IdentityPart},
    policy::{AccessPolicy, PluginRefusal},
    trust::Trust,
};

impl AccessPolicy {
    /// Returns an access as this policy admits it: a credential plugin runs under the command and the deadline of the policy.
    ///
    /// Judge before each use: a policy may differ from the one by which an access was admitted before. This looks for the program
    /// of a plugin, but reads no file that a kubeconfig names.
    ///
    /// # Errors
    /// [`AccessError::Refused`] with the first field of an untrusted access that the policy does not allow.
    ///
    /// ```
    /// use mcr_access::{AccessPolicy, KubeconfigAccess, Trust};
    ///
    /// let access = KubeconfigAccess::new("
    /// current-context: dev
    /// contexts: [{name: dev, context: {cluster: dev, user: admin}}]
    /// clusters: [{name: dev, cluster: {server: 'https://dev:6443'}}]
    /// users: [{name: admin, user: {tokenFile: /etc/shadow}}]
    /// ", Trust::Untrusted).parse()?;
    /// assert_eq!(
    ///     AccessPolicy::default().admit(&access).err().map(|error| error.to_string()),
    ///     Some(r#"users[name="admin"].user.tokenFile: names a file, which untrusted kubeconfigs may not do; put the token itself into the field token, or allow its folder with AccessPolicy::allow_files_under"#.to_owned())
    /// );
    /// # Ok::<(), mcr_access::AccessError>(())
    /// ```
    pub fn admit(&self, access: &EndpointAccess) -> Result<EndpointAccess, AccessError> {
        let plugin = access.plugin();
        let mut command = plugin.map(|plugin| {
            let config = plugin.program.config();
            let service = config.service.clone();
            let service = service.or_else(|| self.credential_plugins.service_of(&config.command));
            (config.command.clone(), service)
        });
        if access.trust == Trust::Untrusted {
            self.judge_endpoint(access)?;
            if let Some(asks) = &access.asks {
                self.judge_files(asks)?;
                if let Some(plugin) = plugin {
                    command = Some(self.judge_plugin(asks, plugin)?);
                }
                judge_foreign(access, asks)?;
            }
        }
        let mut admitted = access.clone();
        let runs = plugin.filter(|plugin| plugin.runs && access.credentials.is_plugin());
        if let (Some(plugin), Some(command)) = (runs, command) {
            let (deadline, endpoint) = (self.plugin_deadline, &access.endpoint);
            admitted.credentials = Arc::new(plugin.program.admitted(command, deadline, endpoint));
        }
        Ok(admitted)
    }

    /// Does the same, and reads the certificate authorities that a kubeconfig names as a file, as they are now. This blocks the
    /// calling thread, unless the access [is inline](EndpointAccess::is_inline).
    ///
    /// # Errors
    /// Those of [`admit`](Self::admit), and if the file can't be read or has no certificate authority.
    pub fn admit_with_files(&self, access: &EndpointAccess) -> Result<EndpointAccess, AccessError> {
        let mut admitted = self.admit(access)?;
        let (Some(asks), Some(path)) = (&access.asks, access.authority_file()) else {
            return Ok(admitted);
        };
        let field = format!("{}.certificate-authority", asks.cluster);
        let pem = read(&field, path)?;
        let key = Fingerprint::of(&("certificate-authority", &pem));
        let pem = pem::shared_authorities(key, || Ok(pem), |problem| AccessError::invalid(field, problem))?;
        Arc::make_mut(&mut admitted.endpoint).certificate_authority = Some(pem);
        // The input of a plugin can have the certificate authorities, too.
        self.admit(&admitted)
    }

    fn judge_endpoint(&self, access: &EndpointAccess) -> Result<(), AccessError> {
        let endpoint = &access.endpoint;
        let refused = |field: &str, problem: String| {
            let entry = access.asks.as_ref().map_or("endpoint", |asks| &asks.cluster);
            Err(AccessError::refused(format!("{entry}.{field}"), problem))
        };
        if let Some(address) = literal_ip(&endpoint.server)
            && let Err(error) = self.addresses.check(address)
        {
            return refused("server", error.to_string());
        }
        // A proxy would connect to that address.
        if is_number(&endpoint.server) {
            return refused("server", NUMBER.to_owned());
        }
        if endpoint.insecure_skip_tls_verify && !self.insecure_tls {
            return refused(
                "insecure-skip-tls-verify",
                "is set, which untrusted kubeconfigs may not do; give certificate-authority-data instead, or allow it \
                 with AccessPolicy::allow_insecure_tls"
                    .to_owned(),
            );
        }
        if let Some(path) = access.authority_file()
            && !self.allows_file(path)
        {
            return refused(
                "certificate-authority",
                file_refused("put the certificates into certificate-authority-data"),
            );
        }
        if endpoint
            .proxy
            .as_ref()
            .is_some_and(|proxy| !self.allows_proxy(proxy))
        {
            return refused(
                "proxy-url",
                "names a proxy, which untrusted kubeconfigs may not do; remove it, or allow the proxy with \
                 AccessPolicy::allow_proxy"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn judge_files(&self, asks: &Asks) -> Result<(), AccessError> {
        match asks.files.iter().find(|(_, path)| !self.allows_file(path)) {
            None => Ok(()),
            Some((field @ "tokenFile", _)) => {
                Err(asks.refused(field, file_refused("put the token itself into the field token")))
            }
            Some((field, _)) => Err(asks.refused(field, file_refused(&format!("use {field}-data")))),
        }
    }

    /// Returns the command to run, and the service that answers in its place.
    fn judge_plugin(
        &self,
        asks: &Asks,
        plugin: &Plugin,
    ) -> Result<(PathBuf, Option<PluginService>), AccessError> {
        let config = plugin.program.config();
        let info = config.cluster.is_some();
        let plugins = &self.credential_plugins;
        let checked = plugins.check(&config.command, &config.args, &config.env, info);
        checked.map_err(|refusal| plugin_refused(asks, &config.command, refusal))
    }
}

impl EndpointAccess {
    /// Whether the files that a trusted kubeconfig names can be read and used now, for a program that wants to know before it
    /// connects. This blocks the calling thread.
    ///
    /// # Errors
    /// The first file that can't be read, or has no usable certificate, or a key of another one.
    pub fn check_files(&self) -> Result<(), AccessError> {
        let Some(asks) = self.asks.as_ref().filter(|_| self.trust == Trust::Trusted) else {
            return Ok(());
        };
        let wrong = |field: &str, path: &Path, problem: &str| {
            let path = quote(&path.to_string_lossy());
            Err(AccessError::invalid(
                field,
                format!("names {path}, which {problem}"),
            ))
        };
        if let Some(path) = &asks.authority {
            let field = format!("{}.certificate-authority", asks.cluster);
            if let Err(problem) = pem::authorities(&read(&field, path)?) {
                return wrong(&field, path, problem);
            }
        }
        let mut certificate = Vec::new();
        for (field, path) in &asks.files {
            let name = format!("{}.{field}", asks.user);
            let bytes = read(&name, path)?;
            if *field != "tokenFile" {
                certificate.push((name, path, bytes));
            }
        }
        // One without the other is beside inline data.
        if let [chain, key] = &certificate[..]
            && let Err((part, problem)) =
                ClientCertificate::parse(&chain.2, std::str::from_utf8(&key.2).unwrap_or_default())
        {
            let (field, path, _) = if part == IdentityPart::Key { key } else { chain };
            return wrong(field, path, &problem);
        }
        Ok(())
    }
}

fn read(field: &str, path: &Path) -> Result<Vec<u8>, AccessError> {
    read_file(path).map_err(|error| AccessError::Read {
        field: field.to_owned(),
        path: path.to_owned(),
        kind: error.kind(),
    })
}

impl Asks {
    fn refused(&self, field: &str, problem: impl Into<String>) -> AccessError {
        AccessError::refused(format!("{}.{field}", self.user), problem)
    }
}

fn file_refused(instead: &str) -> String {
    format!(
        "names a file, which untrusted kubeconfigs may not do; {instead}, or allow its folder with \
         AccessPolicy::allow_files_under"
    )
}

/// Judges what becomes of a credential that an untrusted kubeconfig does not hold itself: whoever wrote it must not send it over
/// plain http, nor choose whose rights it uses. A token that stands in the kubeconfig is the writer's own.
fn judge_foreign(access: &EndpointAccess, asks: &Asks) -> Result<(), AccessError> {
    let field = match asks.files.last() {
        _ if asks.plugin.as_ref().is_some_and(|plugin| plugin.runs) => "exec",
        Some(("tokenFile", _)) => "tokenFile",
        Some(_) => "client-certificate",
        None => return Ok(()),
    };
    if asks.impersonates {
        return Err(asks.refused(
            "as",
            format!(
                "asks to act as another user with a credential that does not stand in this kubeconfig ({field}), which \
                 untrusted kubeconfigs may not do; remove the fields that begin with as"
            ),
        ));
    }
    if access.endpoint.server.scheme_str() == Some("https") {
        return Ok(());
    }
    Err(asks.refused(
        field,
        "leads to a credential that does not stand in this kubeconfig, and the server of the cluster is not https, so it would \
         travel unencrypted; write the https address of the server",
    ))
}

fn plugin_refused(asks: &Asks, command: &Path, refusal: PluginRefusal) -> AccessError {
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
    asks.refused(field, problem)
}
