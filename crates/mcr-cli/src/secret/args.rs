//! The flags: those of the script in Go's multicluster-runtime, and some more.

use std::{path::PathBuf, time::Duration};

use http::Uri;

use crate::values;

pub(crate) const AFTER_HELP: &str = "\
Applies a ServiceAccount, a ClusterRole (or Role) named mcr-NAME and its binding to the cluster of --context, requests a token and tries it. Then applies the Secret to the hub. Repeating the command changes only the differences. The token is never printed, logged or written to a file.

Without --rules-file, the ServiceAccount gets these rights:

  rules:
    - apiGroups: [\"\"]
      resources: [\"configmaps\"]
      verbs: [\"list\", \"get\", \"watch\"]

Examples:
  mcr kubeconfig-secret create --context eu-1 -n fleet --remote-namespace default --rules-file rules.yaml
  mcr kubeconfig-secret create --context kind-a --server https://a-control-plane:6443
  mcr kubeconfig-secret create --context eu-1 -n fleet --rotate
  mcr kubeconfig-secret create --context eu-1 -n fleet --remote-namespace default --dry-run -o yaml";

/// The flags of `mcr kubeconfig-secret create`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CreateArgs {
    /// The context of the cluster
    #[arg(long, short = 'c', value_name = "CONTEXT")]
    pub(super) context: String,
    /// The context of the hub, which gets the Secret [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(super) hub_context: Option<String>,
    /// The kubeconfig file with both contexts [default: that of kubectl]
    #[arg(long, value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// The name of the Secret and of the cluster in the fleet [default: the context]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// The namespace of the Secret in the hub
    #[arg(long, short = 'n', value_name = "NAMESPACE", default_value = "default")]
    pub(super) namespace: String,
    /// The namespace of the ServiceAccount in the cluster [default: that of the Secret]
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) remote_namespace: Option<String>,
    /// The ServiceAccount [default: multicluster-kubeconfig-provider; with --rotate, the one that the cluster proves]
    #[arg(long, short = 'a', value_name = "NAME")]
    pub(super) service_account: Option<String>,
    /// Whether the rights are for all namespaces or only for that of the ServiceAccount
    #[arg(long, short = 't', value_enum, default_value_t, conflicts_with_all = ["rotate", "skip_create_rbac"])]
    pub(super) role_type: RoleType,
    /// A YAML file with the rules of the ServiceAccount, as in a Role [default: read ConfigMaps]
    #[arg(long, short = 'r', value_name = "PATH", conflicts_with_all = ["rotate", "skip_create_rbac"])]
    pub(super) rules_file: Option<PathBuf>,
    /// Write no role and no binding, because the rights are granted elsewhere
    #[arg(long, conflicts_with = "rotate")]
    pub(super) skip_create_rbac: bool,
    /// The address by which controllers reach the cluster [default: that of the context; with --rotate, the one it was
    /// made with]
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<Uri>,
    /// The lifetime of the token, at least 10m; an API server may give less
    #[arg(long, value_name = "TIME", default_value = "8760h", value_parser = lifetime)]
    pub(super) token_lifetime: Duration,
    /// A label of the Secret, by which controllers can select the cluster
    #[arg(long, value_name = "KEY=VALUE", value_parser = label, conflicts_with = "rotate")]
    pub(super) label: Vec<(String, String)>,
    /// Replace only the token in the existing Secret
    #[arg(long)]
    pub(super) rotate: bool,
    /// Print the objects instead of writing them, without a token
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The output format
    #[arg(long, short = 'o', value_enum, requires = "dry_run", default_value_t)]
    pub(super) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum RoleType {
    /// In the namespace of the ServiceAccount
    Role,
    /// In all namespaces
    #[default]
    Clusterrole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Format {
    /// One document for each object
    #[default]
    Yaml,
    /// One object with those of the cluster and those of the hub
    Json,
}

/// A lifetime that API servers accept.
fn lifetime(text: &str) -> Result<Duration, String> {
    const LEAST: Duration = Duration::from_secs(600);
    const MOST: Duration = Duration::from_secs(1 << 32);
    let lifetime = values::duration(text)?;
    if lifetime < LEAST {
        return Err("API servers give no token for less than 10m".to_owned());
    }
    if lifetime > MOST {
        return Err("API servers give no token for more than 1193046h".to_owned());
    }
    Ok(lifetime)
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = values::pair(text)?;
    if !values::is_label(&key, &value) {
        return Err(format!(
            "{text:?} can't be a label: name and value have at most 63 letters, digits, `-`, `_` and `.`"
        ));
    }
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_one_that_api_servers_take() {
        assert_eq!(lifetime("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(lifetime("8760h"), Ok(Duration::from_secs(31_536_000)));
        assert!(lifetime("9m59s").unwrap_err().contains("10m"));
        assert!(lifetime("2000000h").is_err() && lifetime("x").is_err());
        assert!(label("region=eu").is_ok() && label("a b=c").is_err());
    }
}
