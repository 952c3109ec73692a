use std::io;
use std::sync::Arc;

use http::Request;
use http::header::AUTHORIZATION;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::json;

use super::control::KcpMove;
use super::inner::Inner;
use super::kinds::{WORKSPACES, well_known};
use super::missing::no_workspace;
use super::path::{self, Entry};
use super::rewrite::set_path;
use super::shard_handle::KcpShard;
use super::user::KcpUser;
use super::workspace::KcpWorkspace;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::write::{Verb, Write};

/// A double of kcp in memory: a front proxy, shards with logical clusters, and kcp's control plane.
///
/// Cheap to clone. Clones are the same kcp.
#[derive(Clone, Debug)]
pub struct Kcp {
    pub(super) inner: Arc<Inner>,
}

impl Kcp {
    /// Creates a workspace by its path (`root:org:team`) on the shard `root`. Its parent must exist.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn create_workspace(&self, path: &str) -> Result<KcpWorkspace, SimError> {
        self.create_workspace_on(path, "root")
    }

    /// Creates a workspace by its path on the shard of this name.
    ///
    /// The workspace exists when this returns, even if [`KcpDelays::workspace`](super::KcpDelays::workspace) is not
    /// zero.
    ///
    /// # Errors
    ///
    /// With the error that kcp answers.
    pub fn create_workspace_on(&self, path: &str, shard: &str) -> Result<KcpWorkspace, SimError> {
        let (parent, name) = path.rsplit_once(':').unwrap_or(("root", path));
        let entry = self
            .inner
            .directory
            .find(parent)
            .ok_or_else(|| no_workspace(parent))?;
        let kind = well_known(WORKSPACES).ok_or_else(SimError::no_such_resource)?;
        let on = self.inner.shard_of(&entry).ok_or_else(|| no_workspace(parent))?;
        let object = json!({
            "apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": { "name": name },
            "spec": { "location": { "selector": { "matchLabels": { "name": shard } } } },
        });
        Write::new(&on.view(&entry.id), &kind, "", name, "kcp").run(Verb::Create(object))?;
        self.inner.reconcile();
        self.inner.schedule_now(&(entry.id.clone(), name.to_owned()));
        let path = format!("{}:{name}", entry.path);
        self.workspace(&path).ok_or_else(|| no_workspace(&path))
    }

    /// A workspace by its path or id.
    pub fn workspace(&self, name: &str) -> Option<KcpWorkspace> {
        let entry = self.inner.directory.find(name)?;
        Some(KcpWorkspace::new(self.inner.clone(), entry))
    }

    /// Deletes a workspace by its path, like a deletion of its Workspace object. The workspace disappears after its
    /// contents.
    ///
    /// # Errors
    ///
    /// With 404 if there is no such workspace.
    pub fn delete_workspace(&self, path: &str) -> Result<(), SimError> {
        let (parent, name) = path.rsplit_once(':').unwrap_or(("root", path));
        let parent = self.workspace(parent).ok_or_else(|| no_workspace(parent))?;
        parent.delete(WORKSPACES, name)
    }

    /// Moves a workspace (by path or id) to another shard. It keeps its id and path. Its objects keep their UIDs, but
    /// get resource versions of the new shard. The APIBindings arrive there first.
    ///
    /// # Errors
    ///
    /// With 404 if there is no such workspace or shard.
    pub fn move_workspace(&self, name: &str, shard: &str, order: KcpMove) -> Result<(), SimError> {
        let entry = self
            .inner
            .directory
            .find(name)
            .ok_or_else(|| no_workspace(name))?;
        let to = self.inner.shard_named(shard).ok_or_else(|| no_workspace(shard))?;
        let mut state = self.inner.control.lock();
        if self.inner.migrate(&mut state, &entry.id, to.number, order) {
            return Ok(());
        }
        Err(no_workspace(name))
    }

    /// The shards, `root` first.
    pub fn shards(&self) -> Vec<KcpShard> {
        self.inner.shards.iter().cloned().map(KcpShard).collect()
    }

    /// A shard by name.
    pub fn shard(&self, name: &str) -> Option<KcpShard> {
        self.inner.shard_named(name).cloned().map(KcpShard)
    }

    /// Adds the user of a bearer token, or replaces it.
    pub fn set_user(&self, token: impl Into<String>, user: KcpUser) {
        self.inner.users.lock().insert(token.into(), Arc::new(user));
    }

    /// Removes the user of a token, as if the token had expired: new requests get 401. Open watches continue.
    pub fn remove_user(&self, token: &str) -> bool {
        self.inner.users.lock().remove(token).is_some()
    }

    /// The token of the user who may do everything in every workspace.
    pub fn admin_token(&self) -> &str {
        &self.inner.admin_token
    }

    /// `https://<address>/clusters/<path>` at the front proxy.
    pub fn url(&self, path: &str) -> String {
        format!("{}/clusters/{path}", self.inner.url)
    }

    /// A client of the admin in a workspace (path or id), without sockets. Must be called within a Tokio runtime.
    pub fn client(&self, path: &str) -> kube::Client {
        self.client_with_token(path, self.admin_token())
    }

    /// As [`client`](Self::client), for the user of this token.
    pub fn client_with_token(&self, path: &str, token: &str) -> kube::Client {
        self.client_below(Entry::Front, format!("/clusters/{path}"), token)
    }

    /// A client without sockets for any URL of the double, with the token of a user. Such a URL is an endpoint of a
    /// slice followed by `/clusters/*` or `/clusters/<id>`. `None` if the URL does not belong to this kcp.
    pub fn client_at(&self, url: &str, token: &str) -> Option<kube::Client> {
        let of_shard = self.inner.shards.iter().find(|shard| is_below(url, &shard.url));
        let (entry, base) = match of_shard {
            Some(shard) => (Entry::Shard(shard.number), &shard.url),
            None if is_below(url, &self.inner.url) => (Entry::Front, &self.inner.url),
            None => return None,
        };
        let path = url.strip_prefix(base.as_str())?.trim_end_matches('/');
        Some(self.client_below(entry, path.to_owned(), token))
    }

    /// A client that adds a prefix to the paths of its requests.
    fn client_below(&self, entry: Entry, prefix: String, token: &str) -> kube::Client {
        let (inner, authorization) = (self.inner.clone(), format!("Bearer {token}"));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (inner, authorization) = (inner.clone(), authorization.clone());
            let path = format!("{prefix}{}", request.uri().path());
            async move {
                let (mut parts, body) = request.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                if let Ok(authorization) = authorization.parse() {
                    parts.headers.insert(AUTHORIZATION, authorization);
                }
                let query = parts.uri.query().map(str::to_owned);
                set_path(&mut parts, &path, query.as_deref());
                Ok::<_, io::Error>(path::answer(&inner, entry, parts, &body))
            }
        });
        kube::Client::new(service, "default")
    }
}

fn is_below(url: &str, base: &str) -> bool {
    let rest = url.strip_prefix(base);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
