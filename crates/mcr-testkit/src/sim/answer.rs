use std::borrow::Cow;

use serde_json::Value;

use super::watch::Watch;

/// The answer to a request.
pub enum Answer {
    Json(u16, Vec<u8>),
    Text(u16, Cow<'static, str>),
    Watch(Box<Watch>),
}

impl Answer {
    pub fn value(code: u16, value: &Value) -> Self {
        Self::Json(code, value.to_string().into_bytes())
    }
}
