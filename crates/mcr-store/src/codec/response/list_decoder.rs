//! Reads the body of a list in parts.

mod reader;
mod unit_end;

use super::list_page::{ListEnd, ListError, ListPage};
use crate::codec::{
    list::{RawObjects, Templates},
    list_template::ListTemplates,
};
use reader::ListReader;

/// Reads the body of a list in parts, so that a large list needs no memory for its whole body.
///
/// Append bytes to the [`buffer`](Self::buffer), [`read`](Self::read) the items that are complete, append more. After
/// the last bytes, [`finish`](Self::finish). The result is that of [`parse_list`](crate::parse_list) for the whole
/// body, whatever parts the body arrives in. An error may come after items were read. So use the items only after
/// `finish` has succeeded.
///
/// The buffer shrinks by what was read, so it holds at most one part and one incomplete object. Each byte is read a
/// bounded number of times, however small the parts are. Parts of about 1 MiB are the fastest.
///
/// ```
/// use mcr_store::{Encoder, Encoding, ListDecoder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let body = br#"{"metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
/// let mut encoder = Encoder::plain(Encoding::new("v1", "Namespace"));
/// let mut objects = Vec::new();
///
/// let mut list = ListDecoder::default();
/// for part in body.chunks(20) {
///     list.buffer().extend_from_slice(part);
///     for item in list.read()?.iter() {
///         objects.push(item?.encode(None, &mut encoder)?);
///     }
/// }
/// let end = list.finish()?;
/// assert_eq!(end.resource_version, "9");
/// assert_eq!(end.continue_token, None);
/// assert_eq!(objects.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct ListDecoder {
    buffer: Vec<u8>,
    /// How many bytes at the start of the buffer were read.
    consumed: usize,
    reader: ListReader,
    list_templates: ListTemplates,
    /// The error that ended the reading, for all further calls.
    error: Option<ListError>,
}

impl ListDecoder {
    /// The bytes that were not read yet. Append the next part of the body, and change nothing else.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.buffer.drain(..std::mem::take(&mut self.consumed));
        &mut self.buffer
    }

    /// The items that are complete and were not returned before, in the order of the list. May be empty.
    ///
    /// An item that is not an object does not fail the list: the error takes its place among the items.
    ///
    /// # Errors
    /// [`ListError`] if the bytes so far are not the beginning of a list, or if a single value is longer than 16 MiB.
    /// Stop reading the body then: the error stays.
    pub fn read(&mut self) -> Result<RawObjects<'_>, ListError> {
        self.buffer();
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let templates = Templates::Common(&mut self.list_templates);
        let read = self.reader.read(&self.buffer, templates);
        let (items, consumed) = read.inspect_err(|error| self.error = Some(error.clone()))?;
        self.consumed = consumed;
        Ok(items)
    }

    /// Checks that the list is complete. [`read`](Self::read) the items first.
    ///
    /// # Errors
    /// [`ListError`] if the body is not a list with a resource version, or was cut off. [`ListError::Unread`] if items
    /// were not read.
    pub fn finish(mut self) -> Result<ListEnd, ListError> {
        if !self.read()?.is_empty() {
            return Err(ListError::Unread);
        }
        let rest = self.buffer.get(self.consumed..).unwrap_or_default();
        self.reader.finish(rest)
    }
}

/// Parses the body of a list. Reads the fields of each item and of its metadata, and no values.
///
/// An item that is not an object does not fail the list: the error takes its place among the items.
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
/// [`ListError`] if the body is not a list with a resource version, or if a single value is longer than 16 MiB.
pub fn parse_list(body: &[u8]) -> Result<ListPage<'_>, ListError> {
    let mut reader = ListReader::default();
    let (items, consumed) = reader.read(body, Templates::default())?;
    let end = reader.finish(body.get(consumed..).unwrap_or_default())?;
    Ok(ListPage::new(items, end))
}

#[cfg(test)]
mod tests;
