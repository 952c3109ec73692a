use std::sync::Arc;

use crate::inner::Inner;
use crate::shard::Shard;
use crate::state::Applied;
use mcr_testkit::sim::SimError;
use mcr_testkit::sim::kinds::{Kind, Kinds};

use super::ExportPath;

/// What a request may see of an export on a shard at this moment.
pub(super) struct Access {
    pub(super) kinds: Kinds,
    /// The value of the label that the export's bindings have.
    pub(super) hash: String,
    /// The identities of exports that some logical cluster of this shard has bound.
    bound_identities: Vec<String>,
    identity: String,
    claims: Vec<ExportClaim>,
    /// The claims that apply in the requested logical cluster.
    applied: Vec<Applied>,
    /// Whether the requested logical cluster has bound the export.
    pub(super) is_bound: bool,
}

/// A claim in the export itself.
struct ExportClaim {
    tables: Vec<Arc<str>>,
    verbs: Vec<String>,
    label: (String, String),
}

/// Why the virtual workspace serves a kind.
pub(super) enum Source<'a> {
    Exported,
    Bindings,
    Claimed {
        /// The label that claimed objects have.
        label: &'a (String, String),
        verbs: &'a [String],
        /// The claim as the logical cluster has accepted it.
        applied: Option<&'a Applied>,
    },
}

impl Access {
    pub(super) fn of(inner: &Inner, shard: &Shard, export_path: &ExportPath) -> Result<Self, SimError> {
        let state = inner.control.lock();
        let key = (Arc::from(&*export_path.cluster), export_path.export.clone());
        let export = state.exports.get(&key).filter(|export| export.exists);
        let Some(export) = export else {
            return Err(SimError::internal("API export not found"));
        };
        let target = export_path.target.as_deref().unwrap_or_default();
        let on = |number: usize| export.on.get(number);
        let bound = state.exports.values().filter(|export| {
            let on = export.on.get(shard.number);
            on.is_some_and(|on| !on.bound.is_empty())
        });
        let applied = state.claims.get(target).into_iter().flatten();
        Ok(Self {
            kinds: export.kinds.clone(),
            hash: export.hash.clone(),
            bound_identities: bound.map(|export| export.identity.clone()).collect(),
            identity: export.identity.clone(),
            claims: export
                .claims
                .iter()
                .map(|claim| ExportClaim {
                    tables: claim.tables(),
                    verbs: claim.verbs.clone(),
                    label: claim.label(&export.hash),
                })
                .collect(),
            applied: applied
                .filter(|claim| claim.label.0.ends_with(&export.hash))
                .cloned()
                .collect(),
            is_bound: on(shard.number).is_some_and(|on| on.bound.contains_key(target)),
        })
    }

    /// Whether a kind belongs to an export that nobody on this shard has bound. Then lists have no resource version,
    /// and watches never deliver events.
    pub(super) fn is_dead(&self, kind: &Kind) -> bool {
        let identity = kind.table.split_once(':').map(|(_, identity)| identity);
        identity.is_some_and(|identity| !self.bound_identities.iter().any(|bound| bound == identity))
    }

    pub(super) fn source(&self, kind: &Kind) -> Source<'_> {
        let has = |tables: &[Arc<str>]| tables.contains(&kind.table);
        let claim = self.claims.iter().find(|claim| has(&claim.tables));
        if kind.table.ends_with(&format!(":{}", self.identity)) {
            return Source::Exported;
        }
        match claim {
            Some(claim) if &*kind.table != crate::kinds::BINDINGS => Source::Claimed {
                label: &claim.label,
                verbs: &claim.verbs,
                applied: self.applied.iter().find(|claim| has(&claim.tables)),
            },
            _ => Source::Bindings,
        }
    }
}
