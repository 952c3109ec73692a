//! Controllers of ConfigMaps that record their requests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{BoxError, Controller, Request, RequestObject};

use super::Seen;

pub type Fallible<T = ()> = Result<T, BoxError>;

/// A request in one line.
pub fn line(request: &Request<ConfigMap>) -> String {
    let value = |map: &ConfigMap| {
        let value = map.data.as_ref().and_then(|data| data.get("value"));
        value.cloned().unwrap_or_default()
    };
    let last = |map: &Option<Arc<ConfigMap>>| map.as_deref().map_or("?".into(), value);
    let object = match &request.object {
        RequestObject::Live(map) => format!("live {}", value(map)),
        RequestObject::Deleted { last_known } => format!("deleted {}", last(last_known)),
        RequestObject::LeftWatch { last_known } => format!("left {}", last(last_known)),
        other => format!("{other:?}").to_lowercase(),
    };
    format!("{} {object}", request.key)
}

pub async fn record(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Fallible {
    seen.push(line(&request));
    Ok(())
}

/// Records the keys of requests of any kind.
pub async fn keys<K>(request: Request<K>, seen: Arc<Seen<String>>) -> Fallible {
    seen.push(request.key.to_string());
    Ok(())
}

pub fn maps() -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new("maps")
}
