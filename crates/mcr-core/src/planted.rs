//! Bugs planted on purpose, to see that the suite catches them: `cargo xtask planted`.
//!
//! Compiled only with `--cfg mcr_planted`, which no feature turns on, and without effect even then unless
//! `MCR_PLANTED` names one of them. Each is what a tired engineer could write and a tired reviewer could miss.

use std::sync::LazyLock;

macro_rules! bugs {
    ($($(#[$what:meta])* $bug:ident = $name:literal,)*) => {
        /// A planted bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$what])* $bug,)*
        }

        impl Bug {
            /// Whether this bug is the one that is planted.
            pub fn on(self) -> bool {
                static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MCR_PLANTED").ok());
                CHOSEN.as_deref() == Some(self.name())
            }

            fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

// `cargo xtask planted` has a table of the tests that must fail for each, and compares the names.
bugs! {
    /// Who waits for a silent cluster keeps its place among the lists and connections under way.
    SlotKept = "slot-kept-while-waiting",
    /// A cluster from which nothing is heard is not probed.
    NotProbed = "silence-not-probed",
    /// A lookup of one cluster makes the picture of the whole fleet.
    SlowLookup = "lookup-takes-a-snapshot",
    /// The connection of a cluster is not closed when the cluster is gone.
    LeftOpen = "connection-left-open",
    /// A watch goes on after its last handle.
    WatchLeft = "watch-outlives-its-handles",
    /// Another UID of `kube-system` passes for the same cluster.
    SameAnyway = "another-uid-is-the-same",
    /// The stores of a cluster that has left stay readable.
    StaysReadable = "old-store-stays-readable",
    /// A kind that is forbidden makes its whole cluster refuse requests.
    KindBlocksCluster = "forbidden-kind-blocks-cluster",
    /// Other credentials count as another place, which is listed.
    RotationLists = "rotation-lists-again",
    /// A plugin runs for every 401, however soon after the last.
    RunForEach401 = "plugin-run-for-each-401",
    /// Credentials are not renewed before they expire.
    NotRenewed = "credentials-not-renewed-in-time",
    /// What a plugin started lives on when the plugin is killed.
    ChildrenLeft = "plugin-children-left",
    /// What a plugin says on its standard error goes to the log.
    StderrLogged = "plugin-stderr-logged",
    /// A cluster keeps its turn in the queue as long as it has something.
    EndlessTurn = "turn-never-ends",
    /// Neither lists nor connections under way are bounded.
    NoCap = "no-cap-on-lists",
    /// What a new list no longer has is dropped without a word.
    SilentDeletes = "relist-tells-no-deletes",
    /// A list that broke off deletes what it had not got to.
    IncompleteDeletes = "incomplete-list-deletes",
    /// A delete of what is not held is told again.
    DeletedTwice = "delete-told-twice",
    /// What was seen in an earlier life of a cluster becomes work in its next.
    OldEpoch = "old-epoch-accepted",
    /// Runs of a cluster that left are forgotten, so that its keys run beside them when it returns.
    RunsForgotten = "runs-forgotten-on-leave",
    /// A cluster is unreachable for no reason.
    NoReason = "unreachable-without-reason",
    /// A broken answer is quoted in the error about it.
    Quoted = "broken-answer-quoted",
    /// An entry stays behind for each name there ever was.
    ClaimsKept = "entry-left-per-name",
}
