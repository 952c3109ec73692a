use std::sync::Arc;

use serde_json::Value;

use super::reconcile::Reconcile;
use crate::inner::Inner;
use crate::kinds::BINDINGS;
use crate::shard::Shard;
use crate::state::{Binding, Key, Moving, State, Step};

/// Which shard is first to show that a workspace moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KcpMove {
    /// The workspace is on the new shard before it leaves the old one, as in kcp.
    NewFirst,
    /// The workspace leaves the old shard before it is on the new one. Then it is complete at once.
    OldFirst,
}

impl Inner {
    /// Moves a logical cluster to another shard, where its objects get new resource versions.
    pub(crate) fn migrate(&self, state: &mut State, id: &Arc<str>, to: usize, order: KcpMove) -> bool {
        self.reconcile_in(state);
        let Some(entry) = self.directory.by_id(id) else {
            return false;
        };
        let (Some(old), Some(new)) = (self.shard(entry.shard), self.shard(to)) else {
            return false;
        };
        if old.number == new.number {
            return true;
        }
        let mut content: Vec<(Arc<str>, String, Value)> = Vec::new();
        for table in old.tables(id) {
            for path in old.paths(id, &table) {
                if let Some(object) = old.get(id, &table, &path) {
                    content.push((table.clone(), path, object));
                }
            }
        }
        // On each shard, bindings come before other objects.
        content.sort_by_key(|(table, ..)| &**table != BINDINGS);
        let first_other = content.partition_point(|(table, ..)| &**table == BINDINGS);
        let kinds = old.server.store().take_kinds(id);
        let mut run = Reconcile { inner: self, state };
        let bindings: Vec<Key> = old
            .paths(id, BINDINGS)
            .into_iter()
            .map(|name| (id.clone(), name))
            .collect();
        let known: Vec<(Binding, Key)> = bindings
            .into_iter()
            .filter_map(|at| Some((run.state.bindings.remove(&at)?, at)))
            .collect();
        self.directory.set_shard(id, to);
        let moving = Moving {
            from: old.number,
            bindings: known
                .iter()
                .map(|(binding, at)| (at.clone(), binding.export.clone(), binding.bound))
                .collect(),
            content,
            first_other,
        };
        if order == KcpMove::OldFirst {
            run.remove_moved(old, id, &moving);
            store_moved(new, id, &moving);
        }
        if let Some(kinds) = kinds {
            new.server.store().set_kinds(id, kinds);
        }
        for (table, _, object) in &moving.content[..first_other] {
            new.take_over(id, table, object.clone());
        }
        for (binding, at) in known {
            run.add_binding(new, &at, binding.export.clone(), binding.claims.clone());
            if binding.bound
                && let Some(on) = run.export_mut(&binding.export).on.get_mut(to)
            {
                on.count(id, true);
            }
            run.state.bindings.insert(at, binding);
        }
        if order == KcpMove::NewFirst {
            run.state.moving.insert(id.clone(), moving);
            run.run_after(self.delays.copy, Step::Copy(id.clone()));
        }
        self.reconcile_in(state);
        true
    }
}

impl Reconcile<'_> {
    /// Copies the remaining objects of a logical cluster to its new shard, and removes it from the old one.
    pub(super) fn copy_moved(&mut self, id: &Arc<str>) {
        let Some(moving) = self.state.moving.remove(id) else {
            return;
        };
        let (Some(old), Some(new)) = (self.inner.shard(moving.from), self.shard_of(id)) else {
            return;
        };
        store_moved(new, id, &moving);
        self.remove_moved(old, id, &moving);
    }

    /// Removes moved objects from the old shard, and its URL if no other binding needs it.
    fn remove_moved(&mut self, old: &Shard, id: &str, moving: &Moving) {
        for (table, path, _) in &moving.content {
            old.remove(id, table, path);
        }
        for (at, export, bound) in &moving.bindings {
            self.remove_binding_on(old, at, export, *bound);
        }
    }
}

/// Stores the objects that are not bindings in the new shard.
fn store_moved(new: &Shard, id: &str, moving: &Moving) {
    for (table, _, object) in &moving.content[moving.first_other..] {
        let mut object = object.clone();
        if **table == *crate::kinds::LOGICAL_CLUSTERS {
            object["metadata"]["annotations"]["core.kcp.io/shard"] = (*new.name).into();
        }
        new.take_over(id, table, object);
    }
}
