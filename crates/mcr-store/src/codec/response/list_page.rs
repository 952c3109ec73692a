//! The bodies of lists.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::codec::{error::describe, list::RawObjects, scan::Scanner};

/// The body of a list, or of one page of it.
pub struct ListPage<'a> {
    /// The items, as raw objects.
    pub items: RawObjects<'a>,
    /// `metadata.resourceVersion`, which a watch can start from. Never empty.
    pub resource_version: String,
    /// `metadata.continue`, which the request for the next page needs. `None` on the last page.
    pub continue_token: Option<String>,
}

impl<'a> ListPage<'a> {
    pub(super) fn new(items: RawObjects<'a>, end: ListEnd) -> Self {
        Self {
            items,
            resource_version: end.resource_version,
            continue_token: end.continue_token,
        }
    }
}

/// The part of a list that is not its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEnd {
    /// `metadata.resourceVersion`, which a watch can start from. Never empty.
    pub resource_version: String,
    /// `metadata.continue`, which the request for the next page needs. `None` on the last page.
    pub continue_token: Option<String>,
}

/// Why the body of an answer is not a list. The text never quotes the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The body is not JSON, or its fields have other types than those of a list.
    #[error("the list can't be read: {0}")]
    Json(String),
    /// The list has no resource version, so no watch can start from it.
    #[error("the list has no metadata.resourceVersion, so it can't be watched from and counts as failed")]
    NoResourceVersion,
    /// The body has no field `items`.
    #[error("the answer has no items: it is not a list")]
    NoItems,
    /// An object of the list, or another single value, is longer than 16 MiB.
    #[error(
        "an object of the list is longer than 16 MiB, so the list can't be read; make the object smaller or leave it out"
    )]
    TooLong,
    /// [`ListDecoder::finish`](crate::ListDecoder::finish) found items that
    /// [`ListDecoder::read`](crate::ListDecoder::read) has not returned.
    #[error("the list has items that were not read; read the decoder after the last bytes, then finish it")]
    Unread,
}

/// Parses the body of a list with serde_json. [`parse_list`](crate::parse_list) has the same result for any body.
///
/// # Errors
/// [`ListError`] if the body is not a list with a resource version.
pub fn parse_list_by_item(text: &str) -> Result<ListPage<'_>, ListError> {
    // serde_json would read the items of an array as the fields of a list.
    if Scanner::new(text).peek() == Some(b'[') {
        return Err(ListError::NoItems);
    }
    let body = serde_json::from_str::<Body<Vec<&RawValue>>>(text);
    let (end, items) = body.map_err(|e| ListError::Json(describe(&e)))?.parts()?;
    let items = RawObjects::read_by_item(&items.unwrap_or_default());
    Ok(ListPage::new(items, end))
}

#[derive(Deserialize)]
#[serde(bound = "I: Deserialize<'de>")]
pub(super) struct Body<I> {
    pub(super) metadata: Option<ListMeta>,
    #[serde(default)]
    pub(super) items: Items<I>,
}

#[derive(Deserialize)]
pub(super) struct ListMeta {
    #[serde(rename = "resourceVersion")]
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// The field `items`. A server written in Go sends `null` for an empty list, so `null` is valid and a missing field is
/// not.
#[derive(Default)]
pub(super) enum Items<I> {
    #[default]
    Missing,
    Null,
    Present(I),
}

impl<'de, I: Deserialize<'de>> Deserialize<'de> for Items<I> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Option::<I>::deserialize(deserializer)?;
        Ok(items.map_or(Self::Null, Self::Present))
    }
}

impl<I> Body<I> {
    /// The end of the list, and its items unless they are null.
    pub(super) fn parts(self) -> Result<(ListEnd, Option<I>), ListError> {
        let meta = self.metadata.ok_or(ListError::NoResourceVersion)?;
        let items = match self.items {
            Items::Present(items) => Some(items),
            Items::Null => None,
            Items::Missing => return Err(ListError::NoItems),
        };
        let version = meta.resource_version.filter(|version| !version.is_empty());
        let end = ListEnd {
            resource_version: version.ok_or(ListError::NoResourceVersion)?,
            continue_token: meta.continue_token.filter(|token| !token.is_empty()),
        };
        Ok((end, items))
    }
}
