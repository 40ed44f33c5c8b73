//! A look at one cluster: what it holds that would go with the target.
//!
//! A namespace takes two steps, so that clusters without it cost one small question: is it there, and if so, every List at once.
//! Only the last page of a List says that there is nothing (facts: 5,000 finished pods may stand before one that runs). A
//! definition is asked for by name and its objects are listed at a version that *this* cluster serves: the control plane's may
//! be another, and a 404 for it says nothing.

use std::time::Duration;

use admission::{BoxFuture, Cause};
use futures_util::future::{join, join_all};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use super::config::{Config, Unmanaged};
use super::owners::{Held, Hoard, Room, is_managed, staying};
use super::questions::{Noun, Question, Rule};
use super::sight::{Count, Sight};
use super::target::{Subject, Target};
use cluster::fleet::{self, Cluster, ListQuery, Object, PageSize, Part};
use cluster::{Address, Clients, Resource, cause};

/// One page; as many as kubectl asks for.
const PAGE: u32 = 500;

/// Of one List no more is kept than this, where what is Karmada's has to be told from what is not: a few megabytes.
const KEPT: usize = 20_000;

/// How much later than the world should have answered it is given up.
const GRACE: Duration = Duration::from_millis(30);

/// The time that a cluster has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    end: Instant,
    given: Duration,
}

impl Time {
    /// From now.
    pub(super) fn until(end: Instant) -> Self {
        Self { end, given: end.saturating_duration_since(Instant::now()) }
    }

    /// The answer, or that there was none. The world keeps to its deadline; this holds where it does not.
    pub(super) async fn limit<T>(self, question: BoxFuture<'_, Result<T, Cause>>) -> Result<T, Cause> {
        timeout_at(self.end + GRACE, question).await.unwrap_or_else(|_| {
            Err(Cause::new(cause::TIMEOUT, format!("no answer in {:.1} s", self.given.as_secs_f64())))
        })
    }
}

/// How far the reading of a List has come.
#[derive(Debug, Default)]
struct Course {
    /// So many came.
    pages: usize,
    /// The answer that was too long, until one of fewer objects has come.
    too_long: Option<Cause>,
}

impl Course {
    /// Why the List did not come to its last page. Whoever has answered before is not silent: there is more than Durward could
    /// read, which is no reason to take it for a cluster that is away.
    fn broken(self, why: Cause, time: Time, question: &Question) -> Cause {
        let (many, seconds) = (&question.noun.many, time.given.as_secs_f64());
        match (self.too_long, why.code) {
            // Asked again there may be room.
            (_, cause::CROWDED) => why,
            (Some(_), cause::TOO_LONG) => {
                let text = format!("not even one of its {many} at a time can be read: {}", why.text);
                Cause::new(cause::TOO_LONG, text)
            }
            (Some(long), _) => {
                Cause::new(cause::TOO_LONG, format!("{}; asked for fewer {many}: {}", long.text, why.text))
            }
            (None, cause::TIMEOUT) if self.pages > 0 => {
                let pages =
                    if self.pages == 1 { "one page".to_owned() } else { format!("{} pages", self.pages) };
                let text = format!("{pages} of {many} came, and no last one in {seconds:.1} s");
                Cause::new(cause::TOO_LONG, text)
            }
            (None, _) => why,
        }
    }
}

/// How much of what is there would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All of it.
    Everything,
    /// What Karmada brought, and what that owns.
    Managed,
}

/// Why it is not certain that the cluster that asks is the one that is looked at.
enum Doubt {
    /// It is another one.
    Another(Cause),
    /// Nobody can say.
    Unseen(Cause),
}

/// What was read of one List.
#[derive(Debug)]
struct Listing<'r> {
    held: Hoard<'r>,
    /// Whether there was no room for the rest.
    is_full: bool,
    /// Whether there is more that was not read, because this is enough or the rest did not come.
    more: bool,
    /// What could not be read of it: that takes nothing from what was.
    unseen: Vec<Cause>,
}

impl<'r> Listing<'r> {
    fn new(room: &'r Room) -> Self {
        Self { held: Hoard::new(room), is_full: false, more: false, unseen: Vec::new() }
    }

    /// The same, of which the rest is not known.
    fn broken(mut self, why: Cause) -> Self {
        self.unseen.push(why);
        Self { more: true, ..self }
    }

    /// Takes in a page. Whether what is on it is enough to refuse.
    fn take(
        &mut self,
        objects: Vec<Object>,
        is_of_all: bool,
        counts: impl Fn(&Object) -> Result<bool, String>,
        reach: Reach,
    ) -> bool {
        let mut enough = false;
        for object in objects {
            let counts = counts(&object).unwrap_or_else(|what| {
                // Once is enough: the next ones may be odd in as many ways.
                if self.unseen.is_empty() {
                    self.unseen.push(Cause::new(cause::GARBAGE, what));
                }
                false
            });
            if !counts && reach == Reach::Everything {
                continue;
            }
            let named = if is_of_all && !object.namespace.is_empty() {
                format!("{}/{}", object.namespace, object.name)
            } else {
                object.name.clone()
            };
            let held = Held::of(&object, &named, counts);
            if counts && (reach == Reach::Everything || held.managed) {
                enough = true;
                self.held.count(held);
            } else if !self.is_full
                && let Err(why) = self.held.put(held)
            {
                (self.is_full, self.more) = (true, true);
                self.unseen.push(why);
            }
        }
        enough
    }
}

/// Looks at one cluster.
#[derive(Clone, Copy)]
pub(super) struct Look<'l> {
    /// Through this.
    pub(super) clients: &'l Clients,
    /// For this guard.
    pub(super) config: &'l Config,
    /// At this one.
    pub(super) cluster: &'l Cluster,
    /// Whether the definition stays in members when it is deleted here.
    pub(super) preserved: bool,
    /// Holding no more than this has room for.
    pub(super) room: &'l Room,
}

impl<'l> Look<'l> {
    /// What is seen.
    pub(super) async fn at(&self, target: &Target, time: Time) -> Sight {
        let seen = match target.subject {
            Subject::Namespace => self.namespace(target, time).await,
            Subject::Definition => self.definition(target, time).await,
        };
        seen.unwrap_or_else(Sight::blind).on_one_line()
    }

    async fn namespace(&self, target: &Target, time: Time) -> Result<Sight, Cause> {
        if *self.cluster == Cluster::Local {
            // It is there, if this is the API server that asks: that costs no time of its own.
            let (stands, contents) =
                join(self.stands(target, time), self.contents(target, Reach::Everything, time)).await;
            return Ok(match stands {
                Ok(()) => contents,
                // What is seen there is something else's.
                Err(Doubt::Another(why)) => Sight::blind(why),
                Err(Doubt::Unseen(why)) => contents.and_unseen(why),
            });
        }
        let found = self.find(&Resource::NAMESPACES, &target.name, Part::Metadata, time).await?;
        let Some(namespace) = found else { return Ok(Sight::default()) };
        Ok(self.contents(target, self.reach(is_managed(&namespace.metadata)), time).await)
    }

    /// Everything in a namespace.
    async fn contents(&self, target: &Target, reach: Reach, time: Time) -> Sight {
        let lists = self.config.questions.iter().filter(|question| {
            // Without anything to tell apart nobody needs to know what owns what.
            question.rule != Rule::None || reach == Reach::Managed
        });
        let answers = join_all(lists.map(async |question| {
            let rule = |object: &Object| question.rule.counts(object);
            let listing = self.list(&question.resource, &target.name, question, rule, reach, time).await;
            let unseen = listing.unseen.into_iter().map(|why| explained(question, why)).collect();
            (&question.noun, Listing { unseen, ..listing })
        }))
        .await;
        weighed(&answers, reach)
    }

    async fn definition(&self, target: &Target, time: Time) -> Result<Sight, Cause> {
        let found = self.find(&target.subject.resource(), &target.name, Part::Whole, time).await?;
        if *self.cluster == Cluster::Local {
            self.is_the_one(target, found.as_ref())?;
        }
        let Some(found) = found else { return Ok(Sight::default()) };
        let resource = served(&found, target)?;
        let propagated = is_managed(&found.metadata) && !self.preserved;
        let reach = self.reach(propagated);
        let question =
            Question { resource, fields: "", part: Part::Metadata, noun: Noun::OBJECT, rule: Rule::All };
        let listing = self.list(&question.resource, "", &question, |_| Ok(true), reach, time).await;
        Ok(weighed(&[(&question.noun, listing)], reach))
    }

    /// Whether the cluster that asks is the one that is looked at: there the very thing stands that the review is about. Nothing
    /// else is looked at.
    pub(super) async fn is_here(&self, target: &Target, time: Time) -> Sight {
        match self.stands(target, time).await {
            Ok(()) => Sight::default(),
            Err(Doubt::Another(why) | Doubt::Unseen(why)) => Sight::blind(why),
        }
    }

    async fn stands(&self, target: &Target, time: Time) -> Result<(), Doubt> {
        if target.proven.is_none() {
            return Ok(());
        }
        let found = self.find(&target.subject.resource(), &target.name, Part::Metadata, time).await;
        let found = found.map_err(Doubt::Unseen)?;
        self.is_the_one(target, found.as_ref()).map_err(Doubt::Another)
    }

    /// What a review is about stands where the review comes from: its absence there, or another uid, says that this is another
    /// API server, whose emptiness means nothing. A uid that a recording or a hand-written review left out is not compared.
    fn is_the_one(&self, target: &Target, found: Option<&Object>) -> Result<(), Cause> {
        let Some(uid) = &target.proven else { return Ok(()) };
        let what = match found {
            None => "no",
            Some(found) if found.uid == *uid || found.uid.is_empty() || uid.is_empty() => return Ok(()),
            Some(_) => "another",
        };
        let told = target.told();
        let server =
            self.clients.context.server.as_deref().map(|server| format!(" ({server})")).unwrap_or_default();
        let text = format!(
            "the cluster that Durward looks at{server} has {what} {told}, so it is not the one that asks, unless that was deleted a moment ago"
        );
        Err(Cause::new(cause::GARBAGE, text))
    }

    /// How much goes, where the thing itself goes with what is deleted here, or does not.
    fn reach(&self, goes_itself: bool) -> Reach {
        let all = goes_itself
            || self.config.unmanaged == Unmanaged::Deny
            || !self.config.is_karmada()
            || *self.cluster == Cluster::Local;
        if all { Reach::Everything } else { Reach::Managed }
    }

    /// See [`Gathering`](super::facts::Gathering).
    pub(super) async fn is_preserved(&self, target: &Target, time: Time) -> bool {
        let bindings = Resource {
            group: "work.karmada.io".into(),
            version: "v1alpha2".into(),
            plural: "clusterresourcebindings".into(),
        };
        // `names.GenerateBindingName` in Karmada: the object's name, a hyphen, its kind in lower case.
        let name = format!("{}-customresourcedefinition", target.name);
        let Ok(Some(binding)) = self.find(&bindings, &name, Part::Whole, time).await else { return false };
        let read = binding.raw.and_then(|raw| serde_json::from_str::<Binding>(raw.get()).ok());
        read.is_some_and(|binding| binding.spec.preserve_resources_on_deletion)
    }

    async fn find(
        &self,
        resource: &Resource,
        name: &str,
        part: Part,
        time: Time,
    ) -> Result<Option<Object>, Cause> {
        let look = fleet::GetQuery { address: Address { resource, namespace: "", name }, part };
        time.limit(self.clients.reader.get_object(self.cluster, look, time.end.into_std())).await
    }

    /// Reads a List, page by page, until something on a page is enough to refuse, or to the end, or as far as it goes. A page
    /// that is too long is asked for again in smaller ones.
    async fn list(
        &self,
        resource: &Resource,
        namespace: &str,
        question: &Question,
        counts: impl Fn(&Object) -> Result<bool, String>,
        reach: Reach,
        time: Time,
    ) -> Listing<'l> {
        let mut listing = Listing::new(self.room);
        let mut from: Option<String> = None;
        let (mut size, mut course) = (PageSize::of(PAGE), Course::default());
        loop {
            let query = ListQuery {
                resource,
                namespace,
                field_selector: question.fields,
                part: question.part,
                limit: size.limit(),
                continue_token: from.as_deref(),
            };
            let page = time.limit(self.clients.reader.list(self.cluster, query, time.end.into_std())).await;
            let page = match page {
                Ok(page) => page,
                Err(why) if !self.clients.context.is_snapshot && size.shrinks_for(&why) => {
                    course.too_long = Some(why);
                    continue;
                }
                Err(why) => return listing.broken(course.broken(why, time, question)),
            };
            course = Course { pages: course.pages + 1, too_long: None };
            let enough = listing.take(page.objects, namespace.is_empty(), &counts, reach);
            match page.next {
                None => return listing,
                Some(_) if enough || listing.is_full => return Listing { more: true, ..listing },
                Some(_) if listing.held.len() >= KEPT => {
                    let noun = &question.noun.many;
                    let text =
                        format!("it has more than {KEPT} {noun}, which is more than can be told apart");
                    return listing.broken(Cause::new(cause::TOO_LONG, text));
                }
                // A server that leads in a circle would never come to the last page.
                Some(next) if from.as_ref() == Some(&next) => {
                    let text = format!("it gives the same page of {resource} again and again");
                    return listing.broken(Cause::new(cause::GARBAGE, text));
                }
                next => from = next,
            }
        }
    }
}

/// The version at which a cluster's objects are read: what they are stored at, where that is served, since nothing has
/// to be converted then.
fn served(found: &Object, target: &Target) -> Result<Resource, Cause> {
    let name = &target.name;
    let garbage = |what: String| Cause::new(cause::GARBAGE, format!("its {name} {what}"));
    let raw = found.raw.as_ref().ok_or_else(|| garbage("came without its versions".to_owned()))?;
    let definition: Definition =
        serde_json::from_str(raw.get()).map_err(|error| garbage(format!("cannot be understood: {error}")))?;
    let spec = definition.spec;
    if spec.group != target.group() || spec.names.plural != target.plural() {
        return Err(garbage("defines something else than its name says".to_owned()));
    }
    let served = || spec.versions.iter().filter(|version| version.served);
    let version = served().find(|version| version.storage).or_else(|| served().next());
    let Some(version) = version else {
        let text = format!("it serves no version of {name}, so the objects cannot be read");
        return Err(Cause::new(cause::NOT_SERVED, text));
    };
    Ok(Resource {
        group: spec.group.into(),
        version: version.name.clone().into(),
        plural: spec.names.plural.into(),
    })
}

/// A definition, as far as it tells how to read its objects.
#[derive(Deserialize)]
struct Definition {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    names: Names,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Names {
    plural: String,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    served: bool,
    storage: bool,
}

/// A `ClusterResourceBinding`, as far as it tells whether members keep what it brought.
#[derive(Deserialize)]
struct Binding {
    spec: BindingSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BindingSpec {
    preserve_resources_on_deletion: bool,
}

/// What the Lists come to.
fn weighed(listings: &[(&Noun, Listing<'_>)], reach: Reach) -> Sight {
    let mut sight = Sight::default();
    for why in listings.iter().flat_map(|(_, listing)| &listing.unseen) {
        sight = sight.and_unseen(why.clone());
    }
    // Another try may have room for the owners that are missing; whatever has the mark goes without them.
    let is_sure = |held: &Held| reach == Reach::Everything || held.managed;
    let is_crowded = sight.unseen.iter().any(|why| why.code == cause::CROWDED);
    let all = listings.iter().flat_map(|(_, listing)| listing.held.iter());
    let mut stays = staying(all).into_iter();
    for (noun, listing) in listings {
        let (mut staying, mut going) = (Vec::new(), Vec::new());
        for (held, stays) in listing.held.iter().zip(stays.by_ref()).filter(|(held, _)| held.counts) {
            match (is_sure(held), stays) {
                (false, _) if is_crowded => {}
                (false, true) => staying.push(held),
                _ => going.push(held),
            }
        }
        let names = |held: &[&Held]| held.iter().map(|held| held.name.to_string()).collect::<Vec<_>>();
        let in_use = Count::of(noun, listing.more, names(&going));
        sight
            .in_use
            .extend(in_use.map(|some| Count { objects: some.objects + listing.held.counted(), ..some }));
        sight.stays.extend(Count::of(noun, listing.more, names(&staying)));
    }
    sight
}

/// A further resource has to be served wherever it is looked for; whoever configured it is told.
fn explained(question: &Question, why: Cause) -> Cause {
    let is_further = question.rule == Rule::All;
    if is_further && matches!(why.code, cause::NOT_SERVED | cause::GARBAGE) {
        let resource = &question.resource;
        let text = format!(
            "{}; {resource} is one of namespaces.more in Durward's configuration, which every cluster must serve",
            why.text
        );
        return Cause::new(why.code, text);
    }
    why
}
