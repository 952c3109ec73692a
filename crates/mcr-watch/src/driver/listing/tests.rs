use std::sync::Arc;

use super::*;
use crate::{budget::ListBudget, settings::WatchSettings};

const LIMIT: Duration = Duration::from_secs(300);

async fn listing(source: Source) -> Listing {
    let budget = Arc::new(ListBudget::new(&WatchSettings::default()));
    let reservation = budget.begin(mcr_access::ClusterName::unchecked("a")).await;
    Listing::new(EndpointNumber(1), source, reservation, None, BTreeSet::new())
}

fn page(version: &str, token: Option<&str>) -> ListEnd {
    ListEnd {
        resource_version: version.to_owned(),
        continue_token: token.map(str::to_owned),
    }
}

fn api(code: u16) -> WatchError {
    WatchError::Api {
        code,
        message: String::new(),
        retry_after: None,
    }
}

fn endless() -> WatchError {
    WatchError::ListWithoutEnd {
        pages: 1,
        objects: 2,
        took: LIMIT,
    }
}

#[test]
fn pages_shrink_when_they_break_off_and_grow_when_they_are_quick() {
    let mut paging = Paging::new(500);
    let mut sizes = vec![];
    for _ in 0..7 {
        paging.broke_off(Source::Pages);
        sizes.push(paging.size());
    }
    assert_eq!(sizes, [250, 125, 62, 31, 15, 10, 10]);
    paging.succeeded(LIMIT / 10, LIMIT);
    assert_eq!(paging.size(), 10, "not quick");
    for size in [20, 40, 80, 160, 320, 500, 500] {
        paging.succeeded(LIMIT / 11, LIMIT);
        assert_eq!(paging.size(), size);
    }
    // A size that the user has chosen is never exceeded.
    let mut small = Paging::new(3);
    small.broke_off(Source::Pages);
    assert_eq!(small.size(), 3);
    assert_eq!(Paging::new(0).size(), 1);
}

#[test]
fn after_pages_have_expired_one_list_is_whole_unless_that_was_too_much_before() {
    let mut paging = Paging::new(500);
    paging.expired();
    assert_eq!(paging.begin(false), Source::Whole);
    assert_eq!(paging.begin(false), Source::Pages, "once");
    paging.expired();
    paging.watched();
    assert_eq!(paging.begin(false), Source::Pages, "a watch has continued");
    paging.broke_off(Source::Whole);
    paging.expired();
    assert_eq!(paging.begin(false), Source::Pages);
}

#[tokio::test]
async fn only_what_may_pass_keeps_the_pages_that_have_arrived() {
    let mut list = listing(Source::Pages).await;
    let broken = WatchError::Transport(String::new());
    assert!(!list.resumes_after(&broken), "there is nothing yet");
    list.next(page("7", Some("b")));
    let passing = [
        broken,
        WatchError::Timeout(LIMIT),
        WatchError::TooManyRequests { retry_after: None },
        WatchError::Unauthorized,
        api(500),
        api(503),
    ];
    for error in passing {
        list.failures = 0;
        assert!(list.resumes_after(&error), "{error}");
    }
    let (bytes, limit) = (2, 1);
    let lasting = [
        WatchError::Expired,
        WatchError::NotServed,
        WatchError::Malformed(String::new()),
        api(400),
        api(422),
        WatchError::ListTooLarge { bytes, limit },
        WatchError::ListBudgetSpent { bytes, limit },
        WatchError::HoldsTooMuch { bytes, limit },
        endless(),
    ];
    for error in lasting {
        list.failures = 0;
        assert!(!list.resumes_after(&error), "{error}");
    }
}

/// Lists pages until one is too many, or until so many have come. Returns how many came.
async fn pages(most: u32, seconds: u64, objects: impl Fn(u32) -> usize) -> (u32, Option<String>) {
    let mut list = listing(Source::Pages).await;
    for number in 1..=most {
        let took = Duration::from_secs(seconds);
        tokio::time::advance(took).await;
        let token = (number < most).then_some("more");
        if let Err(error) = list.advance(
            page("7", token),
            (objects(number), took),
            &WatchSettings::default(),
        ) {
            assert!(list.reservation.limit() > 0 && !list.resumes_after(&error));
            return (number, Some(error.to_string()));
        }
    }
    (most, None)
}

#[tokio::test(start_paused = true)]
async fn a_list_has_an_end() {
    let empty = |_| 0;
    for (most, seconds, objects, came) in [
        // At once, or each so slow that it is just no failure.
        (1_000, 0, &empty as &dyn Fn(u32) -> usize, Some(200)),
        (1_000, 299, &empty, Some(3)),
        // An object now and then.
        (1_000, 299, &|number| usize::from(number % 2 == 0), Some(13)),
        (
            200_000,
            0,
            &|number| usize::from(number % 100 == 0),
            Some(100_000),
        ),
        // Ten minutes over a slow link, with pages that a proxy has filtered in between; and the last page has no token.
        (600, 1, &|number| if number % 100 == 0 { 500 } else { 0 }, None),
        (200, 2, &empty, None),
        (20, 120, &|_| 500, None),
        (50_000, 0, &|_| 500, None),
    ] {
        let (number, error) = pages(most, seconds, objects).await;
        assert_eq!(
            (number, error.is_some()),
            (came.unwrap_or(most), came.is_some()),
            "{most} pages of {seconds} s"
        );
    }
    let (_, error) = pages(1_000, 1, |number| usize::from(number == 1)).await;
    assert_eq!(
        error.unwrap(),
        "the list has no end: after 201 pages with 1 objects and 201 s the API server names another page. Check the API server \
         and what is in front of it, or watch fewer objects with a selector"
    );
}

#[test]
fn a_list_whose_head_comes_late_comes_in_pages() {
    let (late, soon) = (LATE, LATE / 2);
    let broken = || WatchError::Transport(String::new());
    for (took, error, then) in [
        (late, broken(), Source::Pages),
        (late, WatchError::Timeout(LIMIT), Source::Pages),
        (late, api(504), Source::Pages),
        (late, api(503), Source::Cache),
        (late, WatchError::Unauthorized, Source::Cache),
        (soon, broken(), Source::Cache),
        (soon, api(504), Source::Cache),
    ] {
        let mut paging = Paging::new(500);
        let source = paging.begin(true);
        paging.refused(source, took, &error);
        assert_eq!(paging.begin(true), then, "{error} after {took:?}");
    }
}

#[tokio::test]
async fn a_page_that_fails_again_and_again_ends_the_list() {
    let mut list = listing(Source::Pages).await;
    list.next(page("7", Some("b")));
    let resumed = [(); 10].map(|()| list.resumes_after(&api(500)));
    assert_eq!(resumed.iter().filter(|resumed| **resumed).count(), 9);
    list.next(page("7", Some("c")));
    assert!(list.resumes_after(&api(500)), "another page");
}

impl Listing {
    /// A page with an object has arrived.
    fn next(&mut self, end: ListEnd) -> bool {
        self.advance(end, (1, Duration::ZERO), &WatchSettings::default())
            .unwrap()
    }
}
