//! Whether a reconciler is likely to wait for something.

/// After as many runs that were given a task unseen, one is looked at again.
const LONGEST: u32 = 64;

/// What a dispatcher has seen of its reconciler lately. One that waits each time is polled in vain each time before it is
/// given a task, so it is given one at once, and looked at again now and then.
#[derive(Debug, Default)]
pub(super) struct Habit {
    /// How many more are given a task at once.
    unseen: u32,
    /// How many were the last time.
    pause: u32,
}

impl Habit {
    /// Whether the next run is to have a task at once. If not, [`saw`](Self::saw) is to be told.
    pub(super) fn waits(&mut self) -> bool {
        let waits = self.unseen > 0;
        self.unseen = self.unseen.saturating_sub(1);
        waits
    }

    /// A run that was looked at ended at once, or it did not.
    pub(super) fn saw(&mut self, at_once: bool) {
        self.pause = if at_once {
            0
        } else {
            (self.pause * 2).clamp(1, LONGEST)
        };
        self.unseen = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(habit: &mut Habit, runs: usize, at_once: bool) -> usize {
        let mut looks = 0;
        for _ in 0..runs {
            if !habit.waits() {
                looks += 1;
                habit.saw(at_once);
            }
        }
        looks
    }

    #[test]
    fn what_never_waits_is_always_looked_at() {
        assert_eq!(looks(&mut Habit::default(), 1_000, true), 1_000);
    }

    #[test]
    fn what_always_waits_is_looked_at_ever_less_but_never_given_up() {
        let mut habit = Habit::default();
        // 1 + 2 + .. + 64, and the looks before each.
        assert_eq!(looks(&mut habit, 134, false), 7);
        assert_eq!(looks(&mut habit, 651, false), 11);
        // It has changed: that is seen at the next look, and believed.
        assert_eq!(looks(&mut habit, 164, true), 100);
    }
}
