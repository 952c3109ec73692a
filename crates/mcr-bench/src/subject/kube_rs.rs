//! The subjects with kube-rs alone: a client, a watcher and a reflector for each context.

use std::{fmt::Debug, path::Path, pin::pin, sync::Arc};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use futures::TryStreamExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Config, Resource,
    client::ConfigExt,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, reflector, watcher},
};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use tokio::{sync::Semaphore, task::JoinSet};
use tower_http::decompression::DecompressionLayer;

use super::{Gzip, SubjectArgs, Tally, work};
use crate::kind::{Kind, with_type};

/// How often an object is applied that the server refuses. Each failure is counted, so more attempts would show nothing more.
const ATTEMPTS: usize = 5;

/// The code of kube-rs's examples for one cluster, in a loop over the contexts.
///
/// # Errors
///
/// When the kubeconfig can't be read, and when a watch ends.
pub async fn naive(args: SubjectArgs, tally: Tally) -> Result<()> {
    let kubeconfig = Kubeconfig::read_from(&args.kubeconfig)?;
    let mut watches = JoinSet::new();
    for context in kubeconfig.contexts.iter().map(|context| context.name.clone()) {
        let (kubeconfig, tally, kinds) = (kubeconfig.clone(), tally.clone(), args.kinds.clone());
        watches.spawn(async move {
            let options = KubeConfigOptions {
                context: Some(context.clone()),
                ..KubeConfigOptions::default()
            };
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
            let client = Client::try_from(config)?;
            each_kind(&kinds, context, client, watcher::Config::default(), tally, false).await
        });
    }
    first_failure(watches).await
}

/// The tuned code: equal parts are parsed once, and clients have only the layers that they need.
///
/// # Errors
///
/// When the kubeconfig can't be read, and when a watch ends.
pub async fn tuned(args: SubjectArgs, tally: Tally) -> Result<()> {
    let mut watches = JoinSet::new();
    let slots = Arc::new(Semaphore::new(args.workers.unwrap_or(work::CONCURRENCY)));
    for context in contexts(&args.kubeconfig)? {
        let (name, client) = (context.name.clone(), client(context, args.gzip)?);
        let config = watcher::Config {
            page_size: None,
            ..watcher::Config::default()
        };
        let config = config.any_semantic();
        match args.round {
            Some(round) => watches.spawn(apply(name, client, config, tally.clone(), round, slots.clone())),
            None => {
                let (kinds, tally) = (args.kinds.clone(), tally.clone());
                watches.spawn(async move { each_kind(&kinds, name, client, config, tally, true).await })
            }
        };
    }
    first_failure(watches).await
}

/// The address and credentials of a context.
pub(super) struct Endpoint {
    pub(super) name: String,
    pub(super) server: http::Uri,
    pub(super) tls: ClientConfig,
    /// Without the client certificate.
    pub(super) user: AuthInfo,
}

/// Of all contexts; equal authorities are parsed once.
pub(super) fn contexts(path: &Path) -> Result<Vec<Endpoint>> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let mut roots: Vec<(String, Arc<RootCertStore>)> = Vec::new();
    let mut endpoints = Vec::new();
    for named in &kubeconfig.contexts {
        let context = named.context.as_ref().context("a context without content")?;
        let cluster = kubeconfig
            .clusters
            .iter()
            .find(|cluster| cluster.name == context.cluster);
        let cluster = cluster
            .and_then(|cluster| cluster.cluster.as_ref())
            .context("no such cluster")?;
        let user = kubeconfig
            .auth_infos
            .iter()
            .find(|user| Some(&user.name) == context.user.as_ref());
        let mut user = user.and_then(|user| user.auth_info.clone()).unwrap_or_default();
        let ca = cluster.certificate_authority_data.clone().unwrap_or_default();
        let known = roots.iter().find(|(known, _)| *known == ca);
        let store = match known.map(|(_, store)| store.clone()) {
            Some(store) => store,
            None => {
                let store = Arc::new(store(&ca)?);
                roots.push((ca, store.clone()));
                store
            }
        };
        let server = cluster.server.as_deref().context("a cluster without a server")?;
        endpoints.push(Endpoint {
            name: named.name.clone(),
            server: server.parse()?,
            tls: tls(&mut user, store)?,
            user,
        });
    }
    Ok(endpoints)
}

fn store(ca: &str) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&STANDARD.decode(ca)?) {
        store.add(certificate?)?;
    }
    Ok(store)
}

fn tls(user: &mut AuthInfo, roots: Arc<RootCertStore>) -> Result<ClientConfig> {
    let tls = ClientConfig::builder_with_provider(mcr_access::crypto::provider()?.clone())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    Ok(
        match (user.client_certificate_data.take(), user.client_key_data.take()) {
            (Some(certificate), Some(key)) => {
                let chain =
                    CertificateDer::pem_slice_iter(&STANDARD.decode(certificate)?)
                        .collect::<Result<Vec<_>, _>>()?;
                let key = PrivateKeyDer::from_pem_slice(&STANDARD.decode(key.expose_secret())?)?;
                tls.with_client_auth_cert(chain, key)?
            }
            _ => tls.with_no_client_auth(),
        },
    )
}

pub(super) fn client(endpoint: Endpoint, gzip: Gzip) -> Result<Client> {
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(endpoint.tls)
        .https_only()
        .enable_http1()
        .build();
    let mut config = Config::new(endpoint.server);
    config.auth_info = endpoint.user;
    let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build(https);
    let layers = tower::ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(tower::BoxError::from);
    Ok(if gzip == Gzip::Off {
        Client::new(layers.service(http), "default")
    } else {
        Client::new(layers.layer(DecompressionLayer::new()).service(http), "default")
    })
}

/// A watcher and a reflector for each kind of a cluster, which share its client. `is_tuned` leaves out `managedFields` where
/// there are more kinds than one or other ones than ConfigMaps.
async fn each_kind(
    kinds: &[Kind],
    name: String,
    client: Client,
    config: watcher::Config,
    tally: Tally,
    is_tuned: bool,
) -> Result<()> {
    if kinds == [Kind::ConfigMaps] {
        return watch(client, config, false, |object| tally.reconciled(&name, object)).await;
    }
    let mut watches = JoinSet::new();
    for kind in kinds {
        let (client, config, tally, name) = (client.clone(), config.clone(), tally.clone(), name.clone());
        with_type!(*kind, K => watches.spawn(async move {
            watch(client, config, is_tuned, |object: &K| tally.reconciled_of(&name, object)).await
        }));
    }
    first_failure(watches).await
}

async fn watch<K>(
    client: Client,
    config: watcher::Config,
    without_managed_fields: bool,
    reconciled: impl Fn(&K),
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (_store, writer) = reflector::store::<K>();
    let events = watcher(Api::<K>::all(client), config).modify(|object| {
        if without_managed_fields {
            object.meta_mut().managed_fields = None;
        }
    });
    let mut objects = pin!(reflector(writer, events).default_backoff().applied_objects());
    loop {
        match objects.try_next().await {
            Ok(Some(object)) => reconciled(&object),
            Ok(None) => return Ok(()),
            // The stream goes on after its pause.
            Err(_) => {}
        }
    }
}

/// As [`watch`], of one namespace, and applies what is due. All clusters share the slots, in the order of their events.
async fn apply(
    name: String,
    client: Client,
    config: watcher::Config,
    tally: Tally,
    round: u64,
    slots: Arc<Semaphore>,
) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &name);
    let (_store, writer) = reflector::store::<ConfigMap>();
    let events = watcher(Api::<ConfigMap>::namespaced(client, work::SOURCE), config);
    let mut objects = pin!(reflector(writer, events).default_backoff().applied_objects());
    let mut running = JoinSet::new();
    loop {
        let object = match objects.try_next().await {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(()),
            // The stream goes on after its pause.
            Err(_) => continue,
        };
        tally.reconciled(&name, &object);
        while running.try_join_next().is_some() {}
        if !work::is_due(&object, round) {
            continue;
        }
        let slot = slots.clone().acquire_owned().await?;
        let (maps, tally) = (maps.clone(), tally.clone());
        running.spawn(async move {
            let _slot = slot;
            for _ in 0..ATTEMPTS {
                let applied = work::apply(&maps, &object).await;
                tally.applied(&applied);
                if applied.is_ok() {
                    break;
                }
            }
        });
    }
}

pub(super) async fn first_failure(mut watches: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = watches.join_next().await {
        ended??;
    }
    Ok(())
}
