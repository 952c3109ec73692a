//! The bodies of lists.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use simdutf8::basic::from_utf8;

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
    /// An object of the list, or another single value, is longer than 16 MiB. Only a [`ListDecoder`](crate::ListDecoder) has
    /// this limit.
    #[error(
        "an object of the list is longer than 16 MiB, so the list can't be read; make the object smaller or leave it out"
    )]
    TooLong,
    /// [`ListDecoder::finish`](crate::ListDecoder::finish) found items that [`ListDecoder::read`](crate::ListDecoder::read)
    /// has not given out.
    #[error("the list has items that were not read; read the decoder after the last bytes, then finish it")]
    Unread,
}

/// Parses the body of a list. Reads the fields of each item and of its metadata, and no values.
///
/// An item that is not an object does not fail the list: its place among the items has the error.
///
/// ```
/// use mcr_store::{Encoder, Encoding, parse_list};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":7}]}"#;
/// let page = parse_list(body)?;
/// assert_eq!(page.resource_version, "9");
/// assert_eq!(page.continue_token, None);
///
/// let mut encoder = Encoder::plain(Encoding::new("v1", "Namespace"));
/// let mut items = page.items.iter();
/// let object = items.next().unwrap()?.encode(None, &mut encoder)?;
/// assert_eq!(object.key().to_string(), "a");
/// let error = items.next().unwrap().err().unwrap();
/// assert_eq!(error.to_string(), "metadata is not a JSON object");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ListError`] if the body is not a list with a resource version.
pub fn parse_list(body: &[u8]) -> Result<ListPage<'_>, ListError> {
    let text = from_utf8(body).map_err(|_| ListError::Json("not UTF-8".into()))?;
    match Body::scan(text) {
        Some(body) => body.page(|items| items),
        // serde_json distinguishes a body that is not a list from a list with an item that is not an object.
        None => parse_list_by_item(text),
    }
}

/// Parses the body of a list with serde_json. [`parse_list`] does so if the scanner declines the body; the results are the
/// same for any body.
///
/// # Errors
/// [`ListError`] if the body is not a list with a resource version.
pub fn parse_list_by_item(text: &str) -> Result<ListPage<'_>, ListError> {
    // serde_json would read the items of an array as the fields of a list.
    if Scanner::new(text).peek() == Some(b'[') {
        return Err(ListError::NoItems);
    }
    serde_json::from_str::<Body<Vec<&RawValue>>>(text)
        .map_err(|e| ListError::Json(describe(&e)))?
        .page(|items| RawObjects::read_by_item(&items))
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

/// The field `items`. A server written in Go sends `null` for an empty list, so null and a missing field differ.
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

impl<'a> Body<RawObjects<'a>> {
    pub(super) fn scan(text: &'a str) -> Option<Self> {
        let (mut metadata, mut items) = (None, None);
        let mut body = Scanner::new(text);
        body.object(|value, name| {
            let is_repeated = match &*name {
                "metadata" => {
                    let read = serde_json::from_str(value.value()?).ok()?;
                    metadata.replace(read).is_some()
                }
                "items" if value.null() => items.replace(Items::Null).is_some(),
                "items" => items.replace(Items::Present(RawObjects::scan(value)?)).is_some(),
                _ => {
                    value.value()?;
                    false
                }
            };
            (!is_repeated).then_some(())
        })?;
        body.end()?;
        Some(Self {
            metadata: metadata.flatten(),
            items: items.unwrap_or_default(),
        })
    }
}

impl<I> Body<I> {
    pub(super) fn page<'a>(self, read: impl FnOnce(I) -> RawObjects<'a>) -> Result<ListPage<'a>, ListError> {
        let meta = self.metadata.ok_or(ListError::NoResourceVersion)?;
        let items = match self.items {
            Items::Present(items) => read(items),
            Items::Null => RawObjects::default(),
            Items::Missing => return Err(ListError::NoItems),
        };
        let resource_version = meta
            .resource_version
            .filter(|rv| !rv.is_empty())
            .ok_or(ListError::NoResourceVersion)?;
        Ok(ListPage {
            items,
            resource_version,
            continue_token: meta.continue_token.filter(|token| !token.is_empty()),
        })
    }
}
