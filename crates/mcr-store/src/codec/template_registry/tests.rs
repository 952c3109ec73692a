use super::*;
use crate::codec::facts::InlineFacts;

const WATCH: WatchId = WatchId(0);

/// A registry with so many watches that each has the smallest quota.
fn registry() -> TemplateRegistry {
    let registry = TemplateRegistry::new(Encoding::new("v1", "ConfigMap"));
    for number in 0..MAX_SHARES {
        assert_eq!(registry.watch(), WatchId(number as u64));
    }
    registry
}

fn encoding_for(registry: &TemplateRegistry, json: &str, uid: Uid, watch: WatchId) -> Option<Encoding> {
    let inline = InlineFacts {
        namespace: false,
        uid: false,
        resource_version: false,
        generation: false,
    };
    let placeholders = json.matches('\x7f').count();
    registry.encoding_for(TemplateKey { inline, json }, placeholders, uid, watch)
}

fn uid(number: u32) -> Uid {
    Uid::read(&format!("6e0c7b4e-0b7c-4b58-9d3e-{number:012}")).0
}

/// How many templates there are, and how many keys that one object has. Checks the usage on the way.
fn counts(registry: &TemplateRegistry) -> (usize, usize) {
    let templates = registry.templates.read();
    let mut by_watch = HashMap::<WatchId, Usage>::new();
    let mut all = Usage::default();
    for entry in &templates.entries {
        all.add(bytes_of(&entry.encoding));
        by_watch
            .entry(entry.watch)
            .or_default()
            .add(bytes_of(&entry.encoding));
    }
    assert_eq!(templates.all, all);
    assert_eq!(templates.by_watch, by_watch);
    assert!(all.templates <= MAX_TEMPLATES && all.bytes <= MAX_BYTES);
    (all.templates, templates.seen_once.len())
}

#[test]
fn a_template_is_made_for_the_second_object() {
    let registry = registry();
    assert!(encoding_for(&registry, "a", uid(1), WATCH).is_none());
    // The same object comes again, after a change or in another list.
    assert!(encoding_for(&registry, "a", uid(1), WATCH).is_none());
    assert!(encoding_for(&registry, "b", uid(2), WATCH).is_none());
    let encoding = encoding_for(&registry, "a", uid(2), WATCH).unwrap();
    assert!(
        encoding_for(&registry, "a", uid(1), WATCH)
            .unwrap()
            .is_same(&encoding)
    );
    assert_eq!(counts(&registry).0, 1);
}

#[test]
fn objects_without_anything_in_common_take_no_memory() {
    let registry = registry();
    for number in 0..20_000_u32 {
        assert!(encoding_for(&registry, &number.to_string(), uid(number), WATCH).is_none());
    }
    let (templates, seen_once) = counts(&registry);
    assert_eq!(templates, 0);
    assert!(seen_once <= MAX_SEEN_ONCE);
}

#[test]
fn clusters_that_are_read_one_after_the_other_share_templates() {
    let registry = registry();
    let mut held = Vec::new();
    let of_cluster = |cluster: u32| {
        let watch = WatchId(cluster.into());
        let of_one = |number: u32| {
            encoding_for(
                &registry,
                &number.to_string(),
                uid(10_000 * cluster + number),
                watch,
            )
        };
        let before = held.len();
        held.extend((0..1_500).filter_map(of_one));
        held.len() - before
    };
    // Each cluster adds its quota, 512, to those of the clusters before it.
    assert_eq!([0, 1, 2, 3].map(of_cluster), [0, 512, 1024, 1500]);
}

/// Encodes two objects for each of `count` keys. Returns the encodings with a template.
fn pairs(registry: &TemplateRegistry, from: u32, count: usize, watch: WatchId) -> Vec<Encoding> {
    let numbers = (from..).take(count);
    let pair = |number: u32| {
        let json = number.to_string();
        let _ = encoding_for(registry, &json, uid(2 * number), watch);
        encoding_for(registry, &json, uid(2 * number + 1), watch)
    };
    numbers.filter_map(pair).collect()
}

/// Fills the registry, each watch its quota.
fn fill(registry: &TemplateRegistry) -> Vec<Encoding> {
    let quota = MAX_TEMPLATES / MAX_SHARES;
    let of_watch = |watch: usize| pairs(registry, (watch * quota) as u32, quota, WatchId(watch as u64));
    (0..MAX_SHARES).flat_map(of_watch).collect()
}

#[test]
fn a_single_watch_may_fill_the_registry() {
    let registry = TemplateRegistry::new(Encoding::new("v1", "ConfigMap"));
    let watch = registry.watch();
    assert_eq!(pairs(&registry, 0, MAX_TEMPLATES + 1, watch).len(), MAX_TEMPLATES);
}

#[test]
fn one_watch_leaves_room_for_others() {
    let registry = registry();
    let held = pairs(&registry, 0, MAX_TEMPLATES, WATCH);
    assert_eq!(held.len(), MAX_TEMPLATES / MAX_SHARES);
    let others = pairs(&registry, 1 << 20, 10, WatchId(1));
    assert_eq!(others.len(), 10);
    assert_eq!(counts(&registry).0, MAX_TEMPLATES / MAX_SHARES + 10);
}

#[test]
fn unused_templates_make_room() {
    let registry = registry();
    let mut held = fill(&registry);
    assert_eq!((held.len(), counts(&registry).0), (MAX_TEMPLATES, MAX_TEMPLATES));
    assert!(pairs(&registry, 1 << 20, 1, WATCH).is_empty());
    held.truncate(10);
    let one_more = |round: u32| pairs(&registry, (1 << 20) + round, 1, WATCH).len();
    let later: usize = (1..=MAX_TEMPLATES as u32 + 1).map(one_more).sum();
    assert!(later > 0);
    counts(&registry);
    for (number, encoding) in (0_u32..).zip(&held) {
        assert!(
            encoding_for(&registry, &number.to_string(), uid(7), WATCH)
                .unwrap()
                .is_same(encoding)
        );
    }
}

#[test]
fn large_templates_are_bounded_by_all_that_they_take() {
    let registry = registry();
    let make = |json: &str, watch| {
        let _ = encoding_for(&registry, json, uid(1), watch);
        encoding_for(&registry, json, uid(2), watch)
    };
    let largest = "1".repeat(MAX_TEMPLATE);
    assert!(make(&largest, WATCH).is_some());
    assert!(make(&[&largest, "1"].concat(), WATCH).is_none());
    // Each placeholder takes four bytes for its position.
    let placeholders = |number: u64| {
        let json = format!("{}{number}", "\x7f".repeat(MAX_TEMPLATE / 2));
        make(&json, WatchId(number))
    };
    let held: Vec<Encoding> = (1..100).filter_map(placeholders).collect();
    assert!(held.len() < MAX_BYTES / (4 * MAX_TEMPLATE / 2), "{}", held.len());
    assert_eq!(counts(&registry).0, held.len());
}
