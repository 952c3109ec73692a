//! Writes to the cluster and to the hub.

use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use k8s_openapi::api::{
    authentication::v1::{
        SelfSubjectReview, TokenRequest, TokenRequestSpec, TokenReview, TokenReviewSpec, TokenReviewStatus,
    },
    core::v1::{Namespace, Secret, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
};
use mcr_core::{Access, KubeconfigAccess, Trust};
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::time::timeout;

use super::{
    args::CreateArgs,
    document,
    objects::{self, LABEL},
    plan::{Account, Plan},
    show::PLACEHOLDER,
};
use crate::{
    output::print_line,
    session::{Session, is_forbidden, text_of},
    values,
};

/// The field manager for server-side apply.
const MANAGER: &str = "mcr";
/// The limit for the connection to a cluster.
pub(super) const WITHIN: Duration = Duration::from_secs(15);
/// The limit for the write of an object.
const WRITTEN_WITHIN: Duration = Duration::from_secs(30);

/// The cluster that the Secret gives access to.
pub(super) struct Member {
    client: Client,
}

/// A token and its expiry. Never print it.
pub(super) struct Token {
    pub(super) token: String,
    pub(super) expires: SystemTime,
}

impl Member {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Writes the ServiceAccount and its role.
    pub(super) async fn write(&self, plan: &Plan) -> anyhow::Result<()> {
        self.namespace_is_there(plan).await?;
        self.role_is_ours(plan).await?;
        self.binding_is_ours(plan).await?;
        let mut written = Vec::new();
        for object in std::iter::once(objects::account(plan)).chain(objects::rbac(plan)) {
            match apply(&self.client, &object).await {
                Ok(()) => {
                    written.push(shown(&object));
                    print_line(&format!("{} applied to {}", shown(&object), plan.member))?;
                }
                Err(error) => {
                    let before = match written.as_slice() {
                        [] => "nothing was written".to_owned(),
                        written => format!(
                            "{} had been applied, which does no harm; the command can be repeated",
                            written.join(" and ")
                        ),
                    };
                    bail!(
                        "{} in {}: {}; {before}",
                        shown(&object),
                        plan.member,
                        explained(plan, &object, &error)
                    );
                }
            }
        }
        Ok(())
    }

    async fn namespace_is_there(&self, plan: &Plan) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let name = &plan.remote_namespace;
        match namespaces.get_opt(name).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => bail!(
                "there is no namespace {name} in {0}; make it (kubectl --context {0} create namespace {name}) or choose another \
                 with --remote-namespace",
                plan.member
            ),
            // A user who may not read namespaces may still be allowed to write into one.
            Err(error) if is_forbidden(&error) => Ok(()),
            Err(error) => bail!("namespace {name} in {}: {}", plan.member, text_of(&error)),
        }
    }

    /// Fails if another manager has made a role of this name with other rules.
    async fn role_is_ours(&self, plan: &Plan) -> anyhow::Result<()> {
        let Some(role) = objects::rbac(plan).into_iter().next() else {
            return Ok(());
        };
        let found = match api(&self.client, &role).get_opt(&plan.role).await {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(()),
            // A user who may not read roles may still be allowed to write them. Then the apply fails if another
            // manager owns the role.
            Err(error) if is_forbidden(&error) => return Ok(()),
            Err(error) => bail!("{}: {}; nothing was written", shown(&role), text_of(&error)),
        };
        if !is_ours(&found)
            && (found.data["rules"] != role["rules"] || !found.data["aggregationRule"].is_null())
        {
            bail!(
                "{} in {} was made by others and allows other things; it is left as it is, and nothing was written: choose another \
                 --name, or arrange yourself what the ServiceAccount may do, with --skip-create-rbac",
                shown(&role),
                plan.member
            );
        }
        Ok(())
    }

    /// Fails if this command has made the binding for another Secret: the account of that Secret would lose its
    /// rights. Prints a note if a binding of the other kind still grants rights.
    async fn binding_is_ours(&self, plan: &Plan) -> anyhow::Result<()> {
        let Some(planned) = objects::rbac(plan).pop() else {
            return Ok(());
        };
        for binding in objects::bindings(plan, &plan.remote_namespace) {
            let found = self.binding(plan, &binding).await?.filter(is_ours);
            let secret = found.and_then(|found| found.annotations().get(objects::SECRET).cloned());
            let Some(secret) = secret else { continue };
            let (same, shown, member) = (binding["kind"] == planned["kind"], shown(&binding), &plan.member);
            if same && secret != plan.secret() {
                bail!(
                    "{shown} in {member} was made for the Secret {secret}, whose account would lose its rights; it is left as it is, and \
                     nothing was written: choose another --name"
                );
            } else if !same && secret == plan.secret() {
                eprintln!(
                    "note: {shown} in {member}, of an earlier --role-type, still grants what its role allows; delete it, and the role {}, \
                     if that is too much",
                    plan.role
                );
            }
        }
        Ok(())
    }

    /// The existing binding of this name. `None` if it does not exist, or if the user may not read it.
    async fn binding(&self, plan: &Plan, binding: &Value) -> anyhow::Result<Option<DynamicObject>> {
        match api(&self.client, binding).get_opt(&plan.binding()).await {
            Err(error) if !is_forbidden(&error) => {
                bail!("{}: {}; nothing was written", shown(binding), text_of(&error))
            }
            found => Ok(found.ok().flatten()),
        }
    }

    /// Asks the cluster which account the token of a rotation belongs to, and plans the rotation. Writes nothing.
    /// Fails if the account is gone, because a rotation must not create a new one.
    pub(super) async fn decide(&self, args: &CreateArgs, plan: &mut Plan) -> anyhow::Result<()> {
        let reviewed = self.review(plan).await;
        let namespace = reviewed
            .as_ref()
            .map_or(&plan.remote_namespace, |(namespace, _)| namespace);
        let mut bound = None;
        for binding in objects::bindings(plan, namespace) {
            let found = self.binding(plan, &binding).await?;
            bound = bound.or(found.and_then(|found| objects::bound(plan, &found)));
        }
        plan.decide(args, reviewed, bound)?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &plan.remote_namespace);
        match accounts.get_opt(&plan.account).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => bail!(
                "--rotate: there is no ServiceAccount {}/{} in {}; leave --rotate out to make it, with what it may do",
                plan.remote_namespace,
                plan.account,
                plan.member
            ),
            Err(error) if is_forbidden(&error) => Ok(()),
            Err(error) => bail!("ServiceAccount {}: {}", plan.account, text_of(&error)),
        }
    }

    /// The ServiceAccount of the token that is replaced, according to the API server. `None` if the server does not
    /// recognise the token, or if the user may not ask.
    async fn review(&self, plan: &Plan) -> Option<Account> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: plan.token_to_review()?.expose_secret().to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let answer = timeout(WITHIN, reviews.create(&PostParams::default(), &review)).await;
        account_of(answer.ok()?.ok()?.status?)
    }

    /// Requests a token.
    pub(super) async fn token(&self, plan: &Plan) -> anyhow::Result<Token> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &plan.remote_namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: i64::try_from(plan.lifetime.as_secs()).ok(),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let answer: Result<TokenRequest, kube::Error> = accounts
            .create_subresource("token", &plan.account, &PostParams::default(), &request)
            .await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => bail!(
                "{} gives no token for ServiceAccount {}/{}: {}",
                plan.member,
                plan.remote_namespace,
                plan.account,
                text_of(&error)
            ),
        };
        let status = answer.status.unwrap_or_default();
        match (status.token, status.expiration_timestamp) {
            (Some(token), Some(expires)) => Ok(Token {
                token,
                expires: expires.0.into(),
            }),
            _ => bail!("{} answered without a token", plan.member),
        }
    }
}

/// The ServiceAccount that a token review has recognised. `None` for the token of a Pod: it is only valid as long as
/// the Pod exists, and must not be exchanged for one that stays valid.
fn account_of(review: TokenReviewStatus) -> Option<Account> {
    let user = review.user.filter(|_| review.authenticated == Some(true))?;
    let bound = |key: &String| key.starts_with("authentication.kubernetes.io/pod-");
    if user.extra.iter().flatten().any(|(key, _)| bound(key)) {
        return None;
    }
    let (namespace, name) = user
        .username?
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')
        .map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))?;
    (values::is_dns_label(&namespace) && values::is_subdomain(&name)).then_some((namespace, name))
}

/// Checks that the cluster accepts the token. Uses the address that works from this machine.
pub(super) async fn try_token(plan: &Plan, token: &str) -> anyhow::Result<()> {
    let access = KubeconfigAccess::new(document::kubeconfig(plan, token, true)?, Trust::Trusted);
    let session = Session::open(&plan.member, Access::from(access), WITHIN, None)
        .await
        .context("the fresh token was tried, and does not work")?;
    let reviews: Api<SelfSubjectReview> = Api::all(session.client());
    let answer = timeout(
        WITHIN,
        reviews.create(&PostParams::default(), &SelfSubjectReview::default()),
    )
    .await;
    session.close().await;
    let user = match answer {
        Ok(Ok(review)) => review.status.and_then(|status| status.user_info?.username),
        // This API server does not support the request, or forbids it. It has accepted the token nevertheless.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 403 | 404) => return Ok(()),
        Ok(Err(error)) => bail!(
            "the fresh token was tried, and does not work: {}",
            text_of(&error)
        ),
        Err(_) => bail!(
            "the fresh token was tried: no answer within {} s",
            WITHIN.as_secs()
        ),
    };
    match user {
        Some(user) if user == plan.account_user() => Ok(()),
        user => bail!(
            "the fresh token was tried: the API server takes it for {:?}, not for {}",
            user.unwrap_or_default(),
            plan.account_user()
        ),
    }
}

/// The cluster with the Secrets.
pub(super) struct Hub {
    client: Client,
    secrets: Api<Secret>,
}

impl Hub {
    pub(super) fn new(client: Client, plan: &Plan) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &plan.namespace),
            client,
        }
    }

    /// The existing Secret, if it has the label of a cluster's Secret.
    pub(super) async fn found(&self, plan: &Plan) -> anyhow::Result<Option<Secret>> {
        let place = format!(
            "Secret {}/{} in the hub ({})",
            plan.namespace, plan.name, plan.hub
        );
        let found = match self.secrets.get_opt(&plan.name).await {
            Ok(found) => found,
            Err(error) => bail!("{place}: {}; nothing was written", text_of(&error)),
        };
        if let Some(secret) = &found
            && secret.labels().get(LABEL).map(String::as_str) != Some("true")
        {
            bail!(
                "there is a {place} that is no cluster's: it has no label {LABEL}=true; choose another --name, or label it if it is meant \
                 to be replaced; nothing was written"
            );
        }
        Ok(found)
    }

    /// Checks with a dry run that the Secret can be written, before anything is written to the cluster.
    pub(super) async fn may_write(&self, plan: &Plan) -> anyhow::Result<()> {
        let secret = objects::secret(plan, &document::kubeconfig(plan, PLACEHOLDER, false)?);
        let params = PatchParams::apply(MANAGER).force().dry_run();
        match self
            .secrets
            .patch(&plan.name, &params, &Patch::Apply(secret))
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if matches!(&error, kube::Error::Api(status) if status.is_not_found()) => bail!(
                "there is no namespace {0} in the hub ({1}); make it: kubectl --context {1} create namespace {0}; nothing was written",
                plan.namespace,
                plan.hub
            ),
            Err(error) => bail!(
                "the hub ({}) would not take the Secret: {}; nothing was written",
                plan.hub,
                text_of(&error)
            ),
        }
    }

    /// Writes the Secret, or a fresh kubeconfig into the existing one.
    pub(super) async fn write(&self, plan: &Plan, kubeconfig: &str) -> anyhow::Result<()> {
        let done = if plan.is_rotation() {
            let params = PatchParams {
                field_manager: Some(MANAGER.to_owned()),
                ..PatchParams::default()
            };
            let patch = Patch::Merge(objects::fresh_token(plan, kubeconfig));
            self.secrets.patch(&plan.name, &params, &patch).await.map(drop)
        } else {
            // Forced, because the flags decide about this field, even if another manager has written it.
            let params = PatchParams::apply(MANAGER).force();
            apply_with(&self.client, &objects::secret(plan, kubeconfig), &params).await
        };
        let name = format!("secret/{} in namespace {}", plan.name, plan.namespace);
        match done {
            Ok(()) => {
                let what = if plan.is_rotation() {
                    "has a fresh token in"
                } else {
                    "applied to"
                };
                print_line(&format!("{name} {what} {}", plan.hub))?;
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                bail!("{name}: somebody else changed it just now; it is as they left it, repeat the command")
            }
            Err(error) => bail!(
                "{name}: {}; the cluster is prepared and the hub is as it was: repeat the command",
                text_of(&error)
            ),
        }
    }
}

/// Whether this command has applied the object.
fn is_ours(object: &DynamicObject) -> bool {
    let mut managers = object.managed_fields().iter();
    managers.any(|fields| fields.manager.as_deref() == Some(MANAGER))
}

/// Applies an object. Fails if other field managers own fields of the object with other values.
async fn apply(client: &Client, object: &Value) -> Result<(), kube::Error> {
    apply_with(client, object, &PatchParams::apply(MANAGER)).await
}

async fn apply_with(client: &Client, object: &Value, params: &PatchParams) -> Result<(), kube::Error> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let objects = api(client, object);
    match timeout(WRITTEN_WITHIN, objects.patch(name, params, &Patch::Apply(object))).await {
        Ok(patched) => patched.map(drop),
        Err(_) => Err(kube::Error::Service(
            format!("no answer within {} s", WRITTEN_WITHIN.as_secs()).into(),
        )),
    }
}

/// The `Api` for an object.
fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    let kind = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: text("apiVersion").to_owned(),
        kind: text("kind").to_owned(),
        // All kinds that this command writes have regular plurals.
        plural: format!("{}s", text("kind").to_lowercase()),
    };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    }
}

/// The name of the object, as kubectl shows it.
fn shown(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!(
        "{}/{}",
        text(&object["kind"]).to_lowercase(),
        text(&object["metadata"]["name"])
    )
}

fn explained(plan: &Plan, object: &Value, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.is_conflict() => format!(
            "there is one already that others have made ({}); it is left as it is: choose another --name, or arrange what the \
             ServiceAccount may do yourself, with --skip-create-rbac",
            status.message.lines().next().unwrap_or_default()
        ),
        error if is_forbidden(error) => {
            let hint = match object["kind"].as_str() {
                Some("ClusterRole" | "ClusterRoleBinding") => {
                    "; a user can grant only rights that the user has: ask an administrator of the cluster, use --role-type role, or \
                     --skip-create-rbac if the rights are granted elsewhere"
                }
                _ => "",
            };
            format!("{}{hint}", text_of(error))
        }
        error => format!("{} (context {})", text_of(error), plan.member),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recognized_token_of_a_serviceaccount_that_is_no_pods_proves_an_account() {
        for (authenticated, name, extra, proves) in [
            (true, "system:serviceaccount:fleet:robot", "other", true),
            (
                true,
                "system:serviceaccount:fleet:robot",
                "authentication.kubernetes.io/pod-name",
                false,
            ),
            (false, "system:serviceaccount:fleet:robot", "other", false),
            (true, "anna", "other", false),
            (true, "system:serviceaccount:../x:y/z", "other", false),
        ] {
            let user = serde_json::json!({"username": name, "extra": {extra: ["x"]}});
            let review = serde_json::json!({"authenticated": authenticated, "user": user});
            let found = account_of(serde_json::from_value(review).unwrap());
            assert_eq!(
                found,
                proves.then(|| ("fleet".to_owned(), "robot".to_owned())),
                "{name} {extra}"
            );
        }
    }
}
