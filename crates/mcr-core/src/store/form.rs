//! What many objects of a kind have in common, held once for them.

use std::sync::Arc;

use super::shape::Shape;

/// How objects of a kind are held: the group, version and kind that list items come without, and what else those of this
/// form have in common.
///
/// Each object counts a reference to it. Threads that make and drop objects of other clusters would take the count from each
/// other each time, and with it what stands beside it; so each watch has [one of its own](Self::of_its_own) to count.
#[derive(Debug, Clone)]
#[expect(clippy::redundant_allocation, reason = "the outer one is there to be counted")]
pub(crate) struct Form(Arc<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    /// The beginning of the JSON.
    prefix: Box<str>,
    /// What they have in common beyond the beginning; none if they are held as they are.
    shape: Option<Shape>,
}

impl Form {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let quoted = |s: &str| serde_json::Value::from(s).to_string();
        let prefix = format!(
            "{{\"apiVersion\":{},\"kind\":{},",
            quoted(api_version),
            quoted(kind)
        );
        Self::made_of(Shared {
            prefix: prefix.into(),
            shape: None,
        })
    }

    fn made_of(shared: Shared) -> Self {
        Self(Arc::new(Arc::new(shared)))
    }

    /// The same, with references that are counted apart.
    pub(super) fn of_its_own(&self) -> Self {
        Self(Arc::new(Arc::clone(&*self.0)))
    }

    pub(super) fn prefix(&self) -> &str {
        &self.0.prefix
    }

    pub(super) fn shape(&self) -> Option<&Shape> {
        self.0.shape.as_ref()
    }

    /// The same with a shape.
    pub(super) fn shaped(&self, shape: Shape) -> Self {
        Self::made_of(Shared {
            prefix: self.0.prefix.clone(),
            shape: Some(shape),
        })
    }

    #[cfg(test)]
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&*self.0, &*other.0)
    }

    /// Whether it is held by others too.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1 || Arc::strong_count(&*self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_its_own_is_the_same_and_shares_it() {
        let form = Form::new("v1", "ConfigMap");
        assert!(!form.is_shared());
        let own = form.of_its_own();
        assert!(own.is(&form) && form.is_shared() && own.is_shared());
        assert!(!own.is(&Form::new("v1", "ConfigMap")));
        drop(own);
        assert!(!form.is_shared());
        let same = form.clone();
        assert!(form.is_shared());
        drop(same);
    }
}
