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

/// The items of a list: raw objects, and an error for each item that is not an object. Borrows the body of the list.
///
/// See [`parse_list`](crate::parse_list) for an example.
//
// Boxed to keep the futures of watches small: a watch holds the list across awaits.
#[derive(Default)]
pub struct RawObjects<'a>(Box<List<'a>>);

#[derive(Default)]
struct List<'a> {
    parsed: ParsedFields<'a>,
    list_templates: Templates<'a>,
    objects: Vec<Result<ObjectFields, NotAnObject>>,
}

/// Where the list templates of the list are.
pub(super) enum Templates<'a> {
    Own(ListTemplates),
    /// The list arrives in parts, which share their list templates.
    Common(&'a mut ListTemplates),
}

impl Default for Templates<'_> {
    fn default() -> Self {
        Self::Own(ListTemplates::default())
    }
}

impl<'a> RawObjects<'a> {
    /// No items yet. `None` if the positions in the text do not fit into a [`Scalar`](super::scalar::Scalar).
    pub(super) fn new(text: &'a str, list_templates: Templates<'a>) -> Option<Self> {
        let parsed = ParsedFields::new(text)?;
        Some(Self(Box::new(List {
            parsed,
            list_templates,
            objects: Vec::new(),
        })))
    }

    /// Scans an object and adds it. Adds nothing if the item is declined.
    #[inline]
    pub(super) fn scan_item(&mut self, item: &mut Scanner<'a>) -> Option<()> {
        let List {
            parsed,
            list_templates,
            objects,
        } = &mut *self.0;
        let is_part = matches!(list_templates, Templates::Common(_));
        let list_templates = match list_templates {
            Templates::Own(own) => own,
            Templates::Common(common) => common,
        };
        let start = item.next_position()?;
        let matched = list_templates.read(item, parsed);
        let is_match = matched.is_some();
        let mut object = match matched {
            Some(object) => object,
            None => {
                let (fields, mark) = (parsed.fields.len(), parsed.scalars.mark());
                let Some(object) = ObjectFields::scan(item, parsed) else {
                    parsed.fields.truncate(fields);
                    parsed.scalars.truncate(mark);
                    return None;
                };
                object
            }
        };
        let range = start..item.position();
        let left = parsed.text.len() - range.end;
        if objects.is_empty() {
            let more = left / range.len().max(1);
            parsed.reserve(more);
            objects.reserve(more.min(MAX_RESERVED));
        }
        let more_may_come = is_part || left > range.len() / 2;
        if !is_match && more_may_come {
            list_templates.learn(range, parsed, &mut object);
        }
        objects.push(Ok(object));
        Some(())
    }

    /// Reads each item separately, so that an item that is not an object does not affect the others.
    pub(super) fn read_by_item(items: &[&'a RawValue]) -> Self {
        let mut all = Self::default();
        items.iter().for_each(|item| all.read_item(item));
        all
    }

    /// Reads an item with serde_json and adds it, or the error if it is not an object.
    pub(super) fn read_item(&mut self, item: &'a RawValue) {
        let object = fallback::read_fields(item, &mut self.0.parsed.fields);
        self.0.objects.push(object);
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.0.objects.is_empty()
    }

    /// How many items matched a list template.
    #[cfg(test)]
    pub(super) fn hits(&self) -> usize {
        self.list_templates().hits
    }

    fn list_templates(&self) -> &ListTemplates {
        match &self.0.list_templates {
            Templates::Own(own) => own,
            Templates::Common(common) => common,
        }
    }

    /// The items in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = Item<'_>> {
        let List { parsed, objects, .. } = &*self.0;
        let list_templates = self.list_templates();
        objects.iter().map(|object| match object {
            Ok(object) => {
                let list_template = list_templates.get(object.list_template);
                Ok(RawObject::new(object, parsed, list_template))
            }
            Err(error) => Err(error.clone()),
        })
    }
}
