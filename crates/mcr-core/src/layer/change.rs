use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use tokio_util::sync::CancellationToken;

use crate::{
    doctor::Doctor,
    provider::{BrokenCluster, Change, Discovery, DiscoverySettings, Provider},
    spec::ClusterSpec,
};
use mcr_access::BoxError;
use mcr_client::internal::user_code::{SPEC_LAYER, catch_panic};

type ChangeSpec = dyn Fn(&mut ClusterSpec) -> Result<(), BoxError> + Send + Sync;

/// A provider that changes the specs of another. [`change`] creates it.
pub struct Changed<P> {
    change: Arc<ChangeSpec>,
    inner: P,
}

/// Changes each spec that a provider announces, before the fleet uses it: its labels, or how the cluster is reached.
///
/// If `change` returns an error or panics, the cluster is announced as [`Change::Broken`] with the error, and one that is engaged keeps its last
/// spec. `change` must not block, must not put secrets into its error, and must return the same for equal specs, because a different access
/// is a change of the cluster.
///
/// The policy for untrusted kubeconfigs judges the changed spec. So an untrusted access that gets a proxy here is refused unless
/// [`AccessPolicy::allow_proxy`](crate::AccessPolicy::allow_proxy) names the proxy.
///
/// ```
/// use mcr_core::{Access, Provider, layer};
/// use std::sync::Arc;
///
/// # fn example(members: impl Provider) -> impl Provider {
/// // All members are reached through a tunnel.
/// layer::change(members, |spec| {
///     if let Access::Endpoint(access) = &mut spec.access {
///         Arc::make_mut(&mut access.endpoint).proxy = Some("socks5://tunnel.example.com:1080".parse()?);
///     }
///     Ok(())
/// })
/// # }
/// ```
pub fn change<P: Provider>(
    inner: P,
    change: impl Fn(&mut ClusterSpec) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Changed<P> {
    Changed {
        change: Arc::new(change),
        inner,
    }
}

impl<P: std::fmt::Debug> std::fmt::Debug for Changed<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Changed")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<P: Provider> Provider for Changed<P> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn searched(&self) -> String {
        self.inner.searched()
    }

    fn doctor(&self) -> Option<Arc<dyn Doctor>> {
        self.inner.doctor()
    }

    fn discover(&self, stop: CancellationToken) -> Discovery {
        self.discover_with(stop, &DiscoverySettings::default())
    }

    fn discover_with(&self, stop: CancellationToken, settings: &DiscoverySettings) -> Discovery {
        let change = self.change.clone();
        self.inner
            .discover_with(stop, settings)
            .map_ok(move |item| match item {
                Change::Upsert(spec) => changed(spec, &*change),
                other => other,
            })
            .boxed()
    }
}

fn changed(mut spec: ClusterSpec, change: &ChangeSpec) -> Change {
    let name = spec.name.clone();
    let result = catch_panic(SPEC_LAYER, || change(&mut spec));
    let broken = |error: &dyn std::fmt::Display| {
        Change::Broken(BrokenCluster::new(name.clone(), "its description", error))
    };
    match result {
        Ok(Ok(())) if spec.name == name => Change::Upsert(spec),
        Ok(Ok(())) => broken(&"a layer has changed its name; use layer::prefix for that"),
        Ok(Err(error)) => broken(&error),
        Err(panicked) => broken(&panicked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use mcr_access::{ClusterName, Trust};

    #[test]
    fn a_spec_is_changed_or_broken_with_the_error() {
        let spec = || {
            let name = ClusterName::new("a").unwrap();
            ClusterSpec::new(name, Access::kubeconfig("", Trust::Untrusted))
        };
        let shown = |change: &ChangeSpec| match changed(spec(), change) {
            Change::Upsert(spec) => format!("+{} {:?}", spec.name, spec.labels),
            Change::Broken(broken) => format!("!{} {}", broken.name, broken),
            other => format!("{other:?}"),
        };
        let labelled = shown(&|spec| {
            spec.labels.insert("tier".into(), "one".into());
            Ok(())
        });
        assert!(
            labelled.starts_with("+a") && labelled.contains("tier"),
            "{labelled}"
        );
        assert_eq!(
            shown(&|_| Err("no tunnel".into())),
            "!a its description: no tunnel"
        );
        let panicked = shown(&|_| panic!("canary"));
        assert!(
            panicked.contains("a layer of the program panicked") && !panicked.contains("canary"),
            "{panicked}"
        );
        let renamed = shown(&|spec| {
            spec.name = ClusterName::new("b")?;
            Ok(())
        });
        assert!(
            renamed.starts_with("!a") && renamed.contains("layer::prefix"),
            "{renamed}"
        );
    }
}
