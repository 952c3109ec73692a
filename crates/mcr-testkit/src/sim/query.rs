use super::cause::Cause;
use super::error::SimError;
use super::kinds::Kind;
use super::selector::Selector;

/// The query of a request, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name)
            .filter(|value| !value.is_empty())
            .map(|value| !matches!(value, "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, SimError> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        match text.parse::<i64>() {
            Ok(number) => Ok(u64::try_from(number).ok().filter(|number| *number > 0)),
            Err(_) => Err(SimError::bad_request(format!(
                "strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))),
        }
    }

    /// Whether the write is a dry run.
    pub fn dry_run(&self, options: &str) -> Result<bool, SimError> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let cause = Cause::unsupported("dryRun", format!("[\"{other}\"]"), &["All"]);
                Err(SimError::invalid_options(options, &[cause]))
            }
        }
    }
}

/// The resource version that a list or watch requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// No version was requested: the newest state.
    Newest,
    /// Version `0` was requested: any state.
    Any,
    Version(u64),
}

/// The options of a list or watch.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub selector: Selector,
    pub from: From,
    pub exact: bool,
    /// Whether the request has a `resourceVersionMatch`.
    pub matching: bool,
    pub limit: Option<u64>,
    pub token: Option<String>,
    pub timeout: Option<u64>,
    pub bookmarks: bool,
    /// `sendInitialEvents`, if the request has it.
    pub initial: Option<bool>,
}

impl ListOptions {
    pub fn parse(kind: &Kind, query: &Query) -> Result<Self, SimError> {
        let watch = query.flag("watch") == Some(true);
        let limit = query.number("limit")?;
        let timeout = query.number("timeoutSeconds")?;
        validate(query, watch)?;
        let selector = Selector::parse(kind, query.text("labelSelector"), query.text("fieldSelector"))?;
        let version = query.text("resourceVersion");
        let from = match version {
            "" => From::Newest,
            "0" => From::Any,
            text => match text.parse() {
                Ok(version) => From::Version(version),
                Err(_) => {
                    let why = format!(
                        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
                    );
                    return Err(if watch {
                        SimError::internal(why)
                    } else {
                        SimError::bad_request(format!("invalid resource version: {why}"))
                    });
                }
            },
        };
        Ok(Self {
            selector,
            from,
            exact: query.text("resourceVersionMatch") == "Exact",
            matching: !query.text("resourceVersionMatch").is_empty(),
            limit,
            token: query
                .get("continue")
                .filter(|token| !token.is_empty())
                .map(str::to_owned),
            timeout,
            bookmarks: query.flag("allowWatchBookmarks") == Some(true),
            initial: query.flag("sendInitialEvents"),
        })
    }
}

/// Refuses the combinations of options that Kubernetes refuses.
fn validate(query: &Query, watch: bool) -> Result<(), SimError> {
    const MATCH: &str = "resourceVersionMatch";
    let (version, matching) = (query.text("resourceVersion"), query.text(MATCH));
    let continued = !query.text("continue").is_empty();
    let initial = query.flag("sendInitialEvents").is_some();
    let refused = match (watch, matching) {
        (true, "NotOlderThan") if initial => continued,
        (true, matching) => initial || continued || !matching.is_empty(),
        (false, "") => initial,
        (false, "NotOlderThan") => initial || continued || version.is_empty(),
        (false, "Exact") => initial || continued || matches!(version, "" | "0"),
        (false, _) => true,
    };
    if refused {
        let cause = Cause::forbidden(MATCH, "it does not fit the other options");
        return Err(SimError::invalid_options("ListOptions", &[cause]));
    }
    Ok(())
}
