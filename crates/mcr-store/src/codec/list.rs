//! The items of a list as raw objects.

use serde_json::value::RawValue;

use super::{
    error::NotAnObject,
    fallback,
    fields::{MAX_RESERVED, ObjectFields, ParsedFields},
    list_template::ListTemplates,
    raw_object::{Item, RawObject},
    scan::Scanner,
};

/// The items of a list: raw objects, and an error for each item that is not an object. It borrows the body.
///
/// See [`parse_list`](crate::parse_list) for an example.
//
// Boxed to keep the futures of watches small: a watch holds the list across awaits.
#[derive(Default)]
pub struct RawObjects<'a>(Box<List<'a>>);

#[derive(Default)]
struct List<'a> {
    parsed: ParsedFields<'a>,
    list_templates: ListTemplates<'a>,
    objects: Vec<Result<ObjectFields, NotAnObject>>,
}

impl<'a> RawObjects<'a> {
    /// Scans an array of objects. `None` if any item is declined; then [`read_by_item`](Self::read_by_item) finds
    /// that item.
    pub(super) fn scan(json: &mut Scanner<'a>) -> Option<Self> {
        let mut all = Self::default();
        let List {
            parsed,
            list_templates,
            objects,
        } = &mut *all.0;
        *parsed = ParsedFields::new(json.text())?;
        json.array(|item| {
            let object = match list_templates.read(item, parsed) {
                Some(object) => object,
                None => {
                    let start = item.next_position()?;
                    let mut object = ObjectFields::scan(item, parsed)?;
                    let range = start..item.position();
                    let left = parsed.text.len() - range.end;
                    if objects.is_empty() {
                        let more = left / range.len().max(1);
                        parsed.reserve(more);
                        objects.reserve(more.min(MAX_RESERVED));
                    }
                    let more_may_come = left > range.len() / 2;
                    if more_may_come {
                        list_templates.learn(range, parsed, &mut object);
                    }
                    object
                }
            };
            objects.push(Ok(object));
            Some(())
        })?;
        Some(all)
    }

    /// Reads each item by itself, so that an item that is not an object leaves the others readable.
    pub(super) fn read_by_item(items: &[&'a RawValue]) -> Self {
        let mut all = Self::default();
        for item in items {
            let object = fallback::read_fields(item, &mut all.0.parsed.fields);
            all.0.objects.push(object);
        }
        all
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.0.objects.is_empty()
    }

    /// How many items matched a list template.
    #[cfg(test)]
    pub(super) fn hits(&self) -> usize {
        self.0.list_templates.hits
    }

    /// The items in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let List {
            parsed,
            list_templates,
            objects,
        } = &*self.0;
        objects.iter().map(|object| match object {
            Ok(object) => {
                let list_template = list_templates.get(object.list_template);
                Ok(RawObject::new(object, parsed, list_template))
            }
            Err(error) => Err(error.clone()),
        })
    }
}
