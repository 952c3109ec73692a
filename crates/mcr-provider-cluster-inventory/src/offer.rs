//! What a profile offers to reach its cluster, as a kubeconfig with the plugin of an access provider. No I/O.
//!
//! Each kubeconfig is made anew from the configuration and one profile, so that nothing of one profile reaches another.

use std::{collections::BTreeMap, sync::Arc};

use mcr_core::{PluginRefusal, hub::Kubeconfig};
use serde_json::{Value, json};

use crate::{
    access_providers::{AccessProviderConfig, AccessProviders, ArgsPolicy, EnvPolicy},
    v1alpha2::{AccessProvider, Cluster, ClusterProfile},
};

/// The extension of a profile's `cluster` that becomes the configuration of the plugin, in `spec.cluster.config` of
/// `KUBERNETES_EXEC_INFO`.
pub const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
/// The extension of a profile's `cluster` with more arguments of the plugin: a list of strings.
pub const ARGS_EXTENSION: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args";
/// The extension of a profile's `cluster` with more environment variables of the plugin: an object of strings.
pub const ENV_EXTENSION: &str = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs";

/// A name is cut to so many characters in error texts.
const LONGEST_NAME: usize = 63;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Offer {
    /// Nothing that this program can use. With the reason.
    Nothing(Arc<str>),
    /// Something that can't be used as it is. With the reason.
    Bad(Arc<str>),
    /// A kubeconfig.
    Kubeconfig(Arc<Kubeconfig>),
    /// The kubeconfig is in a Secret.
    Secret,
    /// A function of the program gives the kubeconfig for this profile.
    Computed(Arc<ClusterProfile>),
}

impl Offer {
    /// The offer that these access providers use. `names_file`: those whose certificate authority is the path of a file.
    pub(crate) fn of(
        offered: &[AccessProvider],
        providers: &AccessProviders,
        names_file: impl Fn(&str) -> bool,
    ) -> Self {
        let both = providers.0.iter().find_map(|provider| {
            let access = offered.iter().find(|access| access.name == provider.name)?;
            Some((provider, access))
        });
        let Some((provider, access)) = both else {
            return Self::Nothing(nothing(offered, providers).into());
        };
        if names_file(&access.name) {
            let why = format!(
                "its access provider {:?} names a file with the certificate authority; its cluster manager must write \
                 certificate-authority-data instead",
                access.name
            );
            return Self::Bad(why.into());
        }
        match kubeconfig(provider, &access.cluster) {
            Ok(kubeconfig) => {
                Self::Kubeconfig(Arc::new(Kubeconfig::new(kubeconfig.to_string().into(), None)))
            }
            Err(why) => Self::Bad(format!("its access provider {:?}: {why}", access.name).into()),
        }
    }
}

/// A cluster manager chooses names, and hubs without the published schema take any.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("\"{}…\"", name[..end].escape_debug()),
        None => format!("{name:?}"),
    }
}

fn nothing(offered: &[AccessProvider], providers: &AccessProviders) -> String {
    if offered.is_empty() {
        return "it has no access providers; its cluster manager, or an add-on of it, writes them".into();
    }
    let names = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<String> = names.map(shortened).take(6).collect();
        if names.len() > 5 {
            names[5] = "…".into();
        }
        names.join(", ")
    };
    let known = if providers.0.is_empty() {
        "no access provider".into()
    } else {
        names(&mut providers.0.iter().map(|provider| &*provider.name))
    };
    format!(
        "it has the access providers {}, and this program knows {known}; add one of them to the provider file",
        names(&mut offered.iter().map(|access| &*access.name))
    )
}

fn kubeconfig(provider: &AccessProviderConfig, cluster: &Cluster) -> Result<Value, String> {
    let extension = |name: &str| {
        let extension = cluster
            .extensions
            .iter()
            .find(|extension| extension.name == name)?;
        Some(&extension.extension)
    };
    let args = args(provider, extension(ARGS_EXTENSION))?;
    let env = env(provider, extension(ENV_EXTENSION))?;
    let checked = provider
        .allowed()
        .check(&args, &env, provider.provide_cluster_info);
    checked.map_err(|refusal| match refusal {
        PluginRefusal::Env(name) => format!(
            "the extension {ENV_EXTENSION} sets {name}, which a ClusterProfile may not set; remove it, or list it in \
             mcr.dev/profileSourcedEnvVars of the provider file"
        ),
        _ => format!(
            "the extension {ARGS_EXTENSION} has arguments that a ClusterProfile may not add; correct it, or list them in \
             mcr.dev/profileSourcedCLIArgs of the provider file"
        ),
    })?;
    let env: Vec<Value> = env
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    let mut exec = json!({
        "apiVersion": provider.api_version, "command": provider.command, "args": args, "env": env,
        "interactiveMode": "Never", "provideClusterInfo": provider.provide_cluster_info,
    });
    if let Some(hint) = &provider.install_hint {
        exec["installHint"] = hint.as_str().into();
    }
    let mut there = json!({
        "server": cluster.server, "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": cluster.certificate_authority_data,
        "proxy-url": cluster.proxy_url, "disable-compression": cluster.disable_compression,
    });
    // A plugin that gets nothing of the cluster gets nothing of its extension either.
    if let Some(config) = extension(EXEC_EXTENSION).filter(|_| provider.provide_cluster_info) {
        there["extensions"] = json!([{"name": EXEC_EXTENSION, "extension": config}]);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
        "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": provider.name}}],
        "clusters": [{"name": "cluster", "cluster": there}],
        "users": [{"name": provider.name, "user": {"exec": exec}}],
    }))
}

/// The arguments of the plugin.
pub(crate) fn args(
    provider: &AccessProviderConfig,
    of_profile: Option<&Value>,
) -> Result<Vec<String>, String> {
    let more = match (provider.args_policy, of_profile) {
        (ArgsPolicy::Ignore, _) | (_, None) => return Ok(provider.args.clone()),
        (ArgsPolicy::Append, Some(Value::Array(more))) => more.iter().map(text).collect(),
        (ArgsPolicy::Append, Some(_)) => None,
    };
    let more: Vec<String> = more.ok_or_else(|| not(ARGS_EXTENSION, "a list of strings"))?;
    Ok([provider.args.clone(), more].concat())
}

/// The environment variables of the plugin: those of the configuration in their order, then those of the profile by their names.
pub(crate) fn env(
    provider: &AccessProviderConfig,
    of_profile: Option<&Value>,
) -> Result<Vec<(String, String)>, String> {
    let mut env = provider.env.clone();
    let more = match (provider.env_policy, of_profile) {
        (EnvPolicy::Ignore, _) | (_, None) => return Ok(env),
        (_, Some(Value::Object(more))) => more,
        (_, Some(_)) => return Err(not(ENV_EXTENSION, "an object of strings")),
    };
    let mut added = BTreeMap::new();
    for (name, value) in more {
        let value = text(value).ok_or_else(|| not(ENV_EXTENSION, "an object of strings"))?;
        match env.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if provider.env_policy == EnvPolicy::Replace => *known = value,
            Some(_) => {}
            None => _ = added.insert(name.clone(), value),
        }
    }
    env.extend(added);
    Ok(env)
}

/// YAML, which other consumers read extensions as, takes numbers and booleans for strings too.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn not(extension: &str, form: &str) -> String {
    format!("the extension {extension} is not {form}; its cluster manager must correct it")
}

#[cfg(test)]
mod tests;
