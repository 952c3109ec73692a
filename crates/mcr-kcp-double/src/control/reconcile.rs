use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::inner::Inner;
use crate::kinds::{BINDINGS, EXPORTS, LOGICAL_CLUSTERS, SCHEMAS, SLICES, TYPES, WORKSPACES};
use crate::shard::Shard;
use crate::state::{Export, Key, State, Step};

/// A run of the controllers, while their state is locked.
pub(super) struct Reconcile<'a> {
    pub(super) inner: &'a Inner,
    pub(super) state: &'a mut State,
}

impl Inner {
    /// Runs all steps that follow from recent writes, except those with a delay.
    pub(crate) fn reconcile(&self) {
        let mut state = self.control.lock();
        self.reconcile_in(&mut state);
    }

    /// Makes the logical cluster of a Workspace without a delay.
    pub(crate) fn schedule_now(&self, workspace: &Key) {
        let mut state = self.control.lock();
        Reconcile {
            inner: self,
            state: &mut state,
        }
        .schedule(workspace);
        self.reconcile_in(&mut state);
    }

    pub(super) fn reconcile_in(&self, state: &mut State) {
        Reconcile { inner: self, state }.run();
    }
}

impl<'a> Reconcile<'a> {
    fn run(&mut self) {
        self.take_due();
        loop {
            let mut idle = true;
            for shard in &self.inner.shards {
                for (table, key) in shard.take_written() {
                    idle = false;
                    self.handle_written(shard, &table, &key);
                }
            }
            if let Some(step) = self.state.steps.pop_front() {
                idle = false;
                self.state.queued.remove(&step);
                self.run_step(step);
            }
            if idle {
                return;
            }
        }
    }

    fn take_due(&mut self) {
        if self.inner.delays.are_zero() {
            return;
        }
        let now = Instant::now();
        while let Some(entry) = self.state.timers.first_entry()
            && entry.key().0 <= now
        {
            let step = entry.remove();
            self.run_soon(step);
        }
    }

    pub(super) fn run_soon(&mut self, step: Step) {
        if self.state.queued.insert(step.clone()) {
            self.state.steps.push_back(step);
        }
    }

    pub(super) fn run_after(&mut self, delay: Duration, step: Step) {
        if delay.is_zero() {
            self.run_soon(step);
            return;
        }
        let count = self.state.timer_count;
        self.state.timer_count += 1;
        self.state.timers.insert((Instant::now() + delay, count), step);
        self.inner.timed.notify_one();
    }

    fn handle_written(&mut self, shard: &'a Shard, table: &Arc<str>, key: &str) {
        let Some((cluster, path)) = key.split_once("//") else {
            return;
        };
        let Some(entry) = self.inner.directory.by_id(cluster) else {
            return;
        };
        // The logical cluster has moved away, and this is a leftover.
        if entry.shard != shard.number {
            return;
        }
        let key = (entry.id, path.to_owned());
        match &**table {
            BINDINGS => self.handle_binding(shard, &key),
            EXPORTS => self.handle_export(shard, &key),
            SLICES => self.handle_slice(&key),
            SCHEMAS => self.handle_schema(shard, &key),
            WORKSPACES => self.handle_workspace(shard, &key),
            TYPES => self.handle_workspace_type(shard, &key),
            LOGICAL_CLUSTERS => self.handle_logical_cluster(shard, &key.0),
            _ => self.handle_other(shard, table, &key),
        }
        if self.state.leaving.contains(&key.0) {
            self.run_after(self.inner.delays.content, Step::Empty(key.0));
        }
    }

    /// Handles a written object that is not of kcp's own kinds.
    fn handle_other(&mut self, shard: &Shard, table: &Arc<str>, key: &Key) {
        if let Some(names) = self.state.unbinding.get(&key.0) {
            for name in names.clone() {
                self.run_soon(Step::Unbind((key.0.clone(), name)));
            }
        }
        if self.has_wrong_labels(shard, table, key) {
            let step = Step::Label(key.0.clone(), table.clone(), key.1.clone());
            self.run_after(self.inner.delays.claims, step);
        }
    }

    fn run_step(&mut self, step: Step) {
        match step {
            Step::Schedule(workspace) => self.schedule(&workspace),
            Step::Endpoints(export) => self.publish_endpoints(&export),
            Step::Bind(binding) => self.bind(&binding),
            Step::Claims(binding) => self.apply_claims(&binding),
            Step::Label(cluster, table, path) => self.label_object(&cluster, &table, &path),
            Step::Unbind(binding) => self.unbind(&binding),
            Step::Empty(cluster) => self.delete_contents(&cluster),
            Step::Copy(cluster) => self.copy_moved(&cluster),
        }
    }

    pub(super) fn shard_of(&self, cluster: &str) -> Option<&'a Shard> {
        let entry = self.inner.directory.by_id(cluster)?;
        self.inner.shard(entry.shard)
    }

    /// An object of a logical cluster, and their shard.
    pub(super) fn read(&self, table: &str, key: &Key) -> Option<(&'a Shard, Value)> {
        let shard = self.shard_of(&key.0)?;
        Some((shard, shard.get(&key.0, table, &key.1)?))
    }

    pub(super) fn export_mut(&mut self, key: &Key) -> &mut Export {
        let shards = self.inner.shards.len();
        let exports = &mut self.state.exports;
        exports
            .entry(key.clone())
            .or_insert_with(|| Export::new(shards, key))
    }

    /// The export to which an object of a logical cluster refers.
    pub(super) fn export_of(&self, cluster: &str, reference: &Value) -> Option<Key> {
        let path = reference["path"].as_str().filter(|path| !path.is_empty());
        let entry = self.inner.directory.find(path.unwrap_or(cluster))?;
        Some((entry.id, reference["name"].as_str()?.to_owned()))
    }
}
