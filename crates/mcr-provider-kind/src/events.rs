//! Decides which events of the engine cause an observation.
//!
//! An event only causes an observation, which queries the current state; the content of the event is not used. So
//! lost, repeated or late events do no harm, and the different events of the three engines need no state machines.

use serde_json::Value;

use crate::containers::CLUSTER;

/// The most bytes of a line. Every event is shorter.
const MAX_LINE: usize = 256 << 10;

/// Splits the stream into lines. A line that is too long is dropped and causes an observation.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial_line: Vec<u8>,
    too_long: bool,
}

impl Lines {
    /// Adds bytes. Returns whether they complete a line that causes an observation.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let mut observe = false;
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.append(&rest[..end]);
            observe |= self.too_long || causes_observation(&self.partial_line);
            self.partial_line.clear();
            self.too_long = false;
            rest = &rest[end + 1..];
        }
        self.append(rest);
        observe
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.too_long || self.partial_line.len() + bytes.len() > MAX_LINE {
            self.too_long = true;
            self.partial_line = Vec::new();
        } else {
            self.partial_line.extend_from_slice(bytes);
        }
    }
}

/// Whether a line causes an observation. A line that can't be parsed does cause one.
pub(crate) fn causes_observation(line: &[u8]) -> bool {
    if line.trim_ascii().is_empty() {
        return false;
    }
    let Ok(event) = serde_json::from_slice::<Value>(line) else {
        return true;
    };
    // Docker has the labels in Actor.Attributes, Podman in Attributes. nerdctl has no labels.
    for attributes in [&event["Actor"]["Attributes"], &event["Attributes"]] {
        if attributes
            .as_object()
            .is_some_and(|known| !known.is_empty() && !known.contains_key(CLUSTER))
        {
            return false;
        }
    }
    if let Some(topic) = event["Topic"].as_str() {
        return containerd_event_matters(topic, &event["Event"]);
    }
    if event["Type"].as_str().is_some_and(|what| what != "container") {
        return false;
    }
    let action = event["Action"].as_str().or(event["Status"].as_str());
    let Some(action) = action else { return true };
    // Events that cause no observation. `exec_…` and `exec` must be among them: the provider runs `exec` to read a
    // node, and would trigger itself for ever.
    const NOISE: [&str; 16] = [
        "exec", "health", "top", "attach", "detach", "resize", "kill", "copy", "archive", "extract",
        "commit", "export", "mount", "unmount", "init", "sync",
    ];
    !NOISE.iter().any(|noise| action.starts_with(noise))
}

/// Whether an event of nerdctl matters. nerdctl prints the events of containerd.
fn containerd_event_matters(topic: &str, event: &Value) -> bool {
    match topic {
        "/tasks/exit" | "/tasks/delete" => {
            let parsed = event
                .as_str()
                .and_then(|text| serde_json::from_str::<Value>(text).ok());
            let event = parsed.as_ref().unwrap_or(event);
            // The end of a command in a container has an ID that differs from the container's.
            match (event["id"].as_str(), event["container_id"].as_str()) {
                (Some(id), Some(container)) => id.is_empty() || id == container,
                _ => true,
            }
        }
        "/containers/create" | "/containers/update" | "/containers/delete" | "/tasks/start"
        | "/tasks/oom" | "/tasks/paused" | "/tasks/resumed" => true,
        // Events of images, snapshots and content, and starts of commands.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(name: &str) -> String {
        std::fs::read_to_string(format!("{}/tests/recorded/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    /// The first word of each recorded event, and whether the event causes an observation.
    fn reported(name: &str) -> Vec<(String, bool)> {
        let text = recorded(name);
        let lines = text.lines().filter(|line| !line.is_empty());
        let word = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            let word = [&event["Action"], &event["Topic"], &event["Status"]]
                .into_iter()
                .find_map(Value::as_str);
            word.unwrap_or_default()
                .split(':')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        lines
            .map(|line| (word(line), causes_observation(line.as_bytes())))
            .collect()
    }

    /// The words of a text, and whether each is a reason to observe, marked with `!`.
    fn expected(words: &str) -> Vec<(String, bool)> {
        let event = |word: &str| (word.trim_end_matches('!').to_owned(), word.ends_with('!'));
        words.split_whitespace().map(event).collect()
    }

    #[test]
    fn of_what_docker_reported_stops_starts_and_ends_are_reasons_to_look() {
        let expected = expected(
            "kill die! stop! start! exec_create exec_start exec_die exec_create exec_start exec_die \
                      kill die! destroy!",
        );
        assert_eq!(reported("docker-20.10-events.json"), expected);
    }

    #[test]
    fn of_what_podman_reports_only_kind_nodes_are_reasons_to_look() {
        let expected = expected("create! create init start! exec exec_died died! cleanup! remove!");
        assert_eq!(reported("podman-4.3-events.json"), expected);
    }

    #[test]
    fn of_what_nerdctl_passes_on_the_end_of_a_command_in_a_node_is_no_reason() {
        let expected = expected(
            "/snapshot/prepare /containers/create! /tasks/create /tasks/start! /tasks/exec-added \
                      /tasks/exec-started /tasks/exit /tasks/exit! /tasks/delete! /containers/delete!",
        );
        assert_eq!(reported("nerdctl-2-events.json"), expected);
    }

    #[test]
    fn what_is_not_understood_is_a_reason_and_what_is_endless_too() {
        assert!(causes_observation(b"Error: something"));
        assert!(causes_observation(br#"{"Action": "something new"}"#));
        assert!(causes_observation(b"[]"));
        assert!(!causes_observation(b" \r"));
        let mut lines = Lines::default();
        for _ in 0..MAX_LINE / 1000 + 10 {
            assert!(!lines.take(&[b'x'; 1000]));
            assert!(lines.partial_line.len() <= MAX_LINE);
        }
        assert!(lines.take(b"\n"));
        assert!(!lines.take(b"\n"));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_events_are_cut(cuts in proptest::collection::vec(1_usize..700, 0..40)) {
            let text = recorded("docker-20.10-events.json");
            let mut lines = Lines::default();
            let mut observations = 0;
            let mut rest = text.as_bytes();
            // Byte by byte around the cuts, so that no two lines end in one piece.
            for cut in cuts.into_iter().cycle().take(text.len()) {
                for byte in &rest[..cut.min(rest.len())] {
                    observations += usize::from(lines.take(std::slice::from_ref(byte)));
                }
                rest = &rest[cut.min(rest.len())..];
            }
            observations += rest.iter().filter(|byte| lines.take(std::slice::from_ref(byte))).count();
            prop_assert_eq!(observations, 5);
        }
    }
}
