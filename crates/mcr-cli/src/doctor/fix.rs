//! Fixes: an action for people, commands for a shell, or both.

use std::fmt;

use serde::{Serialize, Serializer};

use super::command::Command;

/// The words with which actions begin. A text that begins with another word may be a command, which belongs into
/// [`Command`].
const VERBS: [&str; 15] = [
    "add",
    "allow",
    "choose",
    "compare",
    "correct",
    "give",
    "grant",
    "install",
    "look",
    "renew",
    "repeat",
    "restart",
    "run",
    "start",
    "synchronize",
];

/// The advice for a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fix {
    /// Text for people, which begins with a verb. Empty if the commands are all there is to do.
    action: String,
    commands: Vec<Command>,
}

impl Fix {
    /// An action for which there is no command. A command in the text would escape the tests of commands.
    pub(super) fn action(action: impl Into<String>) -> Self {
        let action = action.into();
        let verb = action.split(' ').next().unwrap_or_default();
        debug_assert!(VERBS.contains(&verb), "is this a command? {action}");
        Self {
            action,
            commands: Vec::new(),
        }
    }

    pub(super) fn run(command: Command) -> Self {
        Self {
            action: String::new(),
            commands: vec![command],
        }
    }

    /// Adds a command to be run after the others.
    pub(super) fn and_run(mut self, command: Command) -> Self {
        self.commands.push(command);
        self
    }

    /// The commands as a line for a shell. `None` if there are none.
    pub(super) fn line(&self) -> Option<String> {
        if self.commands.is_empty() {
            return None;
        }
        let lines: Vec<String> = self.commands.iter().map(Command::to_string).collect();
        Some(lines.join("; "))
    }

    /// The text, with the commands on a line of their own so that they can be copied.
    pub(super) fn lines(&self) -> Vec<String> {
        match self.line() {
            None => vec![self.action.clone()],
            Some(line) if self.action.is_empty() => vec![line],
            Some(line) => vec![format!("{}:", self.action), line],
        }
    }
}

impl From<Command> for Fix {
    fn from(command: Command) -> Self {
        Self::run(command)
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join(" "))
    }
}

impl Serialize for Fix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_a_line_of_their_own() {
        let fix = Fix::action("compare both")
            .and_run(Command::ShowClock)
            .and_run(Command::ShowUser);
        assert_eq!(fix.lines(), ["compare both:", "timedatectl; id"]);
        assert_eq!(fix.to_string(), "compare both: timedatectl; id");
        assert_eq!(Fix::run(Command::ShowUser).lines(), ["id"]);
        assert_eq!(Fix::action("repeat").lines(), ["repeat"]);
    }

    /// So that no command escapes the tests of [`Command`].
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "is this a command?")]
    fn a_command_is_no_action() {
        let _ = Fix::action("aws sso login");
    }
}
