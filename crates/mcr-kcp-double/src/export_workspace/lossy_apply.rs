use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;

use crate::rewrite::set_path;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::apply;
use mcr_testkit::sim::kinds::Kind;
use mcr_testkit::sim::object::{metadata_mut, text};
use mcr_testkit::sim::query::Query;
use mcr_testkit::sim::route::Target;
use mcr_testkit::sim::state::ClusterState;
use mcr_testkit::sim::{read, request};

/// Converts a server-side apply into a PUT, or into a POST for a new object, as virtual workspaces do. The merge is
/// computed here. So fields that a previous apply had set, and this one does not contain, are not removed.
pub(super) fn as_update(
    view: &Arc<ClusterState>,
    kind: &Arc<Kind>,
    target: &Target,
    query: &Query,
    mut parts: Parts,
    body: &Bytes,
) -> Result<(Parts, Bytes), SimError> {
    let media = request::header(&parts.headers, CONTENT_TYPE).to_owned();
    let media = media.split(';').next().unwrap_or_default().trim();
    read::apply_options(query)?;
    let config = read::apply(kind, media, body)?;
    parts
        .headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let key = view.key(&target.namespace, &target.name);
    let live = view.store().get(&kind.table, &key).cloned();
    let Some(live) = live else {
        if !target.subresource.is_empty() {
            return Err(SimError::not_found(kind, &target.name));
        }
        let path = parts.uri.path().trim_end_matches('/').to_owned();
        let collection = path.rsplit_once('/').map_or("", |(collection, _)| collection);
        let query = parts.uri.query().map(str::to_owned);
        set_path(&mut parts, collection, query.as_deref());
        parts.method = Method::POST;
        let mut object = config;
        metadata_mut(&mut object)
            .entry("name")
            .or_insert_with(|| target.name.clone().into());
        return Ok((parts, object.to_string().into()));
    };
    let mut before = live.value_as(kind);
    metadata_mut(&mut before).remove("managedFields");
    let manager = query.text("fieldManager");
    let mut merged = apply::apply(kind, &target.subresource, manager, &before, config, true)?;
    let metadata = metadata_mut(&mut merged);
    metadata.remove("managedFields");
    metadata.insert(
        "resourceVersion".to_owned(),
        text(&before, "resourceVersion").into(),
    );
    parts.method = Method::PUT;
    Ok((parts, merged.to_string().into()))
}
