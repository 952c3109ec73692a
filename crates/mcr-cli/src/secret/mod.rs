//! `mcr kubeconfig-secret create`: a ServiceAccount with few rights in one cluster, and a Secret with its kubeconfig in
//! another.

mod apply;
mod args;
mod document;
mod objects;
mod plan;
mod rules;
mod show;

use std::time::Duration;

use anyhow::Context;
use kube::Client;
use mcr_core::{AccessPolicy, KubeconfigAccess, Trust};

pub(crate) use self::args::{AFTER_HELP, CreateArgs};
use self::{
    apply::{Hub, Member, WITHIN},
    plan::Plan,
};
use crate::{contexts::Contexts, doctor::target, output, session::Session, values::short};

/// Runs the command. It makes all checks that write nothing first, then writes to the member cluster, and finally to
/// the hub. So no failure leaves a Secret for a cluster that does not work.
pub(crate) async fn create(args: CreateArgs) -> anyhow::Result<()> {
    let contexts = Contexts::read(args.kubeconfig.as_deref())?;
    let (member, member_access) = contexts.named("--context", &args.context)?;
    let (hub, hub_access) = match &args.hub_context {
        Some(name) => contexts.named("--hub-context", name)?,
        None => contexts.current("--hub-context")?,
    };
    let mut plan = Plan::new(&args, &member, &hub, &member_access)?;
    if let Some(note) = plan.left_out() {
        eprintln!("{note}");
    }
    if args.dry_run && !args.rotate {
        return Ok(output::print(&show::dry_run(&plan, args.output)?)?);
    }

    let session = Session::open(&hub, hub_access, WITHIN, None)
        .await
        .context("the hub")?;
    let result = with_hub(&args, &mut plan, session.client(), member_access).await;
    session.close().await;
    result
}

async fn with_hub(
    args: &CreateArgs,
    plan: &mut Plan,
    hub: Client,
    member_access: KubeconfigAccess,
) -> anyhow::Result<()> {
    let hub = Hub::new(hub, plan);
    let found = hub.found(plan).await?;
    if args.rotate {
        plan.rotate(found.as_ref())?;
    } else {
        if let Some(secret) = &found {
            plan.repeat(args, secret)?;
        }
        hub.may_write(plan).await?;
    }
    let session = Session::open(&plan.member, member_access, WITHIN, None)
        .await
        .context("the cluster")?;
    let result = with_member(args, plan, &hub, session.client()).await;
    session.close().await;
    result
}

async fn with_member(args: &CreateArgs, plan: &mut Plan, hub: &Hub, client: Client) -> anyhow::Result<()> {
    let member = Member::new(client);
    if plan.is_rotation() {
        member.decide(args, plan).await?;
    }
    if args.dry_run {
        return Ok(output::print(&show::dry_run(plan, args.output)?)?);
    }
    warn(plan).await;
    if !plan.is_rotation() {
        member.write(plan).await?;
    }
    let repeat = if plan.is_rotation() {
        "the Secret is as it was; repeat the command once this is corrected"
    } else {
        "no Secret was written; what was written to the cluster does no harm, and the command can be repeated"
    };
    let token = member.token(plan).await.context(repeat)?;
    let lifetime = token
        .expires
        .duration_since(std::time::SystemTime::now())
        .unwrap_or_default();
    // A token that is shorter by less than a minute counts as long enough, because the request takes time too.
    if lifetime + Duration::from_secs(60) < plan.lifetime {
        eprintln!(
            "note: {} was asked for, and the API server gave a token that is valid for {}; repeat with --rotate before it expires",
            short(plan.lifetime),
            short(lifetime)
        );
    }
    let text = document::kubeconfig(plan, &token.token, false)?;
    apply::try_token(plan, &token.token).await.context(repeat)?;
    eprintln!("the token works: it is {}", plan.account_user());
    hub.write(plan, &text).await?;
    if let Some(old) = plan.old_token_expires() {
        let left = old.duration_since(std::time::SystemTime::now()).map(short);
        match left {
            Ok(left) => eprintln!(
                "note: the old token stays valid for {left}; it ends earlier only with its ServiceAccount {}/{}, and with that ends the \
                 fresh one, too",
                plan.remote_namespace, plan.account
            ),
            Err(_) => eprintln!("note: the old token had expired"),
        }
    }
    Ok(())
}

/// Warns about parts of the kubeconfig that a controller with default settings would not accept.
async fn warn(plan: &Plan) {
    let Ok(text) = document::kubeconfig(plan, "a-token", false) else {
        return;
    };
    let access = KubeconfigAccess::new(text, Trust::Untrusted);
    let policy = AccessPolicy::default();
    let admitted = access.parse().and_then(|parsed| policy.admit(&parsed));
    let mut refused = admitted.err().map(|error| error.to_string());
    // Addresses were checked above. A host name may resolve to an address that is refused.
    if refused.is_none()
        && let Some(target) = target::of(&access.into())
        && let Ok(Ok(found)) = tokio::time::timeout(
            Duration::from_secs(3),
            tokio::net::lookup_host((target.host.as_str(), target.port)),
        )
        .await
    {
        refused = target::allowed(found, &policy.address_policy()).err();
    }
    if let Some(refused) = refused {
        eprintln!(
            "warning: controllers will not use this kubeconfig unless their access policy allows it: {}\n  \
             Other pods can't reach this machine by that address. Give the one that they reach with --server, \
             or, to try things here, let the controller use it (AddressPolicy::allow_loopback)",
            output::printable(&refused)
        );
    }
}
