//! Controllers of ConfigMaps that record their requests.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use mcr::{BoxError, Controller, Request, RequestObject};

use super::Seen;

pub type Fallible<T = ()> = Result<T, BoxError>;

/// A request in one line.
pub fn line(request: &Request<ConfigMap>) -> String {
    let value = |map: &ConfigMap| {
        map.data
            .as_ref()
            .and_then(|data| data.get("value"))
            .cloned()
            .unwrap_or_default()
    };
    let object = match &request.object {
        RequestObject::Live(map) => format!("live {}", value(map)),
        RequestObject::Deleted { last_known } => {
            format!("deleted {}", last_known.as_deref().map_or("?".into(), value))
        }
        RequestObject::LeftWatch { last_known } => {
            format!("left {}", last_known.as_deref().map_or("?".into(), value))
        }
        RequestObject::Absent => "absent".to_owned(),
        RequestObject::Unwatched => "unwatched".to_owned(),
        other => format!("{other:?}"),
    };
    format!("{} {object}", request.key)
}

pub async fn record(request: Request<ConfigMap>, seen: Arc<Seen<String>>) -> Fallible {
    seen.push(line(&request));
    Ok(())
}

pub fn maps() -> Controller<ConfigMap> {
    Controller::<ConfigMap>::new("maps")
}
