//! Sends requests to an API server with the credentials of the cluster.

use std::{fmt, str::FromStr, time::Duration};

use futures::future::join_all;
use k8s_openapi::api::{
    authentication::v1::SelfSubjectReview,
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, timeout};

use super::facts::{Api as ApiFacts, Right, Version};
use crate::session::text_of;

/// A kind that a controller works on: `configmaps`, `deployments.apps`, `pods/log`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupResource {
    plural: String,
    group: String,
    subresource: Option<String>,
    /// Of one object only.
    name: Option<String>,
}

impl GroupResource {
    /// Only the object of this name, if there is one.
    pub(super) fn named(mut self, name: Option<&str>) -> Self {
        self.name = name.map(str::to_owned);
        self
    }
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
                "{text:?} is no resource; write configmaps, deployments.apps or pods/log"
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

/// The answers of an API server to these credentials.
pub(super) async fn api(
    client: &Client,
    wanted: &[GroupResource],
    verbs: &[String],
    namespace: Option<&str>,
    limit: Duration,
) -> ApiFacts {
    let rights = wanted
        .iter()
        .map(|wanted| right(client, wanted, verbs, namespace, limit));
    let (version, user, rights) =
        futures::join!(version(client, limit), user(client, limit), join_all(rights));
    ApiFacts {
        version,
        user,
        rights,
        namespace: namespace.map(str::to_owned),
    }
}

pub(super) async fn version(client: &Client, limit: Duration) -> Result<Version, String> {
    let begun = Instant::now();
    let version = in_time(client.apiserver_version(), limit).await?;
    let digits = |text: &str| {
        text.trim_end_matches(|char: char| !char.is_ascii_digit())
            .parse()
            .ok()
    };
    Ok(Version {
        minor: digits(&version.minor).filter(|_| version.major == "1"),
        shown: version.git_version,
        took: begun.elapsed(),
    })
}

/// The user that the API server sees, if it says.
pub(super) async fn user(client: &Client, limit: Duration) -> Option<String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = SelfSubjectReview::default();
    let answer = in_time(reviews.create(&PostParams::default(), &review), limit).await;
    answer.ok()?.status?.user_info?.username
}

pub(super) async fn right(
    client: &Client,
    wanted: &GroupResource,
    verbs: &[String],
    namespace: Option<&str>,
    limit: Duration,
) -> Right {
    let reviews = verbs
        .iter()
        .map(|verb| may(client, wanted, verb, namespace, limit));
    let answers = join_all(reviews).await;
    let mut denied = Ok(Vec::new());
    for (verb, answer) in verbs.iter().zip(answers) {
        match (answer, &mut denied) {
            (Ok(false), Ok(denied)) => denied.push(verb.clone()),
            (Err(why), Ok(_)) => denied = Err(why),
            _ => {}
        }
    }
    Right {
        resource: wanted.to_string(),
        name: wanted.name.clone(),
        verbs: verbs.to_vec(),
        denied,
    }
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
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = in_time(reviews.create(&PostParams::default(), &review), limit).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

pub(super) async fn in_time<T>(
    question: impl Future<Output = Result<T, kube::Error>>,
    limit: Duration,
) -> Result<T, String> {
    match timeout(limit, question).await {
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
}
