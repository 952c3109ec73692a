//! Random scripts.

use serde_json::{Value, json};

use crate::script::{Script, Step, delete, delete_with, get, patch, post, put};

/// splitmix64: the same script for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A script of this many writes and reads of a few objects, and all that happened at its end.
pub(crate) fn script(seed: u64, length: usize) -> Script {
    let mut dice = Dice(seed);
    let mut steps = vec![get("/api/v1/namespaces/{ns}").save("start", "/metadata/resourceVersion")];
    for _ in 0..length {
        steps.push(step(&mut dice));
    }
    for (base, _) in BASES {
        steps.push(get(base));
        // Of the namespace's own version the history starts.
        for query in [
            "",
            "&labelSelector=a%3Dx",
            "&labelSelector=%21a",
            "&fieldSelector=metadata.name%3Done",
        ] {
            let query = format!("{base}?watch=true&timeoutSeconds=2&resourceVersion={{start}}{query}");
            steps.push(get(&query));
        }
    }
    Script {
        name: format!("random_{seed}"),
        steps,
    }
}

const BASES: [(&str, bool); 2] = [
    ("/api/v1/namespaces/{ns}/configmaps", false),
    ("/apis/example.com/v1/namespaces/{ns}/widgets", true),
];

fn content(dice: &mut Dice, custom: bool) -> Value {
    let mut content = json!({});
    let value = dice.one(&["x", "y", "z"]);
    let field = dice.one(&["p", "q"]);
    if !custom {
        content["data"] = json!({ field: value });
        return content;
    }
    content["spec"] = json!({ "size": 1 + dice.below(2) });
    match dice.below(6) {
        0 => content["spec"]["tags"] = json!([value, "t"]),
        1 => {
            content["spec"]["parts"] = json!([{ "name": value, "count": dice.below(3) }, { "name": "last" }])
        }
        2 => content["spec"]["more"] = json!({ field: value }),
        3 => content["spec"]["color"] = json!(dice.one(&["red", "blue", "green"])),
        4 => content["spec"]["words"] = json!([value]),
        _ => content["status"] = json!({ "ready": dice.is(50) }),
    }
    content
}

fn object(dice: &mut Dice, custom: bool, name: &str) -> Value {
    let mut object = content(dice, custom);
    object["apiVersion"] = if custom { "example.com/v1" } else { "v1" }.into();
    object["kind"] = if custom { "Widget" } else { "ConfigMap" }.into();
    object["metadata"] = json!({ "name": name });
    if dice.is(50) {
        object["metadata"]["labels"] = json!({ "a": dice.one(&["x", "y"]) });
    }
    if dice.is(15) {
        object["metadata"]["finalizers"] = json!([dice.one(&["example.com/f", "example.com/g"])]);
    }
    object
}

fn step(dice: &mut Dice) -> Step {
    let (base, custom) = dice.one(&BASES);
    let name = dice.one(&["one", "two"]);
    let path = format!("{base}/{name}");
    let agent = dice.one(&["first/1", "second/1"]);
    let step = match dice.below(11) {
        0 | 1 => post(base, object(dice, custom, name)),
        2 => {
            let object = object(dice, custom, name);
            put(&path, object)
        }
        3 | 4 => {
            let mut change = content(dice, custom);
            if dice.is(30) {
                change["metadata"] =
                    json!({ "labels": { "a": dice.one(&[json!("x").as_str().map(|_| "x"), None]) } });
            }
            if dice.is(25) {
                change["metadata"] = json!({ "finalizers": null });
            }
            patch("merge", &path, change)
        }
        5 => {
            let status = json!({ "status": { "ready": dice.is(50) }, "spec": { "size": 9 } });
            patch("merge", &format!("{path}/status"), status)
        }
        6..=8 => {
            let manager = dice.one(&["alice", "carol"]);
            let force = if dice.is(40) { "&force=true" } else { "" };
            let object = object(dice, custom, name);
            patch("apply", &format!("{path}?fieldManager={manager}{force}"), object)
        }
        9 => delete(&path),
        _ => match dice.below(4) {
            0 => delete_with(&path, json!({ "propagationPolicy": "Background" })),
            1 => get(&path),
            2 => get(base),
            _ => delete(&format!("{base}?labelSelector=a%3Dx")),
        },
    };
    step.header("user-agent", agent)
}
