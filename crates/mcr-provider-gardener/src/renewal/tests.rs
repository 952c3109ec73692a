use proptest::prelude::*;

use super::*;

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

#[test]
fn a_kubeconfig_of_an_hour_is_renewed_in_its_last_third() {
    assert_eq!(renew_after(minutes(60), 0.0), minutes(54));
    assert_eq!(renew_after(minutes(60), 1.0), Duration::from_secs(2592));
}

#[test]
fn a_short_kubeconfig_is_renewed_in_the_middle_of_its_life() {
    assert_eq!(renew_after(minutes(8), 0.0), minutes(4));
    assert_eq!(renew_after(minutes(10), 0.0), minutes(5));
}

#[test]
fn a_kubeconfig_of_a_seed_is_read_again_once_gardener_should_have_renewed_it() {
    assert_eq!(read_again_after(Some(minutes(60))), minutes(65));
    assert_eq!(read_again_after(None), minutes(60));
    assert_eq!(read_again_after(Some(Duration::MAX)), FOREVER);
}

proptest! {
    #[test]
    fn a_renewal_leaves_time_to_try_again(seconds in 0_u64..10_000_000, chance in 0.0..=1.0) {
        let life = Duration::from_secs(seconds);
        let after = renew_after(life, chance);
        let left = life - after;
        prop_assert!(left >= (life / 2).min(RESERVE), "{left:?} of {life:?}");
        prop_assert!(after >= life.mul_f64(0.39), "{after:?} of {life:?}: too many requests");
    }
}
