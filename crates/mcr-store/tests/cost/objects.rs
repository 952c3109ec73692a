//! Objects as clusters have them: what is the same in all of a kind, what is the same in all of an application, and what
//! is like nothing else (UIDs, digests, addresses, times).
//!
//! An object is a text with `<…>` in it. `<app>` is a part by its name, `<:time>` what a generator makes, and `<created:time>` the
//! same with a name, by which it comes again.

use std::collections::HashMap;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::Value;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    SmallConfigMap,
    ConfigMap,
    Pod,
    Deployment,
    Certificate,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::SmallConfigMap,
        Self::ConfigMap,
        Self::Pod,
        Self::Deployment,
        Self::Certificate,
    ];

    /// Its version, its name, and its objects.
    pub(crate) fn of(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::SmallConfigMap => ("v1", "ConfigMap", include_str!("small_config_map.txt")),
            Self::ConfigMap => ("v1", "ConfigMap", include_str!("config_map.txt")),
            Self::Pod => ("v1", "Pod", include_str!("pod.txt")),
            Self::Deployment => ("apps/v1", "Deployment", include_str!("deployment.txt")),
            Self::Certificate => (
                "cert-manager.io/v1",
                "Certificate",
                include_str!("certificate.txt"),
            ),
        }
    }

    /// The object of this number in a cluster, whole, with its `managedFields`.
    pub(crate) fn object(self, cluster: usize, number: usize) -> Value {
        let (version, kind, text) = self.of();
        let mut object: Value = serde_json::from_str(&Parts::new(cluster, number).filled(text)).unwrap();
        object["apiVersion"] = version.into();
        object["kind"] = kind.into();
        object
    }
}

const APPS: &str =
    "checkout cart payments search catalog ledger mailer gateway profiles reports inventory sessions";
const TEAMS: &str = "storefront platform finance data";
const REGIONS: &str = "eu-central-1 eu-west-1 us-east-1 us-west-2 ap-south-1";

/// The parts of one object.
struct Parts {
    random: StdRng,
    known: HashMap<String, String>,
}

impl Parts {
    fn new(cluster: usize, number: usize) -> Self {
        let mut parts = Self {
            random: StdRng::seed_from_u64((cluster * 1_000 + number) as u64),
            known: HashMap::new(),
        };
        let nth = |words: &str, nth: usize| {
            let words: Vec<&str> = words.split(' ').collect();
            words[nth % words.len()].to_owned()
        };
        for (name, part) in [
            ("cluster", cluster.to_string()),
            ("number", number.to_string()),
            ("app", nth(APPS, number)),
            ("team", nth(TEAMS, number)),
            ("region", nth(REGIONS, cluster)),
            ("level", nth("info warn debug", number)),
            ("version", format!("{}.<:0..20>.<:0..10>", number % 4 + 1)),
            (
                "image",
                "registry.<region>.internal/<team>/<app>:<version>".to_owned(),
            ),
            ("set", "<app>-<:hex9>".to_owned()),
            ("host", "10.<cluster>.<:0..256>.<:1..255>".to_owned()),
            ("ip", "10.<cluster>.<:0..256>.<:1..255>".to_owned()),
            ("token", "<:suffix>".to_owned()),
            ("metadata", include_str!("metadata.txt").to_owned()),
            ("labels", include_str!("labels.txt").to_owned()),
            ("pod_spec", include_str!("pod_spec.txt").to_owned()),
        ] {
            parts.known.insert(name.to_owned(), part);
        }
        parts
    }

    /// The text with all its parts.
    fn filled(&mut self, text: &str) -> String {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('<') {
            let (part, behind) = after.split_once('>').unwrap();
            filled.push_str(before);
            let (name, how) = part.split_once(':').unwrap_or((part, ""));
            let part = match self.known.get(name).cloned() {
                Some(known) => self.filled(&known),
                None => self.made(how),
            };
            filled.push_str(&part);
            self.known.insert(name.to_owned(), part);
            // What has no name is made anew each time.
            self.known.remove("");
            rest = behind;
        }
        filled + rest
    }

    fn made(&mut self, how: &str) -> String {
        let mut any = |letters: &[u8], count: usize| {
            let letter = |_| char::from(letters[self.random.random_range(0..letters.len())]);
            (0..count).map(letter).collect::<String>()
        };
        if let Some(digits) = how.strip_prefix("hex") {
            return any(b"0123456789abcdef", digits.parse().unwrap());
        }
        match how {
            // As generated names end.
            "suffix" => any(b"bcdfghjklmnpqrstvwxz2456789", 5),
            "uid" => self.filled("<:hex8>-<:hex4>-<:hex4>-<:hex4>-<:hex12>"),
            "time" => {
                let parts = [(1, 13), (1, 29), (0, 24), (0, 60), (0, 60)];
                let [month, day, hour, minute, second] =
                    parts.map(|(from, to)| self.random.random_range(from..to));
                format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
            }
            range => {
                let (from, to) = range.split_once("..").unwrap();
                let (from, to): (u32, u32) = (from.parse().unwrap(), to.parse().unwrap());
                self.random.random_range(from..to).to_string()
            }
        }
    }
}
