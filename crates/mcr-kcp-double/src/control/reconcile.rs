use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::inner::Inner;
use crate::kinds::{BINDINGS, EXPORTS, LOGICAL_CLUSTERS, SCHEMAS, SLICES, TYPES, WORKSPACES};
use crate::shard::Shard;
use crate::state::{Export, Key, State, Step};

/// A run of the controllers, under the lock of their state.
pub(super) struct Reconcile<'a> {
    pub(super) inner: &'a Inner,
    pub(super) state: &'a mut State,
}

impl Inner {
    /// Does all steps that what was written makes necessary, but for those with a delay.
    pub(crate) fn reconcile(&self) {
        let mut state = self.control.lock();
        self.reconcile_in(&mut state);
    }

    /// Makes the logical cluster of a Workspace without delay.
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
                    self.react(shard, &table, &key);
                }
            }
            if let Some(step) = self.state.steps.pop_front() {
                idle = false;
                self.state.queued.remove(&step);
                self.step(step);
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
            self.soon(step);
        }
    }

    pub(super) fn soon(&mut self, step: Step) {
        if self.state.queued.insert(step.clone()) {
            self.state.steps.push_back(step);
        }
    }

    pub(super) fn later(&mut self, delay: Duration, step: Step) {
        if delay.is_zero() {
            self.soon(step);
            return;
        }
        let count = self.state.timer_count;
        self.state.timer_count += 1;
        self.state.timers.insert((Instant::now() + delay, count), step);
        self.inner.timed.notify_one();
    }

    fn react(&mut self, shard: &'a Shard, table: &Arc<str>, key: &str) {
        let Some((cluster, path)) = key.split_once("//") else {
            return;
        };
        let Some(entry) = self.inner.directory.by_id(cluster) else {
            return;
        };
        // The rest of a logical cluster that has moved away.
        if entry.shard != shard.number {
            return;
        }
        let at = (entry.id, path.to_owned());
        match &**table {
            BINDINGS => self.binding(shard, &at),
            EXPORTS => self.export(shard, &at),
            SLICES => self.slice(&at),
            SCHEMAS => self.schema(shard, &at),
            WORKSPACES => self.workspace(shard, &at),
            TYPES => self.workspace_type(shard, &at),
            LOGICAL_CLUSTERS => self.logical_cluster(shard, &at.0),
            _ => self.content(shard, table, &at),
        }
        if self.state.leaving.contains(&at.0) {
            self.later(self.inner.delays.content, Step::Empty(at.0));
        }
    }

    /// An object that is not one of kcp's own was written.
    fn content(&mut self, shard: &Shard, table: &Arc<str>, at: &Key) {
        if let Some(names) = self.state.unbinding.get(&at.0) {
            for name in names.clone() {
                self.soon(Step::Unbind((at.0.clone(), name)));
            }
        }
        if self.wants_label(shard, table, at) {
            let step = Step::Label(at.0.clone(), table.clone(), at.1.clone());
            self.later(self.inner.delays.claims, step);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Schedule(workspace) => self.schedule(&workspace),
            Step::Endpoints(export) => self.endpoints(&export),
            Step::Bind(binding) => self.bind(&binding),
            Step::Claims(binding) => self.claims(&binding),
            Step::Label(cluster, table, path) => self.label(&cluster, &table, &path),
            Step::Unbind(binding) => self.unbind(&binding),
            Step::Empty(cluster) => self.empty(&cluster),
            Step::Copy(cluster) => self.copy(&cluster),
        }
    }

    pub(super) fn shard_of(&self, cluster: &str) -> Option<&'a Shard> {
        let entry = self.inner.directory.by_id(cluster)?;
        self.inner.shard(entry.shard)
    }

    /// An object of a logical cluster, and the shard of both.
    pub(super) fn read(&self, table: &str, at: &Key) -> Option<(&'a Shard, Value)> {
        let shard = self.shard_of(&at.0)?;
        Some((shard, shard.get(&at.0, table, &at.1)?))
    }

    pub(super) fn export_mut(&mut self, at: &Key) -> &mut Export {
        let shards = self.inner.shards.len();
        let exports = &mut self.state.exports;
        exports
            .entry(at.clone())
            .or_insert_with(|| Export::new(shards, at))
    }

    /// The export that an object of a logical cluster names.
    pub(super) fn export_of(&self, cluster: &str, reference: &Value) -> Option<Key> {
        let path = reference["path"].as_str().filter(|path| !path.is_empty());
        let entry = self.inner.directory.find(path.unwrap_or(cluster))?;
        Some((entry.id, reference["name"].as_str()?.to_owned()))
    }
}
