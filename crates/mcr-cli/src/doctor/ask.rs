//! Sends requests to an API server with the credentials of the cluster.

use std::{fmt, str::FromStr, time::Duration};

use futures::future::{BoxFuture, FutureExt, join_all};
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview},
};
use kube::{
    Api as KubeApi, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use mcr_core::doctor::{Finding, Fix, Level, Right, Selected};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::session::{is_forbidden, text_of};

/// The number of objects in one answer.
const PAGE: u32 = 500;

/// A resource that a controller works on: `configmaps`, `deployments.apps`, `pods/log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupResource {
    plural: String,
    group: String,
    subresource: Option<String>,
    /// The name of an object, if the rights are for this object only.
    name: Option<String>,
}

impl FromStr for GroupResource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, subresource) = match text.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (text, None),
        };
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let word = |word: &str| word == "*" || crate::values::is_dns_label(word);
        let fits = word(plural)
            && (group.is_empty() || crate::values::is_subdomain(group))
            && subresource.is_none_or(word)
            && !resource.ends_with('.');
        if !fits {
            return Err(format!(
                "{text:?} is not a resource; write configmaps, deployments.apps or pods/log"
            ));
        }
        Ok(Self {
            plural: plural.to_owned(),
            group: group.to_owned(),
            subresource: subresource.map(str::to_owned),
            name: None,
        })
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.subresource {
            Some(subresource) => write!(f, "/{subresource}"),
            None => Ok(()),
        }
    }
}

/// The answers of an API server to the credentials of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Api {
    pub(super) version: Result<Version, String>,
    /// `None`: the server does not report the user.
    pub(super) user: Option<String>,
    pub(super) rights: Vec<Answer>,
    /// The namespace of the rights. `None`: all namespaces.
    pub(super) namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) shown: String,
    pub(super) minor: Option<u32>,
    pub(super) took: Duration,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Kubernetes {}, answers in {} ms",
            self.shown,
            self.took.as_millis()
        )
    }
}

/// Which verbs on a resource the user may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) resource: String,
    pub(super) verbs: Vec<String>,
    /// The refused verbs, or why they are unknown.
    pub(super) denied: Result<Vec<String>, String>,
}

/// What an API server answers to these credentials: version, user and rights.
pub(super) async fn api(
    client: &Client,
    wanted: &[GroupResource],
    verbs: &[String],
    namespace: Option<&str>,
    limit: Duration,
) -> Api {
    let rights = wanted
        .iter()
        .map(|wanted| right(client, wanted, verbs, namespace, limit));
    let (version, user, rights) =
        futures::join!(version(client, limit), user(client, limit), join_all(rights));
    Api {
        version,
        user,
        rights,
        namespace: namespace.map(str::to_owned),
    }
}

pub(super) async fn version(client: &Client, limit: Duration) -> Result<Version, String> {
    let begun = Instant::now();
    let version = in_time(client.apiserver_version(), limit).await?;
    let digits = version
        .minor
        .trim_end_matches(|char: char| !char.is_ascii_digit());
    Ok(Version {
        minor: digits.parse().ok().filter(|_| version.major == "1"),
        shown: version.git_version,
        took: begun.elapsed(),
    })
}

pub(super) async fn user(client: &Client, limit: Duration) -> Option<String> {
    let reviews: KubeApi<SelfSubjectReview> = KubeApi::all(client.clone());
    let review = SelfSubjectReview::default();
    let answer = in_time(reviews.create(&PostParams::default(), &review), limit).await;
    answer.ok()?.status?.user_info?.username
}

async fn right(
    client: &Client,
    wanted: &GroupResource,
    verbs: &[String],
    namespace: Option<&str>,
    limit: Duration,
) -> Answer {
    let reviews = verbs
        .iter()
        .map(|verb| may(client, wanted, verb, namespace, limit));
    let answers: Result<Vec<bool>, String> = join_all(reviews).await.into_iter().collect();
    let denied = answers.map(|answers| {
        let denied = verbs.iter().zip(answers).filter(|(_, may)| !may);
        denied.map(|(verb, _)| verb.clone()).collect()
    });
    Answer {
        resource: wanted.to_string(),
        verbs: verbs.to_vec(),
        denied,
    }
}

/// The verbs of a right that the user of a client lacks.
pub(super) async fn denied(
    client: &Client,
    asked: Right<'_>,
    namespace: Option<&str>,
    limit: Duration,
) -> Result<Vec<String>, String> {
    let verbs: Vec<String> = asked.verbs.iter().map(|verb| (*verb).to_owned()).collect();
    let mut wanted: GroupResource = asked.resource.parse()?;
    wanted.name = asked.name.map(str::to_owned);
    right(client, &wanted, &verbs, namespace, limit).await.denied
}

async fn may(
    client: &Client,
    wanted: &GroupResource,
    verb: &str,
    namespace: Option<&str>,
    limit: Duration,
) -> Result<bool, String> {
    let attributes = ResourceAttributes {
        group: Some(wanted.group.clone()),
        resource: Some(wanted.plural.clone()),
        subresource: wanted.subresource.clone(),
        verb: Some(verb.to_owned()),
        namespace: namespace.map(str::to_owned),
        name: wanted.name.clone(),
        ..ResourceAttributes::default()
    };
    let mut review = SelfSubjectAccessReview::default();
    review.spec.resource_attributes = Some(attributes);
    let reviews: KubeApi<SelfSubjectAccessReview> = KubeApi::all(client.clone());
    let answer = in_time(reviews.create(&PostParams::default(), &review), limit).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The namespace of rights, as text for people.
pub(super) fn place(namespace: Option<&str>) -> String {
    namespace.map_or_else(
        || "in all namespaces".to_owned(),
        |name| format!("in namespace {name}"),
    )
}

/// The parts of the commands that grant a right.
pub(super) struct Grant<'a> {
    pub(super) kubectl: &'a str,
    pub(super) role: String,
    pub(super) namespace: Option<&'a str>,
    pub(super) verbs: String,
    pub(super) resource: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) user: &'a str,
}

impl Grant<'_> {
    pub(super) fn fix(&self, action: &str) -> Fix {
        let (kind, place) = match self.namespace {
            Some(_) => ("role", " -n {namespace}"),
            None => ("clusterrole", ""),
        };
        let name = self.name.map_or("", |_| " --resource-name={name}");
        let kubectl = self.kubectl;
        let command = format!(
            "{kubectl} create {kind} {{role}}{place} --verb={{verbs}} --resource={{resource}}{name}; \
             {kubectl} create {kind}binding {{role}}{place} --{kind}={{role}} --user={{user}}"
        );
        let values = [
            ("role", self.role.as_str()),
            ("namespace", self.namespace.unwrap_or_default()),
            ("verbs", &self.verbs),
            ("resource", self.resource),
            ("name", self.name.unwrap_or_default()),
            ("user", self.user),
        ];
        Fix {
            action: action.to_owned().into(),
            command: command.into(),
            values: values.map(|(name, value)| (name, value.to_owned())).into(),
        }
    }
}

/// The name of a role that grants a right: `mcr-secrets`, `mcr-shoots-adminkubeconfig`.
fn role(resource: &str) -> String {
    let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
    let plural = resource.split('.').next().unwrap_or_default();
    match part {
        "" => format!("mcr-{plural}"),
        part => format!("mcr-{plural}-{part}"),
    }
}

/// The finding about a right that a provider needs.
pub(super) fn of_right(
    asked: Right<'_>,
    user: &str,
    denied: Result<Vec<String>, String>,
    namespace: Option<&str>,
    place: &str,
) -> Finding {
    let (resource, verbs) = (asked.resource, asked.verbs.join(", "));
    let named = match asked.name {
        Some(name) if place.starts_with(" in ") => format!(" named {name}"),
        _ => String::new(),
    };
    let (level, message) = match &denied {
        Ok(denied) if denied.is_empty() => (Level::Ok, format!("may {verbs} {resource}{named}{place}")),
        Ok(denied) => {
            let (level, without) = match asked.without {
                "" => (Level::Problem, String::new()),
                without => (Level::Warning, format!("; {without}")),
            };
            let denied = denied.join(", ");
            (
                level,
                format!("{user} may not {denied} {resource}{named}{place} (403){without}"),
            )
        }
        Err(why) => {
            let message = format!("it is unknown whether {user} may {verbs} {resource}{named}{place}: {why}");
            (Level::Warning, message)
        }
    };
    let grant = Grant {
        kubectl: "kubectl",
        role: role(resource),
        namespace,
        verbs: asked.verbs.join(","),
        resource,
        name: asked.name,
        user,
    };
    Finding {
        check: "rights",
        level,
        message,
        fix: denied
            .is_ok_and(|denied| !denied.is_empty())
            .then(|| grant.fix("")),
    }
}

/// Lists objects. For Secrets, requests only the metadata.
pub(super) async fn list(
    client: &Client,
    [group, version, plural]: [&str; 3],
    selected: Selected<'_>,
    limit: Duration,
) -> Result<Vec<Value>, String> {
    let kind = GroupVersionKind::gvk(group, version, "");
    let kind = ApiResource::from_gvk_with_plural(&kind, plural);
    let api: KubeApi<DynamicObject> = match selected.namespace {
        Some(namespace) => KubeApi::namespaced_with(client.clone(), namespace, &kind),
        None => KubeApi::all_with(client.clone(), &kind),
    };
    let mut page = ListParams::default().limit(PAGE);
    let selector = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    (page.field_selector, page.label_selector) = (selector(selected.fields), selector(selected.labels));
    let is_secret = plural == "secrets" && group.is_empty();
    let list = |page: ListParams| {
        let api = api.clone();
        async move {
            let (values, more) = if is_secret {
                let list = api.list_metadata(&page).await?;
                (serde_json::to_value(list.items), list.metadata.continue_)
            } else {
                let list = api.list(&page).await?;
                (serde_json::to_value(list.items), list.metadata.continue_)
            };
            Ok((values.map_err(kube::Error::SerdeError)?, more))
        }
        .boxed()
    };
    in_pages(list, page, limit).await
}

/// The objects of all pages. All pages together have one time limit, because a server could return further pages for
/// ever.
async fn in_pages(
    list: impl Fn(ListParams) -> BoxFuture<'static, kube::Result<(Value, Option<String>)>>,
    mut page: ListParams,
    limit: Duration,
) -> Result<Vec<Value>, String> {
    let listed = async {
        let mut found = Vec::new();
        loop {
            let (objects, more) = list(page.clone()).await?;
            if let Value::Array(mut objects) = objects {
                found.append(&mut objects);
            }
            match more.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(found),
            }
        }
    };
    match timeout(limit, listed).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => match text_of(&error) {
            text if is_forbidden(&error) && !text.contains("forbidden") => Err(format!("forbidden: {text}")),
            text => Err(text),
        },
        Err(_) => Err(format!(
            "no complete answer within {}",
            crate::values::seconds(limit)
        )),
    }
}

pub(super) async fn in_time<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
    limit: Duration,
) -> Result<T, String> {
    match timeout(limit, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(text_of(&error)),
        Err(_) => Err(format!("no answer within {}", crate::values::seconds(limit))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_kubectl_writes_them() {
        for text in [
            "configmaps",
            "deployments.apps",
            "pods/log",
            "*",
            "roles.rbac.authorization.k8s.io",
        ] {
            assert_eq!(text.parse::<GroupResource>().unwrap().to_string(), text);
        }
        for wrong in ["", "Pods", "pods/", "pods.", "a b", "/log"] {
            assert!(wrong.parse::<GroupResource>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn pages_without_end_are_given_up() {
        let another = |_| {
            let page = async {
                tokio::task::yield_now().await;
                Ok((Value::Null, Some("x".to_owned())))
            };
            page.boxed()
        };
        let listed = in_pages(another, ListParams::default(), Duration::from_millis(50)).await;
        assert!(listed.unwrap_err().starts_with("no complete answer within"));
    }
}
