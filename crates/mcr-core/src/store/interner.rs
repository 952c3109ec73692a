//! What the objects of one watch share.

use std::sync::Arc;

use hashbrown::HashSet;

use super::{
    Form, Shapes,
    shape::{Alike, Shape},
    shapes::Watch,
    uid::Uid,
};

/// How many shapes a watch finds without asking for them.
const RECENT: usize = 4;

/// What objects of one watch are made with, and what they share.
pub(crate) struct Interner {
    plain: Form,
    namespaces: HashSet<Arc<str>>,
    /// None if objects are held as they are, which tests compare with.
    shapes: Option<(Arc<Shapes>, Watch)>,
    /// The last that were asked for.
    recent: [Option<Form>; RECENT],
    next: usize,
}

impl Interner {
    /// Of objects that are held as they are.
    pub(crate) fn plain(plain: Form) -> Self {
        Self {
            plain: plain.of_its_own(),
            namespaces: HashSet::default(),
            shapes: None,
            recent: Default::default(),
            next: 0,
        }
    }

    /// Of objects that are held in their shapes.
    pub(crate) fn shaping(shapes: Arc<Shapes>) -> Self {
        Self {
            shapes: Some((shapes.clone(), shapes.watch())),
            ..Self::plain(shapes.plain().clone())
        }
    }

    /// Of objects that are held as they are.
    pub(super) fn form(&self) -> &Form {
        &self.plain
    }

    pub(super) fn is_shaping(&self) -> bool {
        self.shapes.is_some()
    }

    pub(super) fn namespace(&mut self, namespace: &str) -> Arc<str> {
        if let Some(known) = self.namespaces.get(namespace) {
            return known.clone();
        }
        let new: Arc<str> = namespace.into();
        self.namespaces.insert(new.clone());
        new
    }

    /// See [`Shapes::of`].
    pub(super) fn shaped(&mut self, alike: Alike<'_>, holes: usize, uid: Uid) -> Option<Form> {
        let mut recent = self.recent.iter().flatten();
        if let Some(form) = recent.find(|form| form.shape().map(Shape::alike) == Some(alike)) {
            return Some(form.clone());
        }
        let (shapes, watch) = self.shapes.as_ref()?;
        let form = shapes.of(alike, holes, uid, *watch)?.of_its_own();
        if let Some(oldest) = self.recent.get_mut(self.next) {
            *oldest = Some(form.clone());
        }
        self.next = (self.next + 1) % RECENT;
        Some(form)
    }
}
