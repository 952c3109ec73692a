//! Why targets are missed, as far as it is known.

use super::Verdict;

/// The suite, the beginning of the target's text, and the reason.
const REASONS: [(&str, &str, &str); 11] = [
    (
        "fleet",
        "time until all is synced, of go-concurrent's",
        "the floor takes nearly half of go-concurrent's time, too. Whether mcr meets the target differs from run to run.",
    ),
    (
        "fleet",
        "CPU of 500 idle clusters",
        "each probe of a silent cluster opens a connection of its own, with a TLS handshake. [A decision](design/decisions.md#connections-and-tls) has the reason.",
    ),
    (
        "fleet",
        "CPU of 5,000 idle clusters",
        "the same probes, of which the fleet sends at most 100 a second. They are not all of it; the rest is not known.",
    ),
    (
        "work",
        "reconciles a second",
        "the machine is the limit. The server and the subject together keep 1.7 of its 2 cores busy, so the rate depends on their CPU \
         time, most of which is the server's. The server takes more CPU time for the applies of mcr than for as many of kube-rs, and it \
         is not known why. One run of each is compared, and equal programs differ by up to 15 % here.",
    ),
    (
        "work",
        "CPU of all reconciles, of kube-rs-tuned's",
        "the reason is not known. The difference is 18 us for each reconcile, in one run of each.",
    ),
    (
        "workspaces",
        "time to engage one more",
        "the reason is not known. If the APIBinding is not ready at the first announcement, the workspace is engaged only after another \
         event of the shard.",
    ),
    (
        "sync",
        "time",
        "the subject and the simulator keep both cores busy, so the time follows the CPU time.",
    ),
    (
        "sync",
        "CPU until all is copied",
        "mcr-sync compares a source and its targets field by field before and after each of its writes, and again at the event of each \
         write. The program by hand compares once. In a profile of mcr-sync the comparisons take 19 % of the CPU time and the writes 22 \
         %.",
    ),
    ("sync", "CPU of a burst", "as for the first copies."),
    (
        "sync",
        "CPU of a restart",
        "the ratio is about 1, and differs a little from run to run.",
    ),
    (
        "queue",
        "the slowest of 10 to 10,000 clusters",
        "the queues of 10,000 clusters do not fit into the caches of the processor, and those of 10 clusters do.",
    ),
];

/// A list of the targets that were missed, with their reasons. Empty if none was missed.
pub(super) fn reasons(verdicts: &[Verdict]) -> String {
    let missed = verdicts.iter().filter(|verdict| verdict.met() == Some(false));
    let lines = missed.map(|verdict| {
        let reason = REASONS
            .iter()
            .find(|(suite, what, _)| *suite == verdict.suite && verdict.what.starts_with(what));
        let reason = reason.map_or("the reason is not known yet.", |(_, _, reason)| *reason);
        format!("- `{}`, {}: {reason}\n", verdict.suite, verdict.what)
    });
    let lines: String = lines.collect();
    if lines.is_empty() {
        return lines;
    }
    format!("\nMissed, and why:\n\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Row;

    #[test]
    fn each_reason_belongs_to_a_target() {
        let verdicts = super::super::verdicts(&[]);
        for (suite, what, reason) in REASONS {
            let mut targets = verdicts.iter().filter(|verdict| verdict.suite == suite);
            assert!(
                targets.any(|verdict| verdict.what.starts_with(what)),
                "{suite}: {what}"
            );
            assert!(reason.ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn only_what_was_missed_has_a_reason() {
        assert_eq!(reasons(&super::super::verdicts(&[])), "");
        let queue = |clusters, value| Row {
            value: Some(value),
            ..Row::new("queue", "mcr", clusters, 1)
        };
        let rows = [
            queue(10, 4e6),
            queue(100, 4e6),
            queue(1_000, 5e5),
            queue(10_000, 2e6),
        ];
        let text = reasons(&super::super::verdicts(&rows));
        assert!(
            text.starts_with("\nMissed, and why:\n\n- `queue`, pushes and pops"),
            "{text}"
        );
        assert!(text.contains(": the reason is not known yet.\n"), "{text}");
        assert!(
            text.contains("the slowest of 10 to 10,000 clusters, of the fastest: the queues"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 5);
    }
}
