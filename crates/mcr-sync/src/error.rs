//! Errors of building and of running a sync.

use mcr::{BoxError, RequestKey};

use crate::{desired::TooManyFields, name::NameError, values::without_quoted_json};

/// The reason that conditions give for [`SyncError::NoStatus`].
pub(crate) const NO_STATUS: &str = "NoStatus";

/// Why a sync can't be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The name is not usable as a label and as a part of a finalizer.
    #[error(
        "the sync has the name {0:?}; use 1 to 50 lower case letters, digits and '-', with a letter or digit at both ends"
    )]
    Name(String),
    /// The [owner](crate::ObjectSync::owner) is not usable.
    #[error(
        "the sync has the owner {0:?}; use 1 to 63 lower case letters, digits and '-', with a letter or digit at both ends"
    )]
    Owner(String),
    /// The sync has no owner, so its targets can't be told from those of another installation.
    #[error(
        "the sync {0:?} is to delete orphans and has no owner; call `owner` with an id of this installation"
    )]
    NoOwner(String),
    /// Nothing names the clusters of the targets.
    #[error("the sync {0:?} has no placement; call `to`, `to_each` or `place`")]
    NoPlacement(String),
    /// The namespace of [`TargetNamespace::Fixed`](crate::TargetNamespace::Fixed) is not valid.
    #[error(
        "the sync has the namespace {0:?} for its targets; use 1 to 63 lower case letters, digits and '-', with a letter or digit at \
         both ends"
    )]
    Namespace(String),
    /// No function makes a target from a source.
    #[error("the sync {0:?} has no projection; call `project` or `mirror`")]
    NoProjection(String),
    /// [`mirror`](crate::ObjectSync::mirror) of a kind whose objects belong to their cluster, such as a Pod.
    #[error(
        "a {0} can't be mirrored, because it belongs to its cluster; use `project` to make another kind from it, or only the fields that \
         you choose"
    )]
    NotMirrored(String),
    /// The id of a relation to related objects is not usable as a label, or another relation has the same id.
    #[error(
        "a relation to related objects has the id {0:?}; use 1 to 50 lower case letters, digits and '-', with a letter or digit at \
         both ends, and a different one for each relation"
    )]
    RelatedId(String),
    /// The relation has no selection of related objects.
    #[error("the relation to related objects {0:?} chooses no objects; call `named`, `labelled` or `select`")]
    NoSelection(String),
    /// The controller refused its settings.
    #[error(transparent)]
    Controller(#[from] mcr::BuildError),
}

/// Why the sync of one source failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// A function of the user failed. The sync tries again when the source changes.
    #[error("the {function} of the source failed; it is tried again when the source changes: {source}")]
    Function {
        /// The function, in words.
        function: &'static str,
        /// The error of the function.
        source: BoxError,
    },
    /// The name of the target is not valid. The sync tries again when the source changes.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The target has too many fields. The sync tries again when the source changes.
    #[error(transparent)]
    TooManyFields(#[from] TooManyFields),
    /// The source kind has no status subresource, and the sync is to write a status.
    #[error(
        "the kind of {0} has no status subresource, so its status can't be written; add `subresources: {{status: {{}}}}` to its \
         CustomResourceDefinition, or leave out `status` and `condition`"
    )]
    NoStatus(RequestKey),
    /// An API server refused a request, or did not answer. The sync tries again with growing delays.
    #[error("could not {verb} {key}: {}{}", mcr::core::explain_error(.source), advice(.source))]
    Api {
        /// The verb of the failed request, for the message.
        verb: &'static str,
        /// The object.
        key: RequestKey,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// The target is larger than its server takes. The sync tries again when the source changes.
    #[error("{key} is too large for its server: {source}; project less data, or shorten the source")]
    TooLarge {
        /// The target.
        key: RequestKey,
        /// The error of the client.
        source: Box<kube::Error>,
    },
    /// Other field managers have set fields of the target to other values, and the sync is to report that. The sync
    /// tries again with growing delays.
    #[error(
        "others have set fields of {key} to values that the projection does not have: {fields}; let them give up these fields, \
         leave the fields out of the projection, or use `Conflicts::Revert`"
    )]
    Conflict {
        /// The target.
        key: RequestKey,
        /// Each field, with its manager.
        fields: String,
    },
    /// A target cluster has left the fleet between a read and a write. The sync tries again.
    #[error(transparent)]
    Cluster(#[from] mcr::ClusterNotFound),
    /// A target cluster did not answer in time, or too many requests wait for it already. The sync tries again.
    #[error("cluster {} does not answer in time, so {} there waits", .0.cluster, .0.object)]
    NoAnswer(RequestKey),
    /// The server refuses the name because an object has it, and does not show that object. kcp does this if the
    /// selector of a permission claim hides the object. The sync tries again.
    #[error(
        "an object that these credentials may not see has the name {0}; rename or delete it, or let the credentials see it, in kcp \
         by the labels of the permission claim"
    )]
    Hidden(RequestKey),
    /// The server does not report whether an object exists.
    #[error(
        "the server answered 404 for the kind of {0}, not for the object; install its CustomResourceDefinition, or correct the \
         version of the kind"
    )]
    NotServed(RequestKey),
    /// An annotation of the sync has a name that no object can have, so somebody else has written it. No request is
    /// sent for that name. The sync tries again when the source changes.
    #[error(
        "the annotation {annotation} of {key} has the name {}, which no object of the sync can have, so no request is sent for it; correct \
         the annotation",
        mcr::core::reason(&format!("{name:?}"))
    )]
    Annotation {
        /// The annotation.
        annotation: String,
        /// The source or the target that has it.
        key: RequestKey,
        /// The name.
        name: String,
    },
    /// A target exists although its source is gone. The sync never deletes such a target, because it can't be certain
    /// that the source was deleted.
    #[error(
        "{target} was made for {source_key}, which no longer exists. Most likely it was given up while its cluster was away, or somebody \
         removed the finalizer of the source. The target stays, because a source cluster that was restored from a backup would look the same; delete it by hand if \
         it is not needed"
    )]
    Orphan {
        /// The target.
        target: RequestKey,
        /// The source that it names.
        source_key: RequestKey,
    },
    /// A source has left the watch that `build_with` limits, and still exists. Its targets and its finalizer stay.
    #[error(
        "{key} is no longer in the watch of the sync, and still has the finalizer {finalizer}; put it back into the watch, for example by its \
         label, or remove the finalizer and delete its targets by hand"
    )]
    LeftWatch {
        /// The source.
        key: RequestKey,
        /// The finalizer.
        finalizer: String,
    },
    /// Another object has the name of the source by now. Nothing is reported, because the sync reconciles that object
    /// when its watch receives it.
    #[error("{0} is another object by now, which the watch of the sync does not have yet")]
    Replaced(RequestKey),
    /// In each attempt, the objects changed between the read and the write. The sync tries again.
    #[error("the source or its targets changed during each of {0} attempts to write; it is tried again")]
    TooManySteps(usize),
}

/// What to do about a refused request, if the answer itself gives no advice.
fn advice(error: &kube::Error) -> &'static str {
    match error {
        // Admission, and a namespace that is being deleted, also answer 403, and give advice of their own.
        kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot ") => {
            ". Grant this verb to the credentials of the cluster; it is tried again"
        }
        _ => "",
    }
}

impl SyncError {
    /// The failure of a function of the user.
    pub(crate) fn function(function: &'static str, error: BoxError) -> Self {
        let source = without_quoted_json(error);
        Self::Function { function, source }
    }

    /// The error for a name that no object can have, in an annotation of this object.
    pub(crate) fn annotation(
        annotation: impl Into<String>,
        key: RequestKey,
        name: impl Into<String>,
    ) -> Self {
        let (annotation, name) = (annotation.into(), name.into());
        Self::Annotation {
            annotation,
            key,
            name,
        }
    }

    /// Whether a retry can't help before the source changes.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Function { .. }
                | Self::Name(_)
                | Self::TooManyFields(_)
                | Self::TooLarge { .. }
                | Self::Annotation { .. }
                | Self::Orphan { .. }
                | Self::LeftWatch { .. }
        )
    }

    /// Whether a server refused the contents of an object.
    pub(crate) fn is_invalid(&self) -> bool {
        self.is_status(|status| status.code == 422)
    }

    /// Whether a server answered 404.
    pub(crate) fn is_not_found(&self) -> bool {
        self.is_status(kube::core::Status::is_not_found)
    }

    fn is_status(&self, is: impl FnOnce(&kube::core::Status) -> bool) -> bool {
        matches!(self, Self::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if is(status)))
    }

    /// The reason for the condition, in one word.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Function { .. } => "FunctionFailed",
            Self::Name(_) | Self::Annotation { .. } => "InvalidName",
            Self::TooManyFields(_) => "TooManyFields",
            Self::NoStatus(_) => NO_STATUS,
            Self::Api { .. } => "RequestFailed",
            Self::TooLarge { .. } => "TooLarge",
            Self::Conflict { .. } => "FieldConflict",
            Self::Cluster(_) => "ClusterAway",
            Self::NoAnswer(_) => "NoAnswer",
            Self::NotServed(_) => "NotServed",
            Self::Hidden(_) => "NameTaken",
            Self::Orphan { .. } => "Orphan",
            Self::LeftWatch { .. } => "LeftWatch",
            Self::Replaced(_) => "Replaced",
            Self::TooManySteps(_) => "Unsettled",
        }
    }
}
